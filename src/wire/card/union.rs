//! Card serialization as a union of 1.0 and 0.3 (03 §7).

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};

use super::CardForm;
use super::legacy::LegacyCard;
use super::scheme::SchemeWriter;
use super::write::{SkillWriter, transports, write_capabilities};
use crate::model::{AgentCapabilities, AgentCard, Binding};

/// Union of the 1.0 and 0.3 forms of a card.
pub(super) struct Union<'a>(pub(super) &'a AgentCard, pub(super) &'a LegacyCard<'a>);

impl Serialize for Union<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(card, legacy) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("name", &card.name)?;
        map.serialize_entry("description", &card.description)?;
        map.serialize_entry("supportedInterfaces", &card.supported_interfaces)?;
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
        map.serialize_entry("capabilities", &UnionCapabilitiesWriter(&card.capabilities))?;
        self.write_security(&mut map)?;
        map.serialize_entry("defaultInputModes", &card.default_input_modes)?;
        map.serialize_entry("defaultOutputModes", &card.default_output_modes)?;
        let skills: Vec<_> = card
            .skills
            .iter()
            .map(|skill| SkillWriter(skill, legacy, CardForm::Union))
            .collect();
        map.serialize_entry("skills", &skills)?;
        if !card.signatures.is_empty() {
            map.serialize_entry("signatures", &card.signatures)?;
        }
        map.serialize_entry("protocolVersion", legacy.protocol_version())?;
        map.serialize_entry("url", &legacy.primary.url)?;
        map.serialize_entry("preferredTransport", &legacy.primary.protocol_binding)?;
        let others = transports(legacy.interfaces.get(1..).unwrap_or_default());
        if !others.is_empty() {
            map.serialize_entry("additionalInterfaces", &others)?;
        }
        let mut interfaces = card.supported_interfaces.iter();
        if interfaces.any(|interface| interface.binding() == Some(Binding::JsonRpc)) {
            // KAOS clients look for it (09, 0.16).
            map.serialize_entry("supportedProtocols", &["jsonrpc"])?;
        }
        if card.capabilities.extended_agent_card == Some(true) {
            map.serialize_entry("supportsAuthenticatedExtendedCard", &true)?;
        }
        map.end()
    }
}

impl Union<'_> {
    fn write_security<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let Self(card, legacy) = self;
        let schemes: BTreeMap<_, _> = card
            .security_schemes
            .iter()
            .map(|(name, scheme)| (name, SchemeWriter(scheme, CardForm::Union)))
            .collect();
        if !schemes.is_empty() {
            map.serialize_entry("securitySchemes", &schemes)?;
        }
        if !card.security_requirements.is_empty() {
            map.serialize_entry("securityRequirements", &card.security_requirements)?;
        }
        let security = legacy.requirements(&card.security_requirements);
        if !security.is_empty() {
            map.serialize_entry("security", &security)?;
        }
        Ok(())
    }
}

struct UnionCapabilitiesWriter<'a>(&'a AgentCapabilities);

impl Serialize for UnionCapabilitiesWriter<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        write_capabilities(&mut map, self.0)?;
        if let Some(extended) = self.0.extended_agent_card {
            map.serialize_entry("extendedAgentCard", &extended)?;
        }
        map.end()
    }
}
