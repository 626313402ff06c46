//! Card of an agent, and settings of every agent type.

use attache::model::{AgentExtension, AgentProvider, AgentSkill};
use attache::wire::card::CardForm;
use attache::{AgentCard, CardAccess, HostedAgent};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::super::error::KeyError;
use super::AgentKind;

/// Card of an agent, and settings of every agent type.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct CardSection {
    /// Name on the card. Default: the name of the section.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Description, for people and for models that select an agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Version of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Provider of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<ProviderSection>,
    /// URL of the documentation.
    #[serde(skip_serializing_if = "Option::is_none")]
    documentation_url: Option<String>,
    /// URL of an icon.
    #[serde(skip_serializing_if = "Option::is_none")]
    icon_url: Option<String>,
    /// Accepted media types. If set, parts of other types are refused. Default: those of the agent type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    input_modes: Vec<String>,
    /// Produced media types. Default: those of the agent type.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    output_modes: Vec<String>,
    /// Skills. Default: those of the agent type, or one skill with the name of the agent.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skills: Vec<SkillSection>,
    /// Whether the agent streams. Default: yes, if the store keeps tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    streaming: Option<bool>,
    /// Whether callers may register webhooks. Default: yes, if the store keeps tasks.
    #[serde(skip_serializing_if = "Option::is_none")]
    push: Option<bool>,
    /// Flag on cards before 1.0. It has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    state_transition_history: Option<bool>,
    /// Protocol extensions that the agent supports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    extensions: Vec<ExtensionSection>,
    /// Card for authenticated callers. Its fields replace those of the card; its skills are added to them.
    #[serde(skip_serializing_if = "Option::is_none")]
    extended: Option<Box<ExtendedSection>>,
    /// Callers that may read the card. `authenticated` needs `[auth]`.
    #[serde(skip_serializing_if = "is_default")]
    card_access: CardAccess,
    /// Format of the card. Default: `server.card_form`.
    #[serde(skip_serializing_if = "Option::is_none")]
    card_form: Option<CardForm>,
    /// Whether to refuse messages without a text part.
    #[serde(skip_serializing_if = "is_default")]
    requires_text: bool,
    /// Namespace of its tasks in the store. Default: the name of the section. Set the old name when a section is renamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    /// Tenants, whose tasks are isolated from each other.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tenants: Vec<String>,
}

/// Provider of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ProviderSection {
    /// Name of the organization.
    organization: String,
    /// URL of the organization.
    url: String,
}

/// Skill of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SkillSection {
    /// Id, unique within the agent.
    id: String,
    /// Name for people. Default: the id.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Description, for people and for models that select a skill.
    description: String,
    /// Search keywords.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    tags: Vec<String>,
    /// Example messages.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    examples: Vec<String>,
    /// Accepted media types. Default: those of the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    input_modes: Vec<String>,
    /// Produced media types. Default: those of the agent.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    output_modes: Vec<String>,
}

/// Protocol extension of an agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExtensionSection {
    /// URI of the extension, with its version.
    uri: String,
    /// Description, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Whether callers must activate the extension. Other calls are refused.
    #[serde(default, skip_serializing_if = "is_default")]
    required: bool,
    /// Parameters that the extension defines.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    params: Map<String, Value>,
}

/// Card for authenticated callers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
struct ExtendedSection {
    /// Name.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Description.
    #[serde(skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    /// Version of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<String>,
    /// Provider of the agent.
    #[serde(skip_serializing_if = "Option::is_none")]
    provider: Option<ProviderSection>,
    /// URL of the documentation.
    #[serde(skip_serializing_if = "Option::is_none")]
    documentation_url: Option<String>,
    /// URL of an icon.
    #[serde(skip_serializing_if = "Option::is_none")]
    icon_url: Option<String>,
    /// Accepted media types.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    input_modes: Vec<String>,
    /// Produced media types.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    output_modes: Vec<String>,
    /// Further skills. A skill with the id of another replaces it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    skills: Vec<SkillSection>,
}

/// Fields of a card that an agent determines itself. Those of the file replace them.
#[derive(Debug, Default)]
pub(crate) struct CardDefaults {
    pub(super) name: Option<String>,
    pub(super) description: Option<String>,
    pub(super) skills: Vec<AgentSkill>,
}

impl CardSection {
    /// Whether the file lists skills.
    pub(super) fn has_skills(&self) -> bool {
        !self.skills.is_empty()
    }

    /// Checks what the types of the values do not express.
    ///
    /// # Errors
    /// The key of the invalid value, relative to the section of the agent.
    pub(super) fn check(&self) -> Result<(), KeyError> {
        for (index, extension) in self.extensions.iter().enumerate() {
            let key = format!("extensions.{index}.uri");
            let is_separator = |c: char| c == ',' || c.is_whitespace() || c.is_control();
            if extension.uri.is_empty() || extension.uri.contains(is_separator) {
                return Err(KeyError::new(
                    key,
                    "must be a URI without commas and spaces",
                ));
            }
            let earlier = &self.extensions[..index];
            if earlier.iter().any(|other| other.uri == extension.uri) {
                return Err(KeyError::new(key, "must not be listed twice"));
            }
        }
        check_skill_ids("skills", &self.skills)?;
        match &self.extended {
            Some(extended) => check_skill_ids("extended.skills", &extended.skills),
            None => Ok(()),
        }
    }

    /// Applies the settings of an agent, and its extended card.
    pub(super) fn apply_to(&self, hosted: HostedAgent) -> HostedAgent {
        let namespace = self
            .namespace
            .as_deref()
            .unwrap_or(hosted.name())
            .to_owned();
        let extended = self.extended.as_ref();
        let extended = extended.map(|extended| extended.card(hosted.card().clone()));
        let hosted = hosted
            .tenants(self.tenants.iter().map(String::as_str))
            .namespace(namespace)
            .card_access(self.card_access)
            .requires_text(self.requires_text);
        let hosted = match self.card_form {
            Some(form) => hosted.card_form(form),
            None => hosted,
        };
        match extended {
            Some(extended) => hosted.extended_card(extended),
            None => hosted,
        }
    }

    /// Builds the card.
    pub(super) fn card(&self, name: &str, kind: &AgentKind, defaults: CardDefaults) -> AgentCard {
        let title = self.name.as_deref().or(defaults.name.as_deref());
        let title = title.unwrap_or(name);
        let description = self.description.as_deref();
        let description = description
            .or(defaults.description.as_deref())
            .unwrap_or(kind.default_description());
        let version = self.version.as_deref().unwrap_or(env!("CARGO_PKG_VERSION"));
        let mut card = AgentCard::new(title, description).version(version);
        card.provider = self.provider.as_ref().map(ProviderSection::provider);
        card.documentation_url.clone_from(&self.documentation_url);
        card.icon_url.clone_from(&self.icon_url);
        card.capabilities.streaming = self.streaming;
        card.capabilities.push_notifications = self.push;
        card.capabilities.state_transition_history = self.state_transition_history;
        card.capabilities.extensions = self
            .extensions
            .iter()
            .map(ExtensionSection::extension)
            .collect();
        let (input_modes, output_modes) = kind.default_modes();
        card.default_input_modes = or_default(self.input_modes.clone(), input_modes);
        card.default_output_modes = or_default(self.output_modes.clone(), output_modes);
        let skills: Vec<_> = self.skills.iter().map(SkillSection::skill).collect();
        let skills = or_default(skills, defaults.skills);
        let own = AgentSkill::new(name, title, description).tag(kind.name());
        or_default(skills, vec![own])
            .into_iter()
            .fold(card, AgentCard::skill)
    }
}

/// The list, or the default if it is empty.
fn or_default<T>(list: Vec<T>, default: Vec<T>) -> Vec<T> {
    if list.is_empty() { default } else { list }
}

impl SkillSection {
    fn skill(&self) -> AgentSkill {
        let name = self.name.as_ref().unwrap_or(&self.id);
        let skill = AgentSkill::new(&self.id, name, &self.description);
        let skill = self.tags.iter().fold(skill, AgentSkill::tag);
        let mut skill = self.examples.iter().fold(skill, AgentSkill::example);
        skill.input_modes.clone_from(&self.input_modes);
        skill.output_modes.clone_from(&self.output_modes);
        skill
    }
}

impl ProviderSection {
    fn provider(&self) -> AgentProvider {
        AgentProvider {
            organization: self.organization.clone(),
            url: self.url.clone(),
        }
    }
}

impl ExtensionSection {
    fn extension(&self) -> AgentExtension {
        let params = self.params.clone().into_iter();
        AgentExtension {
            uri: self.uri.clone(),
            description: self.description.clone(),
            required: self.required.then_some(true),
            params: (!self.params.is_empty()).then(|| params.collect()),
        }
    }
}

impl ExtendedSection {
    /// Builds the card from the public one.
    fn card(&self, mut card: AgentCard) -> AgentCard {
        for (field, own) in [
            (&mut card.name, &self.name),
            (&mut card.description, &self.description),
            (&mut card.version, &self.version),
        ] {
            if let Some(own) = own {
                field.clone_from(own);
            }
        }
        let provider = self.provider.as_ref().map(ProviderSection::provider);
        card.provider = provider.or(card.provider);
        card.documentation_url = self.documentation_url.clone().or(card.documentation_url);
        card.icon_url = self.icon_url.clone().or(card.icon_url);
        card.default_input_modes = or_default(self.input_modes.clone(), card.default_input_modes);
        card.default_output_modes =
            or_default(self.output_modes.clone(), card.default_output_modes);
        for skill in self.skills.iter().map(SkillSection::skill) {
            card.skills.retain(|other| other.id != skill.id);
            card.skills.push(skill);
        }
        card
    }
}

/// Checks that each skill has an id of its own.
fn check_skill_ids(list: &str, skills: &[SkillSection]) -> Result<(), KeyError> {
    for (index, skill) in skills.iter().enumerate() {
        let is_repeated = skills[..index].iter().any(|other| other.id == skill.id);
        if skill.id.is_empty() || is_repeated {
            let message = format!("`{}` must not be empty or used by another skill", skill.id);
            return Err(KeyError::new(format!("{list}.{index}.id"), message));
        }
    }
    Ok(())
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
