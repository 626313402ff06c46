//! OAuth tokens: requests, refreshes and logins.

use attache::model::ErrorKind;
use attache::{
    AuthorizationCodeLogin, AuthorizationServer, CredentialProvider, DeviceLogin, OAuth, Token,
};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::json;
use sha2::{Digest, Sha256};

use super::credentials::{client_of, get, task};
use super::peer::{Peer, ReceivedRequest, http_response, json_response};
use crate::harness::with_deadline;

fn token_response(token: &str, refresh: Option<&str>, seconds: u64) -> Vec<u8> {
    json_response(
        200,
        &json!({"access_token": token, "refresh_token": refresh, "expires_in": seconds, "token_type": "bearer"}),
    )
}

fn authorization_server(server: &Peer) -> AuthorizationServer {
    AuthorizationServer::new(format!("{}/token", server.url))
        .device(format!("{}/device", server.url))
}

fn bearer_tokens(requests: &[ReceivedRequest]) -> Vec<&str> {
    let token = |requests: &ReceivedRequest| {
        requests
            .head
            .split_once("authorization: bearer ")
            .map(|(_, rest)| rest.len())
    };
    requests
        .iter()
        .map(|one| {
            let from = one.head.len() - token(one).unwrap_or(0);
            one.head[from..].split("\r\n").next().unwrap_or_default()
        })
        .collect()
}

#[tokio::test]
async fn token_is_requested_once_and_again_after_a_rejection() {
    let server = Peer::with_responses(vec![
        token_response("one", None, 3600),
        token_response("two", None, 3600),
    ])
    .await;
    let agent =
        Peer::with_responses(vec![task(), http_response(401, "", ""), task(), task()]).await;
    let oauth = OAuth::client_credentials(authorization_server(&server), "me", "s&cret")
        .scopes(["read", "write"]);
    let client = client_of(&agent).with_credentials(oauth);
    for _ in 0..3 {
        get(&client).await.unwrap();
    }
    assert_eq!(
        bearer_tokens(&agent.requests().await),
        ["one", "one", "two", "two"]
    );
    let requests = server.requests().await;
    assert_eq!(requests[0].target, "POST /token");
    assert_eq!(
        requests[0].body,
        b"grant_type=client_credentials&scope=read+write"
    );
    // "me:s%26cret", encoded as RFC 6749 requires; heads are in lower case here.
    assert!(
        requests[0]
            .head
            .contains("authorization: basic bwu6cyuynmnyzxq=\r\n"),
        "{}",
        requests[0].head
    );
}

#[tokio::test]
async fn second_rejection_is_returned() {
    let server = Peer::with_responses(vec![
        token_response("one", None, 3600),
        token_response("two", None, 3600),
    ])
    .await;
    let agent =
        Peer::with_responses(vec![http_response(401, "", ""), http_response(401, "", "")]).await;
    let client = client_of(&agent).with_credentials(OAuth::client_credentials(
        authorization_server(&server),
        "me",
        "s",
    ));
    assert_eq!(
        get(&client).await.unwrap_err().kind(),
        ErrorKind::Unauthenticated
    );
    assert_eq!(bearer_tokens(&agent.requests().await), ["one", "two"]);
}

#[tokio::test]
async fn expiring_token_is_refreshed_before_use() {
    let server = Peer::with_responses(vec![
        token_response("two", None, 1),
        token_response("three", Some("r3"), 3600),
    ])
    .await;
    let agent = Peer::with_responses(vec![task(), task(), task()]).await;
    let old = Token {
        access: "one".into(),
        refresh: Some("r1".into()),
        expires_in: Some(5),
    };
    let oauth = OAuth::with_token(authorization_server(&server), "me", old);
    let client = client_of(&agent).with_credentials(oauth);
    for _ in 0..3 {
        get(&client).await.unwrap();
    }
    assert_eq!(
        bearer_tokens(&agent.requests().await),
        ["two", "three", "three"]
    );
    for requests in server.requests().await {
        assert_eq!(
            requests.body,
            b"grant_type=refresh_token&refresh_token=r1&client_id=me"
        );
    }
}

#[tokio::test]
async fn token_without_a_refresh_token_is_an_error() {
    let agent = Peer::with_responses(vec![]).await;
    let old = Token {
        access: "one".into(),
        refresh: None,
        expires_in: Some(5),
    };
    let client = client_of(&agent).with_credentials(OAuth::with_token(
        AuthorizationServer::new("https://t.invalid/"),
        "me",
        old,
    ));
    let error = get(&client).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.message().contains("log in again"), "{error}");
}

#[tokio::test]
async fn error_contains_the_oauth_code_and_no_secrets() {
    let refusal = json_response(
        400,
        &json!({"error": "invalid_client", "error_description": "hunter2 is wrong"}),
    );
    let server = Peer::with_responses(vec![refusal]).await;
    let oauth = OAuth::client_credentials(authorization_server(&server), "me", "hunter2");
    let error = with_deadline(oauth.auth_params(None, &[]))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(error.message().contains("invalid_client"), "{error}");
    assert!(!format!("{error:?} {oauth:?}").contains("hunter2"));
}

#[tokio::test]
async fn s25_token_response_size_is_limited() {
    let server = Peer::with_responses(vec![http_response(200, "", &" ".repeat(100 << 10))]).await;
    let oauth = OAuth::client_credentials(authorization_server(&server), "me", "s");
    assert_eq!(
        with_deadline(oauth.auth_params(None, &[]))
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::InvalidAgentResponse
    );
}

#[tokio::test]
async fn tokens_are_not_sent_over_plain_http() {
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
async fn device_login_succeeds() {
    let pending = || json_response(400, &json!({"error": "authorization_pending"}));
    let server = Peer::with_responses(vec![
        json_response(
            200,
            &json!({"device_code": "dev", "user_code": "WDJB", "verification_uri": "https://v.example/",
                "expires_in": 60, "interval": 0}),
        ),
        pending(),
        pending(),
        token_response("tok", Some("r"), 60),
    ])
    .await;
    let login = with_deadline(DeviceLogin::start(
        authorization_server(&server),
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
    let requests = server.requests().await;
    assert_eq!(
        (&*requests[0].target, &*requests[0].body),
        ("POST /device", &b"client_id=me&scope=read"[..])
    );
    let body = String::from_utf8(requests[3].body.clone()).unwrap();
    assert!(
        body.ends_with("device_code&device_code=dev&client_id=me"),
        "{body}"
    );
}

#[tokio::test]
async fn device_login_poll_interval_is_bounded() {
    let code = json!({"device_code": "dev", "user_code": "W", "verification_uri": "https://v.example/",
        "expires_in": 60, "interval": u64::MAX});
    let server = Peer::with_responses(vec![json_response(200, &code)]).await;
    let login = with_deadline(DeviceLogin::start(authorization_server(&server), "me", &[]))
        .await
        .unwrap();
    let error = with_deadline(login.wait()).await.unwrap_err();
    assert!(error.message().contains("expired"), "{error}");
}

#[tokio::test]
async fn device_login_can_be_denied() {
    let code = json!({"device_code": "dev", "user_code": "W", "verification_uri": "https://v.example/",
        "expires_in": 60, "interval": 0});
    let denied = json_response(400, &json!({"error": "access_denied"}));
    let server = Peer::with_responses(vec![json_response(200, &code), denied]).await;
    let login = with_deadline(DeviceLogin::start(authorization_server(&server), "me", &[]))
        .await
        .unwrap();
    let error = with_deadline(login.wait()).await.unwrap_err();
    assert!(error.message().contains("access_denied"), "{error}");
}

#[tokio::test]
async fn metadata_must_name_its_own_issuer() {
    let metadata = |issuer: &str, url: &str| {
        let document = json!({"issuer": issuer, "token_endpoint": format!("{url}/t")});
        json_response(200, &document)
    };
    let server =
        Peer::with_url(|url| vec![metadata(url, url), token_response("tok", None, 60)]).await;
    let found = with_deadline(AuthorizationServer::discover(&server.url))
        .await
        .unwrap();
    let oauth = OAuth::client_credentials(found, "me", "s");
    with_deadline(oauth.auth_params(None, &[])).await.unwrap();
    let requests = server.requests().await;
    assert_eq!(requests[0].target, "GET /.well-known/openid-configuration");
    assert_eq!(requests[1].target, "POST /t");
    let liar = Peer::with_url(|url| vec![metadata("https://other.example", url)]).await;
    let error = with_deadline(AuthorizationServer::discover(&liar.url))
        .await
        .err()
        .unwrap();
    assert!(error.message().contains("another issuer"), "{error}");
}

/// Returns the query parameters of a URL.
fn parameters(url: &str) -> std::collections::BTreeMap<String, String> {
    let query = url.split_once('?').unwrap().1;
    form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect()
}

#[tokio::test]
async fn authorization_code_login_checks_its_state() {
    let server = Peer::with_responses(vec![token_response("tok", Some("r"), 60)]).await;
    let endpoints =
        authorization_server(&server).authorization(format!("{}/authorize?x=1", server.url));
    let scopes = ["openid".to_owned(), "read".to_owned()];
    let login = AuthorizationCodeLogin::start(
        endpoints.clone(),
        "me",
        None,
        &scopes,
        "http://127.0.0.1:9/cb",
    )
    .unwrap();
    let requests = parameters(login.url());
    assert_eq!(
        (requests["x"].as_str(), requests["scope"].as_str()),
        ("1", "openid read")
    );
    assert_eq!(
        (
            requests["response_type"].as_str(),
            requests["code_challenge_method"].as_str()
        ),
        ("code", "S256")
    );
    assert!(!login.matches_state("code=c&state=guessed") && !login.matches_state("code=c"));
    let twice = format!("code=c&state={0}&state={0}", requests["state"]);
    assert!(!login.matches_state(&twice));
    let token = with_deadline(login.finish(&format!("code=c%2F1&state={}", requests["state"])))
        .await
        .unwrap();
    assert_eq!(token.access, "tok".into());
    let body = String::from_utf8(server.requests().await[0].body.clone()).unwrap();
    let sent = parameters(&format!("?{body}"));
    assert_eq!(
        (sent["code"].as_str(), sent["redirect_uri"].as_str()),
        ("c/1", "http://127.0.0.1:9/cb")
    );
    let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(sent["code_verifier"].as_bytes()));
    assert_eq!(challenge, requests["code_challenge"]);
    assert_eq!(
        (sent["client_id"].as_str(), sent["grant_type"].as_str()),
        ("me", "authorization_code")
    );
}

#[tokio::test]
async fn authorization_code_login_can_be_denied_and_needs_tls() {
    let server = |url: &str| AuthorizationServer::new("https://t.invalid/").authorization(url);
    let start = |url: &str| {
        AuthorizationCodeLogin::start(server(url), "me", None, &[], "http://127.0.0.1:9/cb")
    };
    let login = start("https://t.invalid/authorize").unwrap();
    let state = parameters(login.url())["state"].clone();
    let error = with_deadline(login.finish(&format!("error=access_denied&state={state}")))
        .await
        .unwrap_err();
    assert!(
        error.kind() == ErrorKind::Unauthenticated && error.message().contains("access_denied"),
        "{error}"
    );
    assert_eq!(
        start("http://t.invalid/authorize").unwrap_err().kind(),
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
