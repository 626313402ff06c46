//! The ways in, and the rules behind them.

use std::sync::Arc;

use super::guesses::Guesses;
#[cfg(feature = "jws")]
use super::nodes::Nodes;
use super::{Allowance, Authenticator, Credentials, Identity, Refused, Rule, Way, Word};
use crate::metrics;
use crate::model::{AgentCard, Error, ErrorKind, Operation, Request, Result, SecurityRequirement};

/// Who may call, and what they need for what.
///
/// ```no_run
/// # use attache::{Agent, AgentCard, Outcome, Server, Turn};
/// use attache::auth::{Access, Keys, Rule};
///
/// # async fn example(agent: impl Agent) -> attache::Result<()> {
/// let keys = Keys::new();
/// let key = keys.issue("ci", |identity| identity.scopes(["deploy"]));
/// println!("the key of ci: {}", key.expose());
/// let access = Access::by(keys).rule(Rule::needs(["deploy"]).skill("deploy"));
/// Server::new(AgentCard::new("Deployer", "Deploys"), agent).access(access).serve("0.0.0.0:8080").await
/// # }
/// ```
pub struct Access {
    authenticators: Vec<Arc<dyn Authenticator>>,
    rules: Vec<Rule>,
    anonymous: bool,
    allowance: Allowance,
    guesses: Option<Guesses>,
    #[cfg(feature = "jws")]
    pub(super) nodes: Nodes,
}

/// So many wrong credentials a minute are looked at, of one address.
const MAX_GUESSES: u32 = 300;

impl Access {
    /// Callers prove who they are in this way, and nobody else is served. The card is public nevertheless, and so is what says
    /// whether the server is well.
    pub fn by(authenticator: impl Authenticator) -> Self {
        Self {
            authenticators: vec![Arc::new(authenticator)],
            rules: Vec::new(),
            anonymous: false,
            allowance: Allowance::default(),
            guesses: Some(Guesses::new(MAX_GUESSES)),
            #[cfg(feature = "jws")]
            nodes: Nodes::default(),
        }
    }

    /// Or in this way. They are asked in order, and the first that knows the caller is believed.
    #[must_use]
    pub fn or(mut self, authenticator: impl Authenticator) -> Self {
        self.authenticators.push(Arc::new(authenticator));
        self
    }

    /// Serves those too who bring no credential, where no rule needs one. They are all one caller, whose tasks nobody else sees.
    #[must_use]
    pub fn or_anonymous(mut self) -> Self {
        self.anonymous = true;
        self
    }

    /// Adds a rule.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        self.rules.push(rule);
        self
    }

    /// Sets how much each caller may do.
    #[must_use]
    pub fn allowance(mut self, allowance: Allowance) -> Self {
        self.allowance = allowance;
        self
    }

    /// Sets how many credentials that are not good are looked at in a minute, of one address; by default 300. After that its
    /// calls are refused until the minute is over. `None` looks at every one.
    #[must_use]
    pub fn max_guesses(mut self, a_minute: Option<u32>) -> Self {
        self.guesses = a_minute.map(Guesses::new);
        self
    }

    pub(crate) fn allowed(&self) -> &Allowance {
        &self.allowance
    }

    /// Says whose call it is, and what is known of it beside that. `many` is whether they come through somebody who speaks for
    /// many, whom guesses are not held against.
    ///
    /// # Errors
    /// Unauthenticated, and no word why; unavailable: nobody can tell now; rate limited: too many were not good. Permission
    /// denied: one of our own calls for somebody who is not known.
    pub(crate) async fn admit(
        &self,
        credentials: &Credentials<'_>,
        many: bool,
    ) -> Result<(Identity, Word)> {
        let identity = self.identify(credentials, many).await?;
        #[cfg(feature = "jws")]
        if !self.nodes.of(&identity).is_empty() {
            // On the heap: it is rare, and every call would have room for it.
            return Box::pin(self.behind(identity, credentials)).await;
        }
        Ok((identity, Word::Own))
    }

    /// Somebody of this name, who is not here themselves.
    #[cfg(feature = "jws")]
    pub(super) fn known(&self, name: &str) -> Option<Identity> {
        let anonymous = Identity::anonymous();
        if anonymous.caller().name() == name {
            return self.anonymous.then_some(anonymous);
        }
        self.authenticators
            .iter()
            .find_map(|authenticator| authenticator.known(name))
    }

    async fn identify(&self, credentials: &Credentials<'_>, many: bool) -> Result<Identity> {
        let guesses = self.guesses.as_ref().filter(|_| !many);
        if let Some(guesses) = guesses {
            guesses
                .hear(credentials.peer())
                .inspect_err(|_| metrics::auth_failed("guessing"))?;
        }
        let (mut given, mut later) = (false, None);
        for authenticator in &self.authenticators {
            match authenticator.authenticate(credentials).await {
                Ok(Some(identity)) => return Ok(identity),
                Ok(None) => {}
                Err(Refused::NotGood) => given = true,
                Err(Refused::NotNow(error)) => later = Some(error),
            }
        }
        match (later, given) {
            (Some(error), _) => Err(Error::new(ErrorKind::Unavailable).with_source(error)),
            (None, false) if self.anonymous => Ok(Identity::anonymous()),
            (None, given) => {
                if let (Some(guesses), true) = (guesses, given) {
                    guesses.wrong(credentials.peer());
                }
                metrics::auth_failed(if given { "wrong" } else { "missing" });
                tracing::info!(peer = %credentials.peer(), given, "caller refused");
                Err(ErrorKind::Unauthenticated.into())
            }
        }
    }

    /// Whether they may do this.
    ///
    /// # Errors
    /// Not found: a tenant that is not theirs is like one that is not there. Permission denied: an agent that is not theirs, or
    /// scopes are missing. Unauthenticated: somebody has to be known for this.
    pub(crate) fn check(
        &self,
        identity: &Identity,
        agent: &str,
        tenant: &str,
        request: &Request,
    ) -> Result<()> {
        self.allows(identity, agent, tenant, request)
            .inspect_err(|_| metrics::auth_failed("forbidden"))
    }

    fn allows(
        &self,
        identity: &Identity,
        agent: &str,
        tenant: &str,
        request: &Request,
    ) -> Result<()> {
        if !identity.may_enter(tenant) {
            return Err(ErrorKind::TaskNotFound.into());
        }
        if !identity.may_call(agent) {
            return Err(ErrorKind::PermissionDenied.into());
        }
        if identity.is_anonymous() && request.operation() == Operation::GetExtendedAgentCard {
            return Err(ErrorKind::Unauthenticated.into());
        }
        let about = self
            .rules
            .iter()
            .filter(|rule| rule.is_about(agent, request));
        match about.filter_map(|rule| rule.missing(identity)).next() {
            None => Ok(()),
            Some(_) if identity.is_anonymous() => Err(ErrorKind::Unauthenticated.into()),
            Some(scopes) => Err(Error::new(ErrorKind::PermissionDenied).with("scope", scopes)),
        }
    }

    /// A card as this caller may see it: without the skills that are not for them.
    pub(crate) fn shown(&self, identity: &Identity, agent: &str, mut card: AgentCard) -> AgentCard {
        card.skills.retain(|skill| {
            let mut rules = self
                .rules
                .iter()
                .filter(|rule| rule.is_of_skill(agent, &skill.id));
            rules.all(|rule| rule.missing(identity).is_none())
        });
        card
    }

    /// Writes into a card what is enforced, in place of whatever it said.
    pub(crate) fn describe(&self, agent: &str, card: &mut AgentCard) {
        let ways = self.ways();
        card.security_schemes = ways
            .iter()
            .map(|way| (way.name.clone(), way.scheme.clone()))
            .collect();
        let always = |skill| {
            let rules = self
                .rules
                .iter()
                .flat_map(move |rule| rule.always(agent, skill));
            rules.map(String::as_str).collect::<Vec<_>>()
        };
        card.security_requirements = requirements(&ways, &always(None));
        if self.anonymous && always(None).is_empty() {
            // As OpenAPI has it: nothing at all suffices too.
            card.security_requirements
                .push(SecurityRequirement::default());
        }
        for skill in &mut card.skills {
            let own = always(Some(&skill.id));
            let protected = self
                .rules
                .iter()
                .any(|rule| rule.is_of_skill(agent, &skill.id));
            skill.security_requirements = match protected {
                true => requirements(&ways, &[always(None), own].concat()),
                false => Vec::new(),
            };
        }
    }

    /// What a refusal tells callers to bring.
    pub(crate) fn challenges(&self) -> impl Iterator<Item = String> {
        let mut challenges: Vec<_> = self.ways().into_iter().map(|way| way.challenge).collect();
        challenges.dedup();
        challenges.into_iter()
    }

    /// Each under a name of its own: two issuers are two ways.
    fn ways(&self) -> Vec<Way> {
        let mut ways: Vec<Way> = Vec::new();
        for mut way in self
            .authenticators
            .iter()
            .flat_map(|authenticator| authenticator.ways())
        {
            let plain = way.name.clone();
            let mut number = 1;
            while ways.iter().any(|other| other.name == way.name) {
                number += 1;
                way.name = format!("{plain}-{number}");
            }
            ways.push(way);
        }
        ways
    }
}

fn requirements(ways: &[Way], scopes: &[&str]) -> Vec<SecurityRequirement> {
    let needed = |way: &Way| {
        if way.has_scopes {
            scopes.to_vec()
        } else {
            Vec::new()
        }
    };
    ways.iter()
        .map(|way| SecurityRequirement::of(&way.name, needed(way)))
        .collect()
}
