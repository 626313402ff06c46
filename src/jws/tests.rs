//! Card signatures: golden cards, cards of the Python SDK, all key types, and attacks.

use serde_json::{Value, json};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::*;
use crate::model::{
    AgentCard, AgentCardSignature, AgentExtension, AgentSkill, Binding, SecurityRequirement,
    Version,
};

const GOLDEN: &str = include_str!("../../tests/golden/v10-card-signed.json");
/// Keys made for these tests alone.
const P256: &str = include_str!("tests/p256.pem");
const ED25519: &str = include_str!("tests/ed25519.pem");
const RSA: &str = include_str!("tests/rsa.pem");

fn card() -> AgentCard {
    AgentCard::new("Tides", "Knows them – é")
        .skill(AgentSkill::new("tide", "Tide", "When"))
        .interface("https://a.example/", Binding::JsonRpc, Version::V1)
}

fn keys(signer: &Signer) -> KeySet {
    KeySet::parse(signer.public_key().to_string().as_bytes()).unwrap()
}

fn verified(kid: &str) -> CardVerification {
    CardVerification::Verified {
        kid: kid.to_owned(),
    }
}

fn is_unverifiable(verification: &CardVerification) -> bool {
    matches!(verification, CardVerification::Unverifiable { .. })
}

#[test]
fn s44_the_golden_card_verifies_and_its_payload_is_exact() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    let card: AgentCard = serde_json::from_value(golden["response"]["body"].clone()).unwrap();
    let keys = KeySet::parse(golden["signing"]["publicJwk"].to_string().as_bytes()).unwrap();
    assert_eq!(verify_card(&card, None, &keys), verified("tides-2026-01"));
    let payload = String::from_utf8(
        card_payload::canonicalize(&card_payload::protocol_form(&card).unwrap()).unwrap(),
    )
    .unwrap();
    assert_eq!(
        payload,
        golden["signing"]["canonicalPayload"].as_str().unwrap()
    );
}

#[test]
fn s43_any_edit_of_a_signed_card_is_detected() {
    let golden: Value = serde_json::from_str(GOLDEN).unwrap();
    let keys = KeySet::parse(golden["signing"]["publicJwk"].to_string().as_bytes()).unwrap();
    let edits: [fn(&mut AgentCard); 5] = [
        |card| card.name.push('!'),
        |card| card.supported_interfaces[0].url = "https://evil.example/".to_owned(),
        |card| card.supported_interfaces.reverse(),
        |card| card.capabilities.push_notifications = None,
        |card| card.icon_url = Some("https://evil.example/".to_owned()),
    ];
    for (index, edit) in edits.iter().enumerate() {
        let mut card: AgentCard =
            serde_json::from_value(golden["response"]["body"].clone()).unwrap();
        edit(&mut card);
        let verification = verify_card(&card, None, &keys);
        assert!(is_unverifiable(&verification), "{index}: {verification:?}");
        assert!(verification.check(SignaturePolicy::IfPresent).is_err());
    }
}

#[test]
fn every_key_type_signs_and_verifies() {
    for (pem, alg) in [(P256, "ES256"), (ED25519, "EdDSA"), (RSA, "RS256")] {
        let signer = Signer::from_pem(pem, "k1")
            .unwrap()
            .key_set_url("https://a.example/keys");
        assert_eq!(signer.public_key()["alg"], alg);
        let mut signed = card();
        signer.sign(&mut signed).unwrap();
        assert_eq!(
            verify_card(&signed, None, &keys(&signer)),
            verified("k1"),
            "{alg}"
        );
        signed.version.push('1');
        assert!(
            is_unverifiable(&verify_card(&signed, None, &keys(&signer))),
            "{alg}"
        );
    }
}

#[test]
fn s43_absent_unknown_and_malformed_signatures_are_distinguished() {
    let signer = Signer::from_pem(P256, "k1").unwrap();
    let known = keys(&signer);
    let absent = verify_card(&card(), None, &known);
    assert_eq!(absent, CardVerification::Absent);
    assert_eq!(absent.check(SignaturePolicy::IfPresent), Ok(()));
    assert!(
        absent
            .check(SignaturePolicy::Required)
            .unwrap_err()
            .message()
            .contains("not signed")
    );
    let mut signed = card();
    Signer::from_pem(P256, "k2")
        .unwrap()
        .sign(&mut signed)
        .unwrap();
    let CardVerification::Unverifiable { reason } = verify_card(&signed, None, &known) else {
        panic!("verified")
    };
    assert!(reason.contains("unknown keys"), "{reason}");
    // One valid signature suffices.
    signer.sign(&mut signed).unwrap();
    signed.signatures.insert(
        0,
        AgentCardSignature {
            protected: "?".to_owned(),
            ..Default::default()
        },
    );
    assert_eq!(verify_card(&signed, None, &known), verified("k1"));
}

#[test]
fn s43_the_header_cannot_choose_the_algorithm() {
    let signer = Signer::from_pem(P256, "k1").unwrap();
    let known = keys(&signer);
    for header in [
        json!({"alg": "none", "kid": "k1"}),
        json!({"alg": "HS256", "kid": "k1"}),
        json!({"alg": "ES384", "kid": "k1"}),
        json!({"alg": "ES256", "kid": "k1", "crit": ["b64"], "b64": false}),
    ] {
        let mut signed = card();
        signer.sign(&mut signed).unwrap();
        for signature in &mut signed.signatures {
            signature.protected = URL_SAFE_NO_PAD.encode(header.to_string());
        }
        assert!(
            is_unverifiable(&verify_card(&signed, None, &known)),
            "{header}"
        );
    }
}

#[test]
fn d17_signatures_with_critical_extensions_are_refused() {
    let signer = Signer::from_pem(P256, "k1").unwrap();
    let known = keys(&signer);
    let mut header = serde_json::to_value(signer.header()).unwrap();
    for crit in [json!(["b64"]), json!(["x"]), json!([]), json!("x")] {
        for is_critical in [false, true] {
            if is_critical {
                header["crit"] = crit.clone();
            } else {
                header.as_object_mut().unwrap().remove("crit");
            }
            let protected = URL_SAFE_NO_PAD.encode(header.to_string());
            let sign = |payload: &[u8]| {
                let input = format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload));
                let signature = signer.key.sign(input.as_bytes()).unwrap();
                (input, URL_SAFE_NO_PAD.encode(signature))
            };
            let mut signed = card();
            let payloads = card_payload::payloads(&signed, None);
            signed.signatures.push(AgentCardSignature {
                protected: protected.clone(),
                signature: sign(&payloads[0]).1,
                header: None,
            });
            let verification = verify_card(&signed, None, &known);
            assert_eq!(is_unverifiable(&verification), is_critical, "{header}");
            let (input, signature) = sign(b"{}");
            let token = known.verify_token(&format!("{input}.{signature}"));
            assert_eq!(
                matches!(token, TokenVerification::Invalid),
                is_critical,
                "{header}"
            );
            // An unprotected header cannot hide it either.
            let mut unprotected = crate::model::Object::new();
            unprotected.insert("crit", json!(["x"]));
            signed.signatures[0].header = Some(unprotected);
            assert!(is_unverifiable(&verify_card(&signed, None, &known)));
        }
    }
}

#[test]
fn expired_revoked_and_unsuitable_keys_are_not_used() {
    let signer = Signer::from_pem(P256, "k1").unwrap();
    let mut signed = card();
    signer.sign(&mut signed).unwrap();
    for (name, value) in [
        ("exp", json!(1_000_000)),
        ("use", json!("enc")),
        ("alg", json!("ES384")),
        ("revoked", json!({})),
    ] {
        let mut key = signer.public_key();
        key[name] = value;
        let known = KeySet::parse(json!({"keys": [key]}).to_string().as_bytes()).unwrap();
        assert!(
            is_unverifiable(&verify_card(&signed, None, &known)),
            "{name}"
        );
    }
}

#[test]
fn s44_a_card_is_signed_in_every_payload_form() {
    let signer = Signer::from_pem(ED25519, "k1").unwrap();
    let mut signed = card();
    signed.security_requirements = vec![SecurityRequirement::new("key", Vec::<String>::new())];
    signed.capabilities.extensions = vec![AgentExtension {
        uri: "https://e".to_owned(),
        required: Some(false),
        ..Default::default()
    }];
    signer.sign(&mut signed).unwrap();
    assert_eq!(signed.signatures.len(), 2);
    let exact = card_payload::protocol_form(&signed).unwrap();
    assert_eq!(
        exact["securityRequirements"],
        json!([{"schemes": {"key": {}}}])
    );
    assert_eq!(
        exact["capabilities"]["extensions"],
        json!([{"uri": "https://e"}])
    );
    for signature in signed.signatures.clone() {
        let one = AgentCard {
            signatures: vec![signature],
            ..signed.clone()
        };
        assert_eq!(verify_card(&one, None, &keys(&signer)), verified("k1"));
    }
}

#[test]
fn s44_a_document_signed_byte_for_byte_verifies() {
    let signer = Signer::from_pem(P256, "k1").unwrap();
    let document = json!({"name": "n", "url": "https://a.example/", "x-own": 1.0});
    let payload = card_payload::canonicalize(&document).unwrap();
    let protected = URL_SAFE_NO_PAD.encode(json!({"alg": "ES256", "kid": "k1"}).to_string());
    let signature = signer
        .key
        .sign(format!("{protected}.{}", URL_SAFE_NO_PAD.encode(payload)).as_bytes())
        .unwrap();
    let mut received = document.clone();
    received["signatures"] =
        json!([{"protected": protected, "signature": URL_SAFE_NO_PAD.encode(signature)}]);
    let card: AgentCard = serde_json::from_value(received.clone()).unwrap();
    let verification = verify_card(&card, Some(received.to_string().as_bytes()), &keys(&signer));
    assert_eq!(verification, verified("k1"));
    assert!(is_unverifiable(&verify_card(&card, None, &keys(&signer))));
}

#[test]
fn a_card_with_empty_required_members_is_not_signed() {
    let signer = Signer::from_pem(P256, "k1").unwrap();
    let mut card = card();
    card.description.clear();
    assert_eq!(
        signer.sign(&mut card).unwrap_err().violations()[0].field(),
        "description"
    );
    assert_eq!(
        Signer::from_pem("no key", "k").unwrap_err().violations()[0].field(),
        "key"
    );
}

#[test]
fn s44_a_card_signed_by_the_python_sdk_verifies() {
    // Made by a2a-sdk 1.3.0, whose payload omits empty scopes, lists and strings.
    let made: Value = serde_json::from_str(include_str!("tests/sdk-1.3.0.json")).unwrap();
    let card: AgentCard = serde_json::from_value(made["card"].clone()).unwrap();
    let keys = KeySet::parse(made["key"].to_string().as_bytes()).unwrap();
    assert_eq!(verify_card(&card, None, &keys), verified("sdk"));
}

#[test]
fn s44_rfc_8785_vectors() {
    let table = [
        (
            r#"{"numbers":[333333333.33333329,1E30,4.50,2e-3,0.000000000000000000000000001],"string":"\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/","literals":[null,true,false]}"#,
            r#"{"literals":[null,true,false],"numbers":[333333333.3333333,1e+30,4.5,0.002,1e-27],"string":"€$\u000f\nA'B\"\\\\\"/"}"#,
        ),
        (
            r#"{"\u20ac":"Euro Sign","\r":"Carriage Return","\ufb33":"Hebrew Letter Dalet With Dagesh","1":"One","\ud83d\ude00":"Emoji: Grinning Face","\u0080":"Control","\u00f6":"Latin Small Letter O With Diaeresis"}"#,
            "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u{80}\":\"Control\",\"ö\":\"Latin Small Letter O With Diaeresis\",\"€\":\"Euro Sign\",\"😀\":\"Emoji: Grinning Face\",\"\u{fb33}\":\"Hebrew Letter Dalet With Dagesh\"}",
        ),
        (
            "[-0.0, 5e-324, 9007199254740992, 295147905179352830000, 1e21, 1e-7, 100]",
            "[0,5e-324,9007199254740992,295147905179352830000,1e+21,1e-7,100]",
        ),
    ];
    for (input, expected) in table {
        let value: Value = serde_json::from_str(input).unwrap();
        assert_eq!(
            String::from_utf8(card_payload::canonicalize(&value).unwrap()).unwrap(),
            expected
        );
    }
}
