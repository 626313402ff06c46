//! Helpers for outgoing HTTP requests: validation of configured URLs and headers.

use attache::HttpClient;
use attache::model::Secret;
use http::{HeaderName, HeaderValue, Uri};

/// `User-Agent` of every outgoing request.
pub(crate) const USER_AGENT: &str = concat!("attache/", env!("CARGO_PKG_VERSION"));

/// Description of the URLs that [`parse_url`] accepts.
pub(crate) const URL_RULE: &str = "must begin with http:// or https:// and name a host";

/// Parses a configured URL.
///
/// # Errors
/// The URL has no host or a scheme other than `http` and `https`.
pub(crate) fn parse_url(url: &str) -> Result<Uri, String> {
    let url: Uri = url.parse().map_err(|_| URL_RULE.to_owned())?;
    HttpClient::check(&url).map_err(|error| error.message().to_owned())?;
    Ok(url)
}

/// Parses a configured header. The value is marked as sensitive, so it is never logged.
///
/// # Errors
/// The name or the value contains characters that HTTP does not allow.
pub(crate) fn parse_header(name: &str, value: &str) -> Result<(HeaderName, HeaderValue), String> {
    let header = HeaderName::try_from(name)
        .ok()
        .zip(HeaderValue::try_from(value).ok());
    let (name, mut value) = header.ok_or_else(|| invalid_header(name))?;
    value.set_sensitive(true);
    Ok((name, value))
}

/// Parses all configured headers.
///
/// # Errors
/// As for [`parse_header`].
pub(crate) fn parse_headers<'a, H>(
    headers: impl IntoIterator<Item = (&'a String, &'a Secret)>,
) -> Result<H, String>
where
    H: FromIterator<(HeaderName, HeaderValue)>,
{
    headers
        .into_iter()
        .map(|(name, value)| parse_header(name, value.expose()))
        .collect()
}

/// Returns the error message for a header that HTTP does not allow.
pub(crate) fn invalid_header(name: &str) -> String {
    format!("`{name}` cannot be sent as a header")
}
