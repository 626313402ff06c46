//! `attache card get`.

use serde_json::{Value, json};

use super::peer::{self, Peer};
use super::run::{DEMO, at, verb};

#[test]
fn card_get_001_a_card_by_host_url_or_file_is_the_same_card() {
    let origin = DEMO.trim_end_matches('/');
    let host = origin.strip_prefix("http://").unwrap();
    let url = format!("{origin}/.well-known/agent-card.json");
    let by_host = verb(&["card", "get", host, "-o", "json"]).run();
    assert_eq!(by_host.code, Some(0), "{by_host:?}");
    let by_url = at(&url, &["card", "get", "-o", "json"]);
    assert_eq!(by_url.out, by_host.out, "as it was received");
    let run = verb(&["card", "get", "-a", "saved.json", "-o", "json"]).file("saved.json", &by_url.out);
    assert_eq!(run.run().json(), by_url.json());
    let text = at(origin, &["card", "get"]);
    assert_eq!((text.field("Agent"), text.field("Capability")), ("Practice", "streaming"));
    assert!(text.fields("Interface").contains(&format!("JSONRPC 1.0 {origin}/").as_str()), "{}", text.out);
    assert!(text.fields("Skill").len() + text.fields("Signature").len() >= 2);
}

#[test]
fn card_get_001_exit_001_what_is_no_card_is_told_apart() {
    let peer = Peer::new(|_| json!([1]), peer::done());
    let code = |said: &super::run::Said| (said.code, said.json()["error"]["code"].clone());
    let bad = at(&peer.url, &["card", "get", "-o", "json"]);
    assert_eq!(code(&bad), (Some(1), json!("A2ACLI_ERR_CARD_INVALID")));
    let missing = at(&format!("{}nothing/here", &**DEMO), &["card", "get", "-o", "json"]);
    assert_eq!(code(&missing), (Some(3), json!("A2ACLI_ERR_CARD_NOT_FOUND")), "{missing:?}");
    let file = at("./none.json", &["card", "get", "-o", "json"]);
    assert_eq!(code(&file), (Some(3), json!("A2ACLI_ERR_CARD_NOT_FOUND")));
    let nobody = at("http://127.0.0.1:9", &["card", "get", "-o", "json"]);
    assert_eq!(code(&nobody), (Some(3), json!("A2ACLI_ERR_UNREACHABLE")));
    let none = verb(&["card", "get", "-o", "json"]).run();
    assert_eq!(code(&none), (Some(2), json!("A2ACLI_ERR_USAGE")));
}

#[test]
fn card_get_002_a_card_is_checked_against_the_schema() {
    let good = at(&DEMO, &["card", "get", "--validate"]);
    assert_eq!(good.code, Some(0), "{good:?}");
    let peer = Peer::new(|url| peer::card(url, json!({"skills": [{"id": 7}], "version": ""})), peer::done());
    let bad = at(&peer.url, &["card", "get", "--validate", "-o", "json"]);
    assert_eq!((bad.code, &bad.json()["error"]["code"]), (Some(1), &json!("A2ACLI_ERR_CARD_INVALID")));
    assert!(
        bad.err.contains("skills[0].id must be a string\n")
            && bad.err.contains("version must not be empty\n")
    );
}

#[test]
fn card_get_001_unknown_members_and_numbers_are_printed_as_they_came() {
    let peer = Peer::new(|url| peer::card(url, json!({"x-more": {"n": 1.0}})), peer::done());
    let said = at(&peer.url, &["card", "get", "-o", "json", "--stream"]);
    assert!(said.out.contains(r#""x-more":{"n":1.0}"#) && said.out.lines().count() == 1, "{said:?}");
    assert_eq!(said.err, "Signature: absent\n");
}

#[test]
fn ver_001_a_card_of_before_1_0_may_be_looked_at() {
    let old = |url: &str| -> Value {
        json!({"name": "Old", "description": "d", "url": url, "version": "1", "protocolVersion": "0.3.0",
            "capabilities": {}, "skills": [], "defaultInputModes": [], "defaultOutputModes": []})
    };
    let peer = Peer::new(old, peer::done());
    let said = at(&peer.url, &["card", "get", "-o", "json"]);
    assert_eq!(said.code, Some(0), "{said:?}");
    assert_eq!(said.json()["supportedInterfaces"][0]["protocolVersion"], "0.3");
    assert!(said.err.contains("older than 1.0"), "{}", said.err);
}

#[test]
fn card_get_003_the_extended_card_is_asked_for_by_an_advertised_scheme_alone() {
    let schemes = json!({"b": {"httpAuthSecurityScheme": {"scheme": "Bearer"}}});
    let extended = |url: &str| peer::card(url, json!({"name": "Extended"}));
    let capabilities = json!({"extendedAgentCard": true});
    let answer = move |_: &peer::Asked, _: usize| peer::result(&extended("http://127.0.0.1:9"));
    let with_scheme = {
        let (capabilities, schemes) = (capabilities.clone(), schemes.clone());
        move |url: &str| peer::card(url, json!({"capabilities": capabilities, "securitySchemes": schemes}))
    };
    let peer = Peer::new(with_scheme, answer);
    let said = at(&peer.url, &["card", "get", "--extended", "--bearer", "hunter22"]);
    assert_eq!((said.code, said.field("Agent")), (Some(0), "Extended"), "{said:?}");
    assert!(peer.asked()[1].head.contains("authorization: bearer hunter22"), "{:?}", peer.asked());
    let without = move |url: &str| peer::card(url, json!({"capabilities": capabilities}));
    let peer = Peer::new(without, answer);
    let said = at(&peer.url, &["card", "get", "--extended", "--bearer", "hunter22", "-o", "json"]);
    assert_eq!((said.code, peer.asked().len()), (Some(4), 1), "{said:?}");
    let peer = Peer::new(peer::plain, answer);
    let said = at(&peer.url, &["card", "get", "--extended", "-o", "json"]);
    assert_eq!(said.json()["error"]["code"], "UnsupportedOperationError", "{said:?}");
    assert_eq!(peer.asked().len(), 1, "what is not declared is not asked for");
}
