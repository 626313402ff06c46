//! `attache card sign` and `attache card verify`.

use attache::jws::{Signer, Verdict};
use serde::Serialize;
use serde_json::json;

use crate::args::CardSign;
use crate::failure::{Failure, Outcome};
use crate::output::{Output, Page};
use crate::reference;
use crate::settings::Settings;
use crate::signature;

/// Prints the card with one more signature.
pub(crate) async fn sign(args: CardSign, settings: &Settings, out: &mut Output) -> Outcome {
    let wrong = |error: attache::Error| Failure::usage(error.message().to_owned());
    let file = &args.signing_key;
    let pem = std::fs::read_to_string(file)
        .map_err(|error| Failure::usage(format!("--signing-key {}: {error}", file.display())))?;
    let mut signer = Signer::from_pem(&pem, args.kid).map_err(wrong)?;
    if let Some(url) = args.key_set_url {
        signer = signer.key_set_url(url);
    }
    let mut card = reference::find(settings).await?.card;
    signer
        .sign(&mut card)
        .map_err(|error| Failure::card_invalid(error.message().to_owned()))?;
    if let Some(file) = &args.key_set {
        let text = format!("{:#}\n", json!({"keys": [signer.public_key()]}));
        std::fs::write(file, text)
            .map_err(|error| Failure::usage(format!("--key-set {}: {error}", file.display())))?;
        out.note(&format!("the public key is in {}", file.display()));
    }
    out.json(&card)
}

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    signature: &'static str,
    key: String,
}

/// Says what the signatures of a card are worth; a card whose signature is not verified is a failure.
pub(crate) async fn verify(settings: &Settings, out: &mut Output) -> Outcome {
    let found = reference::find(settings).await?;
    let verdict = signature::check(&found, settings).await?;
    let words = signature::words(&verdict, settings, out);
    if !out.is_json() {
        let mut page = Page::new(false);
        page.field("Agent", &found.card.name);
        page.field("Signature", &words);
        out.page(&page)?;
        return signature::require(&verdict);
    }
    signature::require(&verdict)?;
    let Verdict::Verified { kid: key } = verdict else {
        return Ok(());
    };
    out.json(&Report {
        schema: "attache.card-verify/1",
        signature: "verified",
        key,
    })
}
