//! Selection of the interfaces of a card that this program can use.

use attache::ErrorKind;
use attache::model::{AgentInterface, Binding};

use crate::error::{CliError, CliResult};
use crate::reference::ResolvedCard;
use crate::settings::Settings;
use crate::version::{SelectedVersion, VersionPreference, rank};

/// An interface of the card with an absolute URL, and its version.
pub(super) struct InterfaceChoice {
    pub(super) interface: AgentInterface,
    pub(super) binding: Binding,
    pub(super) version: SelectedVersion,
}

/// A usable entry of the card.
struct Candidate<'a> {
    interface: &'a AgentInterface,
    binding: Binding,
    version: SelectedVersion,
}

/// Selects one interface per binding, with its highest accepted version: first the bindings of `--transport`, then those of
/// the card, each in their order. Never empty.
///
/// # Errors
/// The card has no usable interface.
pub(super) fn usable_interfaces(
    found: &ResolvedCard,
    settings: &Settings,
) -> CliResult<Vec<InterfaceChoice>> {
    let preference = VersionPreference::from_settings(settings)?;
    let candidates: Vec<_> = found
        .card
        .supported_interfaces
        .iter()
        .filter_map(|interface| {
            Some(Candidate {
                interface,
                binding: interface.binding()?,
                version: preference.select(interface)?,
            })
        })
        .collect();
    if candidates.is_empty() {
        return Err(no_usable_interface(found, &preference));
    }
    let choices = ordered_bindings(&candidates, settings)
        .into_iter()
        .filter_map(|binding| highest_version(&candidates, binding))
        .map(|best| choose(found, best));
    choices.collect()
}

/// Selects an interface in whatever version it has; `None` if the binding or the version is not supported.
///
/// # Errors
/// Its URL cannot be resolved.
pub(super) fn any_version(
    found: &ResolvedCard,
    interface: &AgentInterface,
) -> CliResult<Option<InterfaceChoice>> {
    let binding = interface.binding();
    let version = VersionPreference::Any.select(interface);
    let (Some(binding), Some(version)) = (binding, version) else {
        return Ok(None);
    };
    let candidate = Candidate {
        interface,
        binding,
        version,
    };
    choose(found, &candidate).map(Some)
}

/// The bindings of the candidates without duplicates: those of `--transport` first.
fn ordered_bindings(candidates: &[Candidate<'_>], settings: &Settings) -> Vec<Binding> {
    let preferred = settings.transports.iter().filter_map(|name| {
        candidates
            .iter()
            .map(|candidate| candidate.binding)
            .find(|binding| binding.as_str().eq_ignore_ascii_case(name))
    });
    let mut bindings = Vec::new();
    for binding in preferred.chain(candidates.iter().map(|candidate| candidate.binding)) {
        if !bindings.contains(&binding) {
            bindings.push(binding);
        }
    }
    bindings
}

/// The candidate of a binding with the highest version.
fn highest_version<'a, 'c>(
    candidates: &'c [Candidate<'a>],
    binding: Binding,
) -> Option<&'c Candidate<'a>> {
    let same = candidates
        .iter()
        .filter(|candidate| candidate.binding == binding);
    // Reversed: of equal versions `max_by_key` returns the last, and the first of the card is preferred.
    same.rev()
        .max_by_key(|candidate| rank(&candidate.interface.protocol_version))
}

fn choose(found: &ResolvedCard, best: &Candidate<'_>) -> CliResult<InterfaceChoice> {
    Ok(InterfaceChoice {
        interface: AgentInterface {
            protocol_version: best.version.version.as_str().to_owned(),
            ..found.resolve_interface(best.interface)?
        },
        binding: best.binding,
        version: best.version.clone(),
    })
}

fn no_usable_interface(found: &ResolvedCard, preference: &VersionPreference) -> CliError {
    let interfaces = &found.card.supported_interfaces;
    if interfaces.is_empty() {
        return CliError::card_invalid("the card has no interface");
    }
    let offered: Vec<_> = interfaces
        .iter()
        .map(|one| format!("{} {}", one.protocol_binding, one.protocol_version))
        .collect();
    let offered = offered.join(", ");
    let other_version = interfaces
        .iter()
        .filter(|one| one.binding().is_some())
        .find(|one| VersionPreference::Any.select(one).is_some());
    let Some(other) = other_version else {
        return CliError::internal(format!(
            "the agent offers {offered}, and none of them is supported"
        ));
    };
    let version = match preference {
        VersionPreference::Current => other.protocol_version.as_str(),
        VersionPreference::Any | VersionPreference::Exactly(_) => "auto",
    };
    CliError::protocol(
        ErrorKind::VersionNotSupported,
        format!("the agent offers only {offered}, which was not requested"),
    )
    .hint(crate::resume::rerun_with(&format!(
        "--a2a-version {version}"
    )))
}
