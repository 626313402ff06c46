//! Verification of card signatures.

use attache::jws::{CardVerification, KeySet, verify_card};
use attache::model::AgentCard;

use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::reference::ResolvedCard;
use crate::settings::Settings;

/// Verifies the signatures with the keys of `--jwks`. Keys that the card names are not trusted.
pub(crate) async fn check(
    found: &ResolvedCard,
    settings: &Settings,
) -> CliResult<CardVerification> {
    check_card(&found.card, Some(found.received.text.as_bytes()), settings).await
}

/// Verifies the signatures of any card; `received` is the document it was parsed from, if there is one.
pub(crate) async fn check_card(
    card: &AgentCard,
    received: Option<&[u8]>,
    settings: &Settings,
) -> CliResult<CardVerification> {
    if card.signatures.is_empty() {
        return Ok(CardVerification::Absent);
    }
    let Some(place) = &settings.jwks else {
        let reason = "no keys to verify it with; give a key set with --jwks".to_owned();
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

/// Describes a result for people. Warns if there are keys and no signature verifies.
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
                out.warn(&format!("THE SIGNATURE OF THE CARD IS NOT VALID: {reason}"));
            }
            format!("unverifiable ({reason})")
        }
    }
}

/// Refuses a card without a verified signature (`--require-signature`).
pub(crate) fn require_verified(verdict: &CardVerification) -> CliResult {
    match verdict {
        CardVerification::Verified { .. } => Ok(()),
        CardVerification::Absent => Err(CliError::card_invalid("the card is not signed")),
        CardVerification::Unverifiable { reason } => Err(CliError::card_invalid(format!(
            "the signature of the card cannot be verified: {reason}"
        ))),
    }
}
