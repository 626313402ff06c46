//! Tokens: fetched, renewed, and logged in for.

use attache::model::ErrorKind;
use attache::{
    AuthorizationCodeLogin, AuthorizationServer, CredentialProvider, DeviceLogin, OAuth, Token,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::credentials::{at, get, task};
use super::peer::{Asked, Peer, json as answer, reply};
use crate::harness::with_deadline;

fn given(token: &str, refresh: Option<&str>, seconds: u64) -> Vec<u8> {
    answer(
        200,
        &json!({"access_token": token, "refresh_token": refresh, "expires_in": seconds, "token_type": "bearer"}),
    )
}

fn endpoints(server: &Peer) -> AuthorizationServer {
    AuthorizationServer::new(format!("{}/token", server.url))
        .device(format!("{}/device", server.url))
}

fn tokens(asked: &[Asked]) -> Vec<&str> {
    let token = |asked: &Asked| {
        asked
            .head
            .split_once("authorization: bearer ")
            .map(|(_, rest)| rest.len())
    };
    asked
        .iter()
        .map(|one| {
            let from = one.head.len() - token(one).unwrap_or(0);
            one.head[from..].split("\r\n").next().unwrap_or_default()
        })
        .collect()
}

#[tokio::test]
async fn a_token_is_fetched_once_and_again_when_it_is_refused() {
    let server = Peer::with(vec![given("one", None, 3600), given("two", None, 3600)]).await;
    let agent = Peer::with(vec![task(), reply(401, "", ""), task(), task()]).await;
    let oauth =
        OAuth::client_credentials(endpoints(&server), "me", "s&cret").scopes(["read", "write"]);
    let client = at(&agent).with_credentials(oauth);
    for _ in 0..3 {
        get(&client).await.unwrap();
    }
    assert_eq!(tokens(&agent.asked().await), ["one", "one", "two", "two"]);
    let asked = server.asked().await;
    assert_eq!(asked[0].target, "POST /token");
    assert_eq!(
        asked[0].body,
        b"grant_type=client_credentials&scope=read+write"
    );
    // "me:s%26cret", as RFC 6749 has it; heads are in lower case here.
    assert!(
        asked[0]
            .head
            .contains("authorization: basic bwu6cyuynmnyzxq=\r\n"),
        "{}",
        asked[0].head
    );
}

#[tokio::test]
async fn a_second_refusal_stands() {
    let server = Peer::with(vec![given("one", None, 3600), given("two", None, 3600)]).await;
    let agent = Peer::with(vec![reply(401, "", ""), reply(401, "", "")]).await;
    let client =
        at(&agent).with_credentials(OAuth::client_credentials(endpoints(&server), "me", "s"));
    assert_eq!(
        get(&client).await.unwrap_err().kind(),
        ErrorKind::Unauthenticated
    );
    assert_eq!(tokens(&agent.asked().await), ["one", "two"]);
}

#[tokio::test]
async fn a_token_that_ends_is_renewed_before_it_is_shown() {
    let server = Peer::with(vec![
        given("two", None, 1),
        given("three", Some("r3"), 3600),
    ])
    .await;
    let agent = Peer::with(vec![task(), task(), task()]).await;
    let old = Token {
        access: "one".into(),
        refresh: Some("r1".into()),
        expires_in: Some(5),
    };
    let oauth = OAuth::with_token(endpoints(&server), "me", old);
    let client = at(&agent).with_credentials(oauth);
    for _ in 0..3 {
        get(&client).await.unwrap();
    }
    assert_eq!(tokens(&agent.asked().await), ["two", "three", "three"]);
    for asked in server.asked().await {
        assert_eq!(
            asked.body,
            b"grant_type=refresh_token&refresh_token=r1&client_id=me"
        );
    }
}

#[tokio::test]
async fn a_token_without_the_means_to_renew_it_says_so() {
    let agent = Peer::with(vec![]).await;
    let old = Token {
        access: "one".into(),
        refresh: None,
        expires_in: Some(5),
    };
    let client = at(&agent).with_credentials(OAuth::with_token(
        AuthorizationServer::new("https://t.invalid/"),
        "me",
        old,
    ));
    let error = get(&client).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.message().contains("log in again"), "{error}");
}

#[tokio::test]
async fn what_the_authorization_server_says_is_told_and_its_secrets_are_not() {
    let refusal = answer(
        400,
        &json!({"error": "invalid_client", "error_description": "hunter2 is wrong"}),
    );
    let server = Peer::with(vec![refusal]).await;
    let oauth = OAuth::client_credentials(endpoints(&server), "me", "hunter2");
    let error = with_deadline(oauth.auth_params(None, &[]))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.message().contains("invalid_client"), "{error}");
    assert!(!format!("{error:?} {oauth:?}").contains("hunter2"));
}

#[tokio::test]
async fn s25_an_endless_token_is_cut_off() {
    let server = Peer::with(vec![reply(200, "", &" ".repeat(100 << 10))]).await;
    let oauth = OAuth::client_credentials(endpoints(&server), "me", "s");
    assert_eq!(
        with_deadline(oauth.auth_params(None, &[]))
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::InvalidAgentResponse
    );
}

#[tokio::test]
async fn tokens_do_not_travel_in_the_clear() {
    let oauth = OAuth::client_credentials(AuthorizationServer::new("http://t.invalid/"), "me", "s");
    assert_eq!(
        with_deadline(oauth.auth_params(None, &[]))
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::InvalidParams
    );
}

#[tokio::test]
async fn a_person_logs_in_on_another_device() {
    let pending = || answer(400, &json!({"error": "authorization_pending"}));
    let server = Peer::with(vec![
        answer(
            200,
            &json!({"device_code": "dev", "user_code": "WDJB", "verification_uri": "https://v.example/",
                "expires_in": 60, "interval": 0}),
        ),
        pending(),
        pending(),
        given("tok", Some("r"), 60),
    ])
    .await;
    let login = with_deadline(DeviceLogin::start(
        endpoints(&server),
        "me",
        &["read".to_owned()],
    ))
    .await
    .unwrap();
    assert_eq!(
        (login.user_code(), login.url(), login.complete_url()),
        ("WDJB", "https://v.example/", None)
    );
    let token = with_deadline(login.wait()).await.unwrap();
    assert_eq!(
        token,
        Token {
            access: "tok".into(),
            refresh: Some("r".into()),
            expires_in: Some(60)
        }
    );
    let asked = server.asked().await;
    assert_eq!(
        (&*asked[0].target, &*asked[0].body),
        ("POST /device", &b"client_id=me&scope=read"[..])
    );
    let body = String::from_utf8(asked[3].body.clone()).unwrap();
    assert!(
        body.ends_with("device_code&device_code=dev&client_id=me"),
        "{body}"
    );
}

#[tokio::test]
async fn no_server_makes_us_wait_beyond_all_time() {
    let code = json!({"device_code": "dev", "user_code": "W", "verification_uri": "https://v.example/",
        "expires_in": 60, "interval": u64::MAX});
    let server = Peer::with(vec![answer(200, &code)]).await;
    let login = with_deadline(DeviceLogin::start(endpoints(&server), "me", &[]))
        .await
        .unwrap();
    let error = with_deadline(login.wait()).await.unwrap_err();
    assert!(error.message().contains("expired"), "{error}");
}

#[tokio::test]
async fn a_person_may_say_no() {
    let code = json!({"device_code": "dev", "user_code": "W", "verification_uri": "https://v.example/",
        "expires_in": 60, "interval": 0});
    let denied = answer(400, &json!({"error": "access_denied"}));
    let server = Peer::with(vec![answer(200, &code), denied]).await;
    let login = with_deadline(DeviceLogin::start(endpoints(&server), "me", &[]))
        .await
        .unwrap();
    let error = with_deadline(login.wait()).await.unwrap_err();
    assert!(error.message().contains("access_denied"), "{error}");
}

#[tokio::test]
async fn an_issuer_says_where_its_endpoints_are_and_only_its_own() {
    let metadata = |issuer: &str, url: &str| {
        let document = json!({"issuer": issuer, "token_endpoint": format!("{url}/t")});
        answer(200, &document)
    };
    let server = Peer::telling(|url| vec![metadata(url, url), given("tok", None, 60)]).await;
    let found = with_deadline(AuthorizationServer::discover(&server.url))
        .await
        .unwrap();
    let oauth = OAuth::client_credentials(found, "me", "s");
    with_deadline(oauth.auth_params(None, &[])).await.unwrap();
    let asked = server.asked().await;
    assert_eq!(asked[0].target, "GET /.well-known/openid-configuration");
    assert_eq!(asked[1].target, "POST /t");
    let liar = Peer::telling(|url| vec![metadata("https://other.example", url)]).await;
    let error = with_deadline(AuthorizationServer::discover(&liar.url))
        .await
        .err()
        .unwrap();
    assert!(error.message().contains("another issuer"), "{error}");
}

/// The parameters of a query.
fn parameters(url: &str) -> std::collections::BTreeMap<String, String> {
    let query = url.split_once('?').unwrap().1;
    form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}

#[tokio::test]
async fn a_person_logs_in_in_a_browser_and_only_that_login_is_taken() {
    let server = Peer::with(vec![given("tok", Some("r"), 60)]).await;
    let endpoints = endpoints(&server).authorization(format!("{}/authorize?x=1", server.url));
    let scopes = ["openid".to_owned(), "read".to_owned()];
    let login = AuthorizationCodeLogin::start(
        endpoints.clone(),
        "me",
        None,
        &scopes,
        "http://127.0.0.1:9/cb",
    )
    .unwrap();
    let asked = parameters(login.url());
    assert_eq!(
        (asked["x"].as_str(), asked["scope"].as_str()),
        ("1", "openid read")
    );
    assert_eq!(
        (
            asked["response_type"].as_str(),
            asked["code_challenge_method"].as_str()
        ),
        ("code", "S256")
    );
    assert!(!login.matches_state("code=c&state=guessed") && !login.matches_state("code=c"));
    let twice = format!("code=c&state={0}&state={0}", asked["state"]);
    assert!(!login.matches_state(&twice));
    let token = with_deadline(login.finish(&format!("code=c%2F1&state={}", asked["state"])))
        .await
        .unwrap();
    assert_eq!(token.access, "tok".into());
    let body = String::from_utf8(server.asked().await[0].body.clone()).unwrap();
    let sent = parameters(&format!("?{body}"));
    assert_eq!(
        (sent["code"].as_str(), sent["redirect_uri"].as_str()),
        ("c/1", "http://127.0.0.1:9/cb")
    );
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(sent["code_verifier"].as_bytes()));
    assert_eq!(challenge, asked["code_challenge"]);
    assert_eq!(
        (sent["client_id"].as_str(), sent["grant_type"].as_str()),
        ("me", "authorization_code")
    );
}

#[tokio::test]
async fn a_login_in_a_browser_may_be_refused_and_is_not_begun_in_the_clear() {
    let endpoints = |url: &str| AuthorizationServer::new("https://t.invalid/").authorization(url);
    let begin = |url: &str| {
        AuthorizationCodeLogin::start(endpoints(url), "me", None, &[], "http://127.0.0.1:9/cb")
    };
    let login = begin("https://t.invalid/authorize").unwrap();
    let state = parameters(login.url())["state"].clone();
    let error = with_deadline(login.finish(&format!("error=access_denied&state={state}")))
        .await
        .unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unauthenticated && error.message().contains("access_denied"),
        "{error}"
    );
    assert_eq!(
        begin("http://t.invalid/authorize").unwrap_err().kind(),
        ErrorKind::InvalidParams
    );
    let nowhere = AuthorizationCodeLogin::start(
        AuthorizationServer::new("https://t.invalid/"),
        "me",
        None,
        &[],
        "http://127.0.0.1:9/",
    );
    assert_eq!(nowhere.unwrap_err().kind(), ErrorKind::InvalidParams);
}
