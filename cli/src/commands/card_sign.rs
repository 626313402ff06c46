//! `attache card sign` and `attache card verify`.

use attache::jws::{CardVerification, Signer};
use serde::Serialize;
use serde_json::json;

use crate::args::CardSignArgs;
use crate::error::{CliError, CliResult};
use crate::output::{Output, TextPage};
use crate::reference;
use crate::settings::Settings;
use crate::signature;

/// Adds a signature to a card, and prints it.
pub(crate) async fn sign(args: CardSignArgs, settings: &Settings, out: &mut Output) -> CliResult {
    let wrong = |error: attache::Error| CliError::usage(error.message().to_owned());
    let file = &args.signing_key;
    let pem = std::fs::read_to_string(file)
        .map_err(|error| CliError::usage(format!("--signing-key {}: {error}", file.display())))?;
    let mut signer = Signer::from_pem(&pem, args.kid).map_err(wrong)?;
    if let Some(url) = args.key_set_url {
        signer = signer.key_set_url(url);
    }
    let mut card = reference::resolve(settings).await?.card;
    signer
        .sign(&mut card)
        .map_err(|error| CliError::card_invalid(error.message().to_owned()))?;
    if let Some(file) = &args.key_set {
        let text = format!("{:#}\n", json!({"keys": [signer.public_key()]}));
        std::fs::write(file, text)
            .map_err(|error| CliError::usage(format!("--key-set {}: {error}", file.display())))?;
        out.note(&format!("wrote the public key to {}", file.display()));
    }
    out.print_json(&card)
}

#[derive(Serialize)]
struct VerifyReport {
    schema: &'static str,
    signature: &'static str,
    key: String,
}

/// Verifies the signatures of a card. A card without a verified signature is an error.
pub(crate) async fn verify(settings: &Settings, out: &mut Output) -> CliResult {
    let found = reference::resolve(settings).await?;
    let verdict = signature::check(&found, settings).await?;
    let words = signature::describe(&verdict, settings, out);
    if !out.is_json() {
        let mut page = TextPage::new(false);
        page.add_field("Agent", &found.card.name);
        page.add_field("Signature", &words);
        out.print_page(&page)?;
        return signature::require_verified(&verdict);
    }
    signature::require_verified(&verdict)?;
    let CardVerification::Verified { kid: key } = verdict else {
        return Ok(());
    };
    out.print_json(&VerifyReport {
        schema: "attache.card-verify/1",
        signature: "verified",
        key,
    })
}
