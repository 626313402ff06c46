//! The agent card: identity, interfaces, capabilities and skills of an agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Binding, Object, SecurityRequirement, SecurityScheme, Version, non_empty, or_default};

/// Public description of an agent: identity, interfaces, capabilities and skills. Contains no
/// secrets.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCard {
    /// Display name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// Description for users and for models that select an agent. May be CommonMark.
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    /// Interfaces of the agent, in order of preference.
    #[serde(
        default,
        alias = "supported_interfaces",
        deserialize_with = "or_default"
    )]
    pub supported_interfaces: Vec<AgentInterface>,
    /// Further interfaces, which only the lists of versions before 1.0 name: 1.0 clients may refuse a
    /// card because of them.
    #[serde(skip)]
    pub legacy_interfaces: Vec<AgentInterface>,
    /// Organization that operates the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<AgentProvider>,
    /// Version of the agent itself, not of the protocol.
    #[serde(default, deserialize_with = "or_default")]
    pub version: String,
    /// URL of the documentation.
    #[serde(
        default,
        alias = "documentation_url",
        skip_serializing_if = "Option::is_none"
    )]
    pub documentation_url: Option<String>,
    /// Optional protocol features that the agent supports.
    #[serde(default, deserialize_with = "or_default")]
    pub capabilities: AgentCapabilities,
    /// Security schemes by name.
    #[serde(
        default,
        alias = "security_schemes",
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub security_schemes: BTreeMap<String, SecurityScheme>,
    /// Alternatives for authentication: a caller must satisfy one of these.
    #[serde(
        default,
        alias = "security_requirements",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub security_requirements: Vec<SecurityRequirement>,
    /// Accepted media types, unless a skill overrides them.
    #[serde(
        default,
        alias = "default_input_modes",
        deserialize_with = "or_default"
    )]
    pub default_input_modes: Vec<String>,
    /// Produced media types, unless a skill overrides them.
    #[serde(
        default,
        alias = "default_output_modes",
        deserialize_with = "or_default"
    )]
    pub default_output_modes: Vec<String>,
    /// Skills of the agent.
    #[serde(default, deserialize_with = "or_default")]
    pub skills: Vec<AgentSkill>,
    /// Signatures over the card without this member.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub signatures: Vec<AgentCardSignature>,
    /// URL of an icon.
    #[serde(default, alias = "icon_url", skip_serializing_if = "Option::is_none")]
    pub icon_url: Option<String>,
}

impl AgentCard {
    /// Creates the card of an agent with plain text input and output.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            version: "1.0.0".to_owned(),
            default_input_modes: vec!["text/plain".to_owned()],
            default_output_modes: vec!["text/plain".to_owned()],
            ..Self::default()
        }
    }

    /// Sets the accepted media types (default `text/plain`); `*/*` accepts any.
    #[must_use]
    pub fn input_modes<'a>(mut self, modes: impl IntoIterator<Item = &'a str>) -> Self {
        self.default_input_modes = modes.into_iter().map(str::to_owned).collect();
        self
    }

    /// Sets the produced media types (default `text/plain`).
    #[must_use]
    pub fn output_modes<'a>(mut self, modes: impl IntoIterator<Item = &'a str>) -> Self {
        self.default_output_modes = modes.into_iter().map(str::to_owned).collect();
        self
    }

    /// Adds a skill.
    #[must_use]
    pub fn skill(mut self, skill: AgentSkill) -> Self {
        self.skills.push(skill);
        self
    }

    /// Sets the version of the agent.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Adds an interface: an address with one binding and one protocol version.
    #[must_use]
    pub fn interface(mut self, url: impl Into<String>, binding: Binding, version: Version) -> Self {
        self.supported_interfaces
            .push(AgentInterface::new(url, binding, version));
        self
    }

    /// Adds a skill derived from name and description if the card has none. The protocol requires
    /// at least one.
    #[must_use]
    pub fn with_default_skill(mut self) -> Self {
        if self.skills.is_empty() {
            let id: String = self
                .name
                .to_lowercase()
                .split(|c: char| !c.is_alphanumeric())
                .collect::<Vec<_>>()
                .join("-");
            let id = if id.trim_matches('-').is_empty() {
                "agent"
            } else {
                id.trim_matches('-')
            };
            self.skills
                .push(AgentSkill::new(id, &self.name, &self.description));
        }
        self
    }
}

/// Name of the binding of KAOS agents: JSON-RPC with the method names of 1.0 and the objects of 0.1
/// (09, S0). Only cards of such agents have it; the card reader assigns it.
pub const KAOS_BINDING: &str = "KAOS";

/// Address of an agent, with one binding and one protocol version.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentInterface {
    /// URL of the interface; `host:port` for gRPC.
    #[serde(default, deserialize_with = "or_default")]
    pub url: String,
    /// Binding: `JSONRPC`, `GRPC`, `HTTP+JSON`, or the URI of a custom binding.
    #[serde(default, alias = "protocol_binding", deserialize_with = "or_default")]
    pub protocol_binding: String,
    /// Tenant that a client must send in every request to this interface.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// Protocol version, such as `1.0`.
    #[serde(default, alias = "protocol_version", deserialize_with = "or_default")]
    pub protocol_version: String,
}

impl AgentInterface {
    /// Creates an interface without a tenant.
    pub fn new(url: impl Into<String>, binding: Binding, version: Version) -> Self {
        Self {
            url: url.into(),
            protocol_binding: binding.as_str().to_owned(),
            tenant: None,
            protocol_version: version.as_str().to_owned(),
        }
    }

    /// Returns the binding, or `None` for a custom one.
    #[must_use]
    pub fn binding(&self) -> Option<Binding> {
        if self.is_kaos() {
            return Some(Binding::JsonRpc);
        }
        Binding::from_name(&self.protocol_binding)
    }

    /// Whether the interface has the methods and objects of KAOS; see [`KAOS_BINDING`].
    #[must_use]
    pub fn is_kaos(&self) -> bool {
        self.protocol_binding == KAOS_BINDING
    }
}

/// Organization that operates an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AgentProvider {
    /// URL of the organization.
    #[serde(default, deserialize_with = "or_default")]
    pub url: String,
    /// Name of the organization.
    #[serde(default, deserialize_with = "or_default")]
    pub organization: String,
}

/// Optional protocol features of an agent. An absent flag means unsupported.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCapabilities {
    /// Supports streaming.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// Supports push notifications.
    #[serde(
        default,
        alias = "push_notifications",
        skip_serializing_if = "Option::is_none"
    )]
    pub push_notifications: Option<bool>,
    /// Supported protocol extensions.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub extensions: Vec<AgentExtension>,
    /// Serves an extended card to authenticated callers.
    #[serde(
        default,
        alias = "extended_agent_card",
        skip_serializing_if = "Option::is_none"
    )]
    pub extended_agent_card: Option<bool>,
    /// Flag of 0.3 that 1.0 removed. Kept for round trips of older cards; has no effect.
    #[serde(skip)]
    pub state_transition_history: Option<bool>,
}

/// Protocol extension that an agent supports.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AgentExtension {
    /// URI of the extension, including its version.
    #[serde(default, deserialize_with = "or_default")]
    pub uri: String,
    /// Description for users.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// Whether a client must support the extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// Parameters defined by the extension.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Object>,
}

/// Skill of an agent.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSkill {
    /// Identifier, unique within the agent.
    #[serde(default, deserialize_with = "or_default")]
    pub id: String,
    /// Display name.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// Description for users and for models that select an agent.
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    /// Search keywords.
    #[serde(default, deserialize_with = "or_default")]
    pub tags: Vec<String>,
    /// Example prompts.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub examples: Vec<String>,
    /// Accepted media types; overrides those of the card.
    #[serde(
        default,
        alias = "input_modes",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub input_modes: Vec<String>,
    /// Produced media types; overrides those of the card.
    #[serde(
        default,
        alias = "output_modes",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub output_modes: Vec<String>,
    /// Alternatives for authentication for this skill: a caller must satisfy one of these.
    #[serde(
        default,
        alias = "security_requirements",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub security_requirements: Vec<SecurityRequirement>,
}

impl AgentSkill {
    /// Creates a skill with an id, a name and a description.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        description: impl Into<String>,
    ) -> Self {
        Self {
            id: id.into(),
            name: name.into(),
            description: description.into(),
            ..Self::default()
        }
    }

    /// Adds a search keyword.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Adds an example prompt.
    #[must_use]
    pub fn example(mut self, example: impl Into<String>) -> Self {
        self.examples.push(example.into());
        self
    }
}

/// Signature over a card, in the members of a JSON Web Signature.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AgentCardSignature {
    /// Protected header, base64url.
    #[serde(default, deserialize_with = "or_default")]
    pub protected: String,
    /// Signature, base64url.
    #[serde(default, deserialize_with = "or_default")]
    pub signature: String,
    /// Unprotected header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Object>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn card_without_skills_gets_a_default_skill() {
        let card = AgentCard::new("Tide Table!", "Knows the tides").with_default_skill();
        assert_eq!(
            card.skills,
            [AgentSkill::new(
                "tide-table",
                "Tide Table!",
                "Knows the tides"
            )]
        );
        let card = AgentCard::new("潮", "x")
            .skill(AgentSkill::new("a", "b", "c").tag("t"))
            .with_default_skill();
        assert_eq!(card.skills.len(), 1);
        assert_eq!(
            AgentCard::new("!", "x").with_default_skill().skills[0].id,
            "agent"
        );
    }
}
