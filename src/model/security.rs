//! How an agent wants its callers to prove who they are.

use std::collections::BTreeMap;

use serde::de::{self, Deserializer};
use serde::ser::{SerializeMap, SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use super::event::is_false;
use super::{non_empty, or_default};

/// One way of authentication.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum SecurityScheme {
    /// A key in a header, a query parameter or a cookie.
    #[serde(rename = "apiKeySecurityScheme")]
    ApiKey(ApiKeySecurityScheme),
    /// An HTTP authentication scheme such as Bearer.
    #[serde(rename = "httpAuthSecurityScheme")]
    HttpAuth(HttpAuthSecurityScheme),
    /// OAuth 2.
    #[serde(rename = "oauth2SecurityScheme")]
    OAuth2(OAuth2SecurityScheme),
    /// OpenID Connect.
    #[serde(rename = "openIdConnectSecurityScheme")]
    OpenIdConnect(OpenIdConnectSecurityScheme),
    /// A client certificate.
    #[serde(rename = "mtlsSecurityScheme")]
    MutualTls(MutualTlsSecurityScheme),
}

impl<'de> Deserialize<'de> for SecurityScheme {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let read = SecuritySchemeMembers::deserialize(deserializer)?;
        read.into_single()
            .ok_or_else(|| de::Error::custom("must have exactly one kind of security scheme"))
    }
}

/// The members of a scheme object, of which one is there.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct SecuritySchemeMembers {
    #[serde(alias = "api_key_security_scheme")]
    api_key_security_scheme: Option<ApiKeySecurityScheme>,
    #[serde(alias = "http_auth_security_scheme")]
    http_auth_security_scheme: Option<HttpAuthSecurityScheme>,
    #[serde(alias = "oauth2_security_scheme")]
    oauth2_security_scheme: Option<OAuth2SecurityScheme>,
    #[serde(alias = "open_id_connect_security_scheme")]
    open_id_connect_security_scheme: Option<OpenIdConnectSecurityScheme>,
    #[serde(alias = "mtls_security_scheme")]
    mtls_security_scheme: Option<MutualTlsSecurityScheme>,
}

impl SecuritySchemeMembers {
    /// The one that is there; `None` for none or several.
    fn into_single(self) -> Option<SecurityScheme> {
        let mut found = [
            self.api_key_security_scheme.map(SecurityScheme::ApiKey),
            self.http_auth_security_scheme.map(SecurityScheme::HttpAuth),
            self.oauth2_security_scheme.map(SecurityScheme::OAuth2),
            self.open_id_connect_security_scheme
                .map(SecurityScheme::OpenIdConnect),
            self.mtls_security_scheme.map(SecurityScheme::MutualTls),
        ]
        .into_iter()
        .flatten();
        found.next().filter(|_| found.next().is_none())
    }
}

/// A key in a header, a query parameter or a cookie.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ApiKeySecurityScheme {
    /// For people.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// `query`, `header` or `cookie`.
    #[serde(default, deserialize_with = "or_default")]
    pub location: String,
    /// The name of the header, parameter or cookie.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
}

/// An HTTP authentication scheme.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAuthSecurityScheme {
    /// For people.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// Its name, such as `Bearer`.
    #[serde(default, deserialize_with = "or_default")]
    pub scheme: String,
    /// A hint what the bearer token is, such as `JWT`.
    #[serde(
        default,
        alias = "bearer_format",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub bearer_format: Option<String>,
}

/// OAuth 2.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OAuth2SecurityScheme {
    /// For people.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// How to get a token; absent only if a peer left it out.
    #[serde(
        default,
        deserialize_with = "flow_or_none",
        serialize_with = "flow_or_empty"
    )]
    pub flows: Option<OAuthFlows>,
    /// Where the server describes itself (RFC 8414).
    #[serde(
        default,
        alias = "oauth2_metadata_url",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub oauth2_metadata_url: Option<String>,
}

/// Reads an empty object as what [`flow_or_empty`] makes of a flow that is unknown.
fn flow_or_none<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<OAuthFlows>, D::Error> {
    let flows = Option::<OAuthFlowMembers>::deserialize(deserializer)?
        .map(OAuthFlowMembers::into_vec)
        .unwrap_or_default();
    if flows.is_empty() {
        Ok(None)
    } else {
        single_flow(flows).map(Some)
    }
}

/// `flows` is required: where it is unknown it is still printed.
fn flow_or_empty<S: Serializer>(
    flows: &Option<OAuthFlows>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match flows {
        Some(flows) => flows.serialize(serializer),
        None => serializer.serialize_map(Some(0))?.end(),
    }
}

/// OpenID Connect.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OpenIdConnectSecurityScheme {
    /// For people.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// Where its configuration is.
    #[serde(
        default,
        alias = "open_id_connect_url",
        deserialize_with = "or_default"
    )]
    pub open_id_connect_url: String,
}

/// A client certificate.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MutualTlsSecurityScheme {
    /// For people.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
}

/// How to get an OAuth token: one way per scheme.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OAuthFlows {
    /// By a browser.
    AuthorizationCode(AuthorizationCodeFlow),
    /// By the client's own credentials.
    ClientCredentials(ClientCredentialsFlow),
    /// By a browser, the old way; deprecated.
    Implicit(ImplicitFlow),
    /// By the user's password; deprecated.
    Password(PasswordFlow),
    /// By another device (RFC 8628).
    DeviceCode(DeviceCodeFlow),
}

impl<'de> Deserialize<'de> for OAuthFlows {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        single_flow(OAuthFlowMembers::deserialize(deserializer)?.into_vec())
    }
}

fn single_flow<E: de::Error>(flows: Vec<OAuthFlows>) -> Result<OAuthFlows, E> {
    match <[OAuthFlows; 1]>::try_from(flows) {
        Ok([flow]) => Ok(flow),
        Err(_) => Err(E::custom("must have exactly one flow")),
    }
}

/// The members of a flows object: 1.0 has one of them, 0.3 may have several.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OAuthFlowMembers {
    #[serde(alias = "authorization_code")]
    authorization_code: Option<AuthorizationCodeFlow>,
    #[serde(alias = "client_credentials")]
    client_credentials: Option<ClientCredentialsFlow>,
    implicit: Option<ImplicitFlow>,
    password: Option<PasswordFlow>,
    #[serde(alias = "device_code")]
    device_code: Option<DeviceCodeFlow>,
}

impl OAuthFlowMembers {
    /// All that are there, in a fixed order.
    pub(crate) fn into_vec(self) -> Vec<OAuthFlows> {
        [
            self.authorization_code.map(OAuthFlows::AuthorizationCode),
            self.client_credentials.map(OAuthFlows::ClientCredentials),
            self.implicit.map(OAuthFlows::Implicit),
            self.password.map(OAuthFlows::Password),
            self.device_code.map(OAuthFlows::DeviceCode),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}

macro_rules! flow {
    ($(#[$doc:meta])* $name:ident { $($url:ident: $spelling:literal $url_doc:literal,)* } $(+ $pkce:ident)?) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase")]
        pub struct $name {
            $(
                #[doc = $url_doc]
                #[serde(default, alias = $spelling, deserialize_with = "or_default")]
                pub $url: String,
            )*
            /// Where tokens are refreshed.
            #[serde(
                default, alias = "refresh_url", deserialize_with = "non_empty", skip_serializing_if = "Option::is_none"
            )]
            pub refresh_url: Option<String>,
            /// The scopes and what they allow.
            #[serde(default, deserialize_with = "or_default")]
            pub scopes: BTreeMap<String, String>,
            $(
                /// Whether the client must use PKCE.
                #[serde(
                    default, alias = "pkce_required", deserialize_with = "or_default", skip_serializing_if = "is_false"
                )]
                pub $pkce: bool,
            )?
        }
    };
}

flow! {
    /// A token by a browser.
    AuthorizationCodeFlow {
        authorization_url: "authorization_url" "Where the browser is sent.",
        token_url: "token_url" "Where the code is exchanged.",
    } + pkce_required
}
flow! {
    /// A token by the client's own credentials.
    ClientCredentialsFlow { token_url: "token_url" "Where the token comes from.", }
}
flow! {
    /// A token by a browser, the old way.
    ImplicitFlow { authorization_url: "authorization_url" "Where the browser is sent.", }
}
flow! {
    /// A token by the user's password.
    PasswordFlow { token_url: "token_url" "Where the token comes from.", }
}
flow! {
    /// A token by another device.
    DeviceCodeFlow {
        device_authorization_url: "device_authorization_url" "Where the device gets its code.",
        token_url: "token_url" "Where the token comes from.",
    }
}

/// Schemes that are needed together, each with its scopes. Of several requirements one suffices.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityRequirement {
    /// The names of the schemes, and the scopes needed of each.
    pub schemes: BTreeMap<String, Vec<String>>,
}

impl SecurityRequirement {
    /// One scheme with these scopes.
    pub fn new<S: Into<String>>(
        scheme: impl Into<String>,
        scopes: impl IntoIterator<Item = S>,
    ) -> Self {
        let scopes = scopes.into_iter().map(Into::into).collect();
        Self {
            schemes: BTreeMap::from([(scheme.into(), scopes)]),
        }
    }
}

impl Serialize for SecurityRequirement {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let schemes: BTreeMap<_, _> = self
            .schemes
            .iter()
            .map(|(name, list)| (name, ScopeList { list }))
            .collect();
        let mut requirement = serializer.serialize_struct("SecurityRequirement", 1)?;
        requirement.serialize_field("schemes", &schemes)?;
        requirement.end()
    }
}

#[derive(Serialize)]
struct ScopeList<'a> {
    list: &'a [String],
}

impl<'de> Deserialize<'de> for SecurityRequirement {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Members {
            #[serde(default, deserialize_with = "or_default")]
            schemes: BTreeMap<String, AnyScopes>,
        }
        let schemes = Members::deserialize(deserializer)?.schemes;
        Ok(Self {
            schemes: schemes
                .into_iter()
                .map(|(name, scopes)| (name, scopes.0))
                .collect(),
        })
    }
}

/// Scopes as `{"list": […]}`, as `{}` from printers that drop what is empty, or as a bare array.
struct AnyScopes(Vec<String>);

impl<'de> Deserialize<'de> for AnyScopes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ScopesVisitor).map(Self)
    }
}

struct ScopesVisitor;

impl<'de> de::Visitor<'de> for ScopesVisitor {
    type Value = Vec<String>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("an object with a list of scopes")
    }

    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        Deserialize::deserialize(de::value::SeqAccessDeserializer::new(seq))
    }

    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Self::Value, A::Error> {
        #[derive(Deserialize)]
        struct Members {
            #[serde(default, deserialize_with = "or_default")]
            list: Vec<String>,
        }
        Members::deserialize(de::value::MapAccessDeserializer::new(map)).map(|members| members.list)
    }
}
