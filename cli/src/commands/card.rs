//! `attache card get`: shows the card of an agent.

use attache::ErrorKind;
use attache::model::AgentCard;
use serde_json::Value;

use crate::args::CardGetArgs;
use crate::card_schema::{CardSchema, findings};
use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::reference;
use crate::session::Session;
use crate::settings::Settings;
use crate::signature;
use crate::wire_log;

pub(crate) async fn get(args: CardGetArgs, settings: &Settings, out: &mut Output) -> CliResult {
    let received = reference::fetch_document(settings).await?;
    if args.validate {
        validate(&received.text, out)?;
    }
    let found = received.parse()?;
    let verdict = signature::check(&found, settings).await?;
    if settings.require_signature {
        signature::require_verified(&verdict)?;
    }
    if args.extended {
        return extended(&Session::with_card(settings, &found, out)?, out).await;
    }
    let text = as_v1_text(&found.card, &found.received.text, out);
    let words = signature::describe(&verdict, settings, out);
    out.print_card(&found.card, &text, &words)
}

/// Validates the card against the schema: notes every finding, and fails with the first.
fn validate(text: &str, out: &mut Output) -> CliResult {
    let card: Value = serde_json::from_str(text)
        .map_err(|error| CliError::card_invalid(format!("the card is not JSON: {error}")))?;
    let found = findings(&card, CardSchema::V1);
    let Some(first) = found.first() else {
        return Ok(());
    };
    found.iter().for_each(|finding| out.note(finding));
    let more = match found.len() {
        1 => String::new(),
        many => format!(", and {} more", many - 1),
    };
    Err(CliError::card_invalid(format!("{first}{more}")))
}

/// Gets the extended card. Requires that the public card declares it and a security scheme.
async fn extended(session: &Session<'_>, out: &mut Output) -> CliResult {
    if session.card.capabilities.extended_agent_card != Some(true) {
        return Err(CliError::protocol(
            ErrorKind::UnsupportedOperation,
            "the card does not declare an extended card",
        ));
    }
    if session.card.security_schemes.is_empty() {
        return Err(CliError::credentials_missing(
            "the card declares no security scheme, so no request was sent",
        )
        .hint("an extended card is for authenticated callers: the public card must declare a security scheme"));
    }
    let settings = session.settings;
    let (client, capture) = wire_log::with_response_capture(session.client.clone(), settings);
    let card = session.call(client.get_extended_agent_card()).await?;
    let received = document(&capture.take());
    let text = match &received {
        Some(received) => as_v1_text(&card, received, out),
        None => pretty(&card)?,
    };
    let verdict =
        signature::check_card(&card, received.as_deref().map(str::as_bytes), settings).await?;
    if settings.require_signature {
        signature::require_verified(&verdict)?;
    }
    let words = signature::describe(&verdict, settings, out);
    out.print_card(&card, &text, &words)
}

/// The card in a response body, as received; `None` if the body is not JSON.
fn document(answer: &[u8]) -> Option<String> {
    let answer: Value = serde_json::from_slice(answer).ok()?;
    let card = answer
        .get("result")
        .filter(|_| answer.get("jsonrpc").is_some())
        .unwrap_or(&answer);
    serde_json::to_string_pretty(card).ok()
}

fn pretty(card: &AgentCard) -> CliResult<String> {
    serde_json::to_string_pretty(card).map_err(|error| CliError::internal(error.to_string()))
}

/// The text to print: a 1.0 card as received, an older one converted to 1.0.
fn as_v1_text(card: &AgentCard, text: &str, out: &mut Output) -> String {
    let read: Value = serde_json::from_str(text).unwrap_or_default();
    if read.get("supportedInterfaces").is_some() || read.get("supported_interfaces").is_some() {
        return text.to_owned();
    }
    out.note("the card is older than 1.0; shown in the 1.0 format");
    serde_json::to_string_pretty(card).unwrap_or_else(|_| text.to_owned())
}
