//! Card serialization in versions before 1.0.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::CardForm;
use super::legacy::LegacyCard;
use super::scheme::SchemeWriter;
use crate::model::{
    AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Binding, SecurityScheme,
};

/// Card in 0.3 or 0.2.
pub(super) struct LegacyCardWriter<'a>(
    pub(super) &'a AgentCard,
    pub(super) &'a LegacyCard<'a>,
    pub(super) CardForm,
);

impl Serialize for LegacyCardWriter<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(card, legacy, form) = self;
        let mut map = serializer.serialize_map(None)?;
        let version = match (*form, legacy.protocol_version()) {
            // Last specification of 0.2 that names a default version.
            (CardForm::V02, version) if !version.starts_with("0.2") => "0.2.5",
            (_, version) => version,
        };
        map.serialize_entry("protocolVersion", version)?;
        map.serialize_entry("name", &card.name)?;
        map.serialize_entry("description", &card.description)?;
        map.serialize_entry("url", &legacy.primary.url)?;
        let plain = *form == CardForm::V02
            && legacy.interfaces.len() == 1
            && legacy.primary.binding() == Some(Binding::JsonRpc);
        if !plain {
            map.serialize_entry("preferredTransport", &legacy.primary.protocol_binding)?;
            // Repeats the main interface, because 0.3 clients look for it here.
            map.serialize_entry("additionalInterfaces", &transports(&legacy.interfaces))?;
        }
        if let Some(provider) = &card.provider {
            map.serialize_entry("provider", provider)?;
        }
        map.serialize_entry("version", &card.version)?;
        if let Some(url) = &card.documentation_url {
            map.serialize_entry("documentationUrl", url)?;
        }
        if let Some(url) = &card.icon_url {
            map.serialize_entry("iconUrl", url)?;
        }
        map.serialize_entry("capabilities", &LegacyCapabilities(&card.capabilities))?;
        write_legacy_security(&mut map, card, legacy, *form)?;
        map.serialize_entry("defaultInputModes", &card.default_input_modes)?;
        map.serialize_entry("defaultOutputModes", &card.default_output_modes)?;
        let skills: Vec<_> = card
            .skills
            .iter()
            .map(|skill| SkillWriter(skill, legacy, *form))
            .collect();
        map.serialize_entry("skills", &skills)?;
        if card.capabilities.extended_agent_card == Some(true) {
            map.serialize_entry("supportsAuthenticatedExtendedCard", &true)?;
        }
        if *form != CardForm::V02 && !card.signatures.is_empty() {
            map.serialize_entry("signatures", &card.signatures)?;
        }
        map.end()
    }
}

fn write_legacy_security<M: SerializeMap>(
    map: &mut M,
    card: &AgentCard,
    legacy: &LegacyCard<'_>,
    form: CardForm,
) -> Result<(), M::Error> {
    // 0.2 has no mutual TLS.
    let known = |scheme: &SecurityScheme| {
        form != CardForm::V02 || !matches!(scheme, SecurityScheme::MutualTls(_))
    };
    let schemes = legacy.schemes.iter().filter(|(_, scheme)| known(scheme));
    let schemes: BTreeMap<_, _> = schemes
        .map(|(name, scheme)| (name, SchemeWriter(scheme, form)))
        .collect();
    if !schemes.is_empty() {
        map.serialize_entry("securitySchemes", &schemes)?;
    }
    let mut security = legacy.requirements(&card.security_requirements);
    security.retain(|requirement| {
        requirement
            .keys()
            .all(|name| schemes.contains_key(&name.as_str()))
    });
    if !security.is_empty() {
        map.serialize_entry("security", &security)?;
    }
    Ok(())
}

pub(super) fn transports<'a>(
    interfaces: &[&'a AgentInterface],
) -> Vec<BTreeMap<&'static str, &'a str>> {
    let transport = |interface: &&'a AgentInterface| {
        BTreeMap::from([
            ("url", &*interface.url),
            ("transport", &*interface.protocol_binding),
        ])
    };
    interfaces.iter().map(transport).collect()
}

struct LegacyCapabilities<'a>(&'a AgentCapabilities);

impl Serialize for LegacyCapabilities<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        write_capabilities(&mut map, self.0)?;
        map.end()
    }
}

pub(super) fn write_capabilities<M: SerializeMap>(
    map: &mut M,
    capabilities: &AgentCapabilities,
) -> Result<(), M::Error> {
    if let Some(streaming) = capabilities.streaming {
        map.serialize_entry("streaming", &streaming)?;
    }
    if let Some(push) = capabilities.push_notifications {
        map.serialize_entry("pushNotifications", &push)?;
    }
    if let Some(history) = capabilities.state_transition_history {
        map.serialize_entry("stateTransitionHistory", &history)?;
    }
    if !capabilities.extensions.is_empty() {
        map.serialize_entry("extensions", &capabilities.extensions)?;
    }
    Ok(())
}

/// Skill with the requirements in legacy form: in addition to those of 1.0 in a union, instead of
/// them otherwise.
pub(super) struct SkillWriter<'a>(
    pub(super) &'a AgentSkill,
    pub(super) &'a LegacyCard<'a>,
    pub(super) CardForm,
);

impl Serialize for SkillWriter<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(skill, legacy, form) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("id", &skill.id)?;
        map.serialize_entry("name", &skill.name)?;
        map.serialize_entry("description", &skill.description)?;
        map.serialize_entry("tags", &skill.tags)?;
        for (name, list) in [
            ("examples", &skill.examples),
            ("inputModes", &skill.input_modes),
            ("outputModes", &skill.output_modes),
        ] {
            if !list.is_empty() {
                map.serialize_entry(name, list)?;
            }
        }
        if form == CardForm::Union && !skill.security_requirements.is_empty() {
            map.serialize_entry("securityRequirements", &skill.security_requirements)?;
        }
        let security = legacy.requirements(&skill.security_requirements);
        if form != CardForm::V02 && !security.is_empty() {
            map.serialize_entry("security", &security)?;
        }
        map.end()
    }
}
