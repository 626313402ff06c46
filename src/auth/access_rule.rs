//! What callers need for what.

use super::Identity;
use crate::model::{Operation, Request};

/// The member of a message's metadata that names the skill it is for.
const SKILL_METADATA_KEY: &str = "skillId";

/// What a call needs: all scopes of every rule that is about it. A rule about nothing in particular is about every call.
///
/// ```
/// use attache::auth::AccessRule;
/// use attache::model::Operation;
///
/// let rules = [
///     AccessRule::require(["tasks.cancel"]).operations([Operation::CancelTask]),
///     AccessRule::require(["refunds"]).agent("billing").skill("refund"),
/// ];
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessRule {
    scopes: Vec<String>,
    agent: Option<String>,
    operations: Vec<Operation>,
    skill: Option<String>,
}

impl AccessRule {
    /// A call needs these scopes; without any it is enough that the caller is known.
    pub fn require<S: Into<String>>(scopes: impl IntoIterator<Item = S>) -> Self {
        let scopes = scopes.into_iter().map(Into::into).collect();
        Self {
            scopes,
            agent: None,
            operations: Vec::new(),
            skill: None,
        }
    }

    /// Only calls of this agent, by its name in the server.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent = Some(name.into());
        self
    }

    /// Only these operations.
    #[must_use]
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations.extend(operations);
        self
    }

    /// Only messages that name this skill in `metadata.skillId`.
    #[must_use]
    pub fn skill(mut self, id: impl Into<String>) -> Self {
        self.skill = Some(id.into());
        self
    }

    pub(super) fn applies_to(&self, agent: &str, request: &Request) -> bool {
        self.covers_agent(agent)
            && (self.operations.is_empty() || self.operations.contains(&request.operation()))
            && self
                .skill
                .as_ref()
                .is_none_or(|skill| requested_skill(request).as_ref() == Some(skill))
    }

    /// The scopes that it needs and somebody has not got; `None` if all is well.
    pub(super) fn missing_scopes(&self, identity: &Identity) -> Option<String> {
        let missing: Vec<_> = self
            .scopes
            .iter()
            .filter(|scope| !identity.has_scope(scope))
            .map(String::as_str)
            .collect();
        let known = !identity.is_anonymous();
        (!known || !missing.is_empty()).then(|| missing.join(" "))
    }

    /// What every call of an agent needs by this rule, or every one that names the skill.
    pub(super) fn unconditional_scopes(&self, agent: &str, skill: Option<&str>) -> &[String] {
        match self.covers_agent(agent)
            && self.operations.is_empty()
            && self.skill.as_deref() == skill
        {
            true => &self.scopes,
            false => &[],
        }
    }

    pub(super) fn covers_skill(&self, agent: &str, skill: &str) -> bool {
        self.covers_agent(agent) && self.skill.as_deref() == Some(skill)
    }

    fn covers_agent(&self, agent: &str) -> bool {
        self.agent.as_deref().is_none_or(|own| own == agent)
    }
}

fn requested_skill(request: &Request) -> Option<String> {
    let (Request::SendMessage(request) | Request::SendStreamingMessage(request)) = request else {
        return None;
    };
    let skill = request.message.metadata.as_ref()?.get(SKILL_METADATA_KEY)?;
    serde_json::from_str(skill.get()).ok()
}
