//! URLs of an interface: resolved against the URL of its card, and guessed if the card is wrong.

use ::http::Uri;

use crate::egress::origin;
use crate::model::{AgentInterface, Binding};
use crate::wire::card::WELL_KNOWN;

/// Path of the card on one agent platform.
pub(super) const PLATFORM_CARD_PATH: &str = "/v1/card";

/// Returns the absolute URL of an interface. Some cards have relative URLs, and KAOS and selectools
/// have none: their agent is at the base of the card.
pub(super) fn absolute_url(interface: &AgentInterface, card_url: &Uri) -> String {
    let url = interface.url.as_str();
    match url {
        // `host:port` does not say whether to use TLS: the scheme of the card decides.
        address if interface.binding() == Some(Binding::Grpc) && !address.contains("://") => {
            format!("{}://{address}", card_url.scheme_str().unwrap_or("http"))
        }
        _ if interface.binding() == Some(Binding::Grpc) => url.to_owned(),
        "" => format!("{}/", base_url(card_url)),
        url => resolve_reference(url, card_url),
    }
}

/// Returns further URLs where the JSON-RPC endpoint of `url` may be: the base of the card, and `/a2a` below it. None if
/// the card leads to another origin.
pub(super) fn guessed_urls(url: &Uri, card_url: &Uri) -> Vec<String> {
    if origin(url) != origin(card_url) {
        return Vec::new();
    }
    let base = base_url(card_url);
    let guesses = [format!("{base}/"), format!("{base}/a2a")];
    guesses
        .into_iter()
        .filter(|guess| *guess != url.to_string())
        .collect()
}

/// Returns the URL, without a slash at its end, that the path of the card is below. The origin if the card has a path
/// of its own.
pub(super) fn base_url(card_url: &Uri) -> String {
    let path = card_url.path();
    let mut known = WELL_KNOWN.into_iter().chain([PLATFORM_CARD_PATH]);
    let base = known.find_map(|name| path.strip_suffix(name));
    format!("{}{}", origin(card_url), base.unwrap_or_default())
}

/// Resolves a URL reference against the URL of the card (RFC 3986 §5.2).
fn resolve_reference(url: &str, card_url: &Uri) -> String {
    let origin = origin(card_url);
    if url.starts_with("//") {
        return format!("{}:{url}", card_url.scheme_str().unwrap_or("http"));
    }
    if url.starts_with('/') {
        return format!("{origin}{url}");
    }
    let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    let first_segment = path.split('/').next().unwrap_or_default();
    if first_segment.contains(':') {
        return url.to_owned();
    }
    let mut segments: Vec<_> = card_url.path().split('/').skip(1).collect();
    segments.pop();
    let mut below = path.split('/').peekable();
    while let Some(segment) = below.next() {
        let is_last = below.peek().is_none();
        match segment {
            "." | ".." => {
                if segment == ".." {
                    segments.pop();
                }
                segments.extend(is_last.then_some(""));
            }
            segment => segments.push(segment),
        }
    }
    format!("{origin}/{}{query}", segments.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Version;

    fn resolved(url: &str, card_url: &'static str) -> String {
        let interface = AgentInterface::new(url, Binding::JsonRpc, Version::V03);
        absolute_url(&interface, &Uri::from_static(card_url))
    }

    #[test]
    fn seed_4_36_empty_url_is_the_base_of_the_card() {
        for (card_url, expected) in [
            ("http://a:8000/.well-known/agent.json", "http://a:8000/"),
            ("http://a/x/.well-known/agent-card.json?k", "http://a/x/"),
            ("http://a/x/v1/card", "http://a/x/"),
            ("http://a/cards/tides.json", "http://a/"),
        ] {
            assert_eq!(resolved("", card_url), expected, "{card_url}");
        }
    }

    #[test]
    fn seed_0_34_guesses_stay_in_the_origin_of_the_card() {
        let guesses = |url: &'static str| {
            let card_url = Uri::from_static("http://a/x/.well-known/agent.json");
            guessed_urls(&Uri::from_static(url), &card_url)
        };
        assert_eq!(guesses("http://a/x/"), ["http://a/x/a2a"]);
        assert_eq!(guesses("http://a/rpc"), ["http://a/x/", "http://a/x/a2a"]);
        assert!(guesses("http://b/rpc").is_empty());
        assert!(guesses("https://a/rpc").is_empty());
    }
}
