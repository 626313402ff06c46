//! Security schemes: serialization in each form, and deserialization from any card (03 §5).

use std::collections::BTreeMap;

use serde::ser::{Serialize, SerializeMap, Serializer};
use serde::{Deserialize, Deserializer};

use super::CardForm;
use crate::model::{
    ApiKeySecurityScheme, AuthorizationCodeFlow, Error, ErrorKind, HttpAuthSecurityScheme,
    MutualTlsSecurityScheme, OAuth2SecurityScheme, OAuthFlowMembers, OAuthFlows, Object,
    OpenIdConnectSecurityScheme, SecurityRequirement, SecurityScheme, non_empty, or_default,
};
use crate::wire::json::{nested_field_error, read};

/// Security scheme in a form.
pub(super) struct SchemeWriter<'a>(pub(super) &'a SecurityScheme, pub(super) CardForm);

impl Serialize for SchemeWriter<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        if matches!(self.1, CardForm::Union | CardForm::V03Wrapped) {
            write_wrapper(&mut map, self.0)?;
        }
        write_legacy_scheme(&mut map, self.0, self.1)?;
        map.end()
    }
}

fn write_wrapper<M: SerializeMap>(map: &mut M, scheme: &SecurityScheme) -> Result<(), M::Error> {
    match scheme {
        SecurityScheme::ApiKey(scheme) => map.serialize_entry("apiKeySecurityScheme", scheme),
        SecurityScheme::HttpAuth(scheme) => map.serialize_entry("httpAuthSecurityScheme", scheme),
        SecurityScheme::OAuth2(scheme) => map.serialize_entry("oauth2SecurityScheme", scheme),
        SecurityScheme::OpenIdConnect(scheme) => {
            map.serialize_entry("openIdConnectSecurityScheme", scheme)
        }
        SecurityScheme::MutualTls(scheme) => map.serialize_entry("mtlsSecurityScheme", scheme),
    }
}

fn write_legacy_scheme<M: SerializeMap>(
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
            map.serialize_entry("flows", &LegacyFlows(scheme.flows.as_ref(), form))?;
            if let Some(url) = scheme
                .oauth2_metadata_url
                .as_ref()
                .filter(|_| form != CardForm::V02)
            {
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

/// OAuth flows without later additions. In a union all are written: with a `type`, the official 1.0
/// reader looks only here, and older readers ignore unknown members.
struct LegacyFlows<'a>(Option<&'a OAuthFlows>, CardForm);

impl Serialize for LegacyFlows<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(flows) if self.1 == CardForm::Union => flows.serialize(serializer),
            Some(OAuthFlows::AuthorizationCode(flow)) => {
                let flow = AuthorizationCodeFlow {
                    pkce_required: false,
                    ..flow.clone()
                };
                OAuthFlows::AuthorizationCode(flow).serialize(serializer)
            }
            Some(
                flows @ (OAuthFlows::ClientCredentials(_)
                | OAuthFlows::Implicit(_)
                | OAuthFlows::Password(_)),
            ) => flows.serialize(serializer),
            Some(OAuthFlows::DeviceCode(_)) | None => serializer.serialize_map(Some(0))?.end(),
        }
    }
}

/// Scheme of any version. In 0.3 one name may have several OAuth flows.
pub(super) struct AnyScheme(Vec<SecurityScheme>);

impl<'de> Deserialize<'de> for AnyScheme {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let json = crate::model::Json::deserialize(deserializer)?;
        read_scheme(json.get())
            .map(Self)
            .map_err(|error| nested_field_error("", &error))
    }
}

fn read_scheme(text: &str) -> Result<Vec<SecurityScheme>, Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct LegacyScheme {
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
        flows: OAuthFlowMembers,
        #[serde(default, deserialize_with = "non_empty")]
        oauth2_metadata_url: Option<String>,
        #[serde(default, deserialize_with = "or_default")]
        open_id_connect_url: String,
    }
    if is_unknown_scheme(text) {
        return Ok(Vec::new());
    }
    let wrapped = read::<SecurityScheme>(text);
    let Ok(old) = read::<LegacyScheme>(text) else {
        return wrapped.map(|scheme| vec![scheme]);
    };
    // If both shapes are present, that of 1.0 wins.
    let (Err(error), Some(kind)) = (&wrapped, &old.kind) else {
        return wrapped.map(|scheme| vec![scheme]);
    };
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
            let scheme = old.scheme;
            let bearer_format = old.bearer_format;
            vec![SecurityScheme::HttpAuth(HttpAuthSecurityScheme {
                description,
                scheme,
                bearer_format,
            })]
        }
        "oauth2" => {
            let scheme = |flows| {
                let (description, oauth2_metadata_url) =
                    (description.clone(), old.oauth2_metadata_url.clone());
                SecurityScheme::OAuth2(OAuth2SecurityScheme {
                    description,
                    flows,
                    oauth2_metadata_url,
                })
            };
            match old.flows.into_vec() {
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
        "mutualTLS" => vec![SecurityScheme::MutualTls(MutualTlsSecurityScheme {
            description,
        })],
        _ => {
            return Err(error
                .violations()
                .first()
                .cloned()
                .map_or_else(|| ErrorKind::InvalidParams.into(), Error::from));
        }
    })
}

/// Whether the type of a scheme is unknown. Such a scheme is dropped, so that the card stays
/// readable. A requirement that names it remains and cannot be satisfied.
fn is_unknown_scheme(text: &str) -> bool {
    #[derive(Deserialize)]
    struct SchemeType {
        #[serde(rename = "type")]
        kind: Option<serde_json::Value>,
    }
    const WRAPPERS: [&str; 5] = ["apiKey", "httpAuth", "oauth2", "openIdConnect", "mtls"];
    const TYPES: [&str; 5] = ["apiKey", "http", "oauth2", "openIdConnect", "mutualTLS"];
    let Ok(members) = serde_json::from_str::<Object>(text) else {
        return false;
    };
    let is_wrapper = |name: &str| {
        let name = name.to_ascii_lowercase().replace('_', "");
        WRAPPERS
            .iter()
            .any(|known| name == format!("{}securityscheme", known.to_ascii_lowercase()))
    };
    let known_type = serde_json::from_str::<SchemeType>(text).is_ok_and(|read| {
        read.kind
            .is_some_and(|kind| kind.as_str().is_none_or(|kind| TYPES.contains(&kind)))
    });
    !members.is_empty() && !known_type && !members.iter().any(|(name, _)| is_wrapper(&name))
}

fn flow_name(scheme: &SecurityScheme) -> &'static str {
    match scheme {
        SecurityScheme::OAuth2(OAuth2SecurityScheme {
            flows: Some(flows), ..
        }) => match flows {
            OAuthFlows::AuthorizationCode(_) => "authorizationCode",
            OAuthFlows::ClientCredentials(_) => "clientCredentials",
            OAuthFlows::Implicit(_) => "implicit",
            OAuthFlows::Password(_) => "password",
            OAuthFlows::DeviceCode(_) => "deviceCode",
        },
        _ => "",
    }
}

/// Collects schemes by name. A scheme of 1.0 has one flow, so further flows become schemes of their
/// own.
pub(super) fn split_schemes(
    read: BTreeMap<String, AnyScheme>,
) -> (
    BTreeMap<String, SecurityScheme>,
    BTreeMap<String, Vec<String>>,
) {
    let mut schemes = BTreeMap::new();
    let mut split = BTreeMap::<String, Vec<String>>::new();
    for (name, AnyScheme(all)) in read {
        for (at, scheme) in all.into_iter().enumerate() {
            let own = if at == 0 {
                name.clone()
            } else {
                format!("{name}.{}", flow_name(&scheme))
            };
            split.entry(name.clone()).or_default().push(own.clone());
            schemes.insert(own, scheme);
        }
    }
    (schemes, split)
}

/// Maximum number of alternatives that one 0.3 requirement is expanded to.
const MAX_ALTERNATIVES: usize = 64;

/// Expands the requirements of 0.3: one alternative per flow that a scheme was split into.
pub(super) fn expand_requirements(
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
            // Existing alternatives get the first name in place; only additional ones are cloned.
            // Their number is bounded, because a hostile card could multiply them.
            let others = others
                .iter()
                .flat_map(|other| variants.iter().map(move |variant| (other, variant)));
            let room = MAX_ALTERNATIVES - variants.len();
            let with_scheme = |scheme: &String, variant: &SecurityRequirement| {
                let mut variant = variant.clone();
                variant.schemes.insert(scheme.clone(), scopes.clone());
                variant
            };
            let added: Vec<_> = others
                .take(room)
                .map(|(other, variant)| with_scheme(other, variant))
                .collect();
            for variant in &mut variants {
                variant.schemes.insert(first.clone(), scopes.clone());
            }
            variants.extend(added);
        }
        all.extend(variants);
    }
    all
}
