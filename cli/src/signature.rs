//! What the signatures of a card are worth.

use attache::jws::{CardVerification, KeySet, verify_card};
use attache::model::AgentCard;

use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::reference::ResolvedCard;
use crate::settings::Settings;

/// Checks them by the keys that the user names: who may sign is not for the card to say.
pub(crate) async fn check(
    found: &ResolvedCard,
    settings: &Settings,
) -> CliResult<CardVerification> {
    check_card(&found.card, Some(found.received.text.as_bytes()), settings).await
}

/// The same for any card; `received` is the document that it was read from, where there is one.
pub(crate) async fn check_card(
    card: &AgentCard,
    received: Option<&[u8]>,
    settings: &Settings,
) -> CliResult<CardVerification> {
    if card.signatures.is_empty() {
        return Ok(CardVerification::Absent);
    }
    let Some(place) = &settings.jwks else {
        let reason = "no key to check it with; name a key set with --jwks".to_owned();
        return Ok(CardVerification::Unverifiable { reason });
    };
    Ok(verify_card(card, received, &load_key_set(place).await?))
}

async fn load_key_set(place: &str) -> CliResult<KeySet> {
    let wrong = |why: &dyn std::fmt::Display| CliError::usage(format!("--jwks {place}: {why}"));
    if place.contains("://") {
        return KeySet::fetch(place)
            .await
            .map_err(|error| wrong(&error.message()));
    }
    let text = std::fs::read(place).map_err(|error| wrong(&error))?;
    KeySet::parse(&text).map_err(|error| wrong(&error.message()))
}

/// For people, and a warning aloud where a signature is there and not good.
pub(crate) fn describe(
    verdict: &CardVerification,
    settings: &Settings,
    out: &mut Output,
) -> String {
    match verdict {
        CardVerification::Verified { kid } => format!("verified ({kid})"),
        CardVerification::Absent => "absent".to_owned(),
        CardVerification::Unverifiable { reason } => {
            if settings.jwks.is_some() {
                out.warn(&format!("THE SIGNATURE OF THE CARD IS NOT GOOD: {reason}"));
            }
            format!("unverifiable ({reason})")
        }
    }
}

/// For those who use no card but one that is verified.
pub(crate) fn require_verified(verdict: &CardVerification) -> CliResult {
    match verdict {
        CardVerification::Verified { .. } => Ok(()),
        CardVerification::Absent => Err(CliError::card_invalid("the card is not signed")),
        CardVerification::Unverifiable { reason } => Err(CliError::card_invalid(format!(
            "the signature of the card is not verified: {reason}"
        ))),
    }
}
