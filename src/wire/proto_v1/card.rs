//! Conversions of the agent card.

use attache_proto::v1;
use v1::o_auth_flows::Flow;

use crate::model::{
    AgentCapabilities, AgentCard, AgentInterface, AgentSkill, AuthorizationCodeFlow, Error,
    OAuthFlows, SecurityRequirement,
};
use crate::wire::proto::{
    impl_card_conversions, impl_flow_conversions, non_empty, or_empty, read, read_list,
    read_or_default, write_list,
};

impl_card_conversions!(v1);
impl_flow_conversions!(v1, DeviceCodeFlow, DeviceCodeOAuthFlow { device_authorization_url token_url });

impl From<&AgentCard> for v1::AgentCard {
    fn from(card: &AgentCard) -> Self {
        let schemes = card.security_schemes.iter();
        Self {
            name: card.name.clone(),
            description: card.description.clone(),
            supported_interfaces: write_list(&card.supported_interfaces),
            provider: card.provider.as_ref().map(Into::into),
            version: card.version.clone(),
            documentation_url: card.documentation_url.clone(),
            capabilities: Some((&card.capabilities).into()),
            security_schemes: schemes
                .map(|(name, scheme)| (name.clone(), scheme.into()))
                .collect(),
            security_requirements: write_list(&card.security_requirements),
            default_input_modes: card.default_input_modes.clone(),
            default_output_modes: card.default_output_modes.clone(),
            skills: write_list(&card.skills),
            signatures: write_list(&card.signatures),
            icon_url: card.icon_url.clone(),
        }
    }
}

impl TryFrom<v1::AgentCard> for AgentCard {
    type Error = Error;

    fn try_from(card: v1::AgentCard) -> Result<Self, Error> {
        let schemes = card.security_schemes.into_iter();
        Ok(Self {
            name: card.name,
            description: card.description,
            supported_interfaces: card
                .supported_interfaces
                .into_iter()
                .map(Into::into)
                .collect(),
            legacy_interfaces: Vec::new(),
            provider: card.provider.map(Into::into),
            version: card.version,
            documentation_url: card.documentation_url,
            capabilities: read_or_default("capabilities", card.capabilities)?,
            security_schemes: schemes
                .map(|(name, scheme)| {
                    Ok((
                        name.clone(),
                        read(&format!("securitySchemes.{name}"), scheme)?,
                    ))
                })
                .collect::<Result<_, Error>>()?,
            security_requirements: card
                .security_requirements
                .into_iter()
                .map(Into::into)
                .collect(),
            default_input_modes: card.default_input_modes,
            default_output_modes: card.default_output_modes,
            skills: card.skills.into_iter().map(Into::into).collect(),
            signatures: read_list("signatures", card.signatures)?,
            icon_url: card.icon_url,
        })
    }
}

impl From<&AgentInterface> for v1::AgentInterface {
    fn from(interface: &AgentInterface) -> Self {
        Self {
            url: interface.url.clone(),
            protocol_binding: interface.protocol_binding.clone(),
            tenant: or_empty(interface.tenant.as_ref()),
            protocol_version: interface.protocol_version.clone(),
        }
    }
}

impl From<v1::AgentInterface> for AgentInterface {
    fn from(interface: v1::AgentInterface) -> Self {
        Self {
            url: interface.url,
            protocol_binding: interface.protocol_binding,
            tenant: non_empty(interface.tenant),
            protocol_version: interface.protocol_version,
        }
    }
}

impl From<&AgentCapabilities> for v1::AgentCapabilities {
    fn from(capabilities: &AgentCapabilities) -> Self {
        Self {
            streaming: capabilities.streaming,
            push_notifications: capabilities.push_notifications,
            extensions: write_list(&capabilities.extensions),
            extended_agent_card: capabilities.extended_agent_card,
        }
    }
}

impl TryFrom<v1::AgentCapabilities> for AgentCapabilities {
    type Error = Error;

    fn try_from(capabilities: v1::AgentCapabilities) -> Result<Self, Error> {
        Ok(Self {
            streaming: capabilities.streaming,
            push_notifications: capabilities.push_notifications,
            extensions: read_list("extensions", capabilities.extensions)?,
            extended_agent_card: capabilities.extended_agent_card,
            state_transition_history: None,
        })
    }
}

impl From<&AgentSkill> for v1::AgentSkill {
    fn from(skill: &AgentSkill) -> Self {
        Self {
            id: skill.id.clone(),
            name: skill.name.clone(),
            description: skill.description.clone(),
            tags: skill.tags.clone(),
            examples: skill.examples.clone(),
            input_modes: skill.input_modes.clone(),
            output_modes: skill.output_modes.clone(),
            security_requirements: write_list(&skill.security_requirements),
        }
    }
}

impl From<v1::AgentSkill> for AgentSkill {
    fn from(skill: v1::AgentSkill) -> Self {
        Self {
            id: skill.id,
            name: skill.name,
            description: skill.description,
            tags: skill.tags,
            examples: skill.examples,
            input_modes: skill.input_modes,
            output_modes: skill.output_modes,
            security_requirements: skill
                .security_requirements
                .into_iter()
                .map(Into::into)
                .collect(),
        }
    }
}

impl From<&SecurityRequirement> for v1::SecurityRequirement {
    fn from(requirement: &SecurityRequirement) -> Self {
        let schemes = requirement.schemes.iter();
        Self {
            schemes: schemes
                .map(|(name, scopes)| {
                    (
                        name.clone(),
                        v1::StringList {
                            list: scopes.clone(),
                        },
                    )
                })
                .collect(),
        }
    }
}

impl From<v1::SecurityRequirement> for SecurityRequirement {
    fn from(requirement: v1::SecurityRequirement) -> Self {
        Self {
            schemes: requirement
                .schemes
                .into_iter()
                .map(|(name, scopes)| (name, scopes.list))
                .collect(),
        }
    }
}

/// Optional, because the shared macro also serves 0.3, which lacks one of the flows.
fn write_flow(flow: &OAuthFlows) -> Option<Flow> {
    Some(match flow {
        OAuthFlows::AuthorizationCode(flow) => Flow::AuthorizationCode(flow.into()),
        OAuthFlows::ClientCredentials(flow) => Flow::ClientCredentials(flow.into()),
        OAuthFlows::Implicit(flow) => Flow::Implicit(flow.into()),
        OAuthFlows::Password(flow) => Flow::Password(flow.into()),
        OAuthFlows::DeviceCode(flow) => Flow::DeviceCode(flow.into()),
    })
}

fn read_flow(flow: Flow) -> OAuthFlows {
    match flow {
        Flow::AuthorizationCode(flow) => OAuthFlows::AuthorizationCode(flow.into()),
        Flow::ClientCredentials(flow) => OAuthFlows::ClientCredentials(flow.into()),
        Flow::Implicit(flow) => OAuthFlows::Implicit(flow.into()),
        Flow::Password(flow) => OAuthFlows::Password(flow.into()),
        Flow::DeviceCode(flow) => OAuthFlows::DeviceCode(flow.into()),
    }
}

impl From<&AuthorizationCodeFlow> for v1::AuthorizationCodeOAuthFlow {
    fn from(flow: &AuthorizationCodeFlow) -> Self {
        Self {
            authorization_url: flow.authorization_url.clone(),
            token_url: flow.token_url.clone(),
            refresh_url: or_empty(flow.refresh_url.as_ref()),
            scopes: flow.scopes.clone(),
            pkce_required: flow.pkce_required,
        }
    }
}

impl From<v1::AuthorizationCodeOAuthFlow> for AuthorizationCodeFlow {
    fn from(flow: v1::AuthorizationCodeOAuthFlow) -> Self {
        Self {
            authorization_url: flow.authorization_url,
            token_url: flow.token_url,
            refresh_url: non_empty(flow.refresh_url),
            scopes: flow.scopes,
            pkce_required: flow.pkce_required,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SecurityScheme;

    const CARD: &str = r#"{
        "name": "a", "description": "b", "version": "1", "documentationUrl": "", "iconUrl": "i",
        "supportedInterfaces": [{"url": "u", "protocolBinding": "GRPC", "tenant": "t", "protocolVersion": "1.0"}],
        "provider": {"url": "u", "organization": "o"},
        "capabilities": {
            "streaming": false, "extendedAgentCard": true,
            "extensions": [{"uri": "x", "description": "d", "required": true, "params": {"a": [1]}}]
        },
        "securitySchemes": {
            "key": {"apiKeySecurityScheme": {"location": "header", "name": "X-Key", "description": "d"}},
            "http": {"httpAuthSecurityScheme": {"scheme": "Bearer", "bearerFormat": "JWT"}},
            "code": {"oauth2SecurityScheme": {"flows": {"authorizationCode": {
                "authorizationUrl": "a", "tokenUrl": "t", "scopes": {"s": "S"}, "pkceRequired": true
            }}, "oauth2MetadataUrl": "m"}},
            "client": {"oauth2SecurityScheme": {"flows": {"clientCredentials": {
                "tokenUrl": "t", "refreshUrl": "r", "scopes": {}
            }}}},
            "implicit": {"oauth2SecurityScheme": {"flows": {"implicit": {"authorizationUrl": "a", "scopes": {}}}}},
            "password": {"oauth2SecurityScheme": {"flows": {"password": {"tokenUrl": "t", "scopes": {}}}}},
            "device": {"oauth2SecurityScheme": {"flows": {"deviceCode": {
                "deviceAuthorizationUrl": "d", "tokenUrl": "t", "scopes": {"s": "S"}
            }}}},
            "none": {"oauth2SecurityScheme": {}},
            "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "o"}},
            "mtls": {"mtlsSecurityScheme": {}}
        },
        "securityRequirements": [{"schemes": {"code": {"list": ["s"]}}}, {"schemes": {"key": {}, "mtls": {}}}, {}],
        "defaultInputModes": ["text/plain"], "defaultOutputModes": ["image/png"],
        "skills": [{
            "id": "s", "name": "n", "description": "d", "tags": ["t"], "examples": ["e"], "inputModes": ["i"],
            "outputModes": ["o"], "securityRequirements": [{"schemes": {"http": {"list": []}}}]
        }],
        "signatures": [{"protected": "p", "signature": "s", "header": {"k": "v"}}]
    }"#;

    #[test]
    fn full_card_round_trips() {
        let card: AgentCard = serde_json::from_str(CARD).unwrap();
        assert_eq!(AgentCard::try_from(v1::AgentCard::from(&card)), Ok(card));
    }

    #[test]
    fn flag_without_presence_is_true_or_absent() {
        let extension = v1::AgentExtension {
            uri: "x".to_owned(),
            required: false,
            ..Default::default()
        };
        let capabilities = v1::AgentCapabilities {
            extensions: vec![extension],
            ..Default::default()
        };
        assert_eq!(
            AgentCapabilities::try_from(capabilities)
                .unwrap()
                .extensions[0]
                .required,
            None
        );
    }

    #[test]
    fn scheme_without_kind_is_rejected_by_name() {
        let security_schemes = [("x".to_owned(), v1::SecurityScheme::default())].into();
        let card = v1::AgentCard {
            security_schemes,
            ..Default::default()
        };
        assert_eq!(
            AgentCard::try_from(card).unwrap_err().violations()[0].field(),
            "securitySchemes.x"
        );
        assert!(SecurityScheme::try_from(v1::SecurityScheme::default()).is_err());
    }
}
