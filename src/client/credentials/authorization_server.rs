//! OAuth 2 authorization server: its endpoints, its metadata, and one exchange with it.

use std::time::Duration;

use ::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use ::http::{HeaderMap, Method, Request, StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::super::headers::sensitive_value;
use super::{is_secure, unauthenticated};
use crate::egress::{CONNECT_TIMEOUT, ClientTls, Egress, Protocol, Traffic};
use crate::model::{Error, ErrorKind, OAuthFlows, Result, Secret, SecurityScheme};

/// Maximum size of a response in bytes.
const MAX_BYTES: usize = 64 << 10;
/// Maximum duration of one request.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum length of an error code that is shown to the user.
const MAX_ERROR_CODE_BYTES: usize = 64;
const FORM: &str = "application/x-www-form-urlencoded";
const OPENID_CONFIGURATION: &str = "/.well-known/openid-configuration";
const OAUTH_METADATA: &str = "/.well-known/oauth-authorization-server";

/// Endpoints of an OAuth 2 authorization server.
///
/// The caller must name the server. A card alone is no reason to send a client secret to an unknown host, so the
/// endpoints of a card ([`from_scheme`](Self::from_scheme)) need the caller's consent first.
#[derive(Clone)]
pub struct AuthorizationServer {
    pub(super) token: String,
    pub(super) device: Option<String>,
    pub(super) authorization: Option<String>,
    pub(super) issuer: Option<String>,
    tls: ClientTls,
    egress: Egress,
}

/// OAuth client id and secret. Public clients have no secret.
#[derive(Clone)]
pub(super) struct OAuthClient {
    pub(super) id: String,
    pub(super) secret: Option<Secret>,
}

/// Metadata document of an authorization server (RFC 8414, OpenID Connect Discovery).
#[derive(Deserialize)]
struct ServerMetadata {
    issuer: String,
    token_endpoint: String,
    device_authorization_endpoint: Option<String>,
    authorization_endpoint: Option<String>,
}

impl AuthorizationServer {
    /// Returns a server with this token endpoint.
    pub fn new(token_url: impl Into<String>) -> Self {
        Self {
            token: token_url.into(),
            device: None,
            authorization: None,
            issuer: None,
            tls: ClientTls::new(),
            egress: Egress::trusted(),
        }
    }

    /// Sets the device authorization endpoint.
    #[must_use]
    pub fn device(self, url: impl Into<String>) -> Self {
        Self {
            device: Some(url.into()),
            ..self
        }
    }

    /// Sets the authorization endpoint, where users log in.
    #[must_use]
    pub fn authorization(self, url: impl Into<String>) -> Self {
        Self {
            authorization: Some(url.into()),
            ..self
        }
    }

    /// Returns the authorization endpoint.
    #[must_use]
    pub fn authorization_url(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    /// Returns the device authorization endpoint.
    #[must_use]
    pub fn device_url(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Returns the token endpoint.
    #[must_use]
    pub fn token_url(&self) -> &str {
        &self.token
    }

    /// Uses these certificate authorities.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(self, tls: &ClientTls) -> Self {
        Self {
            tls: tls.clone(),
            egress: Egress::with_tls(tls, CONNECT_TIMEOUT),
            ..self
        }
    }

    /// Passes all traffic with the server to `observer`, including secrets. Call it after [`tls`](Self::tls).
    #[must_use]
    pub fn with_traffic_observer(
        self,
        observer: impl Fn(&Traffic<'_>) + Send + Sync + 'static,
    ) -> Self {
        Self {
            egress: self
                .egress
                .with_traffic_observer(std::sync::Arc::new(observer)),
            ..self
        }
    }

    /// Returns the endpoints that an OAuth 2 scheme of a card declares; `None` without a token endpoint.
    #[must_use]
    pub fn from_scheme(scheme: &SecurityScheme) -> Option<Self> {
        let SecurityScheme::OAuth2(oauth) = scheme else {
            return None;
        };
        match oauth.flows.as_ref()? {
            OAuthFlows::ClientCredentials(flow) => Some(Self::new(&flow.token_url)),
            OAuthFlows::DeviceCode(flow) => {
                Some(Self::new(&flow.token_url).device(&flow.device_authorization_url))
            }
            OAuthFlows::AuthorizationCode(flow) => {
                Some(Self::new(&flow.token_url).authorization(&flow.authorization_url))
            }
            OAuthFlows::Password(flow) => Some(Self::new(&flow.token_url)),
            OAuthFlows::Implicit(_) => None,
        }
    }

    /// Reads the metadata of an issuer that the caller trusts.
    ///
    /// `url` is the issuer's URL or that of its metadata, such as a card's `openIdConnectUrl` or `oauth2MetadataUrl`. The
    /// metadata must name the issuer it was read from.
    ///
    /// # Errors
    /// A connection error; no metadata, or the metadata of another issuer.
    pub async fn discover(url: &str) -> Result<Self> {
        Self::new("").load_metadata(url).await
    }

    /// Reads the metadata of an issuer like [`discover`](Self::discover), with the TLS settings and observer made so far.
    ///
    /// # Errors
    /// As [`discover`](Self::discover).
    pub async fn load_metadata(self, url: &str) -> Result<Self> {
        let base = url.trim_end_matches('/');
        let metadata_url = if base.contains("/.well-known/") {
            base.to_owned()
        } else {
            format!("{base}{OPENID_CONFIGURATION}")
        };
        let metadata: ServerMetadata = self
            .exchange(Method::GET, &metadata_url, None, &[])
            .await?
            .map_err(OAuthError::into_error)?;
        if !metadata_urls(&metadata.issuer).contains(&metadata_url) {
            return Err(Error::new(ErrorKind::InvalidAgentResponse).with_message(
                "Invalid agent response: the metadata names another issuer than the one requested",
            ));
        }
        // The caller trusts the issuer. Its endpoints are checked by the SSRF guard.
        let egress = Egress::following_document(
            &self.tls,
            CONNECT_TIMEOUT,
            &parse_secure_url(&metadata_url)?,
            &[],
        );
        Ok(Self {
            token: metadata.token_endpoint,
            device: metadata.device_authorization_endpoint,
            authorization: metadata.authorization_endpoint,
            issuer: Some(metadata.issuer),
            egress: egress.with_observer_from(&self.egress),
            ..self
        })
    }

    /// Posts a form, or gets a document. The outer error is a failed exchange, the inner one the server's refusal.
    pub(super) async fn exchange<T: DeserializeOwned>(
        &self,
        method: Method,
        url: &str,
        client: Option<&OAuthClient>,
        form: &[(&str, &str)],
    ) -> Result<std::result::Result<T, OAuthError>> {
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let mut request = Request::new(body.into());
        *request.uri_mut() = parse_secure_url(url)?;
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(FORM));
        }
        if let Some(client) = client {
            client.add_authorization(headers)?;
        }
        *request.method_mut() = method;
        let sending = async {
            let response = self.egress.send(request, Protocol::Http1).await?;
            let status = response.status();
            Ok::<_, Error>((status, response.into_body().read(MAX_BYTES).await?))
        };
        let (status, body) = timeout(TIMEOUT, sending)
            .await
            .map_err(|_| ErrorKind::DeadlineExceeded)??;
        if !status.is_success() {
            return Ok(Err(OAuthError::parse(status, &body)));
        }
        serde_json::from_slice(&body).map(Ok).map_err(|_| {
            Error::new(ErrorKind::InvalidAgentResponse).with_message(
                "Invalid agent response: the authorization server returned unexpected JSON",
            )
        })
    }
}

impl OAuthClient {
    /// Adds the id and secret as `Authorization: Basic` (RFC 6749 §2.3.1). A public client adds nothing.
    fn add_authorization(&self, headers: &mut HeaderMap) -> Result<()> {
        let Some(secret) = &self.secret else {
            return Ok(());
        };
        let encode =
            |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let pair = format!("{}:{}", encode(&self.id), encode(secret.expose()));
        let value = format!("Basic {}", STANDARD.encode(pair));
        headers.insert(AUTHORIZATION, sensitive_value("authorization", &value)?);
        Ok(())
    }
}

/// Error response of an authorization server (RFC 6749 §5.2).
pub(super) struct OAuthError {
    pub(super) code: String,
}

impl OAuthError {
    /// Parses an error response. The code is the HTTP status if the body has no printable ASCII code.
    fn parse(status: StatusCode, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct ErrorBody {
            error: String,
        }
        let code = serde_json::from_slice(body)
            .map(|ErrorBody { error }| error)
            .ok()
            .filter(|code| is_printable_code(code));
        Self {
            code: code.unwrap_or_else(|| status.as_u16().to_string()),
        }
    }

    pub(super) fn into_error(self) -> Error {
        unauthenticated(format_args!(
            "the authorization server returned the error {}",
            self.code
        ))
    }
}

/// Whether an error code is short printable ASCII, as RFC 6749 requires, and may be shown to the user.
pub(super) fn is_printable_code(code: &str) -> bool {
    code.len() <= MAX_ERROR_CODE_BYTES && code.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Parses a URL that may receive secrets and tokens: https, or a loopback address.
pub(super) fn parse_secure_url(url: &str) -> Result<Uri> {
    let url: Uri = url
        .parse()
        .map_err(|_| Error::invalid("url", "must be the URL of an authorization server"))?;
    if is_secure(&url) {
        return Ok(url);
    }
    Err(Error::invalid(
        "url",
        "must begin with https://: tokens are not sent over plain HTTP",
    ))
}

/// Returns the URLs at which an issuer may publish its metadata. RFC 8414 inserts the well-known path between host and
/// path of the issuer, OpenID Connect appends it.
fn metadata_urls(issuer: &str) -> [String; 3] {
    let issuer = issuer.trim_end_matches('/');
    let host_start = issuer.find("://").map_or(0, |at| at + 3);
    let path_start = issuer[host_start..]
        .find('/')
        .map_or(issuer.len(), |at| host_start + at);
    let (host, path) = issuer.split_at(path_start);
    [
        format!("{issuer}{OPENID_CONFIGURATION}"),
        format!("{issuer}{OAUTH_METADATA}"),
        format!("{host}{OAUTH_METADATA}{path}"),
    ]
}
