//! The ways in, and the rules behind them.

use std::sync::Arc;

#[cfg(feature = "jws")]
use super::delegation::TrustedDelegators;
use super::failed_logins::FailedLogins;
use super::{
    AccessRule, AuthError, Authenticator, CallerLimits, DelegationClaim, Identity,
    RequestCredentials, SchemeInfo,
};
use crate::model::{AgentCard, Error, ErrorKind, Operation, Request, Result, SecurityRequirement};
use crate::telemetry::metrics;

/// Who may call, and what they need for what.
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
    pub(super) trusted_delegators: TrustedDelegators,
}

/// So many wrong credentials a minute are looked at, of one address.
const DEFAULT_MAX_FAILED_LOGINS: u32 = 300;

impl Access {
    /// Callers prove who they are in this way, and nobody else is served. The card is public nevertheless, and so is what says
    /// whether the server is well.
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

    /// Or in this info. They are asked in order, and the first that knows the caller is believed.
    #[must_use]
    pub fn authenticator(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticators.push(Arc::new(authenticator));
        self
    }

    /// Serves those too who bring no credential, where no rule needs one. They are all one caller, whose tasks nobody else sees.
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

    /// Sets how much each caller may do.
    #[must_use]
    pub fn limits(mut self, limits: CallerLimits) -> Self {
        self.limits = limits;
        self
    }

    /// Sets how many credentials that are not good are looked at in a minute, of one address; by default 300. After that its
    /// calls are refused until the minute is over. `None` looks at every one.
    #[must_use]
    pub fn max_failed_logins_per_minute(mut self, limit: Option<u32>) -> Self {
        self.failed_logins = limit.map(FailedLogins::new);
        self
    }

    pub(crate) fn caller_limits(&self) -> &CallerLimits {
        &self.limits
    }

    /// Says whose call it is, and what is known of it beside that. `many` is whether they come through somebody who speaks for
    /// many, whom guesses are not held against.
    ///
    /// # Errors
    /// Unauthenticated, and no word why; unavailable: nobody can tell now; rate limited: too many were not good. Permission
    /// denied: one of our own calls for somebody who is not known.
    pub(crate) async fn authenticate(
        &self,
        credentials: &RequestCredentials<'_>,
        via_trusted_proxy: bool,
    ) -> Result<(Identity, DelegationClaim)> {
        let identity = self.identify(credentials, via_trusted_proxy).await?;
        #[cfg(feature = "jws")]
        if !self.trusted_delegators.keys_for(&identity).is_empty() {
            // On the heap: it is rare, and every call would have room for it.
            return Box::pin(self.resolve_delegation(identity, credentials)).await;
        }
        Ok((identity, DelegationClaim::Direct))
    }

    /// Somebody of this name, who is not here themselves.
    #[cfg(feature = "jws")]
    pub(super) fn find_identity(&self, name: &str) -> Option<Identity> {
        let anonymous = Identity::anonymous();
        if anonymous.caller().name() == name {
            return self.anonymous.then_some(anonymous);
        }
        self.authenticators
            .iter()
            .find_map(|authenticator| authenticator.find_identity(name))
    }

    async fn identify(
        &self,
        credentials: &RequestCredentials<'_>,
        via_trusted_proxy: bool,
    ) -> Result<Identity> {
        let failed_logins = self.failed_logins.as_ref().filter(|_| !via_trusted_proxy);
        if let Some(failed_logins) = failed_logins {
            failed_logins
                .check(credentials.peer())
                .inspect_err(|_| metrics::record_auth_failure("locked_out"))?;
        }
        let (mut presented, mut unavailable) = (false, None);
        for authenticator in &self.authenticators {
            match authenticator.authenticate(credentials).await {
                Ok(Some(identity)) => return Ok(identity),
                Ok(None) => {}
                Err(AuthError::InvalidCredential) => presented = true,
                Err(AuthError::Unavailable(error)) => unavailable = Some(error),
            }
        }
        match (unavailable, presented) {
            (Some(error), _) => Err(Error::new(ErrorKind::Unavailable).with_source(error)),
            (None, false) if self.anonymous => Ok(Identity::anonymous()),
            (None, presented) => {
                if let (Some(failed_logins), true) = (failed_logins, presented) {
                    failed_logins.record_failure(credentials.peer());
                }
                metrics::record_auth_failure(if presented { "invalid" } else { "missing" });
                tracing::info!(peer = %credentials.peer(), presented, "caller refused");
                Err(ErrorKind::Unauthenticated.into())
            }
        }
    }

    /// Whether they may do this.
    ///
    /// # Errors
    /// Not found: a tenant that is not theirs is like one that is not there. Permission denied: an agent that is not theirs, or
    /// scopes are missing. Unauthenticated: somebody has to be known for this.
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
        let about = self
            .rules
            .iter()
            .filter(|rule| rule.applies_to(agent, request));
        match about
            .filter_map(|rule| rule.missing_scopes(identity))
            .next()
        {
            None => Ok(()),
            Some(_) if identity.is_anonymous() => Err(ErrorKind::Unauthenticated.into()),
            Some(scopes) => {
                Err(Error::new(ErrorKind::PermissionDenied).with_detail("scope", scopes))
            }
        }
    }

    /// A card as this caller may see it: without the skills that are not for them.
    pub(crate) fn filter_skills(
        &self,
        identity: &Identity,
        agent: &str,
        mut card: AgentCard,
    ) -> AgentCard {
        card.skills.retain(|skill| {
            let mut rules = self
                .rules
                .iter()
                .filter(|rule| rule.covers_skill(agent, &skill.id));
            rules.all(|rule| rule.missing_scopes(identity).is_none())
        });
        card
    }

    /// Writes into a card what is enforced, in place of whatever it said.
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
            // As OpenAPI has it: nothing at all suffices too.
            card.security_requirements
                .push(SecurityRequirement::default());
        }
        for skill in &mut card.skills {
            let own = unconditional(Some(&skill.id));
            let protected = self
                .rules
                .iter()
                .any(|rule| rule.covers_skill(agent, &skill.id));
            skill.security_requirements = match protected {
                true => requirements(&schemes, &[unconditional(None), own].concat()),
                false => Vec::new(),
            };
        }
    }

    /// What a refusal tells callers to bring.
    pub(crate) fn challenges(&self) -> impl Iterator<Item = String> {
        let mut challenges: Vec<_> = self
            .schemes()
            .into_iter()
            .map(|info| info.challenge)
            .collect();
        challenges.dedup();
        challenges.into_iter()
    }

    /// Each under a name of its own: two issuers are two ways.
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
