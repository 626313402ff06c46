//! Key sets from where signatures say they are, if that is somewhere we trust.

use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, HeaderValue};
use http::{Request, Uri};
use tokio::time::timeout;

use super::{CardVerification, JoseHeader, KeySet, MAX_SIGNATURES, verify_card};
use crate::egress::{Egress, Protocol};
use crate::model::{AgentCard, Error, ErrorKind, Result};

/// How large a key set may be.
const MAX_KEY_SET_BYTES: usize = 256 << 10;
/// How long it may take to get one.
const FETCH_TIMEOUT: Duration = Duration::from_secs(10);

impl KeySet {
    /// Reads the key set at a url that the caller trusts. Redirects are not followed.
    ///
    /// # Errors
    /// Of the connection; it is larger than 256 KiB, takes longer than ten seconds, or is none.
    pub async fn fetch(url: &str) -> Result<Self> {
        let url: Uri = url
            .parse()
            .map_err(|_| Error::invalid("url", "must be that of a key set"))?;
        Self::fetch_with(&Egress::trusted(), url).await
    }

    pub(crate) async fn fetch_with(egress: &Egress, url: Uri) -> Result<Self> {
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = url;
        request.headers_mut().insert(
            ACCEPT,
            HeaderValue::from_static("application/jwk-set+json, application/json"),
        );
        let reading = async {
            let answer = egress.send(request, Protocol::Http1).await?;
            if !answer.status().is_success() {
                return Err(Error::new(ErrorKind::Unavailable).with_message(format!(
                    "there is no key set: the answer is {}",
                    answer.status()
                )));
            }
            Self::parse(&answer.into_body().read(MAX_KEY_SET_BYTES).await?)
        };
        timeout(FETCH_TIMEOUT, reading)
            .await
            .map_err(|_| ErrorKind::DeadlineExceeded)?
    }
}

/// Checks the signatures of cards by keys that are known, and by those that are published at places that are trusted.
#[derive(Debug, Clone, Default)]
pub struct CardVerifier {
    keys: KeySet,
    trusted_urls: Vec<String>,
}

impl CardVerifier {
    /// Knows these keys.
    #[must_use]
    pub fn new(keys: KeySet) -> Self {
        Self {
            keys,
            trusted_urls: Vec::new(),
        }
    }

    /// Reads the key set at this url where a signature says that its key is there (`jku`). A card cannot make us read
    /// any other: who may sign is not for the signer to say.
    #[must_use]
    pub fn trust(mut self, url: impl Into<String>) -> Self {
        self.trusted_urls.push(url.into());
        self
    }

    /// Looks for one good signature; `received` as for [`verify_card`].
    pub async fn verify(&self, card: &AgentCard, received: Option<&[u8]>) -> CardVerification {
        let verification = verify_card(card, received, &self.keys);
        if !matches!(verification, CardVerification::Unverifiable { .. }) {
            return verification;
        }
        let named: Vec<_> = card
            .signatures
            .iter()
            .take(MAX_SIGNATURES)
            .filter_map(JoseHeader::read)
            .collect();
        let mut failed = None;
        for url in self
            .trusted_urls
            .iter()
            .filter(|url| named.iter().any(|it| it.jku.as_ref() == Some(url)))
        {
            match KeySet::fetch(url).await {
                Ok(keys) => match verify_card(card, received, &keys) {
                    CardVerification::Unverifiable { reason } => failed = Some(reason),
                    verification => return verification,
                },
                Err(error) => {
                    failed = Some(format!(
                        "the keys at {url} cannot be read: {}",
                        error.message()
                    ))
                }
            }
        }
        failed.map_or(verification, |reason| CardVerification::Unverifiable {
            reason,
        })
    }
}
