//! What the signatures of a card are worth.

use attache::jws::{KeySet, Verdict, verify_card};
use attache::model::AgentCard;

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::reference::Found;
use crate::settings::Settings;

/// Checks them by the keys that the user names: who may sign is not for the card to say.
pub(crate) async fn check(found: &Found, settings: &Settings) -> Outcome<Verdict> {
    check_card(&found.card, Some(found.received.text.as_bytes()), settings).await
}

/// The same for any card; `received` is the document that it was read from, where there is one.
pub(crate) async fn check_card(
    card: &AgentCard,
    received: Option<&[u8]>,
    settings: &Settings,
) -> Outcome<Verdict> {
    if card.signatures.is_empty() {
        return Ok(Verdict::Absent);
    }
    let Some(place) = &settings.jwks else {
        let reason = "no key to check it with; name a key set with --jwks".to_owned();
        return Ok(Verdict::Unverifiable { reason });
    };
    Ok(verify_card(card, received, &keys(place).await?))
}

async fn keys(place: &str) -> Outcome<KeySet> {
    let wrong = |why: &dyn std::fmt::Display| Failure::usage(format!("--jwks {place}: {why}"));
    if place.contains("://") {
        return KeySet::fetch(place)
            .await
            .map_err(|error| wrong(&error.message()));
    }
    let text = std::fs::read(place).map_err(|error| wrong(&error))?;
    KeySet::read(&text).map_err(|error| wrong(&error.message()))
}

/// For people, and a warning aloud where a signature is there and not good.
pub(crate) fn words(verdict: &Verdict, settings: &Settings, out: &mut Output) -> String {
    match verdict {
        Verdict::Verified { kid } => format!("verified ({kid})"),
        Verdict::Absent => "absent".to_owned(),
        Verdict::Unverifiable { reason } => {
            if settings.jwks.is_some() {
                out.warn(&format!("THE SIGNATURE OF THE CARD IS NOT GOOD: {reason}"));
            }
            format!("unverifiable ({reason})")
        }
    }
}

/// For those who use no card but one that is verified.
pub(crate) fn require(verdict: &Verdict) -> Outcome {
    match verdict {
        Verdict::Verified { .. } => Ok(()),
        Verdict::Absent => Err(Failure::card_invalid("the card is not signed")),
        Verdict::Unverifiable { reason } => Err(Failure::card_invalid(format!(
            "the signature of the card is not verified: {reason}"
        ))),
    }
}
