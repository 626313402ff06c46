//! Cards: one model, written as 1.0, 0.3, 0.2 or all in one, and read from any of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize, Deserializer};

use super::json::{at, read};
use crate::model::{
    AgentCapabilities, AgentCard, AgentExtension, AgentInterface, AgentSkill, ApiKeySecurityScheme, Binding,
    Error, ErrorKind, Flows, HttpAuthSecurityScheme, MutualTlsSecurityScheme, OAuth2SecurityScheme,
    OAuthFlows, OpenIdConnectSecurityScheme, SecurityRequirement, SecurityScheme, Version, non_empty,
    or_default,
};

/// How a card is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CardForm {
    /// 1.0 alone.
    V1,
    /// 0.3 alone.
    V03,
    /// 0.3, with the member that 1.0 readers look for inside each security scheme.
    V03Wrapped,
    /// 0.2: 0.3 without what came later.
    V02,
    /// 1.0, and 0.3 beside it: readable by everybody.
    Union,
}

/// Writes a card.
///
/// # Errors
/// Unsupported: an older form was asked for, and the agent speaks no version older than 1.0.
pub fn write_card(out: &mut Vec<u8>, card: &AgentCard, form: CardForm) -> Result<(), Error> {
    let older = Older::new(card);
    match (form, older) {
        (CardForm::V1, _) | (CardForm::Union, None) => super::write(out, card),
        (CardForm::Union, Some(older)) => super::write(out, &Union(card, &older)),
        (CardForm::V03 | CardForm::V03Wrapped | CardForm::V02, Some(older)) => {
            super::write(out, &Old(card, &older, form));
        }
        (CardForm::V03 | CardForm::V03Wrapped | CardForm::V02, None) => {
            return Err(Error::new(ErrorKind::UnsupportedOperation)
                .with_message("This operation is not supported: the agent has no interface older than 1.0"));
        }
    }
    Ok(())
}

/// What of a card can be said before 1.0.
struct Older<'a> {
    first: &'a AgentInterface,
    all: Vec<&'a AgentInterface>,
    schemes: BTreeMap<&'a str, &'a SecurityScheme>,
}

impl<'a> Older<'a> {
    fn new(card: &'a AgentCard) -> Option<Self> {
        let all: Vec<_> = card.supported_interfaces.iter().filter(|interface| is_older(interface)).collect();
        let schemes = card.security_schemes.iter().filter(|(_, scheme)| !is_device_code(scheme));
        Some(Self {
            first: all.first()?,
            all,
            schemes: schemes.map(|(name, scheme)| (&**name, scheme)).collect(),
        })
    }

    /// Requirements whose every scheme can still be named.
    fn requirements(&self, all: &'a [SecurityRequirement]) -> Vec<&'a BTreeMap<String, Vec<String>>> {
        let known = |requirement: &&SecurityRequirement| {
            requirement.schemes.keys().all(|name| self.schemes.contains_key(name.as_str()))
        };
        all.iter().filter(known).map(|requirement| &requirement.schemes).collect()
    }

    fn protocol_version(&self) -> &'a str {
        match self.first.protocol_version.as_str() {
            "" | "0.3" => "0.3.0",
            version => version,
        }
    }
}

/// Whether an interface speaks a version older than 1.0.
pub(crate) fn is_older(interface: &AgentInterface) -> bool {
    interface.protocol_version.is_empty() || interface.protocol_version.starts_with("0.")
}

/// Older versions have no flow for devices; a scheme without a flow would promise what nobody can do.
fn is_device_code(scheme: &SecurityScheme) -> bool {
    matches!(
        scheme,
        SecurityScheme::OAuth2(OAuth2SecurityScheme { flows: Some(OAuthFlows::DeviceCode(_)), .. })
    )
}

/// A card of 0.3 or 0.2.
struct Old<'a>(&'a AgentCard, &'a Older<'a>, CardForm);

impl Serialize for Old<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(card, older, form) = self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("protocolVersion", older.protocol_version())?;
        map.serialize_entry("name", &card.name)?;
        map.serialize_entry("description", &card.description)?;
        map.serialize_entry("url", &older.first.url)?;
        let plain =
            *form == CardForm::V02 && older.all.len() == 1 && older.first.binding() == Some(Binding::JsonRpc);
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
        let skills: Vec<_> = card.skills.iter().map(|skill| Skill(skill, older, *form)).collect();
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
    let known =
        |scheme: &SecurityScheme| form != CardForm::V02 || !matches!(scheme, SecurityScheme::MutualTls(_));
    let schemes = older.schemes.iter().filter(|(_, scheme)| known(scheme));
    let schemes: BTreeMap<_, _> = schemes.map(|(name, scheme)| (name, Scheme(scheme, form))).collect();
    if !schemes.is_empty() {
        map.serialize_entry("securitySchemes", &schemes)?;
    }
    let mut security = older.requirements(&card.security_requirements);
    security.retain(|requirement| requirement.keys().all(|name| schemes.contains_key(&name.as_str())));
    if !security.is_empty() {
        map.serialize_entry("security", &security)?;
    }
    Ok(())
}

fn transports<'a>(interfaces: &[&'a AgentInterface]) -> Vec<BTreeMap<&'static str, &'a str>> {
    let transport = |interface: &&'a AgentInterface| {
        BTreeMap::from([("url", &*interface.url), ("transport", &*interface.protocol_binding)])
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

fn write_capabilities<M: SerializeMap>(
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

struct UnionCapabilities<'a>(&'a AgentCapabilities);

impl Serialize for UnionCapabilities<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        write_capabilities(&mut map, self.0)?;
        if let Some(extended) = self.0.extended_agent_card {
            map.serialize_entry("extendedAgentCard", &extended)?;
        }
        map.end()
    }
}

/// A security scheme as a form has it.
struct Scheme<'a>(&'a SecurityScheme, CardForm);

impl Serialize for Scheme<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if matches!(self.1, CardForm::Union | CardForm::V03Wrapped) {
            write_wrapper(&mut map, self.0)?;
        }
        write_old_scheme(&mut map, self.0, self.1)?;
        map.end()
    }
}

fn write_wrapper<M: SerializeMap>(map: &mut M, scheme: &SecurityScheme) -> Result<(), M::Error> {
    match scheme {
        SecurityScheme::ApiKey(scheme) => map.serialize_entry("apiKeySecurityScheme", scheme),
        SecurityScheme::HttpAuth(scheme) => map.serialize_entry("httpAuthSecurityScheme", scheme),
        SecurityScheme::OAuth2(scheme) => map.serialize_entry("oauth2SecurityScheme", scheme),
        SecurityScheme::OpenIdConnect(scheme) => map.serialize_entry("openIdConnectSecurityScheme", scheme),
        SecurityScheme::MutualTls(scheme) => map.serialize_entry("mtlsSecurityScheme", scheme),
    }
}

fn write_old_scheme<M: SerializeMap>(
    map: &mut M,
    scheme: &SecurityScheme,
    form: CardForm,
) -> Result<(), M::Error> {
    let description = match scheme {
        SecurityScheme::ApiKey(scheme) => {
            map.serialize_entry("type", "apiKey")?;
            map.serialize_entry("in", &scheme.location)?;
            map.serialize_entry("name", &scheme.name)?;
            &scheme.description
        }
        SecurityScheme::HttpAuth(scheme) => {
            map.serialize_entry("type", "http")?;
            map.serialize_entry("scheme", &scheme.scheme)?;
            if let Some(format) = &scheme.bearer_format {
                map.serialize_entry("bearerFormat", format)?;
            }
            &scheme.description
        }
        SecurityScheme::OAuth2(scheme) => {
            map.serialize_entry("type", "oauth2")?;
            map.serialize_entry("flows", &OldFlows(scheme.flows.as_ref(), form))?;
            if let Some(url) = scheme.oauth2_metadata_url.as_ref().filter(|_| form != CardForm::V02) {
                map.serialize_entry("oauth2MetadataUrl", url)?;
            }
            &scheme.description
        }
        SecurityScheme::OpenIdConnect(scheme) => {
            map.serialize_entry("type", "openIdConnect")?;
            map.serialize_entry("openIdConnectUrl", &scheme.open_id_connect_url)?;
            &scheme.description
        }
        SecurityScheme::MutualTls(scheme) => {
            map.serialize_entry("type", "mutualTLS")?;
            &scheme.description
        }
    };
    match description {
        Some(description) => map.serialize_entry("description", description),
        None => Ok(()),
    }
}

/// Flows without what older versions have not. A union has it all: where there is a `type`, the official reader of
/// 1.0 looks here and nowhere else, and older readers see past what is new.
struct OldFlows<'a>(Option<&'a OAuthFlows>, CardForm);

impl Serialize for OldFlows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(flows) if self.1 == CardForm::Union => flows.serialize(serializer),
            Some(OAuthFlows::AuthorizationCode(flow)) => {
                let flow = crate::model::AuthorizationCodeFlow { pkce_required: false, ..flow.clone() };
                OAuthFlows::AuthorizationCode(flow).serialize(serializer)
            }
            Some(
                flows
                @ (OAuthFlows::ClientCredentials(_) | OAuthFlows::Implicit(_) | OAuthFlows::Password(_)),
            ) => flows.serialize(serializer),
            Some(OAuthFlows::DeviceCode(_)) | None => serializer.serialize_map(Some(0))?.end(),
        }
    }
}

/// A skill with the requirements of older versions: beside those of 1.0 in a union, instead of them elsewhere.
struct Skill<'a>(&'a AgentSkill, &'a Older<'a>, CardForm);

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

/// Both generations in one document.
struct Union<'a>(&'a AgentCard, &'a Older<'a>);

impl Serialize for Union<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(card, older) = self;
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
        map.serialize_entry("capabilities", &UnionCapabilities(&card.capabilities))?;
        self.write_security(&mut map)?;
        map.serialize_entry("defaultInputModes", &card.default_input_modes)?;
        map.serialize_entry("defaultOutputModes", &card.default_output_modes)?;
        let skills: Vec<_> = card.skills.iter().map(|skill| Skill(skill, older, CardForm::Union)).collect();
        map.serialize_entry("skills", &skills)?;
        if !card.signatures.is_empty() {
            map.serialize_entry("signatures", &card.signatures)?;
        }
        map.serialize_entry("protocolVersion", older.protocol_version())?;
        map.serialize_entry("url", &older.first.url)?;
        map.serialize_entry("preferredTransport", &older.first.protocol_binding)?;
        let others = transports(older.all.get(1..).unwrap_or_default());
        if !others.is_empty() {
            map.serialize_entry("additionalInterfaces", &others)?;
        }
        if card.capabilities.extended_agent_card == Some(true) {
            map.serialize_entry("supportsAuthenticatedExtendedCard", &true)?;
        }
        map.end()
    }
}

impl Union<'_> {
    fn write_security<M: SerializeMap>(&self, map: &mut M) -> Result<(), M::Error> {
        let Self(card, older) = self;
        let schemes: BTreeMap<_, _> = card
            .security_schemes
            .iter()
            .map(|(name, scheme)| (name, Scheme(scheme, CardForm::Union)))
            .collect();
        if !schemes.is_empty() {
            map.serialize_entry("securitySchemes", &schemes)?;
        }
        if !card.security_requirements.is_empty() {
            map.serialize_entry("securityRequirements", &card.security_requirements)?;
        }
        let security = older.requirements(&card.security_requirements);
        if !security.is_empty() {
            map.serialize_entry("security", &security)?;
        }
        Ok(())
    }
}

/// Reads a card of any version, or of all at once.
///
/// # Errors
/// It is not JSON, or a member has the wrong shape.
pub fn read_card(body: &[u8]) -> Result<AgentCard, Error> {
    read_card_text(super::json::check(body)?)
}

pub(crate) fn read_card_text(text: &str) -> Result<AgentCard, Error> {
    Ok(read::<CardIn>(text)?.0)
}

/// A card of any version.
pub(crate) struct CardIn(pub(crate) AgentCard);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members {
    #[serde(default, deserialize_with = "or_default")]
    name: String,
    #[serde(default, deserialize_with = "or_default")]
    description: String,
    #[serde(default, alias = "supported_interfaces", deserialize_with = "or_default")]
    supported_interfaces: Vec<AgentInterface>,
    provider: Option<crate::model::AgentProvider>,
    #[serde(default, deserialize_with = "or_default")]
    version: String,
    #[serde(alias = "documentation_url")]
    documentation_url: Option<String>,
    #[serde(alias = "icon_url")]
    icon_url: Option<String>,
    #[serde(default, deserialize_with = "or_default")]
    capabilities: CapabilitiesIn,
    #[serde(default, alias = "security_schemes", deserialize_with = "or_default")]
    security_schemes: BTreeMap<String, SchemeIn>,
    #[serde(default, alias = "security_requirements", deserialize_with = "or_default")]
    security_requirements: Vec<SecurityRequirement>,
    #[serde(default, deserialize_with = "or_default")]
    security: Vec<BTreeMap<String, Vec<String>>>,
    #[serde(default, alias = "default_input_modes", deserialize_with = "or_default")]
    default_input_modes: Vec<String>,
    #[serde(default, alias = "default_output_modes", deserialize_with = "or_default")]
    default_output_modes: Vec<String>,
    #[serde(default, deserialize_with = "or_default")]
    skills: Vec<SkillIn>,
    #[serde(default, deserialize_with = "or_default")]
    signatures: Vec<crate::model::AgentCardSignature>,
    url: Option<String>,
    #[serde(default, alias = "preferred_transport", deserialize_with = "non_empty")]
    preferred_transport: Option<String>,
    #[serde(default, alias = "additional_interfaces", deserialize_with = "or_default")]
    additional_interfaces: Vec<TransportIn>,
    #[serde(default, alias = "protocol_version", deserialize_with = "non_empty")]
    protocol_version: Option<String>,
    #[serde(alias = "supports_authenticated_extended_card", alias = "supportsExtendedAgentCard")]
    supports_authenticated_extended_card: Option<bool>,
    /// One seed's only word about where it is: the bindings it has at its base.
    #[serde(default, deserialize_with = "or_default")]
    supported_protocols: Vec<String>,
    /// 0.1: what later became schemes.
    authentication: Option<AuthenticationIn>,
}

#[derive(Deserialize)]
struct TransportIn {
    #[serde(default, deserialize_with = "or_default")]
    url: String,
    #[serde(default, alias = "protocolBinding", deserialize_with = "or_default")]
    transport: String,
}

#[derive(Deserialize)]
struct AuthenticationIn {
    #[serde(default, deserialize_with = "or_default")]
    schemes: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct CapabilitiesIn {
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
struct SkillIn {
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
    #[serde(default, alias = "security_requirements", deserialize_with = "or_default")]
    security_requirements: Vec<SecurityRequirement>,
    #[serde(default, deserialize_with = "or_default")]
    security: Vec<BTreeMap<String, Vec<String>>>,
}

/// A scheme of any version: one, or in 0.3 several flows of OAuth under one name.
struct SchemeIn(Vec<SecurityScheme>);

impl<'de> Deserialize<'de> for SchemeIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = crate::model::Json::deserialize(deserializer)?;
        read_scheme(json.get()).map(Self).map_err(|error| super::json::below("", &error))
    }
}

fn read_scheme(text: &str) -> Result<Vec<SecurityScheme>, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Old {
        #[serde(rename = "type")]
        kind: Option<String>,
        #[serde(default, deserialize_with = "non_empty")]
        description: Option<String>,
        #[serde(rename = "in", default, deserialize_with = "or_default")]
        location: String,
        #[serde(default, deserialize_with = "or_default")]
        name: String,
        #[serde(default, deserialize_with = "or_default")]
        scheme: String,
        #[serde(default, deserialize_with = "non_empty")]
        bearer_format: Option<String>,
        #[serde(default, deserialize_with = "or_default")]
        flows: Flows,
        #[serde(default, deserialize_with = "non_empty")]
        oauth2_metadata_url: Option<String>,
        #[serde(default, deserialize_with = "or_default")]
        open_id_connect_url: String,
    }
    let wrapped = read::<SecurityScheme>(text);
    let Ok(old) = read::<Old>(text) else { return wrapped.map(|scheme| vec![scheme]) };
    // Where both shapes are there, 1.0's wins.
    let (Err(error), Some(kind)) = (&wrapped, &old.kind) else { return wrapped.map(|scheme| vec![scheme]) };
    let description = old.description;
    Ok(match kind.as_str() {
        "apiKey" => {
            vec![SecurityScheme::ApiKey(ApiKeySecurityScheme {
                description,
                location: old.location,
                name: old.name,
            })]
        }
        "http" => {
            let (scheme, bearer_format) = (old.scheme, old.bearer_format);
            vec![SecurityScheme::HttpAuth(HttpAuthSecurityScheme { description, scheme, bearer_format })]
        }
        "oauth2" => {
            let scheme = |flows| {
                let (description, oauth2_metadata_url) =
                    (description.clone(), old.oauth2_metadata_url.clone());
                SecurityScheme::OAuth2(OAuth2SecurityScheme { description, flows, oauth2_metadata_url })
            };
            match old.flows.all() {
                flows if flows.is_empty() => vec![scheme(None)],
                flows => flows.into_iter().map(|flow| scheme(Some(flow))).collect(),
            }
        }
        "openIdConnect" => {
            let open_id_connect_url = old.open_id_connect_url;
            vec![SecurityScheme::OpenIdConnect(OpenIdConnectSecurityScheme {
                description,
                open_id_connect_url,
            })]
        }
        "mutualTLS" => vec![SecurityScheme::MutualTls(MutualTlsSecurityScheme { description })],
        _ => {
            return Err(error
                .violations()
                .first()
                .cloned()
                .map_or_else(|| ErrorKind::InvalidParams.into(), Error::from));
        }
    })
}

fn flow_name(scheme: &SecurityScheme) -> &'static str {
    match scheme {
        SecurityScheme::OAuth2(OAuth2SecurityScheme { flows: Some(flows), .. }) => match flows {
            OAuthFlows::AuthorizationCode(_) => "authorizationCode",
            OAuthFlows::ClientCredentials(_) => "clientCredentials",
            OAuthFlows::Implicit(_) => "implicit",
            OAuthFlows::Password(_) => "password",
            OAuthFlows::DeviceCode(_) => "deviceCode",
        },
        _ => "",
    }
}

/// Schemes by name. 1.0 has one flow in each: further ones become schemes of their own, and `split` says which.
fn schemes(
    read: BTreeMap<String, SchemeIn>,
) -> (BTreeMap<String, SecurityScheme>, BTreeMap<String, Vec<String>>) {
    let (mut schemes, mut split) = (BTreeMap::new(), BTreeMap::<String, Vec<String>>::new());
    for (name, SchemeIn(all)) in read {
        for (at, scheme) in all.into_iter().enumerate() {
            let own = if at == 0 { name.clone() } else { format!("{name}.{}", flow_name(&scheme)) };
            split.entry(name.clone()).or_default().push(own.clone());
            schemes.insert(own, scheme);
        }
    }
    (schemes, split)
}

/// The most ways that one requirement of 0.3 is split into.
const MAX_ALTERNATIVES: usize = 64;

/// Requirements of 0.3, once for each flow that a scheme was split into.
fn alternatives(
    old: Vec<BTreeMap<String, Vec<String>>>,
    split: &BTreeMap<String, Vec<String>>,
) -> Vec<SecurityRequirement> {
    let mut all = Vec::new();
    for requirement in old {
        let mut variants = vec![SecurityRequirement::default()];
        for (name, scopes) in requirement {
            let (first, others) = match split.get(&name).and_then(|names| names.split_first()) {
                Some((first, others)) => (first.clone(), others),
                None => (name, [].as_slice()),
            };
            // Each way so far takes the first name in place; only a way that is added is copied, and a hostile card
            // could add without end.
            let others = others.iter().flat_map(|other| variants.iter().map(move |variant| (other, variant)));
            let room = MAX_ALTERNATIVES - variants.len();
            let with_other = |(other, variant): (&String, &SecurityRequirement)| {
                let mut variant = variant.clone();
                variant.schemes.insert(other.clone(), scopes.clone());
                variant
            };
            let added: Vec<_> = others.take(room).map(with_other).collect();
            for variant in &mut variants {
                variant.schemes.insert(first.clone(), scopes.clone());
            }
            variants.extend(added);
        }
        all.extend(variants);
    }
    all
}

impl<'de> Deserialize<'de> for CardIn {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut read = Members::deserialize(deserializer)?;
        let supported_interfaces = interfaces(&mut read);
        let (mut security_schemes, split) = schemes(read.security_schemes);
        let mut security_requirements = prefer(read.security_requirements, read.security, &split);
        if let Some(old) = read.authentication.filter(|_| security_schemes.is_empty()) {
            take_authentication(old, &mut security_schemes, &mut security_requirements);
        }
        let skills = read.skills.into_iter().map(|skill| AgentSkill {
            id: skill.id,
            name: skill.name,
            description: skill.description,
            tags: skill.tags,
            examples: skill.examples,
            input_modes: skill.input_modes,
            output_modes: skill.output_modes,
            security_requirements: prefer(skill.security_requirements, skill.security, &split),
        });
        let extended = read.capabilities.extended_agent_card.or(read.supports_authenticated_extended_card);
        if read.capabilities.extensions.iter().any(|extension| extension.uri.is_empty()) {
            return Err(at("capabilities.extensions", "must each have a uri"));
        }
        Ok(Self(AgentCard {
            name: read.name,
            description: read.description,
            supported_interfaces,
            provider: read.provider,
            version: read.version,
            documentation_url: read.documentation_url,
            capabilities: AgentCapabilities {
                streaming: read.capabilities.streaming,
                push_notifications: read.capabilities.push_notifications,
                extensions: read.capabilities.extensions,
                extended_agent_card: extended,
                state_transition_history: read.capabilities.state_transition_history,
            },
            security_schemes,
            security_requirements,
            default_input_modes: read.default_input_modes,
            default_output_modes: read.default_output_modes,
            skills: skills.collect(),
            signatures: read.signatures,
            icon_url: read.icon_url,
        }))
    }
}

fn prefer(
    new: Vec<SecurityRequirement>,
    old: Vec<BTreeMap<String, Vec<String>>>,
    split: &BTreeMap<String, Vec<String>>,
) -> Vec<SecurityRequirement> {
    if new.is_empty() { alternatives(old, split) } else { new }
}

/// 0.1 named HTTP schemes and nothing else.
fn take_authentication(
    old: AuthenticationIn,
    schemes: &mut BTreeMap<String, SecurityScheme>,
    requirements: &mut Vec<SecurityRequirement>,
) {
    for name in old.schemes {
        let scheme = HttpAuthSecurityScheme { scheme: name.clone(), ..HttpAuthSecurityScheme::default() };
        schemes.insert(name.clone(), SecurityScheme::HttpAuth(scheme));
        requirements.push(SecurityRequirement::of(name, Vec::<String>::new()));
    }
}

/// Where the agent is: as 1.0 says it, else out of the members of 0.3, else of the one seed.
fn interfaces(read: &mut Members) -> Vec<AgentInterface> {
    if !read.supported_interfaces.is_empty() {
        return std::mem::take(&mut read.supported_interfaces);
    }
    let transport = read.preferred_transport.take();
    let mut protocols = read.supported_protocols.iter();
    let seed = protocols.any(|name| name.eq_ignore_ascii_case(Binding::JsonRpc.as_str()));
    // That seed calls itself 0.3, is reached at its base, and answers the methods of 1.0.
    let (url, version) = match read.url.take() {
        None if seed => (Some(String::new()), Version::V1.as_str().to_owned()),
        url => (url, version_name(read.protocol_version.as_deref())),
    };
    let main =
        url.map(|url| TransportIn { url, transport: transport.unwrap_or_else(|| "JSONRPC".to_owned()) });
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

/// 0.3 in its 1.0 spelling; other versions as they are. A card that names none is of 0.2 or 0.3.
fn version_name(version: Option<&str>) -> String {
    match version {
        None | Some("0.3" | "0.3.0") => Version::V03.as_str().to_owned(),
        Some(version) => version.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn written(card: &AgentCard, form: CardForm) -> Value {
        let mut out = Vec::new();
        write_card(&mut out, card, form).unwrap();
        serde_json::from_slice(&out).unwrap()
    }

    #[test]
    fn a_card_of_the_first_days_is_read() {
        let card = read_card(br#"{"name":"n","url":"u","authentication":{"schemes":["Bearer"]}}"#).unwrap();
        assert_eq!(card.supported_interfaces, [AgentInterface::new("u", Binding::JsonRpc, Version::V03)]);
        assert_eq!(card.security_requirements, [SecurityRequirement::of("Bearer", Vec::<String>::new())]);
    }

    #[test]
    fn the_card_that_names_only_its_protocols_is_json_rpc_at_its_base() {
        let card = read_card(
            br#"{"name":"k","protocolVersion":"0.3.0","supportedProtocols":["jsonrpc"],
                "capabilities":{"streaming":true,"stateTransitionHistory":true}}"#,
        );
        let card = card.unwrap();
        assert_eq!(card.supported_interfaces, [AgentInterface::new("", Binding::JsonRpc, Version::V1)]);
        assert_eq!(card.capabilities.state_transition_history, Some(true));
    }

    #[test]
    fn several_flows_under_one_name_become_several_schemes() {
        let flow = json!({"tokenUrl": "t", "authorizationUrl": "a", "scopes": {}});
        let card = json!({
            "url": "u",
            "securitySchemes": {"o": {"type": "oauth2", "flows": {"implicit": flow, "clientCredentials": flow}}},
            "security": [{"o": ["s"]}],
        });
        let card = read_card(card.to_string().as_bytes()).unwrap();
        assert_eq!(card.security_schemes.keys().collect::<Vec<_>>(), ["o", "o.implicit"]);
        let either = [SecurityRequirement::of("o", ["s"]), SecurityRequirement::of("o.implicit", ["s"])];
        assert_eq!(card.security_requirements, either);
    }

    #[test]
    fn what_older_versions_cannot_say_is_left_out_with_all_that_needs_it() {
        let card = json!({
            "supportedInterfaces": [{"url": "u", "protocolBinding": "JSONRPC", "protocolVersion": "0.3"}],
            "securitySchemes": {
                "d": {"oauth2SecurityScheme": {"flows": {"deviceCode": {"deviceAuthorizationUrl": "d", "tokenUrl": "t"}}}},
                "k": {"apiKeySecurityScheme": {"location": "header", "name": "K"}},
            },
            "securityRequirements": [{"schemes": {"d": {}, "k": {}}}, {"schemes": {"k": []}}],
        });
        let card = read_card(card.to_string().as_bytes()).unwrap();
        let old = written(&card, CardForm::V03);
        assert_eq!(old["securitySchemes"], json!({"k": {"type": "apiKey", "in": "header", "name": "K"}}));
        assert_eq!(old["security"], json!([{"k": []}]));
        let union = written(&card, CardForm::Union);
        assert_eq!(union["security"], json!([{"k": []}]));
        assert_eq!(union["securityRequirements"].as_array().unwrap().len(), 2);
        // Without a type, readers of 0.3 take it for something else or refuse the card.
        let device = &union["securitySchemes"]["d"];
        assert_eq!(device["type"], "oauth2");
        assert_eq!(device["flows"], device["oauth2SecurityScheme"]["flows"]);
    }

    #[test]
    fn an_agent_that_speaks_only_1_0_has_no_older_card_and_a_plain_union() {
        let card = AgentCard::new("n", "d").interface("u", Binding::JsonRpc, Version::V1).published();
        assert_eq!(written(&card, CardForm::Union), written(&card, CardForm::V1));
        let error = write_card(&mut Vec::new(), &card, CardForm::V03).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
    }
}
