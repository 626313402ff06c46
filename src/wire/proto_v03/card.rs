//! Conversions of the agent card.

use std::collections::BTreeMap;

use attache_proto::v03;
use v03::o_auth_flows::Flow;

use crate::model::{
    AgentCapabilities, AgentCard, AgentInterface, AgentSkill, AuthorizationCodeFlow, Binding,
    Error, ErrorKind, OAuthFlows, SecurityRequirement, SecurityScheme,
};
use crate::wire::card::legacy::{interface_version, is_pre_v1, uses_device_code, v03_card_version};
use crate::wire::proto::{
    impl_card_conversions, non_empty, or_empty, read, read_list, read_or_default, write_list,
};

impl_card_conversions!(v03);

impl TryFrom<&AgentCard> for v03::AgentCard {
    type Error = Error;

    /// Fails if the card has no interface that a 0.3 client can use.
    fn try_from(card: &AgentCard) -> Result<Self, Error> {
        let interfaces: Vec<_> = card
            .supported_interfaces
            .iter()
            .chain(&card.legacy_interfaces)
            .filter(|one| is_pre_v1(one))
            .collect();
        let main = interfaces.first().ok_or(ErrorKind::UnsupportedOperation)?;
        let schemes = card
            .security_schemes
            .iter()
            .filter(|(_, scheme)| !uses_device_code(scheme));
        Ok(Self {
            name: card.name.clone(),
            description: card.description.clone(),
            url: main.url.clone(),
            provider: card.provider.as_ref().map(Into::into),
            version: card.version.clone(),
            documentation_url: or_empty(card.documentation_url.as_ref()),
            capabilities: Some((&card.capabilities).into()),
            security_schemes: schemes
                .map(|(name, scheme)| (name.clone(), scheme.into()))
                .collect(),
            security: write_requirements(&card.security_requirements, &card.security_schemes),
            default_input_modes: card.default_input_modes.clone(),
            default_output_modes: card.default_output_modes.clone(),
            skills: card
                .skills
                .iter()
                .map(|skill| write_skill(skill, &card.security_schemes))
                .collect(),
            supports_authenticated_extended_card: card
                .capabilities
                .extended_agent_card
                .unwrap_or_default(),
            preferred_transport: main.protocol_binding.clone(),
            // Repeats the main interface, because some clients look only here.
            additional_interfaces: interfaces
                .iter()
                .map(|interface| (*interface).into())
                .collect(),
            protocol_version: v03_card_version(&main.protocol_version).to_owned(),
            signatures: write_list(&card.signatures),
            icon_url: or_empty(card.icon_url.as_ref()),
        })
    }
}

impl TryFrom<v03::AgentCard> for AgentCard {
    type Error = Error;

    fn try_from(card: v03::AgentCard) -> Result<Self, Error> {
        let supported_interfaces = read_interfaces(&card);
        let schemes = card.security_schemes.into_iter();
        let mut capabilities: AgentCapabilities =
            read_or_default("capabilities", card.capabilities)?;
        capabilities.extended_agent_card =
            card.supports_authenticated_extended_card.then_some(true);
        Ok(Self {
            name: card.name,
            description: card.description,
            supported_interfaces,
            legacy_interfaces: Vec::new(),
            provider: card.provider.map(Into::into),
            version: card.version,
            documentation_url: non_empty(card.documentation_url),
            capabilities,
            security_schemes: schemes
                .map(|(name, scheme)| {
                    Ok((
                        name.clone(),
                        read(&format!("securitySchemes.{name}"), scheme)?,
                    ))
                })
                .collect::<Result<_, Error>>()?,
            security_requirements: card.security.into_iter().map(Into::into).collect(),
            default_input_modes: card.default_input_modes,
            default_output_modes: card.default_output_modes,
            skills: card.skills.into_iter().map(Into::into).collect(),
            signatures: read_list("signatures", card.signatures)?,
            icon_url: non_empty(card.icon_url),
        })
    }
}

/// Returns the main interface, then the others, without duplicates.
fn read_interfaces(card: &v03::AgentCard) -> Vec<AgentInterface> {
    let transport = Some(card.preferred_transport.as_str()).filter(|name| !name.is_empty());
    let main = (
        card.url.as_str(),
        transport.unwrap_or(Binding::JsonRpc.as_str()),
    );
    let others = card
        .additional_interfaces
        .iter()
        .map(|other| (other.url.as_str(), other.transport.as_str()));
    let mut interfaces = Vec::new();
    for (url, binding) in [main].into_iter().chain(others) {
        let interface = AgentInterface {
            url: url.to_owned(),
            protocol_binding: binding.to_owned(),
            tenant: None,
            protocol_version: interface_version(&card.protocol_version).to_owned(),
        };
        if !interfaces.contains(&interface) {
            interfaces.push(interface);
        }
    }
    interfaces
}

/// Returns the requirements that a 0.3 client can satisfy.
fn write_requirements(
    requirements: &[SecurityRequirement],
    schemes: &BTreeMap<String, SecurityScheme>,
) -> Vec<v03::Security> {
    let possible = requirements.iter().filter(|requirement| {
        requirement
            .schemes
            .keys()
            .all(|name| !schemes.get(name).is_some_and(uses_device_code))
    });
    write_list(possible)
}

impl From<&AgentInterface> for v03::AgentInterface {
    fn from(interface: &AgentInterface) -> Self {
        Self {
            url: interface.url.clone(),
            transport: interface.protocol_binding.clone(),
        }
    }
}

impl From<&AgentCapabilities> for v03::AgentCapabilities {
    fn from(capabilities: &AgentCapabilities) -> Self {
        Self {
            streaming: capabilities.streaming.unwrap_or_default(),
            push_notifications: capabilities.push_notifications.unwrap_or_default(),
            extensions: write_list(&capabilities.extensions),
            // Only one of the three revisions has this field.
            state_transition_history: false,
        }
    }
}

impl TryFrom<v03::AgentCapabilities> for AgentCapabilities {
    type Error = Error;

    fn try_from(capabilities: v03::AgentCapabilities) -> Result<Self, Error> {
        Ok(Self {
            streaming: capabilities.streaming.then_some(true),
            push_notifications: capabilities.push_notifications.then_some(true),
            extensions: read_list("extensions", capabilities.extensions)?,
            extended_agent_card: None,
            state_transition_history: capabilities.state_transition_history.then_some(true),
        })
    }
}

fn write_skill(skill: &AgentSkill, schemes: &BTreeMap<String, SecurityScheme>) -> v03::AgentSkill {
    v03::AgentSkill {
        id: skill.id.clone(),
        name: skill.name.clone(),
        description: skill.description.clone(),
        tags: skill.tags.clone(),
        examples: skill.examples.clone(),
        input_modes: skill.input_modes.clone(),
        output_modes: skill.output_modes.clone(),
        security: write_requirements(&skill.security_requirements, schemes),
    }
}

impl From<v03::AgentSkill> for AgentSkill {
    fn from(skill: v03::AgentSkill) -> Self {
        Self {
            id: skill.id,
            name: skill.name,
            description: skill.description,
            tags: skill.tags,
            examples: skill.examples,
            input_modes: skill.input_modes,
            output_modes: skill.output_modes,
            security_requirements: skill.security.into_iter().map(Into::into).collect(),
        }
    }
}

impl From<&SecurityRequirement> for v03::Security {
    fn from(requirement: &SecurityRequirement) -> Self {
        let schemes = requirement.schemes.iter();
        Self {
            schemes: schemes
                .map(|(name, scopes)| {
                    (
                        name.clone(),
                        v03::StringList {
                            list: scopes.clone(),
                        },
                    )
                })
                .collect(),
        }
    }
}

impl From<v03::Security> for SecurityRequirement {
    fn from(requirement: v03::Security) -> Self {
        Self {
            schemes: requirement
                .schemes
                .into_iter()
                .map(|(name, scopes)| (name, scopes.list))
                .collect(),
        }
    }
}

fn write_flow(flow: &OAuthFlows) -> Option<Flow> {
    match flow {
        OAuthFlows::AuthorizationCode(flow) => Some(Flow::AuthorizationCode(flow.into())),
        OAuthFlows::ClientCredentials(flow) => Some(Flow::ClientCredentials(flow.into())),
        OAuthFlows::Implicit(flow) => Some(Flow::Implicit(flow.into())),
        OAuthFlows::Password(flow) => Some(Flow::Password(flow.into())),
        OAuthFlows::DeviceCode(_) => None,
    }
}

fn read_flow(flow: Flow) -> OAuthFlows {
    match flow {
        Flow::AuthorizationCode(flow) => OAuthFlows::AuthorizationCode(flow.into()),
        Flow::ClientCredentials(flow) => OAuthFlows::ClientCredentials(flow.into()),
        Flow::Implicit(flow) => OAuthFlows::Implicit(flow.into()),
        Flow::Password(flow) => OAuthFlows::Password(flow.into()),
    }
}

impl From<&AuthorizationCodeFlow> for v03::AuthorizationCodeOAuthFlow {
    fn from(flow: &AuthorizationCodeFlow) -> Self {
        Self {
            authorization_url: flow.authorization_url.clone(),
            token_url: flow.token_url.clone(),
            refresh_url: or_empty(flow.refresh_url.as_ref()),
            scopes: flow.scopes.clone(),
        }
    }
}

impl From<v03::AuthorizationCodeOAuthFlow> for AuthorizationCodeFlow {
    fn from(flow: v03::AuthorizationCodeOAuthFlow) -> Self {
        Self {
            authorization_url: flow.authorization_url,
            token_url: flow.token_url,
            refresh_url: non_empty(flow.refresh_url),
            scopes: flow.scopes,
            pkce_required: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        AgentExtension, DeviceCodeFlow, MutualTlsSecurityScheme, OAuth2SecurityScheme, Version,
    };

    fn card() -> AgentCard {
        let mut card = AgentCard::new("a", "b")
            .interface("u1", Binding::JsonRpc, Version::V1)
            .interface("u3", Binding::JsonRpc, Version::V03)
            .interface("g3", Binding::Grpc, Version::V03);
        card.capabilities.streaming = Some(true);
        card.capabilities.extended_agent_card = Some(true);
        card.capabilities.extensions.push(AgentExtension {
            uri: "x".to_owned(),
            ..Default::default()
        });
        card.security_schemes.insert(
            "mtls".into(),
            SecurityScheme::MutualTls(MutualTlsSecurityScheme::default()),
        );
        card.security_requirements
            .push(SecurityRequirement::new("mtls", ["s"]));
        card.skill(AgentSkill {
            security_requirements: vec![],
            ..AgentSkill::new("i", "n", "d").tag("t")
        })
    }

    fn pair(interface: &v03::AgentInterface) -> (&str, &str) {
        (&interface.url, &interface.transport)
    }

    #[test]
    fn legacy_interfaces_round_trip() {
        let proto = v03::AgentCard::try_from(&card()).unwrap();
        assert_eq!(
            (proto.url.as_str(), proto.preferred_transport.as_str()),
            ("u3", "JSONRPC")
        );
        assert_eq!(proto.protocol_version, "0.3.0");
        let others: Vec<_> = proto.additional_interfaces.iter().map(pair).collect();
        assert_eq!(others, [("u3", "JSONRPC"), ("g3", "GRPC")]);
        let mut expected = card();
        expected.supported_interfaces.remove(0);
        assert_eq!(AgentCard::try_from(proto), Ok(expected));
    }

    #[test]
    fn card_without_v03_interface_is_rejected() {
        let card = AgentCard::new("a", "b").interface("u", Binding::Grpc, Version::V1);
        let error = v03::AgentCard::try_from(&card).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    }

    #[test]
    fn missing_fields_have_the_defaults_of_v03() {
        let proto = v03::AgentCard {
            url: "u".to_owned(),
            ..Default::default()
        };
        let card = AgentCard::try_from(proto).unwrap();
        assert_eq!(
            card.supported_interfaces,
            [AgentInterface::new("u", Binding::JsonRpc, Version::V03)]
        );
        assert_eq!(
            (card.documentation_url, card.capabilities),
            (None, AgentCapabilities::default())
        );
        let old = v03::AgentCard {
            protocol_version: "0.2.5".to_owned(),
            ..Default::default()
        };
        let old = AgentCard::try_from(old).unwrap();
        assert_eq!(old.supported_interfaces[0].protocol_version, "0.2.5");
        assert_eq!(
            v03::AgentCard::try_from(&old).unwrap().protocol_version,
            "0.2.5"
        );
    }

    #[test]
    fn device_code_and_its_requirements_are_omitted() {
        let mut card = card();
        let flows = Some(OAuthFlows::DeviceCode(DeviceCodeFlow::default()));
        let device = SecurityScheme::OAuth2(OAuth2SecurityScheme {
            flows,
            ..Default::default()
        });
        card.security_schemes.insert("device".to_owned(), device);
        let mut both = SecurityRequirement::new("device", ["s"]);
        both.schemes.insert("mtls".to_owned(), Vec::new());
        card.security_requirements.insert(0, both.clone());
        card.skills[0].security_requirements = vec![both];
        let proto = v03::AgentCard::try_from(&card).unwrap();
        assert_eq!(proto.security_schemes.keys().collect::<Vec<_>>(), ["mtls"]);
        assert_eq!(
            proto.security,
            [v03::Security::from(&SecurityRequirement::new(
                "mtls",
                ["s"]
            ))]
        );
        assert!(proto.skills[0].security.is_empty());
    }

    #[test]
    fn state_transition_history_is_decoded_and_not_encoded() {
        let proto = v03::AgentCapabilities {
            state_transition_history: true,
            ..Default::default()
        };
        let capabilities = AgentCapabilities::try_from(proto).unwrap();
        assert_eq!(capabilities.state_transition_history, Some(true));
        assert!(!v03::AgentCapabilities::from(&capabilities).state_transition_history);
    }
}
