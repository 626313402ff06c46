//! Who we are: credentials, what an agent wants of them, and where they may go.

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

/// Proves who is calling. Give them to a client with [`Client::with_credentials`].
#[async_trait]
pub trait CredentialProvider: Send + Sync + 'static {
    /// What they are, in a word or two, for people.
    fn name(&self) -> &str;

    /// Whether an agent that wants this can be shown them.
    fn supports(&self, scheme: &SecurityScheme) -> bool;

    /// What to send along. The scheme is the one of the card that was chosen, with the scopes it names; `None` where
    /// there is no card, or one that wants nothing.
    ///
    /// # Errors
    /// There are none to be had.
    async fn auth_params(
        &self,
        scheme: Option<&SecurityScheme>,
        scopes: &[String],
    ) -> Result<Vec<AuthParam>>;

    /// They were refused. Whether the next ones shown will be others, so that trying once more makes sense.
    async fn on_rejected(&self) -> bool {
        false
    }
}

/// One thing that goes with a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AuthParam {
    /// A header by this name.
    Header(String, Secret),
    /// A parameter of the url.
    Query(String, Secret),
    /// A cookie.
    Cookie(String, Secret),
}

impl AuthParam {
    /// An `Authorization` header.
    #[must_use]
    pub fn authorization(scheme: &str, credentials: &Secret) -> Self {
        Self::Header(
            AUTHORIZATION.to_string(),
            format!("{scheme} {}", credentials.expose()).into(),
        )
    }
}

/// Credentials, each with the places it may go to.
#[derive(Clone, Default)]
pub(super) struct CredentialSet {
    entries: Vec<ScopedCredentials>,
    plain_http: bool,
}

#[derive(Clone)]
struct ScopedCredentials {
    origin: String,
    credentials: Arc<dyn CredentialProvider>,
}

impl Client {
    /// Shows these credentials to the agent, as its card wants them: of several requirements the first that all the
    /// credentials given satisfy. They go to the origin (scheme, host and port) that this client was made for and
    /// nowhere else: not where a card leads to, nor a redirect. Not over plain http either, except on this machine.
    /// A refusal makes those that can be renewed renew once.
    #[must_use]
    pub fn with_credentials(mut self, credentials: impl CredentialProvider) -> Self {
        let origin = origin(self.card_url.as_ref().unwrap_or(&self.endpoint.url));
        self.credentials.entries.push(ScopedCredentials {
            origin,
            credentials: Arc::new(credentials),
        });
        self
    }

    /// As [`with_credentials`](Self::with_credentials), for another origin: that of this url. For a card that leads
    /// to a server which is trusted, too.
    ///
    /// # Errors
    /// Invalid parameters: it is no url.
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

    /// Shows credentials over plain http, where anybody on the way can read them.
    #[must_use]
    pub fn with_plain_http_credentials(mut self) -> Self {
        self.credentials.plain_http = true;
        self
    }

    /// Shows credentials as this card wants them; [`discover`](Self::discover) does so by itself.
    #[must_use]
    pub fn with_card(self, card: AgentCard) -> Self {
        Self {
            card: Some(Arc::new(card)),
            ..self
        }
    }

    /// Sends a request of one's own making to this url, with the headers of this client that it does not have, and the
    /// credentials that belong there: for programs that look at how an agent answers what clients do not say.
    ///
    /// # Errors
    /// Of the connection; whatever the agent answers is none.
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

    /// Sends a request with the credentials that belong there.
    pub(super) async fn send_with_credentials(
        &self,
        request: Request<Bytes>,
        protocol: Protocol,
    ) -> Result<Response<ResponseBody>> {
        let selected = self
            .credentials
            .select(request.uri(), self.card.as_deref())?;
        if selected.is_empty() {
            return self.egress.send(request, protocol).await;
        }
        let mut first = request.clone();
        attach(&mut first, &selected).await?;
        let answer = self.egress.send(first, protocol).await?;
        if !is_rejection(&answer) || !refresh_rejected(&selected).await {
            return Ok(answer);
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

/// By the HTTP status, or by that of gRPC, which a refusal has in its head.
fn is_rejection(answer: &Response<ResponseBody>) -> bool {
    let grpc = answer
        .headers()
        .get("grpc-status")
        .map(HeaderValue::as_bytes);
    matches!(
        answer.status(),
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
    ) || matches!(grpc, Some(b"16" | b"7"))
}

async fn attach(request: &mut Request<Bytes>, selected: &[SelectedCredential<'_>]) -> Result<()> {
    let mut cookies = Vec::new();
    for one in selected {
        for shown in one.credentials.auth_params(one.scheme, one.scopes).await? {
            match shown {
                AuthParam::Header(name, value) => {
                    let name: HeaderName = name.parse().map_err(|_| {
                        Error::invalid("header", "must have a name that HTTP can carry")
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

/// A cookie has no way to escape anything.
fn cookie(name: &str, value: &Secret) -> Result<String> {
    let fine = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_graphic() && !b"\";,\\".contains(&byte))
    };
    if name.is_empty() || !fine(name) || name.contains('=') || !fine(value.expose()) {
        return Err(Error::invalid(
            "cookie",
            "must have no spaces, quotes, commas, semicolons or backslashes",
        ));
    }
    Ok(format!("{name}={}", value.expose()))
}

/// Whether what is said stays private: by TLS, or because it does not leave this machine.
fn is_secure(url: &Uri) -> bool {
    let host = url
        .host()
        .unwrap_or_default()
        .trim_start_matches('[')
        .trim_end_matches(']');
    let here = || {
        host.parse()
            .is_ok_and(|address: std::net::IpAddr| address.is_loopback())
    };
    url.scheme_str() == Some("https") || host.eq_ignore_ascii_case("localhost") || here()
}

fn unauthenticated(what: impl fmt::Display) -> Error {
    Error::new(ErrorKind::Unauthenticated).with_message(format!("Authentication required: {what}"))
}
