//! Subset of a card that versions before 1.0 can represent, for JSON and protobuf.

use std::collections::BTreeMap;

use crate::model::{
    AgentCard, AgentInterface, OAuth2SecurityScheme, OAuthFlows, SecurityRequirement,
    SecurityScheme, Version,
};

/// Subset of a card that versions before 1.0 can represent.
pub(super) struct LegacyCard<'a> {
    pub(super) primary: &'a AgentInterface,
    pub(super) interfaces: Vec<&'a AgentInterface>,
    pub(super) schemes: BTreeMap<&'a str, &'a SecurityScheme>,
}

impl<'a> LegacyCard<'a> {
    pub(super) fn new(card: &'a AgentCard) -> Option<Self> {
        let interfaces: Vec<_> = card
            .supported_interfaces
            .iter()
            .chain(&card.legacy_interfaces)
            .filter(|interface| is_pre_v1(interface))
            .collect();
        let schemes = card
            .security_schemes
            .iter()
            .filter(|(_, scheme)| !uses_device_code(scheme));
        Some(Self {
            primary: interfaces.first()?,
            interfaces,
            schemes: schemes.map(|(name, scheme)| (&**name, scheme)).collect(),
        })
    }

    /// Returns the requirements whose schemes are all representable.
    pub(super) fn requirements(
        &self,
        requirements: &'a [SecurityRequirement],
    ) -> Vec<&'a BTreeMap<String, Vec<String>>> {
        let known = |requirement: &&SecurityRequirement| {
            requirement
                .schemes
                .keys()
                .all(|name| self.schemes.contains_key(name.as_str()))
        };
        requirements
            .iter()
            .filter(known)
            .map(|requirement| &requirement.schemes)
            .collect()
    }

    pub(super) fn protocol_version(&self) -> &'a str {
        v03_card_version(&self.primary.protocol_version)
    }
}

/// Returns the version as written on 0.3 cards: with three numbers.
pub(in crate::wire) fn v03_card_version(version: &str) -> &str {
    match version {
        "" | "0.3" => "0.3.0",
        version => version,
    }
}

/// Returns the version as written on interfaces: 0.3 with two numbers, others unchanged. A card
/// without a version is 0.2 or 0.3 (09, 1.9).
pub(in crate::wire) fn interface_version(version: &str) -> &str {
    match version {
        "" | "0.3" | "0.3.0" => Version::V03.as_str(),
        version => version,
    }
}

/// Whether an interface has a version before 1.0.
pub(in crate::wire) fn is_pre_v1(interface: &AgentInterface) -> bool {
    interface.protocol_version.is_empty() || interface.protocol_version.starts_with("0.")
}

/// Whether a scheme uses the device code flow. Older versions lack it, and a scheme without a flow
/// would be unusable.
pub(in crate::wire) fn uses_device_code(scheme: &SecurityScheme) -> bool {
    matches!(
        scheme,
        SecurityScheme::OAuth2(OAuth2SecurityScheme {
            flows: Some(OAuthFlows::DeviceCode(_)),
            ..
        })
    )
}
