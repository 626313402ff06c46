//! The command that works, with the flags it needs.

use attache::wire::card::WELL_KNOWN;

use super::interfaces::ProbedInterface;
use crate::reference::ResolvedCard;
use crate::resume::ResumeHints;
use crate::session::Session;
use crate::settings::Settings;
use crate::settings::flags::{A2A_VERSION, AGENT_CARD, ENDPOINT, TRANSPORT};

/// The working interface to use: the one that the settings select, else the first of the card with the highest version.
pub(super) fn best<'p, 'a>(
    probed: &'p [ProbedInterface<'a>],
    found: &ResolvedCard,
    settings: &Settings,
) -> Option<&'p ProbedInterface<'a>> {
    let working = || probed.iter().filter(|one| one.works());
    working()
        .find(|one| is_default(one, found, settings))
        .or_else(|| working().find(|one| one.report.on_card && !is_legacy(one)))
        .or_else(|| working().find(|one| one.report.on_card))
        .or_else(|| working().next())
}

/// Whether a command without further flags uses this interface.
fn is_default(one: &ProbedInterface<'_>, found: &ResolvedCard, settings: &Settings) -> bool {
    let default = Session::default_interface(settings, found);
    let finds_card = settings.version.is_some() || !is_at_legacy_path(found);
    one.report.on_card
        && finds_card
        && default.is_some_and(|default| {
            default.url == one.report.url
                && default.protocol_binding == one.report.binding
                && is_legacy_version(&default.protocol_version) == is_legacy(one)
        })
}

fn is_legacy(one: &ProbedInterface<'_>) -> bool {
    is_legacy_version(&one.report.version)
}

fn is_legacy_version(version: &str) -> bool {
    version.starts_with("0.")
}

/// Whether only clients of older versions request the card there.
fn is_at_legacy_path(found: &ResolvedCard) -> bool {
    found.url().is_some_and(|url| url.ends_with(WELL_KNOWN[1]))
}

/// A `send` over the interface.
pub(super) fn command(
    best: &ProbedInterface<'_>,
    found: &ResolvedCard,
    settings: &Settings,
) -> String {
    if is_default(best, found, settings) {
        return ResumeHints::new(settings).message_command("");
    }
    let report = &best.report;
    let mut options = String::new();
    let agent = match found.url() {
        _ if !report.on_card => format!(" -e {}", shell_words::quote(&report.url)),
        Some(url) if is_at_legacy_path(found) && !is_legacy(best) => {
            format!(" -a {}", shell_words::quote(url))
        }
        _ => settings
            .agent
            .as_deref()
            .map(|agent| format!(" -a {}", shell_words::quote(agent)))
            .unwrap_or_default(),
    };
    options.push_str(&agent);
    options.push_str(&format!(
        " --transport {}",
        report.binding.to_ascii_lowercase()
    ));
    if is_legacy(best) {
        options.push_str(&format!(
            " --a2a-version {}",
            short_version(&report.version)
        ));
    }
    let replaced = [&AGENT_CARD, &ENDPOINT, &TRANSPORT, &A2A_VERSION];
    ResumeHints::without(settings, &replaced).message_command(&options)
}

/// Major and minor number.
fn short_version(version: &str) -> String {
    version.split('.').take(2).collect::<Vec<_>>().join(".")
}
