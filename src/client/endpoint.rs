//! A way to an agent: where, in which binding and version, for which tenant; and which of them a card offers.

use std::sync::OnceLock;

use ::http::Uri;

use super::grpc;
use super::settings::InterfacePreference;
use crate::egress;
pub(super) use crate::egress::origin;
use crate::model::{AgentCard, AgentInterface, Binding, Error, Result, Version};
use crate::wire::negotiation::RequestedVersion;

/// One way to talk to an agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Endpoint {
    pub(super) url: Uri,
    pub(super) binding: Binding,
    pub(super) version: Version,
    pub(super) tenant: Option<String>,
}

impl Endpoint {
    /// # Errors
    /// Invalid parameters: the url is not one we can call. Unsupported: gRPC without the feature `grpc`.
    pub(super) fn new(url: &str, binding: Binding, version: Version) -> Result<Self> {
        let url = match binding {
            Binding::JsonRpc | Binding::HttpJson => url.parse().ok(),
            Binding::Grpc => grpc::parse_url(url)?,
        };
        let url: Uri = url.ok_or_else(|| {
            Error::invalid("url", "must begin with http:// or https:// and name a host")
        })?;
        egress::check_url(&url)?;
        Ok(Self {
            url,
            binding,
            version,
            tenant: None,
        })
    }

    pub(super) fn interface(&self) -> AgentInterface {
        AgentInterface {
            tenant: self.tenant.clone(),
            ..AgentInterface::new(self.url.to_string(), self.binding, self.version)
        }
    }
}

/// What a card offers besides the first choice, and which of it was fallen back on.
#[derive(Debug, Default)]
pub(super) struct Fallbacks {
    candidates: Vec<Endpoint>,
    active: OnceLock<Endpoint>,
}

impl Fallbacks {
    pub(super) fn new(candidates: Vec<Endpoint>) -> Self {
        Self {
            candidates,
            active: OnceLock::new(),
        }
    }

    pub(super) fn active(&self) -> Option<&Endpoint> {
        self.active.get()
    }

    pub(super) fn find(&self, suits: impl Fn(&Endpoint) -> bool) -> Option<&Endpoint> {
        self.candidates.iter().find(|endpoint| suits(endpoint))
    }

    pub(super) fn activate(&self, endpoint: &Endpoint) {
        // If another call was quicker, its way is as good.
        let _ = self.active.set(endpoint.clone());
    }
}

/// The binding and the version of an interface, if this client speaks both.
pub(super) fn supported_protocol(interface: &AgentInterface) -> Option<(Binding, Version)> {
    let binding = interface
        .binding()
        .filter(|binding| *binding != Binding::Grpc || grpc::IS_SUPPORTED)?;
    match RequestedVersion::parse([&*interface.protocol_version]) {
        RequestedVersion::Known(version) => Some((binding, version)),
        RequestedVersion::Absent | RequestedVersion::Unsupported(_) => None,
    }
}

/// The ways that a card offers, the best first. What cannot be called is left out, and why is said if nothing is left.
///
/// # Errors
/// None is left, by our means or by the choice.
pub(super) fn select_endpoints(
    card: &AgentCard,
    from: &Uri,
    preference: &InterfacePreference,
) -> Result<Vec<Endpoint>> {
    let mut offered: Vec<_> = card
        .supported_interfaces
        .iter()
        .filter_map(|interface| {
            supported_protocol(interface).map(|(binding, version)| (binding, version, interface))
        })
        .filter(|(_, version, _)| preference.version.is_none_or(|pinned| pinned == *version))
        .filter(|(binding, ..)| !preference.only_listed || preference.bindings.contains(binding))
        .collect();
    let order: Vec<_> = offered.iter().map(|(binding, ..)| *binding).collect();
    let rank = |binding: Binding| {
        let preferred = preference.bindings.iter().position(|one| *one == binding);
        let listed = order.iter().position(|one| *one == binding);
        (preferred.unwrap_or(usize::MAX), listed)
    };
    let newest = |version: Version| Version::ALL.iter().position(|one| *one == version);
    offered.sort_by_key(|(binding, version, _)| (rank(*binding), newest(*version)));
    let (mut found, mut refused) = (Vec::new(), None);
    for (binding, version, interface) in offered {
        for url in absolute_urls(interface, from) {
            match Endpoint::new(&url, binding, version) {
                Ok(endpoint) => found.push(Endpoint {
                    tenant: interface.tenant.clone(),
                    ..endpoint
                }),
                Err(error) => refused = refused.or(Some(error)),
            }
        }
    }
    match refused {
        _ if !found.is_empty() => Ok(found),
        Some(error) => Err(error),
        None => Err(super::invalid_response(&describe_interfaces(card))),
    }
}

fn describe_interfaces(card: &AgentCard) -> String {
    let shown = card.supported_interfaces.iter().take(8);
    let listed: Vec<_> = shown
        .map(|one| format!("{} {}", one.protocol_binding, one.protocol_version))
        .collect();
    match listed.is_empty() {
        true => "the card names no interface".to_owned(),
        false => format!(
            "the card names no interface that may be used here, only {}",
            listed.join(", ")
        ),
    }
}

/// The urls of an interface; some cards leave out the host, and one kind of server leaves out everything.
fn absolute_urls(interface: &AgentInterface, card: &Uri) -> Vec<String> {
    let url = interface.url.as_str();
    let origin = origin(card);
    match url {
        // `host:port` does not say whether it is TLS; where the card came by TLS, so do the calls.
        address if interface.binding() == Some(Binding::Grpc) && !address.contains("://") => {
            vec![format!(
                "{}://{address}",
                card.scheme_str().unwrap_or("http")
            )]
        }
        _ if interface.binding() == Some(Binding::Grpc) => vec![url.to_owned()],
        "" => vec![format!("{origin}/a2a"), format!("{origin}/")],
        url => vec![resolve_reference(url, card, &origin)],
    }
}

/// A url as it is meant on a card from there (RFC 3986, 5.2).
fn resolve_reference(url: &str, card: &Uri, origin: &str) -> String {
    if url.starts_with("//") {
        return format!("{}:{url}", card.scheme_str().unwrap_or("http"));
    }
    if url.starts_with('/') {
        return format!("{origin}{url}");
    }
    let (path, query) = url.split_at(url.find('?').unwrap_or(url.len()));
    if path
        .split('/')
        .next()
        .is_some_and(|first| first.contains(':'))
    {
        return url.to_owned();
    }
    let mut segments: Vec<_> = card.path().split('/').skip(1).collect();
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

    fn card(interfaces: &[(&str, Binding, Version)]) -> AgentCard {
        let card = AgentCard::new("A", "");
        interfaces
            .iter()
            .fold(card, |card, (url, binding, version)| {
                card.interface(*url, *binding, *version)
            })
    }

    fn selected_paths(preference: &InterfacePreference) -> Vec<String> {
        let card = card(&[
            ("http://a/1", Binding::HttpJson, Version::V03),
            ("http://a/2", Binding::JsonRpc, Version::V1),
            ("http://a/3", Binding::HttpJson, Version::V1),
        ]);
        let found =
            select_endpoints(&card, &Uri::from_static("http://a/"), preference).unwrap_or_default();
        found
            .iter()
            .map(|endpoint| endpoint.url.path().to_owned())
            .collect()
    }

    #[test]
    fn card_order_is_kept_and_newest_version_of_a_binding_wins() {
        assert_eq!(
            selected_paths(&InterfacePreference::default()),
            ["/3", "/1", "/2"]
        );
    }

    #[test]
    fn preferred_bindings_come_first_and_pinned_ones_alone() {
        let json = vec![Binding::JsonRpc];
        assert_eq!(
            selected_paths(&InterfacePreference {
                bindings: json.clone(),
                ..InterfacePreference::default()
            }),
            ["/2", "/3", "/1"]
        );
        let old = Some(Version::V03);
        assert_eq!(
            selected_paths(&InterfacePreference {
                version: old,
                ..InterfacePreference::default()
            }),
            ["/1"]
        );
        assert!(
            selected_paths(&InterfacePreference {
                bindings: json,
                only_listed: true,
                version: old,
                ..InterfacePreference::default()
            })
            .is_empty()
        );
    }

    #[test]
    fn relative_url_is_resolved_against_card_url() {
        let card = |url: &str| card(&[(url, Binding::JsonRpc, Version::V1)]);
        let from = Uri::from_static("https://a:8443/b/c/agent-card.json?x");
        for (url, expected) in [
            ("rpc", "https://a:8443/b/c/rpc"),
            ("rpc/v1?k=v", "https://a:8443/b/c/rpc/v1?k=v"),
            ("./", "https://a:8443/b/c/"),
            ("../rpc", "https://a:8443/b/rpc"),
            ("../../../rpc", "https://a:8443/rpc"),
            ("..", "https://a:8443/b/"),
            ("/rpc", "https://a:8443/rpc"),
            ("//d/rpc", "https://d/rpc"),
            ("http://d/rpc", "http://d/rpc"),
        ] {
            let found = select_endpoints(&card(url), &from, &InterfacePreference::default())
                .unwrap_or_default();
            assert_eq!(
                found
                    .iter()
                    .map(|endpoint| endpoint.url.to_string())
                    .collect::<Vec<_>>(),
                [expected],
                "{url}"
            );
        }
        assert!(
            select_endpoints(&card("d:80/rpc"), &from, &InterfacePreference::default()).is_err(),
            "that is no url"
        );
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let origin = |url: &str| origin(&url.parse().expect("a url"));
        assert_eq!(origin("http://A:80/x"), origin("http://a"));
        assert_ne!(origin("http://a:81"), origin("http://a"));
        assert_ne!(origin("https://a"), origin("http://a"));
    }
}
