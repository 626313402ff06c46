//! Access rules: scopes that calls require.

use super::Identity;
use crate::model::{Operation, Request};

/// Member of the message metadata that names the requested skill.
const SKILL_METADATA_KEY: &str = "skillId";

/// Scopes that a call requires. A call must satisfy every rule that applies to it; a rule without conditions applies to all calls.
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
    /// Requires these scopes. An empty list requires only an authenticated caller.
    pub fn require<S: Into<String>>(scopes: impl IntoIterator<Item = S>) -> Self {
        let scopes = scopes.into_iter().map(Into::into).collect();
        Self {
            scopes,
            agent: None,
            operations: Vec::new(),
            skill: None,
        }
    }

    /// Restricts the rule to this agent, by its name in the server.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent = Some(name.into());
        self
    }

    /// Restricts the rule to these operations.
    #[must_use]
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations.extend(operations);
        self
    }

    /// Restricts the rule to messages that name this skill in `metadata.skillId`.
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

    /// Returns the required scopes that the caller lacks, separated by spaces; `None` if the rule is satisfied. Empty for an
    /// anonymous caller of a rule without scopes.
    pub(super) fn missing_scopes(&self, identity: &Identity) -> Option<String> {
        let missing: Vec<_> = self
            .scopes
            .iter()
            .filter(|scope| !identity.has_scope(scope))
            .map(String::as_str)
            .collect();
        let is_violated = identity.is_anonymous() || !missing.is_empty();
        is_violated.then(|| missing.join(" "))
    }

    /// Scopes that every call of the agent requires by this rule, or every call that names the skill.
    pub(super) fn unconditional_scopes(&self, agent: &str, skill: Option<&str>) -> &[String] {
        let is_unconditional = self.covers_agent(agent)
            && self.operations.is_empty()
            && self.skill.as_deref() == skill;
        if is_unconditional { &self.scopes } else { &[] }
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
