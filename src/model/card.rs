//! The agent card: what an agent is, where it is, and what it can do.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Binding, Object, SecurityRequirement, SecurityScheme, Version, non_empty, or_default};

/// What an agent is, where it is, and what it can do. Public: nothing secret belongs in it.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCard {
    /// For people.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// For people and for models that choose; may be CommonMark.
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    /// Where to reach it, the preferred way first.
    #[serde(
        default,
        alias = "supported_interfaces",
        deserialize_with = "or_default"
    )]
    pub supported_interfaces: Vec<AgentInterface>,
    /// Who runs it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider: Option<AgentProvider>,
    /// The version of the agent itself.
    #[serde(default, deserialize_with = "or_default")]
    pub version: String,
    /// Where to read more.
    #[serde(
        default,
        alias = "documentation_url",
        skip_serializing_if = "Option::is_none"
    )]
    pub documentation_url: Option<String>,
    /// What it can do beyond answering.
    #[serde(default, deserialize_with = "or_default")]
    pub capabilities: AgentCapabilities,
    /// The ways of authentication, by name.
    #[serde(
        default,
        alias = "security_schemes",
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub security_schemes: BTreeMap<String, SecurityScheme>,
    /// Which of them a caller needs: any one of these.
    #[serde(
        default,
        alias = "security_requirements",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub security_requirements: Vec<SecurityRequirement>,
    /// Media types it reads, unless a skill says otherwise.
    #[serde(
        default,
        alias = "default_input_modes",
        deserialize_with = "or_default"
    )]
    pub default_input_modes: Vec<String>,
    /// Media types it writes, unless a skill says otherwise.
    #[serde(
        default,
        alias = "default_output_modes",
        deserialize_with = "or_default"
    )]
    pub default_output_modes: Vec<String>,
    /// What it is good at.
    #[serde(default, deserialize_with = "or_default")]
    pub skills: Vec<AgentSkill>,
    /// Signatures over the card without this member.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub signatures: Vec<AgentCardSignature>,
    /// A picture.
    #[serde(default, alias = "icon_url", skip_serializing_if = "Option::is_none")]
    pub icon_url: Option<String>,
}

impl AgentCard {
    /// The card of an agent that reads and writes plain text.
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

    /// Says which media types it reads, in the place of plain text; `*/*` is any.
    #[must_use]
    pub fn input_modes<'a>(mut self, modes: impl IntoIterator<Item = &'a str>) -> Self {
        self.default_input_modes = modes.into_iter().map(str::to_owned).collect();
        self
    }

    /// Says which media types it writes, in the place of plain text.
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

    /// Says which version of the agent this is.
    #[must_use]
    pub fn version(mut self, version: impl Into<String>) -> Self {
        self.version = version.into();
        self
    }

    /// Adds a place to reach it, in one binding and one version.
    #[must_use]
    pub fn interface(mut self, url: impl Into<String>, binding: Binding, version: Version) -> Self {
        self.supported_interfaces
            .push(AgentInterface::new(url, binding, version));
        self
    }

    /// The card as it is published: one without a skill gets one made of its name and description.
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

/// A place to reach an agent, in one binding and one version.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentInterface {
    /// The address; `host:port` for gRPC.
    #[serde(default, deserialize_with = "or_default")]
    pub url: String,
    /// `JSONRPC`, `GRPC`, `HTTP+JSON`, or the URI of another.
    #[serde(default, alias = "protocol_binding", deserialize_with = "or_default")]
    pub protocol_binding: String,
    /// What a client puts into every request to it.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub tenant: Option<String>,
    /// The version spoken there, such as `1.0`.
    #[serde(default, alias = "protocol_version", deserialize_with = "or_default")]
    pub protocol_version: String,
}

impl AgentInterface {
    /// An interface without a tenant.
    pub fn new(url: impl Into<String>, binding: Binding, version: Version) -> Self {
        Self {
            url: url.into(),
            protocol_binding: binding.as_str().to_owned(),
            tenant: None,
            protocol_version: version.as_str().to_owned(),
        }
    }

    /// The binding, if it is one of ours.
    #[must_use]
    pub fn binding(&self) -> Option<Binding> {
        Binding::from_name(&self.protocol_binding)
    }
}

/// Who runs an agent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AgentProvider {
    /// Their page.
    #[serde(default, deserialize_with = "or_default")]
    pub url: String,
    /// Their name.
    #[serde(default, deserialize_with = "or_default")]
    pub organization: String,
}

/// What an agent can do beyond answering; what is not said is not there.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentCapabilities {
    /// It streams.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streaming: Option<bool>,
    /// It posts to webhooks.
    #[serde(
        default,
        alias = "push_notifications",
        skip_serializing_if = "Option::is_none"
    )]
    pub push_notifications: Option<bool>,
    /// The extensions it knows.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub extensions: Vec<AgentExtension>,
    /// It has another card for authenticated callers.
    #[serde(
        default,
        alias = "extended_agent_card",
        skip_serializing_if = "Option::is_none"
    )]
    pub extended_agent_card: Option<bool>,
    /// A flag that 1.0 dropped; remembered for older readers, without meaning.
    #[serde(skip)]
    pub state_transition_history: Option<bool>,
}

/// An extension of the protocol that an agent knows.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AgentExtension {
    /// Names it, version included.
    #[serde(default, deserialize_with = "or_default")]
    pub uri: String,
    /// For people.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// Whether a client must use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub required: Option<bool>,
    /// Settings of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub params: Option<Object>,
}

/// Something an agent is good at.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AgentSkill {
    /// Unique within the agent.
    #[serde(default, deserialize_with = "or_default")]
    pub id: String,
    /// For people.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
    /// For people and for models that choose.
    #[serde(default, deserialize_with = "or_default")]
    pub description: String,
    /// Words to find it by.
    #[serde(default, deserialize_with = "or_default")]
    pub tags: Vec<String>,
    /// What one might ask.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub examples: Vec<String>,
    /// Media types it reads, in place of the card's.
    #[serde(
        default,
        alias = "input_modes",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub input_modes: Vec<String>,
    /// Media types it writes, in place of the card's.
    #[serde(
        default,
        alias = "output_modes",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub output_modes: Vec<String>,
    /// What a caller needs for this skill: any one of these.
    #[serde(
        default,
        alias = "security_requirements",
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub security_requirements: Vec<SecurityRequirement>,
}

impl AgentSkill {
    /// A skill with an id, a name and a description.
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

    /// Adds a word to find it by.
    #[must_use]
    pub fn tag(mut self, tag: impl Into<String>) -> Self {
        self.tags.push(tag.into());
        self
    }

    /// Adds an example of what one might ask.
    #[must_use]
    pub fn example(mut self, example: impl Into<String>) -> Self {
        self.examples.push(example.into());
        self
    }
}

/// A signature over a card, in the pieces of a JSON Web Signature.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct AgentCardSignature {
    /// The protected header, base64url.
    #[serde(default, deserialize_with = "or_default")]
    pub protected: String,
    /// The signature, base64url.
    #[serde(default, deserialize_with = "or_default")]
    pub signature: String,
    /// The unprotected header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub header: Option<Object>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_without_a_skill_publishes_one_made_of_its_name_and_description() {
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
