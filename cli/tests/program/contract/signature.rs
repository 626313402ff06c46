//! Signed cards.

use std::fs;
use std::sync::{Arc, Mutex};

use rcgen::KeyPair;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::run::{VerbOutput, verb};
use super::scripted_agent::{self, ScriptedAgent};

/// A signed card in a file, with its keys.
struct SignedCard {
    folder: TempDir,
}

impl SignedCard {
    fn new(url: &str) -> Self {
        Self::with(url, json!({}))
    }

    /// A card with additional members.
    fn with(url: &str, more: Value) -> Self {
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        fs::write(
            path("plain.json"),
            scripted_agent::card(url, more).to_string(),
        )
        .unwrap();
        fs::write(
            path("key.pem"),
            KeyPair::generate().unwrap().serialize_pem(),
        )
        .unwrap();
        let plain = path("plain.json");
        let key = path("key.pem");
        let keys = path("keys.json");
        let output = verb(&[
            "card",
            "sign",
            &plain,
            "--signing-key",
            &key,
            "--kid",
            "k-1",
            "--key-set",
            &keys,
        ])
        .run();
        assert_eq!(output.code, Some(0), "{output:?}");
        fs::write(path("signed.json"), &output.out).unwrap();
        let forged = output.json();
        let mut forged = forged.as_object().unwrap().clone();
        forged.insert("name".to_owned(), json!("Another agent"));
        fs::write(path("forged.json"), Value::Object(forged).to_string()).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn run(&self, words: &[&str], card: &str, more: &[&str]) -> VerbOutput {
        verb(&[words, &["-a", &self.path(card)], more].concat()).run()
    }
}

#[test]
fn card_get_004_s43_a_signature_is_verified_unverifiable_or_absent() {
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    let signed = SignedCard::new(&peer.url);
    let keys = signed.path("keys.json");
    let get = |card: &str, more: &[&str]| signed.run(&["card", "get"], card, more);
    assert_eq!(
        get("signed.json", &["--jwks", &keys]).field("Signature"),
        "verified (k-1)"
    );
    let unknown = get("signed.json", &[]);
    assert!(
        unknown
            .field("Signature")
            .starts_with("unverifiable (no keys to verify it with"),
        "{unknown:?}"
    );
    let forged = get("forged.json", &["--jwks", &keys]);
    assert_eq!(forged.code, Some(0));
    assert!(
        forged.field("Signature").starts_with("unverifiable ("),
        "{forged:?}"
    );
    assert!(
        forged
            .err
            .contains("warning: THE SIGNATURE OF THE CARD IS NOT VALID"),
        "{}",
        forged.err
    );
    assert_eq!(
        get("plain.json", &["--jwks", &keys]).field("Signature"),
        "absent"
    );
    let json = get("signed.json", &["--jwks", &keys, "-o", "json"]);
    assert!(
        json.err.contains("Signature: verified (k-1)") && json.json()["signatures"].is_array(),
        "{json:?}"
    );
    let report = signed
        .run(
            &["card", "verify"],
            "signed.json",
            &["--jwks", &keys, "-o", "json"],
        )
        .json();
    assert_eq!(
        (&report["signature"], &report["key"]),
        (&json!("verified"), &json!("k-1"))
    );
    for card in ["forged.json", "plain.json"] {
        let refused = signed.run(&["card", "verify"], card, &["--jwks", &keys]);
        assert_eq!(refused.code, Some(1), "{refused:?}");
        assert!(
            refused.err.contains("Error: A2ACLI_ERR_CARD_INVALID"),
            "{refused:?}"
        );
    }
}

#[test]
fn card_get_004_s43_require_signature_refuses_unverified_cards() {
    let peer = ScriptedAgent::new(scripted_agent::plain, scripted_agent::answer_completed());
    let signed = SignedCard::new(&peer.url);
    let keys = signed.path("keys.json");
    let send = |card: &str| {
        signed.run(
            &["send", "hi"],
            card,
            &["--jwks", &keys, "--require-signature", "-o", "json"],
        )
    };
    assert_eq!(send("signed.json").code, Some(0));
    let calls = peer.requests().len();
    for card in ["plain.json", "forged.json"] {
        let output = send(card);
        assert_eq!(
            (output.code, &output.json()["error"]["code"]),
            (Some(1), &json!("A2ACLI_ERR_CARD_INVALID"))
        );
    }
    assert_eq!(peer.requests().len(), calls, "no request was sent");
}

#[test]
fn card_get_003_card_get_004_s43_an_extended_card_is_checked_like_a_public_one() {
    let shown = Arc::new(Mutex::new(Value::Null));
    let answer = shown.clone();
    let peer = ScriptedAgent::new(scripted_agent::plain, move |_, _| {
        scripted_agent::result(&answer.lock().unwrap())
    });
    let signed = SignedCard::with(
        &peer.url,
        json!({
            "capabilities": {"extendedAgentCard": true},
            "securitySchemes": {"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}},
            "securityRequirements": [{"schemes": {"b": {"list": []}}}],
        }),
    );
    let keys = signed.path("keys.json");
    let extended = |card: &str, public: &str, more: &[&str]| {
        let mut document: Value =
            serde_json::from_str(&fs::read_to_string(signed.path(card)).unwrap()).unwrap();
        // Unknown members are ignored.
        document["somethingNew"] = json!({"a": 1});
        *shown.lock().unwrap() = document;
        let args = [
            &["--extended", "--bearer", "hunter22", "--jwks", &keys],
            more,
        ]
        .concat();
        signed.run(&["card", "get"], public, &args)
    };
    let good = extended("signed.json", "signed.json", &["--require-signature"]);
    assert_eq!(
        (good.code, good.field("Signature")),
        (Some(0), "verified (k-1)"),
        "{good:?}"
    );
    let shown_as_is = extended("signed.json", "signed.json", &["-o", "json"]);
    assert_eq!(
        shown_as_is.json()["somethingNew"]["a"],
        1,
        "{shown_as_is:?}"
    );
    let forged = extended("forged.json", "signed.json", &[]);
    assert!(
        forged.field("Signature").starts_with("unverifiable ("),
        "{forged:?}"
    );
    assert!(
        forged
            .err
            .contains("warning: THE SIGNATURE OF THE CARD IS NOT VALID"),
        "{}",
        forged.err
    );
    assert_eq!(
        extended("plain.json", "signed.json", &[]).field("Signature"),
        "absent"
    );
    let calls = || peer.requests().len();
    for (card, public, asked) in [
        ("forged.json", "signed.json", 1),
        ("plain.json", "signed.json", 1),
        ("signed.json", "plain.json", 0),
    ] {
        let before = calls();
        let output = extended(card, public, &["--require-signature", "-o", "json"]);
        assert_eq!(
            (output.code, &output.json()["error"]["code"]),
            (Some(1), &json!("A2ACLI_ERR_CARD_INVALID"))
        );
        assert_eq!(
            calls() - before,
            asked,
            "no request is sent to an untrusted agent: {card} {public}"
        );
    }
}
