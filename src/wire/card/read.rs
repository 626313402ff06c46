//! Card deserialization for any version, or a union of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Deserializer};

use super::legacy::interface_version;
use super::scheme::{AnyScheme, expand_requirements, split_schemes};
use crate::model::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface,
    AgentProvider, AgentSkill, Binding, HttpAuthSecurityScheme, KAOS_BINDING, SecurityRequirement,
    SecurityScheme, non_empty, or_default,
};
use crate::wire::json::field_error;

/// Card of any version.
pub(super) struct AnyCard(pub(super) AgentCard);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CardMembers {
    #[serde(default, deserialize_with = "or_default")]
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    description: String,
    #[serde(
        default,
        alias = "supported_interfaces",
        deserialize_with = "or_default"
    )]
    supported_interfaces: Vec<AgentInterface>,
    provider: Option<AgentProvider>,
    #[serde(default, deserialize_with = "or_default")]
    version: String,
    #[serde(alias = "documentation_url")]
    documentation_url: Option<String>,
    #[serde(alias = "icon_url")]
    icon_url: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    capabilities: CapabilitiesMembers,
    #[serde(default, alias = "security_schemes", deserialize_with = "or_default")]
    security_schemes: BTreeMap<String, AnyScheme>,
    #[serde(
        default,
        alias = "security_requirements",
        deserialize_with = "or_default"
    )]
    security_requirements: Vec<SecurityRequirement>,
    #[serde(default, deserialize_with = "or_default")]
    security: Vec<BTreeMap<String, Vec<String>>>,
    #[serde(
        default,
        alias = "default_input_modes",
        deserialize_with = "or_default"
    )]
    default_input_modes: Vec<String>,
    #[serde(
        default,
        alias = "default_output_modes",
        deserialize_with = "or_default"
    )]
    default_output_modes: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    skills: Vec<SkillMembers>,
    #[serde(default, deserialize_with = "or_default")]
    signatures: Vec<AgentCardSignature>,
    url: Option<String>,
    #[serde(default, alias = "preferred_transport", deserialize_with = "non_empty")]
    preferred_transport: Option<String>,
    #[serde(
        default,
        alias = "additional_interfaces",
        deserialize_with = "or_default"
    )]
    additional_interfaces: Vec<TransportMembers>,
    #[serde(default, alias = "protocol_version", deserialize_with = "non_empty")]
    protocol_version: Option<String>,
    #[serde(
        alias = "supports_authenticated_extended_card",
        alias = "supportsExtendedAgentCard"
    )]
    supports_authenticated_extended_card: Option<bool>,
    /// KAOS cards name only the bindings at the base URL (09, 0.16).
    #[serde(default, deserialize_with = "or_default")]
    supported_protocols: Vec<String>,
    /// 0.1: predecessor of security schemes.
    authentication: Option<V01Authentication>,
}

#[derive(Deserialize)]
struct TransportMembers {
    #[serde(default, deserialize_with = "or_default")]
    url: String,
    #[serde(default, alias = "protocolBinding", deserialize_with = "or_default")]
    transport: String,
}

#[derive(Deserialize)]
struct V01Authentication {
    #[serde(default, deserialize_with = "or_default")]
    schemes: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct CapabilitiesMembers {
    streaming: Option<bool>,
    #[serde(alias = "push_notifications")]
    push_notifications: Option<bool>,
    #[serde(default, deserialize_with = "or_default")]
    extensions: Vec<AgentExtension>,
    #[serde(alias = "extended_agent_card")]
    extended_agent_card: Option<bool>,
    #[serde(alias = "state_transition_history")]
    state_transition_history: Option<bool>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SkillMembers {
    #[serde(default, deserialize_with = "or_default")]
    id: String,
    #[serde(default, deserialize_with = "or_default")]
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    description: String,
    #[serde(default, deserialize_with = "or_default")]
    tags: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    examples: Vec<String>,
    #[serde(default, alias = "input_modes", deserialize_with = "or_default")]
    input_modes: Vec<String>,
    #[serde(default, alias = "output_modes", deserialize_with = "or_default")]
    output_modes: Vec<String>,
    #[serde(
        default,
        alias = "security_requirements",
        deserialize_with = "or_default"
    )]
    security_requirements: Vec<SecurityRequirement>,
    #[serde(default, deserialize_with = "or_default")]
    security: Vec<BTreeMap<String, Vec<String>>>,
}

impl<'de> Deserialize<'de> for AnyCard {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut read = CardMembers::deserialize(deserializer)?;
        let supported_interfaces = read_interfaces(&mut read);
        let (mut security_schemes, split) = split_schemes(read.security_schemes);
        let mut security_requirements =
            prefer_v1_requirements(read.security_requirements, read.security, &split);
        if let Some(old) = read.authentication.filter(|_| security_schemes.is_empty()) {
            convert_v01_authentication(old, &mut security_schemes, &mut security_requirements);
        }
        let skills = read.skills.into_iter();
        let skills = skills.map(|skill| skill.into_skill(&split)).collect();
        let capabilities = read
            .capabilities
            .into_capabilities(read.supports_authenticated_extended_card)?;
        Ok(Self(AgentCard {
            name: read.name,
            description: read.description,
            supported_interfaces,
            // Signatures do not cover the list of 0.3, so it adds nothing to that of 1.0.
            legacy_interfaces: Vec::new(),
            provider: read.provider,
            version: read.version,
            documentation_url: read.documentation_url,
            capabilities,
            security_schemes,
            security_requirements,
            default_input_modes: read.default_input_modes,
            default_output_modes: read.default_output_modes,
            skills,
            signatures: read.signatures,
            icon_url: read.icon_url,
        }))
    }
}

impl CapabilitiesMembers {
    /// Converts the capabilities. `v03_extended_card` is the top-level flag of 0.3.
    fn into_capabilities<E: serde::de::Error>(
        self,
        v03_extended_card: Option<bool>,
    ) -> Result<AgentCapabilities, E> {
        if self.extensions.iter().any(|one| one.uri.is_empty()) {
            return Err(field_error(
                "capabilities.extensions",
                "must each have a uri",
            ));
        }
        Ok(AgentCapabilities {
            streaming: self.streaming,
            push_notifications: self.push_notifications,
            extensions: self.extensions,
            extended_agent_card: self.extended_agent_card.or(v03_extended_card),
            state_transition_history: self.state_transition_history,
        })
    }
}

impl SkillMembers {
    /// Converts the skill. `split` contains the schemes that were split by OAuth flow.
    fn into_skill(self, split: &BTreeMap<String, Vec<String>>) -> AgentSkill {
        let security_requirements =
            prefer_v1_requirements(self.security_requirements, self.security, split);
        AgentSkill {
            id: self.id,
            name: self.name,
            description: self.description,
            tags: self.tags,
            examples: self.examples,
            input_modes: self.input_modes,
            output_modes: self.output_modes,
            security_requirements,
        }
    }
}

/// Returns the requirements of 1.0 if there are any, else those of 0.3.
fn prefer_v1_requirements(
    new: Vec<SecurityRequirement>,
    old: Vec<BTreeMap<String, Vec<String>>>,
    split: &BTreeMap<String, Vec<String>>,
) -> Vec<SecurityRequirement> {
    if new.is_empty() {
        expand_requirements(old, split)
    } else {
        new
    }
}

/// Converts the schemes of 0.1, which are HTTP schemes only.
fn convert_v01_authentication(
    old: V01Authentication,
    schemes: &mut BTreeMap<String, SecurityScheme>,
    requirements: &mut Vec<SecurityRequirement>,
) {
    for name in old.schemes {
        let scheme = HttpAuthSecurityScheme {
            scheme: name.clone(),
            ..HttpAuthSecurityScheme::default()
        };
        schemes.insert(name.clone(), SecurityScheme::HttpAuth(scheme));
        requirements.push(SecurityRequirement::new(name, Vec::<String>::new()));
    }
}

/// Returns the binding of the main interface. Only KAOS cards have `supportedProtocols` and no
/// member of 0.3 that names a binding.
fn main_transport(read: &mut CardMembers) -> String {
    let mut protocols = read.supported_protocols.iter();
    let has_jsonrpc = protocols.any(|name| name.eq_ignore_ascii_case(Binding::JsonRpc.as_str()));
    let default = if has_jsonrpc && read.additional_interfaces.is_empty() {
        KAOS_BINDING
    } else {
        Binding::JsonRpc.as_str()
    };
    let transport = read.preferred_transport.take();
    transport.unwrap_or_else(|| default.to_owned())
}

/// Returns the interfaces: from the 1.0 member, else from the 0.3 members, else from KAOS's
/// `supportedProtocols`.
fn read_interfaces(read: &mut CardMembers) -> Vec<AgentInterface> {
    if !read.supported_interfaces.is_empty() {
        return std::mem::take(&mut read.supported_interfaces);
    }
    let version = interface_version(read.protocol_version.as_deref().unwrap_or_default());
    let version = version.to_owned();
    let transport = main_transport(read);
    let is_kaos = transport == KAOS_BINDING;
    let url = read.url.take().or_else(|| is_kaos.then(String::new));
    let main = url.map(|url| TransportMembers { url, transport });
    let mut seen = BTreeSet::new();
    main.into_iter()
        .chain(std::mem::take(&mut read.additional_interfaces))
        .filter(|interface| seen.insert((interface.url.clone(), interface.transport.clone())))
        .map(|interface| AgentInterface {
            url: interface.url,
            protocol_binding: interface.transport,
            tenant: None,
            protocol_version: version.clone(),
        })
        .collect()
}
