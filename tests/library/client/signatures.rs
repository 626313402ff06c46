//! Keys of cards from where they are published, if that is somewhere we trust.

use attache::AgentCard;
use attache::jws::{CardVerifier, KeySet, Signer, Verdict};
use attache::model::{AgentSkill, Binding, Version};
use serde_json::json;

use super::peer::{Peer, json as answer, reply};
use crate::harness::soon;

fn signed(keys_at: &str, kid: &str) -> (AgentCard, serde_json::Value) {
    let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let signer = Signer::from_pem(&pem, kid).unwrap().key_set_url(keys_at);
    let mut card = AgentCard::new("n", "d").skill(AgentSkill::new("a", "b", "c")).interface(
        "https://a.example/",
        Binding::JsonRpc,
        Version::V1,
    );
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
    let verdict = soon(CardVerifier::default().verify(&card, None)).await;
    assert!(
        matches!(&verdict, Verdict::Unverifiable { reason } if reason.contains("not known")),
        "{verdict:?}"
    );
    let verifier = CardVerifier::default().trust(format!("{}/keys", peer.url));
    let verdict = soon(verifier.verify(&card, None)).await;
    assert_eq!(verdict, Verdict::Verified { kid: "k1".to_owned() });
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
        assert!(soon(KeySet::fetch(&peer.url)).await.is_err());
    }
    let (card, _) = signed("http://127.0.0.1:1/", "k1");
    let verdict = soon(CardVerifier::default().trust("http://127.0.0.1:1/").verify(&card, None)).await;
    assert!(
        matches!(&verdict, Verdict::Unverifiable { reason } if reason.contains("cannot be read")),
        "{verdict:?}"
    );
}
