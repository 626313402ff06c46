//! Credentials: selection by the card, and binding to an origin.

use attache::model::Binding;
use attache::model::{ErrorKind, GetTaskRequest, Task, Version};
use attache::{
    ApiKeyAuth, BasicAuth, BearerAuth, Client, CredentialProvider, Error, MutualTlsAuth,
};
use serde_json::{Value, json};

use super::peer::{Peer, http_response, json_response};
use crate::harness::with_deadline;

pub(super) fn task() -> Vec<u8> {
    json_response(
        200,
        &json!({"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}}),
    )
}

/// Returns a card with one interface at `url`.
fn card(url: &str, schemes: &Value, requirements: &Value) -> Vec<u8> {
    json_response(
        200,
        &json!({
            "name": "n", "description": "d", "version": "1",
            "supportedInterfaces": [{"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}],
            "securitySchemes": schemes,
            "securityRequirements": requirements,
        }),
    )
}

pub(super) fn client_of(peer: &Peer) -> Client {
    Client::new(&peer.url, Binding::HttpJson, Version::V1).unwrap()
}

pub(super) async fn get(client: &Client) -> Result<Task, Error> {
    with_deadline(client.get_task(GetTaskRequest {
        id: "t".into(),
        ..Default::default()
    }))
    .await
}

fn schemes() -> Value {
    json!({
        "http": {"httpAuthSecurityScheme": {"scheme": "bearer"}},
        "basic": {"httpAuthSecurityScheme": {"scheme": "Basic"}},
        "head": {"apiKeySecurityScheme": {"location": "header", "name": "x-own"}},
        "query": {"apiKeySecurityScheme": {"location": "query", "name": "k"}},
        "cookie": {"apiKeySecurityScheme": {"location": "cookie", "name": "c"}},
        "oidc": {"openIdConnectSecurityScheme": {"openIdConnectUrl": "https://i.example/"}},
        "mtls": {"mtlsSecurityScheme": {}},
    })
}

/// Calls an agent whose card requires `required`, and returns the target and head of the request.
async fn call_with_card(
    required: Value,
    give: impl FnOnce(Client) -> Client,
) -> Result<(String, String), Error> {
    let peer = Peer::with_responses(vec![card("/", &schemes(), &required), task()]).await;
    let client = give(with_deadline(Client::discover(&peer.url)).await.unwrap());
    get(&client).await?;
    let request = peer.requests().await.pop().unwrap();
    Ok((request.target, request.head))
}

fn any_of(names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| json!({"schemes": {*name: {}}}))
        .collect()
}

#[tokio::test]
async fn every_credential_is_sent_as_the_card_requires() {
    type Give = fn(Client) -> Client;
    let table: [(&str, Give, &str); 6] = [
        (
            "http",
            |it| it.with_credentials(BearerAuth::new("tok")),
            "authorization: bearer tok\r\n",
        ),
        (
            "oidc",
            |it| it.with_credentials(BearerAuth::new("tok")),
            "authorization: bearer tok\r\n",
        ),
        (
            "basic",
            |it| it.with_credentials(BasicAuth::new("me", "pw")),
            "authorization: basic bwu6chc=\r\n",
        ),
        (
            "head",
            |it| it.with_credentials(ApiKeyAuth::new("key")),
            "x-own: key\r\n",
        ),
        (
            "cookie",
            |it| it.with_credentials(ApiKeyAuth::new("key")),
            "cookie: c=key\r\n",
        ),
        (
            "query",
            |it| it.with_credentials(ApiKeyAuth::query("k", "a&b")),
            "/tasks/t?k=a%26b ",
        ),
    ];
    for (name, give, expected) in table {
        let (_, head) = call_with_card(any_of(&[name]), give).await.unwrap();
        assert!(head.contains(expected), "{name}: {head}");
    }
}

#[tokio::test]
async fn first_satisfied_requirement_is_used() {
    let both = json!([
        {"schemes": {"http": {}, "mtls": {}}},
        {"schemes": {"head": {}, "cookie": {}}},
        {"schemes": {"http": {}}},
    ]);
    let (_, head) = call_with_card(both.clone(), |it| {
        it.with_credentials(BearerAuth::new("tok"))
            .with_credentials(ApiKeyAuth::new("key"))
    })
    .await
    .unwrap();
    assert!(
        head.contains("x-own: key") && head.contains("cookie: c=key") && !head.contains("tok"),
        "{head}"
    );
    let (_, head) = call_with_card(both, |it| {
        it.with_credentials(ApiKeyAuth::new("key"))
            .with_credentials(MutualTlsAuth)
            .with_credentials(BearerAuth::new("tok"))
    })
    .await
    .unwrap();
    assert!(
        head.contains("bearer tok") && !head.contains("x-own"),
        "{head}"
    );
    // No credentials would suffice, but those given are used.
    let open = json!([{"schemes": {}}, {"schemes": {"http": {}}}]);
    let (_, head) = call_with_card(open, |it| it.with_credentials(BearerAuth::new("tok")))
        .await
        .unwrap();
    assert!(head.contains("bearer tok"), "{head}");
}

#[tokio::test]
async fn missing_credentials_are_named() {
    let peer = Peer::with_responses(vec![card("/", &schemes(), &any_of(&["head", "oidc"]))]).await;
    let client = with_deadline(Client::discover(&peer.url))
        .await
        .unwrap()
        .with_credentials(BasicAuth::new("me", "hunter2"));
    let error = get(&client).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    let expected = "the agent wants \"head\" (an API key), or \"oidc\" (OpenID Connect); given: a name and password";
    assert!(error.message().contains(expected), "{error}");
    assert!(!format!("{error:?}").contains("hunter2"));
}

#[tokio::test]
async fn s30_credentials_stay_in_the_origin_of_the_card() {
    let required = any_of(&["http"]);
    let elsewhere = Peer::with_responses(vec![task()]).await;
    let home = Peer::with_responses(vec![card(&elsewhere.url, &schemes(), &required)]).await;
    let client = with_deadline(Client::discover(&home.url)).await.unwrap();
    let error = get(&client.clone().with_credentials(BearerAuth::new("tok")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(
        error.message().contains(&elsewhere.url) && error.message().contains(&home.url),
        "{error}"
    );
    // Nothing was sent: the one response is still available for the trusted call.
    let trusted = client
        .with_credentials_for(&elsewhere.url, BearerAuth::new("tok"))
        .unwrap();
    get(&trusted).await.unwrap();
    assert!(elsewhere.requests().await[0].head.contains("bearer tok"));
}

#[tokio::test]
async fn s30_agent_of_another_origin_gets_no_credentials() {
    let elsewhere = Peer::with_responses(vec![task()]).await;
    let home = Peer::with_responses(vec![card(&elsewhere.url, &json!({}), &json!([]))]).await;
    let client = with_deadline(Client::discover(&home.url))
        .await
        .unwrap()
        .with_credentials(BearerAuth::new("tok"));
    get(&client).await.unwrap();
    assert!(!elsewhere.requests().await[0].head.contains("tok"));
}

#[tokio::test]
async fn s31_redirect_target_gets_no_credentials() {
    let elsewhere = Peer::with_responses(vec![task()]).await;
    let head = format!("Location: {}/tasks/t\r\n", elsewhere.url);
    let home = Peer::with_responses(vec![http_response(307, &head, "")]).await;
    let error = get(&client_of(&home).with_credentials(BearerAuth::new("tok")))
        .await
        .unwrap_err();
    assert!(error.message().contains("redirect"), "{error}");
    get(&client_of(&elsewhere)).await.unwrap();
    assert!(!elsewhere.requests().await[0].head.contains("tok"));
}

#[tokio::test]
async fn credentials_are_not_sent_over_plain_http() {
    let client = Client::new("http://0.0.0.0:1/", Binding::HttpJson, Version::V1).unwrap();
    let client = client.with_credentials(BearerAuth::new("tok"));
    let error = get(&client).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.violations()[0].field()),
        (ErrorKind::InvalidParams, "url")
    );
    // If allowed, it fails only because the port is closed.
    let error = get(&client.with_plain_http_credentials())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn s32_header_injection_is_refused() {
    async fn refuse(credentials: impl CredentialProvider) -> Error {
        let client = Client::new("http://127.0.0.1:1/", Binding::HttpJson, Version::V1).unwrap();
        get(&client.with_credentials(credentials))
            .await
            .unwrap_err()
    }
    for error in [
        refuse(BearerAuth::new("a\r\nX-Evil: 1")).await,
        refuse(BearerAuth::new("a\0b")).await,
        refuse(ApiKeyAuth::header("x-own", "a\nb")).await,
        refuse(ApiKeyAuth::header("x own", "a")).await,
        refuse(ApiKeyAuth::cookie("c", "a; d=1")).await,
        refuse(BasicAuth::new("me:you", "pw")).await,
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{error}");
    }
}

#[test]
fn s38_credentials_are_not_in_debug_output() {
    let client = Client::new("http://127.0.0.1/", Binding::HttpJson, Version::V1).unwrap();
    let client = client.with_credentials(BearerAuth::new("hunter2"));
    let printed = format!(
        "{client:?} {:?} {:?} {:?}",
        BearerAuth::new("hunter2"),
        BasicAuth::new("me", "hunter2"),
        ApiKeyAuth::cookie("c", "hunter2")
    );
    assert!(!printed.contains("hunter2"), "{printed}");
}
