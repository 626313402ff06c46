//! Where tokens come from, and one exchange with it.

use std::time::Duration;

use ::http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use ::http::{Method, Request, StatusCode, Uri};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::super::headers::sensitive_value;
use super::{is_secure, unauthenticated};
use crate::egress::{CONNECT_TIMEOUT, ClientTls, Egress, Protocol, Traffic};
use crate::model::{Error, ErrorKind, OAuthFlows, Result, Secret, SecurityScheme};

/// How much of an answer is read.
const MAX_BYTES: usize = 64 << 10;
/// How long one may take.
const TIMEOUT: Duration = Duration::from_secs(30);
const FORM: &str = "application/x-www-form-urlencoded";

/// Where an authorization server gives out tokens. The caller names it: a card alone is no reason to send a secret
/// somewhere, so what it says ([`AuthorizationServer::from_scheme`]) is for the caller to look at first.
#[derive(Clone)]
pub struct AuthorizationServer {
    pub(super) token: String,
    pub(super) device: Option<String>,
    pub(super) authorization: Option<String>,
    pub(super) issuer: Option<String>,
    tls: ClientTls,
    egress: Egress,
}

/// Who asks for a token.
#[derive(Clone)]
pub(super) struct OAuthClient {
    pub(super) id: String,
    pub(super) secret: Option<Secret>,
}

impl AuthorizationServer {
    /// Tokens are given out at this url.
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

    /// Codes for devices are given out at this url.
    #[must_use]
    pub fn device(self, url: impl Into<String>) -> Self {
        Self {
            device: Some(url.into()),
            ..self
        }
    }

    /// People log in at this url.
    #[must_use]
    pub fn authorization(self, url: impl Into<String>) -> Self {
        Self {
            authorization: Some(url.into()),
            ..self
        }
    }

    /// Where people log in in a browser, if there is such a place.
    #[must_use]
    pub fn authorization_url(&self) -> Option<&str> {
        self.authorization.as_deref()
    }

    /// Where codes for devices are given out, if they are.
    #[must_use]
    pub fn device_url(&self) -> Option<&str> {
        self.device.as_deref()
    }

    /// Where tokens are given out.
    #[must_use]
    pub fn token_url(&self) -> &str {
        &self.token
    }

    /// Trusts whom these settings trust.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn tls(self, tls: &ClientTls) -> Self {
        Self {
            tls: tls.clone(),
            egress: Egress::with_tls(tls, CONNECT_TIMEOUT),
            ..self
        }
    }

    /// Lets somebody see all that passes between us and the authorization server, secrets included. Comes after
    /// [`tls`](Self::tls).
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

    /// What a card says about them, if it says where tokens are.
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

    /// Asks an issuer that the caller trusts: by the url of its configuration, such as a card's `openIdConnectUrl` or
    /// `oauth2MetadataUrl`, or by its own. What it says must come from itself.
    ///
    /// # Errors
    /// Of the connection; there is no configuration, or that of another issuer.
    pub async fn discover(url: &str) -> Result<Self> {
        Self::new("").load_metadata(url).await
    }

    /// As [`discover`](Self::discover), with the settings made so far.
    ///
    /// # Errors
    /// As [`discover`](Self::discover).
    pub async fn load_metadata(self, url: &str) -> Result<Self> {
        #[derive(Deserialize)]
        struct Metadata {
            issuer: String,
            token_endpoint: String,
            device_authorization_endpoint: Option<String>,
            authorization_endpoint: Option<String>,
        }
        const NAMES: [&str; 2] = [
            "/.well-known/openid-configuration",
            "/.well-known/oauth-authorization-server",
        ];
        let base = url.trim_end_matches('/');
        let place = if base.contains("/.well-known/") {
            base.to_owned()
        } else {
            format!("{base}{}", NAMES[0])
        };
        let found: Metadata = self
            .exchange(Method::GET, &place, None, &[])
            .await?
            .map_err(OAuthError::into_error)?;
        let issuer = found.issuer.trim_end_matches('/');
        // RFC 8414 puts its name between the host and the path of the issuer.
        let (host, path) = split(issuer);
        let places = [
            format!("{issuer}{}", NAMES[0]),
            format!("{issuer}{}", NAMES[1]),
            format!("{host}{}{path}", NAMES[1]),
        ];
        if !places.contains(&place) {
            return Err(Error::new(ErrorKind::InvalidAgentResponse).with_message(
                "Invalid agent response: the configuration is that of another issuer",
            ));
        }
        // The caller trusts the issuer; where its endpoints are, the issuer says.
        let egress =
            Egress::following_document(&self.tls, CONNECT_TIMEOUT, &parse_secure_url(&place)?, &[]);
        Ok(Self {
            token: found.token_endpoint,
            device: found.device_authorization_endpoint,
            authorization: found.authorization_endpoint,
            issuer: Some(found.issuer),
            egress: egress.with_observer_from(&self.egress),
            ..self
        })
    }

    /// Posts a form, or gets a document. The inner error is what the server says against it.
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
        if let Some(OAuthClient {
            id,
            secret: Some(secret),
        }) = client
        {
            let part =
                |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
            let both = STANDARD.encode(format!("{}:{}", part(id), part(secret.expose())));
            headers.insert(
                AUTHORIZATION,
                sensitive_value("authorization", &format!("Basic {both}"))?,
            );
        }
        *request.method_mut() = method;
        let asking = async {
            let answer = self.egress.send(request, Protocol::Http1).await?;
            let status = answer.status();
            Ok::<_, Error>((status, answer.into_body().read(MAX_BYTES).await?))
        };
        let (status, body) = timeout(TIMEOUT, asking)
            .await
            .map_err(|_| ErrorKind::DeadlineExceeded)??;
        if !status.is_success() {
            return Ok(Err(OAuthError::read(status, &body)));
        }
        serde_json::from_slice(&body).map(Ok).map_err(|_| {
            Error::new(ErrorKind::InvalidAgentResponse)
                .with_message("Invalid agent response: the authorization server makes no sense")
        })
    }
}

/// What an authorization server says against a request.
pub(super) struct OAuthError {
    pub(super) code: String,
}

impl OAuthError {
    fn read(status: StatusCode, body: &[u8]) -> Self {
        #[derive(Deserialize)]
        struct ErrorBody {
            error: String,
        }
        let said = serde_json::from_slice(body)
            .map(|ErrorBody { error }| error)
            .ok();
        // RFC 6749 allows printable ASCII; a stranger's text goes no further than that.
        let plain =
            |text: &String| text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_graphic());
        Self {
            code: said
                .filter(plain)
                .unwrap_or_else(|| status.as_u16().to_string()),
        }
    }

    pub(super) fn into_error(self) -> Error {
        unauthenticated(format_args!("the authorization server says {}", self.code))
    }
}

/// Secrets and tokens travel in private only.
pub(super) fn parse_secure_url(url: &str) -> Result<Uri> {
    let url: Uri = url
        .parse()
        .map_err(|_| Error::invalid("url", "must be that of an authorization server"))?;
    match is_secure(&url) {
        true => Ok(url),
        false => Err(Error::invalid(
            "url",
            "must begin with https://: tokens are not sent in the clear",
        )),
    }
}

fn split(url: &str) -> (&str, &str) {
    let begin = url.find("://").map_or(0, |at| at + 3);
    url.split_at(url[begin..].find('/').map_or(url.len(), |at| begin + at))
}
