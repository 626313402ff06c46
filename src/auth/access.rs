//! Access control of a server: authenticators, rules, limits, lockout and delegation.

use std::sync::Arc;

use super::failed_logins::FailedLogins;
#[cfg(feature = "jws")]
use super::trusted_delegators::TrustedDelegators;
use super::{
    AccessRule, AuthError, Authenticator, CallerLimits, DelegationClaim, Identity,
    RequestCredentials, SchemeInfo,
};
#[cfg(feature = "jws")]
use crate::jws::{Delegation, PublishedKeys};
#[cfg(feature = "jws")]
use crate::model::Json;
use crate::model::{
    AgentCard, Caller, Error, ErrorKind, Operation, Request, Result, SecurityRequirement,
};
use crate::telemetry::metrics;

/// Access control of a server.
///
/// ```no_run
/// # use attache::{Agent, AgentCard, Outcome, Server, Turn};
/// use attache::auth::{Access, AccessRule, ApiKeys};
///
/// # async fn example(agent: impl Agent) -> attache::Result<()> {
/// let keys = ApiKeys::new();
/// let key = keys.issue("ci", |identity| identity.scopes(["deploy"]));
/// println!("the key of ci: {}", key.expose());
/// let access = Access::new(keys).rule(AccessRule::require(["deploy"]).skill("deploy"));
/// Server::new(AgentCard::new("Deployer", "Deploys"), agent).access(access).serve("0.0.0.0:8080").await
/// # }
/// ```
pub struct Access {
    authenticators: Vec<Arc<dyn Authenticator>>,
    rules: Vec<AccessRule>,
    anonymous: bool,
    limits: CallerLimits,
    failed_logins: Option<FailedLogins>,
    #[cfg(feature = "jws")]
    trusted_delegators: TrustedDelegators,
}

/// Default of [`Access::max_failed_logins_per_minute`].
const DEFAULT_MAX_FAILED_LOGINS: u32 = 300;

impl Access {
    /// Requires authentication by this authenticator. The public card and the health endpoints remain unauthenticated.
    pub fn new(authenticator: impl Authenticator) -> Self {
        Self {
            authenticators: vec![Arc::new(authenticator)],
            rules: Vec::new(),
            anonymous: false,
            limits: CallerLimits::default(),
            failed_logins: Some(FailedLogins::new(DEFAULT_MAX_FAILED_LOGINS)),
            #[cfg(feature = "jws")]
            trusted_delegators: TrustedDelegators::default(),
        }
    }

    /// Adds an authenticator. They are tried in order; the first that identifies the caller wins.
    #[must_use]
    pub fn authenticator(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticators.push(Arc::new(authenticator));
        self
    }

    /// Allows calls without a credential where no rule requires one. All anonymous calls share one caller identity and its tasks.
    #[must_use]
    pub fn allow_anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// Adds a rule.
    #[must_use]
    pub fn rule(mut self, rule: AccessRule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets rate limits and task quotas of each caller.
    #[must_use]
    pub fn limits(mut self, limits: CallerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets the number of failed logins per minute after which further ones from the same address are refused for the rest of
    /// that minute, with `Retry-After`. Valid credentials are accepted in any case. Default: 300. `None` disables the lockout.
    #[must_use]
    pub fn max_failed_logins_per_minute(mut self, limit: Option<u32>) -> Self {
        self.failed_logins = limit.map(FailedLogins::new);
        self
    }

    pub(crate) fn caller_limits(&self) -> &CallerLimits {
        &self.limits
    }

    /// Authenticates a call and resolves its delegation claim.
    ///
    /// # Errors
    /// Unauthenticated, without a reason. Unavailable: the credential cannot be verified at the moment. Rate limited: the
    /// credential is invalid and the address is locked out. Permission denied: a trusted server calls on behalf of an unknown caller.
    pub(crate) async fn authenticate(
        &self,
        credentials: &RequestCredentials<'_>,
    ) -> Result<(Identity, DelegationClaim)> {
        let identity = self.identify(credentials).await?;
        #[cfg(feature = "jws")]
        if self.trusted_delegators.contains(&identity) {
            // Boxed: future size.
            return Box::pin(self.resolve_delegation(identity, credentials)).await;
        }
        Ok((identity, DelegationClaim::Direct))
    }

    /// Whether all credentials of a caller were revoked. `false` for callers whose credentials are not stored here, such as
    /// tokens.
    pub(crate) fn is_revoked(&self, caller: &Caller) -> bool {
        let mut is_known = false;
        for authenticator in &self.authenticators {
            match authenticator.has_credential(caller.name()) {
                Some(true) => return false,
                Some(false) => is_known = true,
                None => {}
            }
        }
        is_known
    }

    /// Finds a caller by name, for delegated calls.
    #[cfg(feature = "jws")]
    fn find_identity(&self, name: &str) -> Option<Identity> {
        let anonymous = Identity::anonymous();
        if anonymous.caller().name() == name {
            return self.anonymous.then_some(anonymous);
        }
        self.authenticators
            .iter()
            .find_map(|authenticator| authenticator.find_identity(name))
    }

    /// Trusts a caller, such as `key:broker`, to call on behalf of others: another server that signs its [`Delegation`]s with
    /// one of these keys.
    ///
    /// Its calls run with the identity of the caller it names and with the intersection of both permissions. A message without a
    /// delegation is refused. Delegation headers and lineage of all other callers are ignored.
    ///
    /// [`Delegation`]: crate::jws::Delegation
    #[cfg(feature = "jws")]
    #[must_use]
    pub fn trust_delegation(mut self, name: &str, keys: PublishedKeys) -> Self {
        self.trusted_delegators.add(name, keys);
        self
    }

    /// Returns the identity on whose behalf a trusted server calls, and the verified claim.
    ///
    /// # Errors
    /// Unauthenticated: the delegation token is invalid. Permission denied: it names an unknown caller. Unavailable: the
    /// server's keys cannot be fetched.
    #[cfg(feature = "jws")]
    async fn resolve_delegation(
        &self,
        delegator: Identity,
        credentials: &RequestCredentials<'_>,
    ) -> Result<(Identity, DelegationClaim)> {
        let header = credentials.header(Delegation::HEADER);
        let token = match header {
            Ok(Some(token)) => token,
            Ok(None) => return Ok((delegator, DelegationClaim::Missing)),
            Err(_) => return Err(invalid_delegation(&delegator)),
        };
        let verified = self.trusted_delegators.verify(&delegator, token).await?;
        let Some(Delegation { caller, lineage }) = verified else {
            return Err(invalid_delegation(&delegator));
        };
        let identity = self.find_identity(&caller).ok_or_else(|| {
            metrics::record_auth_failure("forbidden");
            ErrorKind::PermissionDenied
        })?;
        tracing::debug!(
            delegator = delegator.caller().name(),
            caller,
            "delegated call"
        );
        let lineage = lineage.and_then(|lineage| Json::from_serialize(&lineage).ok());
        Ok((
            delegator.intersect(identity),
            DelegationClaim::Signed(lineage),
        ))
    }

    async fn identify(&self, credentials: &RequestCredentials<'_>) -> Result<Identity> {
        let mut presented = false;
        let mut unavailable = None;
        for authenticator in &self.authenticators {
            match authenticator.authenticate(credentials).await {
                Ok(Some(identity)) => return Ok(identity),
                Ok(None) => {}
                Err(AuthError::InvalidCredential) => presented = true,
                Err(AuthError::Unavailable(error)) => unavailable = Some(error),
            }
        }
        if let Some(error) = unavailable {
            return Err(Error::new(ErrorKind::Unavailable).with_source(error));
        }
        if !presented && self.anonymous {
            return Ok(Identity::anonymous());
        }
        if let Some(failed_logins) = self.failed_logins.as_ref().filter(|_| presented) {
            failed_logins
                .record_failure(credentials.client())
                .inspect_err(|_| metrics::record_auth_failure("locked_out"))?;
        }
        metrics::record_auth_failure(if presented { "invalid" } else { "missing" });
        tracing::info!(peer = %credentials.client(), presented, "authentication failed");
        Err(ErrorKind::Unauthenticated.into())
    }

    /// Checks that the caller may send this request to the agent and tenant.
    ///
    /// # Errors
    /// Not found: the tenant is not accessible; the error is that of a tenant that does not exist. Permission denied: the agent
    /// is not accessible, or a scope is missing. Unauthenticated: the request requires an authenticated caller.
    pub(crate) fn authorize(
        &self,
        identity: &Identity,
        agent: &str,
        tenant: &str,
        request: &Request,
    ) -> Result<()> {
        self.check_rules(identity, agent, tenant, request)
            .inspect_err(|_| metrics::record_auth_failure("forbidden"))
    }

    fn check_rules(
        &self,
        identity: &Identity,
        agent: &str,
        tenant: &str,
        request: &Request,
    ) -> Result<()> {
        if !identity.can_access_tenant(tenant) {
            return Err(ErrorKind::TaskNotFound.into());
        }
        if !identity.can_call(agent) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        if identity.is_anonymous() && request.operation() == Operation::GetExtendedAgentCard {
            return Err(ErrorKind::Unauthenticated.into());
        }
        let missing = self
            .rules
            .iter()
            .filter(|rule| rule.applies_to(agent, request))
            .find_map(|rule| rule.missing_scopes(identity));
        match missing {
            None => Ok(()),
            Some(_) if identity.is_anonymous() => Err(ErrorKind::Unauthenticated.into()),
            Some(scopes) => {
                Err(Error::new(ErrorKind::PermissionDenied).with_detail("scope", scopes))
            }
        }
    }

    /// Removes the skills that the caller may not use from a card.
    pub(crate) fn filter_skills(&self, identity: &Identity, agent: &str, card: &mut AgentCard) {
        card.skills.retain(|skill| {
            let mut rules = self
                .rules
                .iter()
                .filter(|rule| rule.covers_skill(agent, &skill.id));
            rules.all(|rule| rule.missing_scopes(identity).is_none())
        });
    }

    /// Replaces the security declarations of a card with the enforced ones.
    pub(crate) fn describe(&self, agent: &str, card: &mut AgentCard) {
        let schemes = self.schemes();
        card.security_schemes = schemes
            .iter()
            .map(|info| (info.name.clone(), info.scheme.clone()))
            .collect();
        let unconditional = |skill| {
            let rules = self
                .rules
                .iter()
                .flat_map(move |rule| rule.unconditional_scopes(agent, skill));
            rules.map(String::as_str).collect::<Vec<_>>()
        };
        card.security_requirements = requirements(&schemes, &unconditional(None));
        if self.anonymous && unconditional(None).is_empty() {
            // As in OpenAPI: an empty requirement allows anonymous calls.
            card.security_requirements
                .push(SecurityRequirement::default());
        }
        for skill in &mut card.skills {
            let own = unconditional(Some(&skill.id));
            let is_protected = self
                .rules
                .iter()
                .any(|rule| rule.covers_skill(agent, &skill.id));
            skill.security_requirements = if is_protected {
                requirements(&schemes, &[unconditional(None), own].concat())
            } else {
                Vec::new()
            };
        }
    }

    /// Challenges for `WWW-Authenticate`.
    pub(crate) fn challenges(&self) -> impl Iterator<Item = String> {
        let mut challenges: Vec<_> = self
            .schemes()
            .into_iter()
            .map(|info| info.challenge)
            .collect();
        challenges.dedup();
        challenges.into_iter()
    }

    /// Security schemes of all authenticators. Equal names are numbered.
    fn schemes(&self) -> Vec<SchemeInfo> {
        let mut schemes: Vec<SchemeInfo> = Vec::new();
        for mut info in self
            .authenticators
            .iter()
            .flat_map(|authenticator| authenticator.schemes())
        {
            let plain = info.name.clone();
            let mut number = 1;
            while schemes.iter().any(|other| other.name == info.name) {
                number += 1;
                info.name = format!("{plain}-{number}");
            }
            schemes.push(info);
        }
        schemes
    }
}

#[cfg(feature = "jws")]
fn invalid_delegation(delegator: &Identity) -> Error {
    metrics::record_auth_failure("delegation");
    tracing::info!(
        delegator = delegator.caller().name(),
        "invalid delegation token"
    );
    ErrorKind::Unauthenticated.into()
}

fn requirements(schemes: &[SchemeInfo], scopes: &[&str]) -> Vec<SecurityRequirement> {
    let needed = |info: &SchemeInfo| {
        if info.has_scopes {
            scopes.to_vec()
        } else {
            Vec::new()
        }
    };
    schemes
        .iter()
        .map(|info| SecurityRequirement::new(&info.name, needed(info)))
        .collect()
}
