//! Strategies for cards with every scheme, flow, requirement, skill, extension and signature.

use std::collections::BTreeMap;

use attache::model::{
    AgentCapabilities, AgentCard, AgentCardSignature, AgentExtension, AgentInterface,
    AgentProvider, AgentSkill, ApiKeySecurityScheme, AuthorizationCodeFlow, ClientCredentialsFlow,
    DeviceCodeFlow, HttpAuthSecurityScheme, ImplicitFlow, MutualTlsSecurityScheme,
    OAuth2SecurityScheme, OAuthFlows, OpenIdConnectSecurityScheme, PasswordFlow,
    SecurityRequirement, SecurityScheme,
};
use proptest::collection::{btree_map, vec};
use proptest::option;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::{Fit, metadata, some_text, tenant, text, texts};

/// Card whose requirements name existing schemes.
pub(crate) fn card(fit: Fit) -> BoxedStrategy<AgentCard> {
    let words = (
        text(),
        text(),
        text(),
        option::of(text()),
        option::of(text()),
    );
    let provider = option::of(
        (text(), text()).prop_map(|(url, organization)| AgentProvider { url, organization }),
    );
    let modes = (texts(), texts());
    let lists = (
        vec(interface(), 0..4),
        vec(skill(), 0..3),
        vec(signature(fit), 0..2),
    );
    let security = (
        btree_map(some_text(), scheme(fit), 0..4),
        requirement_indices(),
    );
    (words, provider, modes, lists, capabilities(fit), security)
        .prop_map(
            |(words, provider, modes, (interfaces, skills, signatures), capabilities, security)| {
                let (schemes, requirement_indices) = security;
                let (name, description, version, documentation_url, icon_url) = words;
                let skills = skills
                    .into_iter()
                    .map(|(skill, requirement_indices)| AgentSkill {
                        security_requirements: requirements(&schemes, requirement_indices),
                        ..skill
                    });
                AgentCard {
                    legacy_interfaces: Vec::new(),
                    name,
                    description,
                    supported_interfaces: interfaces,
                    provider,
                    version,
                    documentation_url,
                    capabilities,
                    security_requirements: requirements(&schemes, requirement_indices),
                    default_input_modes: modes.0,
                    default_output_modes: modes.1,
                    skills: skills.collect(),
                    signatures,
                    icon_url,
                    security_schemes: schemes,
                }
            },
        )
        .boxed()
}

/// Requirements by index, before the schemes are known.
type RequirementIndices = Vec<Vec<(Index, Vec<String>)>>;

fn requirement_indices() -> BoxedStrategy<RequirementIndices> {
    vec(vec((any::<Index>(), texts()), 0..3), 0..3).boxed()
}

fn requirements(
    schemes: &BTreeMap<String, SecurityScheme>,
    requirement_indices: RequirementIndices,
) -> Vec<SecurityRequirement> {
    let names: Vec<_> = schemes.keys().collect();
    let named = |index: Index, scopes: Vec<String>| {
        let name = names.get(index.index(names.len().max(1)))?;
        Some((name.to_string(), scopes))
    };
    requirement_indices
        .into_iter()
        .map(|indices| SecurityRequirement {
            schemes: indices
                .into_iter()
                .filter_map(|(index, scopes)| named(index, scopes))
                .collect(),
        })
        .collect()
}

fn interface() -> BoxedStrategy<AgentInterface> {
    let binding = select(vec![
        "JSONRPC",
        "GRPC",
        "HTTP+JSON",
        "https://example.org/own",
    ]);
    let version = select(vec![
        "1.0", "1.0", "0.3", "0.3", "0.3", "0.2.5", "", "0.3.0", "2.1",
    ]);
    (text(), binding, option::weighted(0.3, tenant()), version)
        .prop_map(|(url, binding, tenant, version)| AgentInterface {
            url,
            protocol_binding: binding.to_owned(),
            tenant,
            protocol_version: version.to_owned(),
        })
        .boxed()
}

fn capabilities(fit: Fit) -> BoxedStrategy<AgentCapabilities> {
    let flag = || option::of(any::<bool>());
    (flag(), flag(), vec(extension(fit), 0..3), flag(), flag())
        .prop_map(
            |(streaming, push_notifications, extensions, extended_agent_card, history)| {
                AgentCapabilities {
                    streaming,
                    push_notifications,
                    extensions,
                    extended_agent_card,
                    state_transition_history: history,
                }
            },
        )
        .boxed()
}

fn extension(fit: Fit) -> BoxedStrategy<AgentExtension> {
    let required = match fit {
        Fit::Json => option::of(any::<bool>()).boxed(),
        Fit::Protobuf | Fit::Official => select(vec![None, Some(true)]).boxed(),
    };
    (
        some_text(),
        option::of(some_text()),
        required,
        metadata(fit),
    )
        .prop_map(|(uri, description, required, params)| AgentExtension {
            uri,
            description,
            required,
            params,
        })
        .boxed()
}

fn skill() -> BoxedStrategy<(AgentSkill, RequirementIndices)> {
    let lists = (texts(), texts(), texts(), texts());
    (text(), text(), text(), lists, requirement_indices())
        .prop_map(
            |(
                id,
                name,
                description,
                (tags, examples, input_modes, output_modes),
                requirement_indices,
            )| {
                let security_requirements = Vec::new();
                let skill = AgentSkill {
                    id,
                    name,
                    description,
                    tags,
                    examples,
                    input_modes,
                    output_modes,
                    security_requirements,
                };
                (skill, requirement_indices)
            },
        )
        .boxed()
}

fn signature(fit: Fit) -> BoxedStrategy<AgentCardSignature> {
    (text(), text(), metadata(fit))
        .prop_map(|(protected, signature, header)| AgentCardSignature {
            protected,
            signature,
            header,
        })
        .boxed()
}

fn scheme(fit: Fit) -> BoxedStrategy<SecurityScheme> {
    let about = || option::of(some_text());
    let place = match fit {
        Fit::Json | Fit::Protobuf => text(),
        Fit::Official => select(vec!["cookie", "header", "query"])
            .prop_map(str::to_owned)
            .boxed(),
    };
    prop_oneof![
        1 => (about(), place, text()).prop_map(|(description, location, name)| {
            SecurityScheme::ApiKey(ApiKeySecurityScheme { description, location, name })
        }),
        1 => (about(), text(), option::of(some_text())).prop_map(|(description, scheme, bearer_format)| {
            SecurityScheme::HttpAuth(HttpAuthSecurityScheme { description, scheme, bearer_format })
        }),
        3 => (about(), option::weighted(0.9, flow()), option::of(some_text())).prop_map(
            |(description, flows, oauth2_metadata_url)| {
                SecurityScheme::OAuth2(OAuth2SecurityScheme { description, flows, oauth2_metadata_url })
            }
        ),
        1 => (about(), text()).prop_map(|(description, open_id_connect_url)| {
            SecurityScheme::OpenIdConnect(OpenIdConnectSecurityScheme { description, open_id_connect_url })
        }),
        1 => about().prop_map(|description| SecurityScheme::MutualTls(MutualTlsSecurityScheme { description })),
    ]
    .boxed()
}

fn flow() -> BoxedStrategy<OAuthFlows> {
    let scopes = btree_map(text(), text(), 0..3);
    (
        0..5,
        (text(), text()),
        option::of(some_text()),
        scopes,
        any::<bool>(),
    )
        .prop_map(
            |(kind, (authorization_url, token_url), refresh_url, scopes, pkce_required)| match kind
            {
                0 => OAuthFlows::AuthorizationCode(AuthorizationCodeFlow {
                    authorization_url,
                    token_url,
                    refresh_url,
                    scopes,
                    pkce_required,
                }),
                1 => OAuthFlows::ClientCredentials(ClientCredentialsFlow {
                    token_url,
                    refresh_url,
                    scopes,
                }),
                2 => OAuthFlows::Implicit(ImplicitFlow {
                    authorization_url,
                    refresh_url,
                    scopes,
                }),
                3 => OAuthFlows::Password(PasswordFlow {
                    token_url,
                    refresh_url,
                    scopes,
                }),
                _ => OAuthFlows::DeviceCode(DeviceCodeFlow {
                    device_authorization_url: authorization_url,
                    token_url,
                    refresh_url,
                    scopes,
                }),
            },
        )
        .boxed()
}
