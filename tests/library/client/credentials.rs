//! Credentials: what of them an agent is shown, and where they never go.

use attache::model::Binding;
use attache::model::{ErrorKind, GetTaskRequest, Task, Version};
use attache::{
    ApiKeyAuth, BasicAuth, BearerAuth, Client, CredentialProvider, Error, MutualTlsAuth,
};
use serde_json::{Value, json};

use super::peer::{Peer, json as answer, reply};
use crate::harness::with_deadline;

pub(super) fn task() -> Vec<u8> {
    answer(
        200,
        &json!({"id": "t", "status": {"state": "TASK_STATE_COMPLETED"}}),
    )
}

/// A card at the root, with an interface there or elsewhere.
fn card(url: &str, schemes: &Value, requirements: &Value) -> Vec<u8> {
    answer(
        200,
        &json!({
            "name": "n", "description": "d", "version": "1",
            "supportedInterfaces": [{"url": url, "protocolBinding": "HTTP+JSON", "protocolVersion": "1.0"}],
            "securitySchemes": schemes,
            "securityRequirements": requirements,
        }),
    )
}

pub(super) fn at(peer: &Peer) -> Client {
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

/// What the agent is asked with when its card wants this and the client has that.
async fn asked(
    wanted: Value,
    give: impl FnOnce(Client) -> Client,
) -> Result<(String, String), Error> {
    let peer = Peer::with(vec![card("/", &schemes(), &wanted), task()]).await;
    let client = give(with_deadline(Client::discover(&peer.url)).await.unwrap());
    get(&client).await?;
    let asked = peer.asked().await.pop().unwrap();
    Ok((asked.target, asked.head))
}

fn any(names: &[&str]) -> Value {
    names
        .iter()
        .map(|name| json!({"schemes": {*name: {}}}))
        .collect()
}

#[tokio::test]
async fn every_kind_goes_where_the_card_wants_it() {
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
        let (_, head) = asked(any(&[name]), give).await.unwrap();
        assert!(head.contains(expected), "{name}: {head}");
    }
}

#[tokio::test]
async fn the_first_requirement_that_is_satisfied_whole_is_taken() {
    let both = json!([
        {"schemes": {"http": {}, "mtls": {}}},
        {"schemes": {"head": {}, "cookie": {}}},
        {"schemes": {"http": {}}},
    ]);
    let (_, head) = asked(both.clone(), |it| {
        it.with_credentials(BearerAuth::new("tok"))
            .with_credentials(ApiKeyAuth::new("key"))
    })
    .await
    .unwrap();
    assert!(
        head.contains("x-own: key") && head.contains("cookie: c=key") && !head.contains("tok"),
        "{head}"
    );
    let (_, head) = asked(both, |it| {
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
    // Nothing would do, but who has credentials wants to be known.
    let open = json!([{"schemes": {}}, {"schemes": {"http": {}}}]);
    let (_, head) = asked(open, |it| it.with_credentials(BearerAuth::new("tok")))
        .await
        .unwrap();
    assert!(head.contains("bearer tok"), "{head}");
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let peer = Peer::with(vec![card("/", &schemes(), &any(&["head", "oidc"]))]).await;
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
async fn s30_credentials_stay_where_the_card_came_from() {
    let wanted = any(&["http"]);
    let elsewhere = Peer::with(vec![task()]).await;
    let home = Peer::with(vec![card(&elsewhere.url, &schemes(), &wanted)]).await;
    let client = with_deadline(Client::discover(&home.url)).await.unwrap();
    let error = get(&client.clone().with_credentials(BearerAuth::new("tok")))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unauthenticated);
    assert!(
        error.message().contains(&elsewhere.url) && error.message().contains(&home.url),
        "{error}"
    );
    // Nothing was sent: the one answer is still there for who is trusted.
    let trusted = client
        .with_credentials_for(&elsewhere.url, BearerAuth::new("tok"))
        .unwrap();
    get(&trusted).await.unwrap();
    assert!(elsewhere.asked().await[0].head.contains("bearer tok"));
}

#[tokio::test]
async fn s30_an_agent_elsewhere_that_wants_nothing_gets_nothing() {
    let elsewhere = Peer::with(vec![task()]).await;
    let home = Peer::with(vec![card(&elsewhere.url, &json!({}), &json!([]))]).await;
    let client = with_deadline(Client::discover(&home.url))
        .await
        .unwrap()
        .with_credentials(BearerAuth::new("tok"));
    get(&client).await.unwrap();
    assert!(!elsewhere.asked().await[0].head.contains("tok"));
}

#[tokio::test]
async fn s31_a_redirect_gets_no_credentials() {
    let elsewhere = Peer::with(vec![task()]).await;
    let head = format!("Location: {}/tasks/t\r\n", elsewhere.url);
    let home = Peer::with(vec![reply(307, &head, "")]).await;
    let error = get(&at(&home).with_credentials(BearerAuth::new("tok")))
        .await
        .unwrap_err();
    assert!(error.message().contains("redirect"), "{error}");
    get(&at(&elsewhere)).await.unwrap();
    assert!(!elsewhere.asked().await[0].head.contains("tok"));
}

#[tokio::test]
async fn credentials_are_not_sent_in_the_clear() {
    let client = Client::new("http://0.0.0.0:1/", Binding::HttpJson, Version::V1).unwrap();
    let client = client.with_credentials(BearerAuth::new("tok"));
    let error = get(&client).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.violations()[0].field()),
        (ErrorKind::InvalidParams, "url")
    );
    // Allowed, it goes as far as the port that nobody has.
    let error = get(&client.with_plain_http_credentials())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

#[tokio::test]
async fn s32_what_would_break_out_of_a_header_is_refused() {
    async fn refusal(credentials: impl CredentialProvider) -> Error {
        let client = Client::new("http://127.0.0.1:1/", Binding::HttpJson, Version::V1).unwrap();
        get(&client.with_credentials(credentials))
            .await
            .unwrap_err()
    }
    for error in [
        refusal(BearerAuth::new("a\r\nX-Evil: 1")).await,
        refusal(BearerAuth::new("a\0b")).await,
        refusal(ApiKeyAuth::header("x-own", "a\nb")).await,
        refusal(ApiKeyAuth::header("x own", "a")).await,
        refusal(ApiKeyAuth::cookie("c", "a; d=1")).await,
        refusal(BasicAuth::new("me:you", "pw")).await,
    ] {
        assert_eq!(error.kind(), ErrorKind::InvalidParams, "{error}");
    }
}

#[test]
fn s38_credentials_do_not_print() {
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
