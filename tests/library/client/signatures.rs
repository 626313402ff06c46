//! Card signatures: published keys from trusted URLs, and the signature policy of a client.

use attache::jws::{CardVerification, CardVerifier, KeySet, SignaturePolicy, Signer};
use attache::model::{AgentSkill, Binding, ErrorKind, Version};
use attache::{AgentCard, Client, ClientSettings};
use serde_json::json;

use super::peer::{Peer, http_response, json_response};
use crate::harness::with_deadline;

fn signed(keys_at: &str, kid: &str) -> (AgentCard, serde_json::Value) {
    let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let signer = Signer::from_pem(&pem, kid).unwrap().key_set_url(keys_at);
    let mut card = AgentCard::new("n", "d")
        .skill(AgentSkill::new("a", "b", "c"))
        .interface("https://a.example/", Binding::JsonRpc, Version::V1);
    signer.sign(&mut card).unwrap();
    (card, signer.public_key())
}

#[tokio::test]
async fn s43_keys_are_read_from_trusted_urls_only() {
    let made = std::sync::Mutex::new(None);
    let peer = Peer::with_url(|url| {
        let (card, key) = signed(&format!("{url}/keys"), "k1");
        *made.lock().unwrap() = Some(card);
        vec![json_response(200, &json!({"keys": [key]}))]
    })
    .await;
    let card = made.into_inner().unwrap().unwrap();
    // S28: a URL in a card is not requested unless it is trusted.
    let verdict = with_deadline(CardVerifier::default().verify(&card, None)).await;
    assert!(
        matches!(&verdict, CardVerification::Unverifiable { reason } if reason.contains("unknown keys")),
        "{verdict:?}"
    );
    let verifier = CardVerifier::default().trust(format!("{}/keys", peer.url));
    let verdict = with_deadline(verifier.verify(&card, None)).await;
    assert_eq!(
        verdict,
        CardVerification::Verified {
            kid: "k1".to_owned()
        }
    );
    assert_eq!(peer.requests().await[0].target, "GET /keys");
}

#[tokio::test]
async fn s25_key_set_is_bounded_and_redirects_are_not_followed() {
    let peer = Peer::with_responses(vec![
        http_response(200, "", &" ".repeat(300 << 10)),
        http_response(302, "Location: http://127.0.0.1:1/\r\n", ""),
        http_response(200, "", "{}"),
    ])
    .await;
    for _ in 0..3 {
        assert!(with_deadline(KeySet::fetch(&peer.url)).await.is_err());
    }
    let (card, _) = signed("http://127.0.0.1:1/", "k1");
    let verdict = with_deadline(
        CardVerifier::default()
            .trust("http://127.0.0.1:1/")
            .verify(&card, None),
    )
    .await;
    assert!(
        matches!(&verdict, CardVerification::Unverifiable { reason } if reason.contains("cannot fetch the keys")),
        "{verdict:?}"
    );
}

/// Discovery fails for a card that the policy rejects, and no call is sent.
#[tokio::test]
async fn s43_client_enforces_the_signature_policy() {
    let (card, key) = signed("https://a.example/keys", "k1");
    let keys = || KeySet::parse(json!({"keys": [key]}).to_string().as_bytes()).unwrap();
    let signed_card = serde_json::to_value(&card).unwrap();
    let mut forged = signed_card.clone();
    let mut plain = signed_card.clone();
    forged["description"] = json!("changed");
    plain.as_object_mut().unwrap().remove("signatures");
    let other = CardVerifier::default();
    for (card, verifier, policy, is_accepted) in [
        (
            &signed_card,
            CardVerifier::new(keys()),
            SignaturePolicy::Required,
            true,
        ),
        (
            &signed_card,
            CardVerifier::new(keys()),
            SignaturePolicy::IfPresent,
            true,
        ),
        (
            &signed_card,
            other.clone(),
            SignaturePolicy::IfPresent,
            false,
        ),
        (
            &forged,
            CardVerifier::new(keys()),
            SignaturePolicy::Required,
            false,
        ),
        (
            &forged,
            CardVerifier::new(keys()),
            SignaturePolicy::IfPresent,
            false,
        ),
        (
            &plain,
            CardVerifier::new(keys()),
            SignaturePolicy::Required,
            false,
        ),
        (&plain, other, SignaturePolicy::IfPresent, true),
    ] {
        let peer = Peer::with_responses(vec![json_response(200, card)]).await;
        // The chat-completions fallback must not apply either.
        let settings = ClientSettings {
            chat_completions: Some("m".to_owned()),
            ..ClientSettings::default()
        };
        let builder = Client::builder()
            .settings(settings)
            .signatures(verifier, policy);
        let found = with_deadline(builder.discover(&peer.url)).await;
        match found {
            Ok(client) => assert!(is_accepted && client.card().is_some(), "{policy:?} {card}"),
            Err(error) => {
                assert!(!is_accepted, "{policy:?} {error} {card}");
                assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
                assert!(error.message().contains("sign"), "{error}");
            }
        }
        assert_eq!(peer.requests().await.len(), 1);
    }
}
