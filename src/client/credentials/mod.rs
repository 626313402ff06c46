//! Credentials of a client: providers, their selection by the card's security requirements, and their binding to an
//! origin. Credentials are never sent to another origin, and over plain HTTP only to loopback addresses.

mod authorization_code;
mod authorization_server;
mod fixed;
mod oauth;
mod select;

use std::fmt;
use std::sync::Arc;

use ::http::header::{AUTHORIZATION, COOKIE};
use ::http::uri::PathAndQuery;
use ::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use async_trait::async_trait;
use bytes::Bytes;

use super::Client;
use super::endpoint::origin;
use super::headers::sensitive_value;
use super::http::HeadTimeout;
use crate::egress::{HttpResponse, Protocol, ResponseBody};
use crate::model::{AgentCard, Error, ErrorKind, Result, Secret, SecurityScheme};
pub use authorization_code::AuthorizationCodeLogin;
pub use authorization_server::AuthorizationServer;
pub use fixed::{ApiKeyAuth, BasicAuth, BearerAuth, MutualTlsAuth};
pub use oauth::{DeviceLogin, OAuth, Token};
use select::SelectedCredential;

/// Provider of credentials; see [`Client::with_credentials`].
#[async_trait]
pub trait CredentialProvider: Send + Sync + 'static {
    /// Returns a short description for error messages, such as "an API key".
    fn name(&self) -> &str;

    /// Whether these credentials satisfy a security scheme of a card.
    fn supports(&self, scheme: &SecurityScheme) -> bool;

    /// Returns the parameters to attach to a request. `scheme` and `scopes` are those of the selected requirement of the
    /// card; `None` without a card, or if the card requires nothing.
    ///
    /// # Errors
    /// No credentials could be obtained.
    async fn auth_params(
        &self,
        scheme: Option<&SecurityScheme>,
        scopes: &[String],
    ) -> Result<Vec<AuthParam>>;

    /// Handles a rejection by the agent. Returns whether the next [`auth_params`](Self::auth_params) will differ, so that
    /// a second attempt makes sense.
    async fn on_rejected(&self) -> bool {
        false
    }
}

/// Parameter of a request that carries a credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthParam {
    /// Header of this name.
    Header(String, Secret),
    /// Query parameter of the URL.
    Query(String, Secret),
    /// Cookie.
    Cookie(String, Secret),
}

impl AuthParam {
    /// Returns an `Authorization` header.
    #[must_use]
    pub fn authorization(scheme: &str, credentials: &Secret) -> Self {
        Self::Header(
            AUTHORIZATION.to_string(),
            format!("{scheme} {}", credentials.expose()).into(),
        )
    }
}

/// Credentials of a client, each bound to an origin.
#[derive(Clone, Default)]
pub(super) struct CredentialSet {
    entries: Vec<ScopedCredentials>,
    plain_http: bool,
}

/// Credentials bound to an origin.
#[derive(Clone)]
struct ScopedCredentials {
    origin: String,
    credentials: Arc<dyn CredentialProvider>,
}

impl Client {
    /// Authenticates with these credentials, as the card requires: of several requirements the first that the given
    /// credentials satisfy.
    ///
    /// They are sent to the origin (scheme, host and port) of this client only: not where a card or a redirect leads. Over
    /// plain HTTP they are sent to loopback addresses only. If the agent rejects them, they are refreshed once.
    #[must_use]
    pub fn with_credentials(mut self, credentials: impl CredentialProvider) -> Self {
        let origin = origin(self.card_url.as_ref().unwrap_or(&self.endpoint.url));
        self.credentials.entries.push(ScopedCredentials {
            origin,
            credentials: Arc::new(credentials),
        });
        self
    }

    /// Adds credentials for another origin, that of `url`; see [`with_credentials`](Self::with_credentials). For a card that
    /// leads to another trusted server.
    ///
    /// # Errors
    /// Invalid parameters if `url` is invalid.
    pub fn with_credentials_for(
        mut self,
        url: &str,
        credentials: impl CredentialProvider,
    ) -> Result<Self> {
        let url: Uri = url
            .parse()
            .map_err(|_| Error::invalid("url", "must name a scheme and a host"))?;
        self.credentials.entries.push(ScopedCredentials {
            origin: origin(&url),
            credentials: Arc::new(credentials),
        });
        Ok(self)
    }

    /// Allows credentials over plain HTTP, where they can be read by anyone on the network path.
    #[must_use]
    pub fn with_plain_http_credentials(mut self) -> Self {
        self.credentials.plain_http = true;
        self
    }

    /// Selects credentials by this card. [`discover`](Self::discover) does so by itself.
    #[must_use]
    pub fn with_card(self, card: AgentCard) -> Self {
        Self {
            card: Some(Arc::new(card)),
            extended_card: Arc::default(),
            ..self
        }
    }

    /// Sends an arbitrary request with the credentials of this client. Adds those headers of the client that are missing.
    /// For conformance tests of a server.
    ///
    /// # Errors
    /// A connection error. Any response of the agent is returned unchanged.
    pub async fn send_raw(&self, mut request: Request<Bytes>) -> Result<HttpResponse> {
        let mut headers = HeaderMap::new();
        self.add_headers(&mut headers);
        for (name, value) in &headers {
            if !request.headers().contains_key(name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        self.send_request(request, Protocol::Http1, HeadTimeout::Unbounded)
            .await
            .map(HttpResponse::from)
    }

    /// Sends a request with the selected credentials. If they are rejected and can be refreshed, sends it a second time.
    pub(super) async fn send_with_credentials(
        &self,
        request: Request<Bytes>,
        protocol: Protocol,
    ) -> Result<Response<ResponseBody>> {
        let selected = self.credentials.select(request.uri(), self.card())?;
        if selected.is_empty() {
            return self.egress.send(request, protocol).await;
        }
        let mut first = request.clone();
        attach(&mut first, &selected).await?;
        let response = self.egress.send(first, protocol).await?;
        if !is_rejection(&response) || !refresh_rejected(&selected).await {
            return Ok(response);
        }
        let mut second = request;
        attach(&mut second, &selected).await?;
        self.egress.send(second, protocol).await
    }
}

async fn refresh_rejected(selected: &[SelectedCredential<'_>]) -> bool {
    let mut any = false;
    for one in selected {
        any |= one.credentials.on_rejected().await;
    }
    any
}

/// Whether the response rejects the credentials, by HTTP status or by the gRPC status in its head.
fn is_rejection(response: &Response<ResponseBody>) -> bool {
    let grpc = response
        .headers()
        .get("grpc-status")
        .map(HeaderValue::as_bytes);
    matches!(
        response.status(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
    ) || matches!(grpc, Some(b"16" | b"7"))
}

async fn attach(request: &mut Request<Bytes>, selected: &[SelectedCredential<'_>]) -> Result<()> {
    let mut cookies = Vec::new();
    for one in selected {
        for param in one.credentials.auth_params(one.scheme, one.scopes).await? {
            match param {
                AuthParam::Header(name, value) => {
                    let name: HeaderName = name.parse().map_err(|_| {
                        Error::invalid("header", "must be a valid HTTP header name")
                    })?;
                    let value = sensitive_value(name.as_str(), value.expose())?;
                    request.headers_mut().insert(name, value);
                }
                AuthParam::Query(name, value) => {
                    *request.uri_mut() = with_query(request.uri(), &name, &value)?
                }
                AuthParam::Cookie(name, value) => cookies.push(cookie(&name, &value)?),
            }
        }
    }
    if !cookies.is_empty() {
        request
            .headers_mut()
            .insert(COOKIE, sensitive_value("cookie", &cookies.join("; "))?);
    }
    Ok(())
}

fn with_query(url: &Uri, name: &str, value: &Secret) -> Result<Uri> {
    let pair = form_urlencoded::Serializer::new(String::new())
        .append_pair(name, value.expose())
        .finish();
    let query = url
        .query()
        .map(|query| format!("{query}&"))
        .unwrap_or_default();
    let whole: PathAndQuery = format!("{}?{query}{pair}", url.path())
        .parse()
        .map_err(Error::internal)?;
    let mut parts = url.clone().into_parts();
    parts.path_and_query = Some(whole);
    Uri::from_parts(parts).map_err(Error::internal)
}

/// Returns `name=value`. Cookies have no escaping, so other characters are refused.
fn cookie(name: &str, value: &Secret) -> Result<String> {
    let is_valid = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\";,\\".contains(&byte))
    };
    if name.is_empty() || !is_valid(name) || name.contains('=') || !is_valid(value.expose()) {
        return Err(Error::invalid(
            "cookie",
            "must not contain spaces, quotes, commas, semicolons or backslashes",
        ));
    }
    Ok(format!("{name}={}", value.expose()))
}

/// Whether a URL uses TLS or a loopback address, so that credentials stay confidential.
fn is_secure(url: &Uri) -> bool {
    let host = url
        .host()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let is_loopback = || {
        host.parse()
            .is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    };
    url.scheme_str() == Some("https") || host.eq_ignore_ascii_case("localhost") || is_loopback()
}

fn unauthenticated(what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unauthenticated).with_message(format!("Authentication required: {what}"))
}
