//! Writing a card as versions before 1.0 have it.

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::CardForm;
use super::older::Older;
use super::scheme::Scheme;
use crate::model::{
    AgentCapabilities, AgentCard, AgentInterface, AgentSkill, Binding, SecurityScheme,
};

/// A card of 0.3 or 0.2.
pub(super) struct Old<'a>(
    pub(super) &'a AgentCard,
    pub(super) &'a Older<'a>,
    pub(super) CardForm,
);

impl Serialize for Old<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(card, older, form) = self;
        let mut map = serializer.serialize_map(None)?;
        let version = match (*form, older.protocol_version()) {
            // The last text of 0.2 that names a default.
            (CardForm::V02, version) if !version.starts_with("0.2") => "0.2.5",
            (_, version) => version,
        };
        map.serialize_entry("protocolVersion", version)?;
        map.serialize_entry("name", &card.name)?;
        map.serialize_entry("description", &card.description)?;
        map.serialize_entry("url", &older.first.url)?;
        let plain = *form == CardForm::V02
            && older.all.len() == 1
            && older.first.binding() == Some(Binding::JsonRpc);
        if !plain {
            map.serialize_entry("preferredTransport", &older.first.protocol_binding)?;
            // The main one is repeated: readers of 0.3 look for it there.
            map.serialize_entry("additionalInterfaces", &transports(&older.all))?;
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
        map.serialize_entry("capabilities", &OldCapabilities(&card.capabilities))?;
        write_old_security(&mut map, card, older, *form)?;
        map.serialize_entry("defaultInputModes", &card.default_input_modes)?;
        map.serialize_entry("defaultOutputModes", &card.default_output_modes)?;
        let skills: Vec<_> = card
            .skills
            .iter()
            .map(|skill| Skill(skill, older, *form))
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

fn write_old_security<M: SerializeMap>(
    map: &mut M,
    card: &AgentCard,
    older: &Older<'_>,
    form: CardForm,
) -> Result<(), M::Error> {
    // 0.2 has no mutual TLS.
    let known = |scheme: &SecurityScheme| {
        form != CardForm::V02 || !matches!(scheme, SecurityScheme::MutualTls(_))
    };
    let schemes = older.schemes.iter().filter(|(_, scheme)| known(scheme));
    let schemes: BTreeMap<_, _> = schemes
        .map(|(name, scheme)| (name, Scheme(scheme, form)))
        .collect();
    if !schemes.is_empty() {
        map.serialize_entry("securitySchemes", &schemes)?;
    }
    let mut security = older.requirements(&card.security_requirements);
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

struct OldCapabilities<'a>(&'a AgentCapabilities);

impl Serialize for OldCapabilities<'_> {
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

/// A skill with the requirements of older versions: beside those of 1.0 in a union, instead of them elsewhere.
pub(super) struct Skill<'a>(
    pub(super) &'a AgentSkill,
    pub(super) &'a Older<'a>,
    pub(super) CardForm,
);

impl Serialize for Skill<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(skill, older, form) = *self;
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
        let security = older.requirements(&skill.security_requirements);
        if form != CardForm::V02 && !security.is_empty() {
            map.serialize_entry("security", &security)?;
        }
        map.end()
    }
}
