//! Download of files that a message references by URL, through the SSRF guard. Only agents that want a file fetch it.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::guarded_client::GuardedClient;
use super::policy::EgressPolicy;
use super::resolver::LookupOwner;
use super::{Egress, Protocol, ResponseBody, origin, too_large};
use crate::model::{Caller, CallerKey, Error, ErrorKind, Result};

/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 3;
/// Maximum number of concurrent downloads from one host.
const MAX_FETCHES_PER_HOST: usize = 4;

/// Downloads files that messages reference by URL, through the same SSRF guard as webhooks.
///
/// Only targets that the [`EgressPolicy`] allows are reached: by default the public internet over TLS. The address that
/// was checked is the one that is dialed, each redirect is checked like the URL itself, and no credentials are sent.
///
/// ```no_run
/// # async fn example(turn: attache::Turn) -> attache::Result<()> {
/// use attache::FileFetcher;
///
/// let files = FileFetcher::new(attache::EgressPolicy::default()).media_types(["image/*"]).max_bytes(1 << 20);
/// let image = files.get("https://files.example.com/cat.png").await?;
/// println!("{} bytes of {:?}", image.bytes.len(), image.media_type);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct FileFetcher {
    client: GuardedClient,
    max_bytes: usize,
    timeout: Duration,
    media_types: Vec<String>,
    caller: Option<Caller>,
}

/// Downloaded file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchedFile {
    /// `Content-Type` of the response, in lower case and without parameters.
    pub media_type: Option<String>,
    /// Content.
    pub bytes: Vec<u8>,
}

impl FileFetcher {
    /// Returns a fetcher for files of at most 10 MiB, of any type, within 30 seconds.
    #[must_use]
    pub fn new(policy: EgressPolicy) -> Self {
        Self::with_client(Egress::guarded(policy, MAX_FETCHES_PER_HOST))
    }

    pub(super) fn with_client(client: GuardedClient) -> Self {
        Self {
            client,
            max_bytes: 10 << 20,
            timeout: Duration::from_secs(30),
            media_types: Vec::new(),
            caller: None,
        }
    }

    /// Returns a fetcher for URLs that this caller named. Host names that do not resolve then occupy the caller's share
    /// of the lookups only (`max_lookups_per_caller`). The default is one share per host name.
    #[must_use]
    pub fn for_caller(&self, caller: &Caller) -> Self {
        Self {
            caller: Some(caller.clone()),
            ..self.clone()
        }
    }

    /// Sets the maximum file size in bytes.
    #[must_use]
    pub fn max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// Sets the maximum duration of a download.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Accepts only these media types, such as `image/*`. The default is all.
    #[must_use]
    pub fn media_types<'a>(self, types: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            media_types: types.into_iter().map(str::to_ascii_lowercase).collect(),
            ..self
        }
    }

    /// Downloads a file.
    ///
    /// # Errors
    /// Invalid parameters if the URL is blocked. Unavailable if the server is unreachable or has no such file. Content type
    /// not supported for another media type. Invalid agent response for a larger file. Deadline exceeded.
    pub async fn get(&self, url: &str) -> Result<FetchedFile> {
        let download = async {
            match &self.caller {
                Some(caller) => {
                    let owner = LookupOwner::Caller(CallerKey::Caller(caller.clone()));
                    owner.scope(self.follow(url)).await
                }
                None => self.follow(url).await,
            }
        };
        timeout(self.timeout, download)
            .await
            .map_err(|_| ErrorKind::DeadlineExceeded)?
    }

    async fn follow(&self, url: &str) -> Result<FetchedFile> {
        let mut url = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            // The slot is held until the file is read.
            let (response, _slot) = self.get_response(&url).await?;
            match response.status() {
                status if status.is_success() => return self.read(response).await,
                status if status.is_redirection() && status != StatusCode::NOT_MODIFIED => {
                    url = resolve_redirect(&url, response.headers())?;
                }
                status => {
                    return Err(fetch_error(format!(
                        "the server returned status {}",
                        status.as_u16()
                    )));
                }
            }
        }
        Err(fetch_error("too many redirects"))
    }

    async fn get_response(
        &self,
        url: &str,
    ) -> Result<(Response<ResponseBody>, OwnedSemaphorePermit)> {
        let checked = self.client.check(url).await;
        checked.map_err(|error| error.into_error("url"))?;
        let slot = self
            .client
            .acquire_slot(url)
            .await
            .map_err(|reason| Error::invalid("url", reason.to_string()))?;
        let request = Request::get(url)
            .body(Bytes::new())
            .map_err(|_| Error::invalid("url", "must be a URL"))?;
        Ok((
            self.client.egress.send(request, Protocol::Http1).await?,
            slot,
        ))
    }

    async fn read(&self, response: Response<ResponseBody>) -> Result<FetchedFile> {
        let media_type = response
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let media_type = media_type.and_then(|text| text.split(';').next());
        let media_type = media_type.map(|text| text.trim().to_ascii_lowercase());
        if !self.accepts(media_type.as_deref()) {
            return Err(ErrorKind::ContentTypeNotSupported.into());
        }
        let length = response
            .headers()
            .get(http::header::CONTENT_LENGTH)
            .and_then(|value| value.to_str().ok());
        if length
            .and_then(|text| text.parse::<usize>().ok())
            .is_some_and(|length| length > self.max_bytes)
        {
            return Err(too_large(self.max_bytes));
        }
        Ok(FetchedFile {
            media_type,
            bytes: response.into_body().read(self.max_bytes).await?,
        })
    }

    fn accepts(&self, media_type: Option<&str>) -> bool {
        self.media_types.is_empty()
            || self.media_types.iter().any(|accepted| {
                match (accepted.strip_suffix('*'), media_type) {
                    (Some(kind), Some(found)) => found.starts_with(kind),
                    (None, Some(found)) => found == accepted,
                    (_, None) => accepted == "*/*",
                }
            })
    }
}

/// Returns the target of a redirect. A redirect from https to http is refused.
fn resolve_redirect(url: &str, headers: &HeaderMap) -> Result<String> {
    let current: Uri = url.parse().map_err(|_| fetch_error("invalid URL"))?;
    let location = headers
        .get(LOCATION)
        .and_then(|location| location.to_str().ok())
        .unwrap_or_default();
    let is_path = location.starts_with('/') && !location.starts_with("//");
    let next = if is_path {
        format!("{}{location}", origin(&current))
    } else {
        location.to_owned()
    };
    let is_secure = next.to_ascii_lowercase().starts_with("https://");
    if current.scheme_str() == Some("https") && !is_secure {
        return Err(fetch_error("a redirect from https to another scheme"));
    }
    Ok(next)
}

fn fetch_error(reason: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable)
        .with_message(format!("the file cannot be downloaded: {}", reason.into()))
}

impl std::fmt::Debug for FileFetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileFetcher")
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
