//! Security schemes and requirements of an agent card.

use std::collections::BTreeMap;

use serde::de::{self, Deserializer};
use serde::ser::{SerializeMap, SerializeStruct, Serializer};
use serde::{Deserialize, Serialize};

use super::event::is_false;
use super::{non_empty, or_default};

/// Security scheme: a way to authenticate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum SecurityScheme {
    /// API key in a header, a query parameter or a cookie.
    #[serde(rename = "apiKeySecurityScheme")]
    ApiKey(ApiKeySecurityScheme),
    /// HTTP authentication, such as `Bearer`.
    #[serde(rename = "httpAuthSecurityScheme")]
    HttpAuth(HttpAuthSecurityScheme),
    /// OAuth 2.
    #[serde(rename = "oauth2SecurityScheme")]
    OAuth2(OAuth2SecurityScheme),
    /// OpenID Connect.
    #[serde(rename = "openIdConnectSecurityScheme")]
    OpenIdConnect(OpenIdConnectSecurityScheme),
    /// Client certificate (mutual TLS).
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

/// Members of a scheme object. Exactly one must be present.
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
    /// Returns the single scheme; `None` if there are none or several.
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

/// API key in a header, a query parameter or a cookie.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct ApiKeySecurityScheme {
    /// Description for users.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// Location: `query`, `header` or `cookie`.
    #[serde(default, deserialize_with = "or_default")]
    pub location: String,
    /// Name of the header, parameter or cookie.
    #[serde(default, deserialize_with = "or_default")]
    pub name: String,
}

/// HTTP authentication scheme.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAuthSecurityScheme {
    /// Description for users.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// Name of the scheme, such as `Bearer`.
    #[serde(default, deserialize_with = "or_default")]
    pub scheme: String,
    /// Format hint for the bearer token, such as `JWT`.
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
    /// Description for users.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// OAuth flow. Absent only if a peer omitted it.
    #[serde(
        default,
        deserialize_with = "flow_or_none",
        serialize_with = "flow_or_empty"
    )]
    pub flows: Option<OAuthFlows>,
    /// URL of the authorization server metadata (RFC 8414).
    #[serde(
        default,
        alias = "oauth2_metadata_url",
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub oauth2_metadata_url: Option<String>,
}

/// Deserializes flows; an empty object means unknown, as written by [`flow_or_empty`].
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

/// Serializes flows. The member is required, so an unknown flow becomes an empty object.
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
    /// Description for users.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
    /// URL of the OpenID Connect configuration.
    #[serde(
        default,
        alias = "open_id_connect_url",
        deserialize_with = "or_default"
    )]
    pub open_id_connect_url: String,
}

/// Client certificate (mutual TLS).
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MutualTlsSecurityScheme {
    /// Description for users.
    #[serde(
        default,
        deserialize_with = "non_empty",
        skip_serializing_if = "Option::is_none"
    )]
    pub description: Option<String>,
}

/// OAuth flow. In 1.0 a scheme has exactly one.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum OAuthFlows {
    /// Authorization code flow.
    AuthorizationCode(AuthorizationCodeFlow),
    /// Client credentials flow.
    ClientCredentials(ClientCredentialsFlow),
    /// Implicit flow; deprecated.
    Implicit(ImplicitFlow),
    /// Password flow; deprecated.
    Password(PasswordFlow),
    /// Device code flow (RFC 8628).
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

/// Members of a flows object. 1.0 has exactly one, 0.3 may have several.
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
    /// Returns the flows that are present, in a fixed order.
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
            /// URL for token refresh.
            #[serde(
                default, alias = "refresh_url", deserialize_with = "non_empty", skip_serializing_if = "Option::is_none"
            )]
            pub refresh_url: Option<String>,
            /// Scopes and their descriptions.
            #[serde(default, deserialize_with = "or_default")]
            pub scopes: BTreeMap<String, String>,
            $(
                /// Whether PKCE is required.
                #[serde(
                    default, alias = "pkce_required", deserialize_with = "or_default", skip_serializing_if = "is_false"
                )]
                pub $pkce: bool,
            )?
        }
    };
}

flow! {
    /// OAuth authorization code flow.
    AuthorizationCodeFlow {
        authorization_url: "authorization_url" "URL of the authorization endpoint.",
        token_url: "token_url" "URL of the token endpoint.",
    } + pkce_required
}
flow! {
    /// OAuth client credentials flow.
    ClientCredentialsFlow { token_url: "token_url" "URL of the token endpoint.", }
}
flow! {
    /// OAuth implicit flow.
    ImplicitFlow { authorization_url: "authorization_url" "URL of the authorization endpoint.", }
}
flow! {
    /// OAuth password flow.
    PasswordFlow { token_url: "token_url" "URL of the token endpoint.", }
}
flow! {
    /// OAuth device code flow.
    DeviceCodeFlow {
        device_authorization_url: "device_authorization_url" "URL of the device authorization endpoint.",
        token_url: "token_url" "URL of the token endpoint.",
    }
}

/// Schemes that are required together, each with its scopes. A caller must satisfy one of a card's
/// requirements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SecurityRequirement {
    /// Required scopes by scheme name.
    pub schemes: BTreeMap<String, Vec<String>>,
}

impl SecurityRequirement {
    /// Creates a requirement of one scheme.
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

/// Scopes in any accepted form: `{"list": […]}`, `{}` (serializers that omit empty lists), or a
/// bare array.
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
