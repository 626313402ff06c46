//! `[auth]` and `[agents.<name>.auth]`: authentication and authorization of callers.

use std::collections::BTreeMap;

use attache::auth::{Access, AccessRule, Algorithm, ApiKeys, Certificates, Identity, Jwt};
use attache::jws::PublishedKeys;
use attache::model::Operation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agents::AgentKind;
use super::{AgentConfig, Config, ConfigError, KeyError};

/// Authentication and authorization of callers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AuthSection {
    /// Whether API keys of `attache keys add` are accepted. Default: only if a key exists when the server starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keys: Option<bool>,
    /// Accepted issuers of JWT.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) issuers: Vec<IssuerSection>,
    /// Accepted client certificates, signed by `server.tls_client_ca`. Default: all that it has signed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) certificates: Vec<CertificateSection>,
    /// Trusted delegates: servers that may call on behalf of other callers.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) delegation: Vec<TrustedDelegate>,
    /// Maximum number of failed logins per minute and address. Further ones are refused with status 429 until the minute
    /// ends. Valid credentials are accepted in any case. Default: 300.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_failed_logins_per_minute: Option<u32>,
    /// Access rules. A call must satisfy all rules that apply to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rules: Vec<RuleSection>,
}

/// Issuer of JWT.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IssuerSection {
    /// Value of the claim `iss`.
    issuer: String,
    /// Value of the claim `aud`.
    audience: String,
    /// URL of the key set. Default: found by OpenID Connect discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_set: Option<String>,
    /// Accepted signature algorithms. Default: RS256, PS256, ES256 and EdDSA.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    algorithms: Vec<Algorithm>,
    /// Claim with the tenants of the caller. Default: no tenants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant_claim: Option<String>,
}

/// Accepted client certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CertificateSection {
    /// Subject alternative name, such as `spiffe://example.com/ci`.
    name: String,
    /// Granted scopes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<String>,
    /// Agents that it is valid for. Default: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agents: Option<Vec<String>>,
    /// Tenants that it is valid for; `*` is every tenant.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tenants: Vec<String>,
}

/// Server that may call on behalf of other callers. A call needs the permissions of both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrustedDelegate {
    /// Its identity after authentication, such as `key:broker`.
    caller: String,
    /// URL of the key set of its delegation claims: `/.well-known/jwks.json` of that server.
    key_set: String,
}

/// Access rule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleSection {
    /// Required scopes. An empty list requires only an authenticated caller.
    #[serde(default)]
    scopes: Vec<String>,
    /// Applies only to this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// Applies only to these operations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    operations: Vec<Operation>,
    /// Applies only to messages with this skill in `metadata.skillId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    skill: Option<String>,
}

/// Access rules of one agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentAuthSection {
    /// Scopes that every call requires.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<String>,
    /// Audience of tokens that are only valid for this agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    audience: Option<String>,
    /// Scopes that messages with a skill require, by skill id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    skills: BTreeMap<String, Vec<String>>,
    /// Scopes that operations require.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    operations: Vec<OperationScopes>,
}

/// Scopes of some operations.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OperationScopes {
    /// The operations.
    operations: Vec<Operation>,
    /// Required scopes.
    scopes: Vec<String>,
}

impl IssuerSection {
    /// The value of the claim `iss`.
    pub(crate) fn name(&self) -> &str {
        &self.issuer
    }
}

impl RuleSection {
    fn rule(&self) -> AccessRule {
        let mut rule =
            AccessRule::require(&self.scopes).operations(self.operations.iter().copied());
        if let Some(agent) = &self.agent {
            rule = rule.agent(agent);
        }
        match &self.skill {
            Some(skill) => rule.skill(skill),
            None => rule,
        }
    }
}

impl AgentAuthSection {
    fn rules(&self, agent: &str) -> impl Iterator<Item = AccessRule> {
        let always = (!self.scopes.is_empty()).then(|| AccessRule::require(&self.scopes));
        let skills = self
            .skills
            .iter()
            .map(|(skill, scopes)| AccessRule::require(scopes).skill(skill));
        let operations = self.operations.iter().map(|one| {
            let rule = AccessRule::require(&one.scopes);
            rule.operations(one.operations.iter().copied())
        });
        always
            .into_iter()
            .chain(skills)
            .chain(operations)
            .map(move |rule| rule.agent(agent))
    }
}

impl CertificateSection {
    /// Adds the permissions of the certificate to an identity.
    fn apply_to(&self, identity: Identity) -> Identity {
        let identity = identity.scopes(&self.scopes).tenants(&self.tenants);
        match &self.agents {
            Some(agents) => identity.agents(agents),
            None => identity,
        }
    }
}

impl Config {
    /// Whether a rule applies to skills of this agent, or of a router that may select it.
    pub(super) fn has_skill_rules(&self, agent: &AgentConfig) -> bool {
        let leads_there = |other: &AgentConfig| {
            other.name == agent.name || matches!(other.kind, AgentKind::Router(_))
        };
        let names = |name: &String| {
            self.agents
                .iter()
                .any(|other| other.name == *name && leads_there(other))
        };
        let about = |rule: &RuleSection| rule.agent.as_ref().is_none_or(names);
        self.agents
            .iter()
            .any(|other| leads_there(other) && !other.auth.skills.is_empty())
            || self
                .auth
                .rules
                .iter()
                .any(|rule| rule.skill.is_some() && about(rule))
    }

    /// Builds the authenticators and rules; `None` if the server does not authenticate. `keys` are the API keys.
    ///
    /// # Errors
    /// A rule, issuer or delegate is invalid, or rules exist without authentication.
    pub(crate) fn access(&self, keys: Option<ApiKeys>) -> Result<Option<Access>, ConfigError> {
        self.check_rules()?;
        let mut access = keys.map(Access::new);
        for (index, issuer) in self.auth.issuers.iter().enumerate() {
            let jwt = self
                .jwt(issuer)
                .map_err(|error| self.error(&error.in_section(&format!("auth.issuers.{index}"))))?;
            access = Some(match access {
                Some(access) => access.authenticator(jwt),
                None => Access::new(jwt),
            });
        }
        if let Some(certificates) = self.certificates()? {
            access = Some(match access {
                Some(access) => access.authenticator(certificates),
                None => Access::new(certificates),
            });
        }
        let Some(access) = access else {
            let has_rules = self.rules().next().is_some() || !self.auth.delegation.is_empty();
            if has_rules {
                return Err(self.tree.error_at(
                    "auth",
                    "there are rules or delegates, but callers are not authenticated: add keys = true, an issuer, or server.tls_client_ca",
                ));
            }
            return Ok(None);
        };
        let access = self.delegation(self.rules().fold(access, Access::rule))?;
        let access = match self.auth.max_failed_logins_per_minute {
            Some(limit) => access.max_failed_logins_per_minute(Some(limit)),
            None => access,
        };
        Ok(Some(if self.server.allow_anonymous {
            access.allow_anonymous()
        } else {
            access
        }))
    }

    /// Adds the trusted delegates.
    fn delegation(&self, mut access: Access) -> Result<Access, ConfigError> {
        for (index, delegate) in self.auth.delegation.iter().enumerate() {
            let error_at = |key: &str, message: &str| {
                self.tree
                    .error_at(&format!("auth.delegation.{index}.{key}"), message)
            };
            if delegate.caller.is_empty() || delegate.caller == "anonymous" {
                return Err(error_at(
                    "caller",
                    "must be an authenticated caller, such as `key:broker`",
                ));
            }
            let keys = PublishedKeys::from_url(&delegate.key_set)
                .map_err(|error| error_at("key_set", &error.to_string()))?;
            access = access.trust_delegation(&delegate.caller, keys);
        }
        Ok(access)
    }

    fn rules(&self) -> impl Iterator<Item = AccessRule> {
        let agent_rules = self
            .agents
            .iter()
            .flat_map(|agent| agent.auth.rules(&agent.name));
        self.auth
            .rules
            .iter()
            .map(RuleSection::rule)
            .chain(agent_rules)
    }

    /// Refuses rules about agents that do not exist: they would protect nothing.
    fn check_rules(&self) -> Result<(), ConfigError> {
        for (index, rule) in self.auth.rules.iter().enumerate() {
            let exists = |name: &String| self.agents.iter().any(|agent| agent.name == *name);
            if let Some(name) = rule.agent.as_ref().filter(|name| !exists(name)) {
                let key = format!("auth.rules.{index}.agent");
                return Err(self
                    .tree
                    .error_at(&key, format!("there is no agent `{name}`")));
            }
        }
        Ok(())
    }

    /// The authenticator of an issuer. Keys of errors are relative to the issuer.
    fn jwt(&self, issuer: &IssuerSection) -> Result<Jwt, KeyError> {
        let IssuerSection {
            issuer: name,
            audience,
            key_set,
            algorithms,
            tenant_claim,
        } = issuer;
        let (key, jwt) = match key_set {
            Some(url) => ("key_set", Jwt::key_set(name, audience, url)),
            None => ("issuer", Jwt::discover(name, audience)),
        };
        let mut jwt = jwt.map_err(|error| KeyError::new(key, error))?;
        if !algorithms.is_empty() {
            jwt = jwt.algorithms(algorithms.iter().copied());
        }
        if let Some(claim) = tenant_claim {
            jwt = jwt.tenant_claim(claim);
        }
        let audiences = self
            .agents
            .iter()
            .filter_map(|agent| Some((&agent.name, agent.auth.audience.as_ref()?)));
        Ok(audiences.fold(jwt, |jwt, (agent, audience)| {
            jwt.agent_audience(agent, audience)
        }))
    }

    fn certificates(&self) -> Result<Option<Certificates>, ConfigError> {
        let known = &self.auth.certificates;
        match (&self.server.tls_client_ca, known.is_empty()) {
            (None, true) => Ok(None),
            (None, false) => Err(self.tree.error_at(
                "auth.certificates",
                "there is no authority for client certificates: set server.tls_client_ca",
            )),
            (Some(_), true) => Ok(Some(Certificates::any_subject())),
            (Some(_), false) => Ok(Some(
                known.iter().fold(Certificates::default(), |known, one| {
                    known.subject(&one.name, |identity| one.apply_to(identity))
                }),
            )),
        }
    }
}
