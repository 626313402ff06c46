//! Endpoint of an agent (URL, binding, version, tenant), and the selection of endpoints from a card.

use std::sync::OnceLock;

use ::http::Uri;

use super::grpc;
use super::interface_url::{absolute_url, guessed_urls};
use super::settings::InterfacePreference;
use crate::egress;
pub(super) use crate::egress::origin;
use crate::model::{
    AgentCard, AgentInterface, Binding, Error, ErrorKind, KAOS_BINDING, Result, Version,
};
use crate::wire::negotiation::RequestedVersion;

/// Maximum number of interfaces that an error message lists.
const MAX_LISTED_INTERFACES: usize = 8;

/// One way to reach an agent.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Endpoint {
    pub(super) url: Uri,
    pub(super) binding: Binding,
    pub(super) version: Version,
    pub(super) tenant: Option<String>,
    /// Whether the agent has the methods of KAOS.
    pub(super) is_kaos: bool,
}

impl Endpoint {
    /// Returns an endpoint without a tenant.
    ///
    /// # Errors
    /// Invalid parameters if `url` is not an HTTP URL. Unsupported for gRPC without the feature `grpc`.
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
            is_kaos: false,
        })
    }

    /// Returns the endpoint of an interface of a card, with its tenant.
    ///
    /// # Errors
    /// As [`new`](Self::new); unsupported if this client does not support the binding or version.
    pub(super) fn from_interface(interface: &AgentInterface) -> Result<Self> {
        let (binding, version) = supported_protocol(interface).ok_or_else(unsupported_interface)?;
        Self::new(&interface.url, binding, version).map(|endpoint| endpoint.with_details(interface))
    }

    /// Adds tenant and methods of an interface.
    fn with_details(self, interface: &AgentInterface) -> Self {
        Self {
            tenant: interface.tenant.clone(),
            is_kaos: interface.is_kaos(),
            ..self
        }
    }

    pub(super) fn interface(&self) -> AgentInterface {
        let interface = AgentInterface::new(self.url.to_string(), self.binding, self.version);
        AgentInterface {
            tenant: self.tenant.clone(),
            protocol_binding: if self.is_kaos {
                KAOS_BINDING.to_owned()
            } else {
                interface.protocol_binding
            },
            ..interface
        }
    }

    /// Returns this endpoint at the other URLs where it may be.
    fn at_guessed_urls(&self, card_url: &Uri) -> Vec<Self> {
        let guesses = guessed_urls(&self.url, card_url).into_iter();
        let guesses = guesses.filter_map(|url| url.parse().ok());
        guesses
            .map(|url| Self {
                url,
                ..self.clone()
            })
            .collect()
    }
}

fn unsupported_interface() -> Error {
    Error::new(ErrorKind::UnsupportedOperation).with_message(
        "This operation is not supported: the client does not support the binding or version of this interface",
    )
}

/// Endpoints besides the selected one, and the one that the client fell back to.
#[derive(Debug, Default)]
pub(super) struct Fallbacks {
    /// Other endpoints of the card.
    declared: Vec<Endpoint>,
    /// Endpoints at other URLs of the same server, for cards with a wrong URL.
    guessed: Vec<Endpoint>,
    active: OnceLock<Endpoint>,
}

impl Fallbacks {
    /// Returns the fallbacks of `selected`, an endpoint of the card at `card_url`.
    pub(super) fn new(selected: &Endpoint, declared: Vec<Endpoint>, card_url: &Uri) -> Self {
        let guessed = [selected]
            .into_iter()
            .chain(&declared)
            .find(|endpoint| endpoint.binding == Binding::JsonRpc)
            .map(|endpoint| endpoint.at_guessed_urls(card_url));
        Self {
            guessed: guessed.unwrap_or_default(),
            declared,
            active: OnceLock::new(),
        }
    }

    /// Returns the endpoint that replaced the selected one.
    pub(super) fn active(&self) -> Option<&Endpoint> {
        self.active.get()
    }

    /// Returns the first other endpoint of the card that is suitable.
    pub(super) fn find_declared(
        &self,
        is_suitable: impl Fn(&Endpoint) -> bool,
    ) -> Option<&Endpoint> {
        self.declared.iter().find(|endpoint| is_suitable(endpoint))
    }

    /// Returns the first guessed endpoint that is suitable.
    pub(super) fn find_guessed(
        &self,
        is_suitable: impl Fn(&Endpoint) -> bool,
    ) -> Option<&Endpoint> {
        self.guessed.iter().find(|endpoint| is_suitable(endpoint))
    }

    /// Uses this endpoint from now on. The first concurrent call wins.
    pub(super) fn activate(&self, endpoint: &Endpoint) {
        let _ = self.active.set(endpoint.clone());
    }
}

/// Returns the binding and version of an interface, if this client supports both.
fn supported_protocol(interface: &AgentInterface) -> Option<(Binding, Version)> {
    let binding = interface
        .binding()
        .filter(|binding| *binding != Binding::Grpc || grpc::IS_SUPPORTED)?;
    match RequestedVersion::parse([&*interface.protocol_version]) {
        RequestedVersion::Known(version) => Some((binding, version)),
        RequestedVersion::Absent | RequestedVersion::Unsupported(_) => None,
    }
}

/// Interface of a card that this client supports.
struct InterfaceCandidate<'a> {
    interface: &'a AgentInterface,
    binding: Binding,
    version: Version,
}

/// Selects the endpoints of a card that may be used, best first.
///
/// Interfaces with an invalid URL are left out.
///
/// # Errors
/// None is left: the error of the first invalid URL, or a list of what the card offers.
pub(super) fn select_endpoints(
    card: &AgentCard,
    card_url: &Uri,
    preference: &InterfacePreference,
) -> Result<Vec<Endpoint>> {
    let mut found = Vec::new();
    let mut first_error = None;
    for candidate in ranked_candidates(card, preference) {
        let url = absolute_url(candidate.interface, card_url);
        match Endpoint::new(&url, candidate.binding, candidate.version) {
            Ok(endpoint) => found.push(endpoint.with_details(candidate.interface)),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    match first_error {
        _ if !found.is_empty() => Ok(found),
        Some(error) => Err(error),
        None => Err(super::invalid_response(&describe_interfaces(card))),
    }
}

/// Returns the supported interfaces by preference: preferred bindings, then card order, then newest version.
fn ranked_candidates<'a>(
    card: &'a AgentCard,
    preference: &InterfacePreference,
) -> Vec<InterfaceCandidate<'a>> {
    let supported = card.supported_interfaces.iter().filter_map(|interface| {
        let (binding, version) = supported_protocol(interface)?;
        Some(InterfaceCandidate {
            interface,
            binding,
            version,
        })
    });
    let mut candidates: Vec<_> = supported
        .filter(|one| {
            preference
                .version
                .is_none_or(|pinned| pinned == one.version)
        })
        .filter(|one| !preference.only_listed || preference.bindings.contains(&one.binding))
        .collect();
    let card_order: Vec<_> = candidates.iter().map(|one| one.binding).collect();
    candidates.sort_by_key(|candidate| {
        let is_same = |binding: &Binding| *binding == candidate.binding;
        let preferred = preference.bindings.iter().position(is_same);
        let listed = card_order.iter().position(is_same);
        let age = Version::ALL
            .iter()
            .position(|one| *one == candidate.version);
        (preferred.unwrap_or(usize::MAX), listed, age)
    });
    candidates
}

fn describe_interfaces(card: &AgentCard) -> String {
    let interfaces = card.supported_interfaces.iter().take(MAX_LISTED_INTERFACES);
    let listed: Vec<_> = interfaces
        .map(|one| format!("{} {}", one.protocol_binding, one.protocol_version))
        .collect();
    if listed.is_empty() {
        return "the card names no interface".to_owned();
    }
    format!(
        "the card names no interface that may be used here, only {}",
        listed.join(", ")
    )
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
            "not a URL"
        );
    }

    #[test]
    fn an_origin_is_scheme_host_and_port() {
        let origin = |url: &str| origin(&url.parse().expect("valid URL"));
        assert_eq!(origin("http://A:80/x"), origin("http://a"));
        assert_ne!(origin("http://a:81"), origin("http://a"));
        assert_ne!(origin("https://a"), origin("http://a"));
    }
}
