//! Files that a message names by their url, for agents that want them. Nobody else fetches any.

use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, LOCATION};
use http::{HeaderMap, Request, Response, StatusCode, Uri};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::guarded_client::GuardedClient;
use super::ssrf_guard::EgressPolicy;
use super::{Egress, Protocol, ResponseBody, origin, too_large};
use crate::model::{Error, ErrorKind, Result};

/// How often a file may be elsewhere.
const MAX_REDIRECTS: usize = 3;
/// How many are fetched from one host at a time.
const MAX_FETCHES_PER_HOST: usize = 4;

/// Fetches the files that messages name by their url, through the same guard as webhooks: only from where [`EgressPolicy`] allows,
/// which is the public internet over TLS unless more is said. The address that was checked is the one that is connected to,
/// a redirect is checked like the url itself, and nothing of ours goes along.
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
}

/// A file that was fetched.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchedFile {
    /// What its server says that it is, without parameters.
    pub media_type: Option<String>,
    /// What is in it.
    pub bytes: Vec<u8>,
}

impl FileFetcher {
    /// Fetches from where this allows: files of at most 10 MiB, of any type, within 30 seconds.
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
        }
    }

    /// Takes files of at most so many bytes.
    #[must_use]
    pub fn max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// Waits no longer than this for one.
    #[must_use]
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { timeout, ..self }
    }

    /// Takes these types alone, such as `image/*`; by default all.
    #[must_use]
    pub fn media_types<'a>(self, types: impl IntoIterator<Item = &'a str>) -> Self {
        Self {
            media_types: types.into_iter().map(str::to_ascii_lowercase).collect(),
            ..self
        }
    }

    /// Fetches a file.
    ///
    /// # Errors
    /// Invalid parameters: its url may not be called. Unavailable: there is nothing, or nobody. Content type not supported: it
    /// is of another type. Invalid agent response: it is larger. Deadline exceeded.
    pub async fn get(&self, url: &str) -> Result<FetchedFile> {
        timeout(self.timeout, self.follow(url))
            .await
            .map_err(|_| ErrorKind::DeadlineExceeded)?
    }

    async fn follow(&self, url: &str) -> Result<FetchedFile> {
        let mut url = url.to_owned();
        for _ in 0..=MAX_REDIRECTS {
            // Held until the file is read.
            let (answer, _place) = self.get_response(&url).await?;
            match answer.status() {
                status if status.is_success() => return self.read(answer).await,
                status if status.is_redirection() && status != StatusCode::NOT_MODIFIED => {
                    url = resolve_redirect(&url, answer.headers())?;
                }
                status => return Err(fetch_error(format!("the answer is {}", status.as_u16()))),
            }
        }
        Err(fetch_error("one redirect after another"))
    }

    async fn get_response(
        &self,
        url: &str,
    ) -> Result<(Response<ResponseBody>, OwnedSemaphorePermit)> {
        self.client
            .check(url)
            .await
            .map_err(|why| Error::invalid("url", why.to_string()))?;
        let place = self
            .client
            .acquire_slot(url)
            .await
            .map_err(|why| Error::invalid("url", why.to_string()))?;
        let request = Request::get(url)
            .body(Bytes::new())
            .map_err(|_| Error::invalid("url", "must be a url"))?;
        Ok((
            self.client.egress.send(request, Protocol::Http1).await?,
            place,
        ))
    }

    async fn read(&self, answer: Response<ResponseBody>) -> Result<FetchedFile> {
        let media_type = answer
            .headers()
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let media_type = media_type.and_then(|text| text.split(';').next());
        let media_type = media_type.map(|text| text.trim().to_ascii_lowercase());
        if !self.accepts(media_type.as_deref()) {
            return Err(ErrorKind::ContentTypeNotSupported.into());
        }
        let length = answer
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
            bytes: answer.into_body().read(self.max_bytes).await?,
        })
    }

    fn accepts(&self, media_type: Option<&str>) -> bool {
        self.media_types.is_empty()
            || self
                .media_types
                .iter()
                .any(|wanted| match (wanted.strip_suffix('*'), media_type) {
                    (Some(kind), Some(found)) => found.starts_with(kind),
                    (None, Some(found)) => found == wanted,
                    (_, None) => wanted == "*/*",
                })
    }
}

/// Where it is instead; never from https to http.
fn resolve_redirect(url: &str, headers: &HeaderMap) -> Result<String> {
    let here: Uri = url.parse().map_err(|_| fetch_error("no url"))?;
    let location = headers
        .get(LOCATION)
        .and_then(|location| location.to_str().ok())
        .unwrap_or_default();
    let next = match location.starts_with('/') && !location.starts_with("//") {
        true => format!("{}{location}", origin(&here)),
        false => location.to_owned(),
    };
    match here.scheme_str() == Some("https") && !next.to_ascii_lowercase().starts_with("https://") {
        true => Err(fetch_error("a redirect to where others can listen")),
        false => Ok(next),
    }
}

fn fetch_error(why: impl Into<String>) -> Error {
    Error::new(ErrorKind::Unavailable)
        .with_message(format!("the file cannot be fetched: {}", why.into()))
}

impl std::fmt::Debug for FileFetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileFetcher")
            .field("max_bytes", &self.max_bytes)
            .finish_non_exhaustive()
    }
}
