//! Keys of cards from where they are published, if that is somewhere we trust.

use attache::jws::{CardVerification, CardVerifier, KeySet, SignaturePolicy, Signer};
use attache::model::{AgentSkill, Binding, ErrorKind, Version};
use attache::{AgentCard, Client, ClientSettings};
use serde_json::json;

use super::peer::{Peer, json as answer, reply};
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
async fn s43_keys_are_read_where_the_caller_said_and_nowhere_else() {
    let made = std::sync::Mutex::new(None);
    let peer = Peer::telling(|url| {
        let (card, key) = signed(&format!("{url}/keys"), "k1");
        *made.lock().unwrap() = Some(card);
        vec![answer(200, &json!({"keys": [key]}))]
    })
    .await;
    let card = made.into_inner().unwrap().unwrap();
    // S28: a card names a place, but that is no reason to go there.
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
    assert_eq!(peer.asked().await[0].target, "GET /keys");
}

#[tokio::test]
async fn s25_a_key_set_is_bounded_and_redirects_lead_nowhere() {
    let peer = Peer::with(vec![
        reply(200, "", &" ".repeat(300 << 10)),
        reply(302, "Location: http://127.0.0.1:1/\r\n", ""),
        reply(200, "", "{}"),
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

/// A client that was told to look finds no agent where the card is not what was asked for, and asks nothing of it.
#[tokio::test]
async fn s43_a_client_takes_cards_by_their_signatures_if_it_is_told_to() {
    let (card, key) = signed("https://a.example/keys", "k1");
    let keys = || KeySet::parse(json!({"keys": [key]}).to_string().as_bytes()).unwrap();
    let shown = serde_json::to_value(&card).unwrap();
    let (mut forged, mut plain) = (shown.clone(), shown.clone());
    forged["description"] = json!("somebody else's");
    plain.as_object_mut().unwrap().remove("signatures");
    let other = CardVerifier::default();
    for (shown, verifier, policy, is_taken) in [
        (
            &shown,
            CardVerifier::new(keys()),
            SignaturePolicy::Required,
            true,
        ),
        (
            &shown,
            CardVerifier::new(keys()),
            SignaturePolicy::IfPresent,
            true,
        ),
        (&shown, other.clone(), SignaturePolicy::IfPresent, false),
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
        let peer = Peer::with(vec![answer(200, shown)]).await;
        // Not even as something that only completes chats.
        let settings = ClientSettings {
            chat_completions: Some("m".to_owned()),
            ..ClientSettings::default()
        };
        let builder = Client::builder()
            .settings(settings)
            .signatures(verifier, policy);
        let found = with_deadline(builder.discover(&peer.url)).await;
        match found {
            Ok(client) => assert!(is_taken && client.card().is_some(), "{policy:?} {shown}"),
            Err(error) => {
                assert!(!is_taken, "{policy:?} {error} {shown}");
                assert_eq!(error.kind(), ErrorKind::InvalidAgentResponse);
                assert!(error.message().contains("sign"), "{error}");
            }
        }
        assert_eq!(peer.asked().await.len(), 1);
    }
}
