//! `[auth]` and `[agents.<name>.auth]`: who may call, and what they need for what.

use std::collections::BTreeMap;

use attache::auth::{Access, AccessRule, Algorithm, ApiKeys, Certificates, Identity, Jwt};
use attache::jws::PublishedKeys;
use attache::model::Operation;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::agents::AgentKind;
use super::{AgentConfig, Config, ConfigError};

/// Who may call, and what they need for what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AuthSection {
    /// Whether callers may show a key that `attache keys add` has made. If left out, they may if one was made before the
    /// server was started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) keys: Option<bool>,
    /// Those whose tokens (JWT) are good.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) issuers: Vec<IssuerSection>,
    /// The callers whose certificates are good, of those for whom `server.tls_client_ca` vouches; all of them if left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) certificates: Vec<CertificateSection>,
    /// Other servers of ours, which are believed about whom they call for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) delegation: Vec<TrustedDelegate>,
    /// How many credentials that are not good are looked at in a minute, of one address that is no trusted proxy; then its
    /// calls are refused until the minute is over. 300 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_failed_logins_per_minute: Option<u32>,
    /// What calls need. All rules that are about a call have to be met.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) rules: Vec<RuleSection>,
}

/// An issuer of tokens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct IssuerSection {
    /// What tokens say in `iss`.
    issuer: String,
    /// What tokens say in `aud`.
    audience: String,
    /// Where its keys are; found by OpenID Connect discovery if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key_set: Option<String>,
    /// How tokens may be signed; RS256, PS256, ES256 and EdDSA if left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    algorithms: Vec<Algorithm>,
    /// The claim that has the tenants of a caller; nobody has one if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenant_claim: Option<String>,
}

/// A caller who shows a certificate.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CertificateSection {
    /// The subject alternative name, such as `spiffe://example.com/ci`.
    name: String,
    /// The scopes that it gives.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<String>,
    /// The agents that it is for; all if left out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agents: Option<Vec<String>>,
    /// The tenants that it is for; `*` is every one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tenants: Vec<String>,
}

/// Another server of ours. Its calls are those of whoever they are for, as far as both may make them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrustedDelegate {
    /// Who it is, as authentication knows it, such as `key:broker`.
    caller: String,
    /// Where the keys are that it signs with: `/.well-known/jwks.json` of that server.
    key_set: String,
}

/// What calls need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RuleSection {
    /// The scopes; with none it is enough that the caller is known.
    #[serde(default)]
    scopes: Vec<String>,
    /// Only calls of this agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    agent: Option<String>,
    /// Only these operations.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    operations: Vec<Operation>,
    /// Only messages that name this skill in `metadata.skillId`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    skill: Option<String>,
}

/// What calls of one agent need.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct AgentAuthSection {
    /// The scopes that every call of this agent needs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    scopes: Vec<String>,
    /// An audience of its own: tokens for it are good for this agent alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    audience: Option<String>,
    /// The scopes that messages need which name a skill, by its id.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    skills: BTreeMap<String, Vec<String>>,
    /// The scopes that an operation needs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    operations: Vec<OperationScopes>,
}

/// What some operations need.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct OperationScopes {
    /// Which.
    operations: Vec<Operation>,
    /// The scopes that they need.
    scopes: Vec<String>,
}

impl IssuerSection {
    /// What tokens say in `iss`.
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
    fn of(&self, identity: Identity) -> Identity {
        let identity = identity.scopes(&self.scopes).tenants(&self.tenants);
        match &self.agents {
            Some(agents) => identity.agents(agents),
            None => identity,
        }
    }
}

impl Config {
    /// Whether some rule is about a skill of this agent, or of a router, which may choose it.
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

    /// Who may call, if anybody is asked who they are; those who show a key are in `keys`.
    ///
    /// # Errors
    /// What is wrong, with its place.
    pub(crate) fn access(&self, keys: Option<ApiKeys>) -> Result<Option<Access>, ConfigError> {
        self.check_rules()?;
        let mut access = keys.map(Access::new);
        for (at, issuer) in self.auth.issuers.iter().enumerate() {
            let jwt = self.jwt(issuer).map_err(|(key, why)| {
                self.tree.error_at(&format!("auth.issuers.{at}.{key}"), why)
            })?;
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
            return match self.rules().next().is_some() || !self.auth.delegation.is_empty() {
                // Whoever has written a rule believes that it holds.
                true => Err(self.tree.error_at("auth", "there are rules or nodes, and nobody is asked who they are: add keys = true, an issuer, or server.tls_client_ca")),
                false => Ok(None),
            };
        };
        let access = self.delegation(self.rules().fold(access, Access::rule))?;
        let access = match self.auth.max_failed_logins_per_minute {
            Some(most) => access.max_failed_logins_per_minute(Some(most)),
            None => access,
        };
        Ok(Some(if self.server.allow_anonymous {
            access.allow_anonymous()
        } else {
            access
        }))
    }

    fn delegation(&self, access: Access) -> Result<Access, ConfigError> {
        self.auth
            .delegation
            .iter()
            .enumerate()
            .try_fold(access, |access, (at, node)| {
                let wrong = |key: &str, why: String| {
                    self.tree
                        .error_at(&format!("auth.delegation.{at}.{key}"), why)
                };
                if node.caller.is_empty() || node.caller == "anonymous" {
                    return Err(wrong(
                        "caller",
                        "must be somebody who is known, such as `key:broker`".to_owned(),
                    ));
                }
                let keys = PublishedKeys::from_url(&node.key_set)
                    .map_err(|why| wrong("key_set", why.to_string()))?;
                Ok(access.trust_delegation(&node.caller, keys))
            })
    }

    fn rules(&self) -> impl Iterator<Item = AccessRule> {
        let own = self
            .agents
            .iter()
            .flat_map(|agent| agent.auth.rules(&agent.name));
        self.auth.rules.iter().map(RuleSection::rule).chain(own)
    }

    /// A rule about an agent that is not there protects nothing.
    fn check_rules(&self) -> Result<(), ConfigError> {
        for (at, rule) in self.auth.rules.iter().enumerate() {
            let there = |name: &String| self.agents.iter().any(|agent| agent.name == *name);
            if let Some(name) = rule.agent.as_ref().filter(|name| !there(name)) {
                let key = format!("auth.rules.{at}.agent");
                return Err(self
                    .tree
                    .error_at(&key, format!("there is no agent `{name}`")));
            }
        }
        Ok(())
    }

    fn jwt(&self, issuer: &IssuerSection) -> Result<Jwt, (&'static str, String)> {
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
        let mut jwt = jwt.map_err(|why| (key, why.to_string()))?;
        if !algorithms.is_empty() {
            jwt = jwt.algorithms(algorithms.iter().copied());
        }
        if let Some(claim) = tenant_claim {
            jwt = jwt.tenant_claim(claim);
        }
        let own = self
            .agents
            .iter()
            .filter_map(|agent| Some((&agent.name, agent.auth.audience.as_ref()?)));
        Ok(own.fold(jwt, |jwt, (agent, audience)| {
            jwt.agent_audience(agent, audience)
        }))
    }

    fn certificates(&self) -> Result<Option<Certificates>, ConfigError> {
        let known = &self.auth.certificates;
        match (&self.server.tls_client_ca, known.is_empty()) {
            (None, true) => Ok(None),
            (None, false) => Err(self.tree.error_at(
                "auth.certificates",
                "nobody vouches for certificates: set server.tls_client_ca",
            )),
            (Some(_), true) => Ok(Some(Certificates::any_subject())),
            (Some(_), false) => Ok(Some(
                known.iter().fold(Certificates::default(), |known, one| {
                    known.subject(&one.name, |identity| one.of(identity))
                }),
            )),
        }
    }
}
