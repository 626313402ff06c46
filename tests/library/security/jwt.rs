//! JWT verification against an issuer whose keys rotate.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use attache::auth::{Access, AccessRule, Algorithm, Jwt};
use attache::model::{Binding, GetTaskRequest, Version};
use attache::{Client, ErrorKind, HostedAgent, InProcessServer, Server};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{EncodingKey, Header};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::harness::everywhere::card;
use crate::harness::{Echo, with_deadline};

/// A token issuer that serves its discovery document and its key set.
struct Issuer {
    url: String,
    keys: Mutex<Vec<(String, EncodingKey)>>,
    /// The published key set.
    key_set: Arc<Mutex<String>>,
    /// Number of key set requests.
    fetches: Arc<AtomicUsize>,
    _serving: JoinSet<()>,
}

impl Issuer {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let key_set = Arc::default();
        let fetches = Arc::default();
        let mut serving = JoinSet::new();
        serving.spawn(serve(
            listener,
            address,
            Arc::clone(&key_set),
            Arc::clone(&fetches),
        ));
        let issuer = Self {
            url: format!("http://{address}"),
            keys: Mutex::default(),
            key_set,
            fetches,
            _serving: serving,
        };
        issuer.rotate("one");
        issuer
    }

    /// Replaces the key: signs with a new one and publishes only that.
    fn rotate(&self, kid: &str) {
        let pair = rcgen::KeyPair::generate().unwrap();
        let key = EncodingKey::from_ec_der(&pair.serialize_der());
        let mut jwk = Jwk::from_encoding_key(&key, jsonwebtoken::Algorithm::ES256).unwrap();
        jwk.common.key_id = Some(kid.to_owned());
        *self.key_set.lock().unwrap() = json!({"keys": [{"kty": "odd"}, jwk]}).to_string();
        self.keys.lock().unwrap().push((kid.to_owned(), key));
    }

    /// Valid claims, with some replaced.
    fn claims(&self, replaced: Value) -> Value {
        let mut claims =
            json!({"iss": self.url, "sub": "ann", "aud": "agents", "exp": 4_000_000_000_u64});
        claims
            .as_object_mut()
            .unwrap()
            .extend(replaced.as_object().unwrap().clone());
        claims
    }

    fn sign(&self, replaced: Value) -> String {
        self.sign_with_crit(replaced, None)
    }

    fn sign_with_crit(&self, replaced: Value, crit: Option<Vec<String>>) -> String {
        let keys = self.keys.lock().unwrap();
        let (kid, key) = keys.last().unwrap();
        let header = Header {
            kid: Some(kid.clone()),
            crit,
            ..Header::new(jsonwebtoken::Algorithm::ES256)
        };
        jsonwebtoken::encode(&header, &self.claims(replaced), key).unwrap()
    }

    /// A valid token with another header.
    fn with_header(&self, header: Value) -> String {
        let token = self.sign(json!({}));
        let (_, rest) = token.split_once('.').unwrap();
        format!("{}.{rest}", base64url(header.to_string().as_bytes()))
    }

    fn jwt(&self) -> Jwt {
        Jwt::discover(&self.url, "agents")
            .unwrap()
            .min_fetch_interval(Duration::ZERO)
    }
}

/// Serves the discovery document and the key set.
async fn serve(
    listener: TcpListener,
    address: SocketAddr,
    key_set: Arc<Mutex<String>>,
    fetches: Arc<AtomicUsize>,
) {
    loop {
        let Ok((mut stream, _)) = listener.accept().await else {
            return;
        };
        let mut head = Vec::new();
        while !head.windows(4).any(|end| end == b"\r\n\r\n")
            && stream.read_buf(&mut head).await.unwrap_or(0) > 0
        {}
        let body = if head.starts_with(b"GET /.well-known/openid-configuration ") {
            json!({"issuer": format!("http://{address}"), "jwks_uri": format!("http://{address}/keys")})
                .to_string()
        } else {
            fetches.fetch_add(1, Ordering::SeqCst);
            key_set.lock().unwrap().clone()
        };
        let length = body.len();
        let response = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        );
        let _ = stream.write_all(response.as_bytes()).await;
    }
}

fn base64url(bytes: &[u8]) -> String {
    let text = attache::model::Base64::encode(bytes);
    text.as_str()
        .replace('+', "-")
        .replace('/', "_")
        .trim_end_matches('=')
        .to_owned()
}

async fn start(access: Access) -> InProcessServer {
    let server = Server::new(card(), Echo)
        .agent(HostedAgent::new("other", card(), Echo))
        .tenants(["acme"]);
    with_deadline(server.access(access).serve_in_process())
        .await
        .unwrap()
}

fn client(server: &InProcessServer, token: &str) -> Client {
    server
        .client(Binding::JsonRpc, Version::V1)
        .unwrap()
        .with_bearer(&token.into())
        .unwrap()
}

/// Error kind of a `GetTask` call; an authenticated caller finds no task.
async fn call(client: &Client) -> ErrorKind {
    with_deadline(client.get_task(GetTaskRequest {
        id: "none".into(),
        ..Default::default()
    }))
    .await
    .unwrap_err()
    .kind()
}

const ACCEPTED: ErrorKind = ErrorKind::TaskNotFound;
const REFUSED: ErrorKind = ErrorKind::Unauthenticated;

#[tokio::test]
async fn s34_only_current_tokens_of_the_issuer_for_our_audience_are_accepted() {
    let issuer = Issuer::start().await;
    let server = start(Access::new(issuer.jwt())).await;
    assert_eq!(
        call(&client(&server, &issuer.sign(json!({})))).await,
        ACCEPTED
    );
    for (case, claims) in [
        ("aud", json!({"aud": "others"})),
        ("aud list", json!({"aud": ["x", "y"]})),
        ("no aud", json!({"aud": null})),
        ("iss", json!({"iss": "http://elsewhere"})),
        ("expired", json!({"exp": 1_000_000_000})),
        ("no exp", json!({"exp": null})),
        ("not yet", json!({"nbf": 4_000_000_000_u64})),
        ("empty sub", json!({"sub": ""})),
    ] {
        assert_eq!(
            call(&client(&server, &issuer.sign(claims))).await,
            REFUSED,
            "{case}"
        );
    }
    let claims = base64url(issuer.claims(json!({})).to_string().as_bytes());
    let public = issuer.key_set.lock().unwrap().clone();
    let confused = jsonwebtoken::encode(
        &Header {
            kid: Some("one".to_owned()),
            ..Header::new(jsonwebtoken::Algorithm::HS256)
        },
        &issuer.claims(json!({})),
        &EncodingKey::from_secret(public.as_bytes()),
    );
    let none = |alg: &str| {
        format!(
            "{}.{claims}.",
            base64url(json!({"alg": alg}).to_string().as_bytes())
        )
    };
    for token in [
        none("none"),
        none("None"),
        confused.unwrap(),
        issuer.with_header(json!({"alg": "ES256", "kid": "two"})),
        issuer.with_header(json!({"alg": "ES256", "kid": "../../keys"})),
        issuer.with_header(json!({"alg": "ES256", "kid": "x".repeat(10_000)})),
        issuer.with_header(json!({"alg": "RS256", "kid": "one"})),
        issuer.with_header(json!({"alg": "ES384", "kid": "one"})),
        issuer.with_header(json!({"alg": "ES256", "kid": "one", "jku": "http://127.0.0.1:1/"})),
        format!("{}x", issuer.sign(json!({}))),
        "x".repeat(20_000),
        "a.b.c".to_owned(),
        "..".to_owned(),
    ] {
        assert_eq!(call(&client(&server, &token)).await, REFUSED, "{token}");
    }
}

#[tokio::test]
async fn d17_a_token_with_critical_extensions_is_refused() {
    let issuer = Issuer::start().await;
    let server = start(Access::new(issuer.jwt())).await;
    for (crit, expected) in [
        (None, ACCEPTED),
        (Some(vec!["exp".to_owned()]), REFUSED),
        (Some(vec!["unknown".to_owned()]), REFUSED),
        (Some(Vec::new()), REFUSED),
    ] {
        let token = issuer.sign_with_crit(json!({}), crit);
        assert_eq!(call(&client(&server, &token)).await, expected, "{token}");
    }
}

#[tokio::test]
async fn s35_a_token_for_one_agent_is_refused_by_another() {
    let issuer = Issuer::start().await;
    let jwt = issuer
        .jwt()
        .agent_audience("other", "only-other")
        .tenant_claim("org");
    let server = start(Access::new(jwt).rule(AccessRule::require(["deploy"]).agent("other"))).await;
    let token = issuer.sign(json!({"aud": ["only-other"], "scope": "read deploy"}));
    let caller = client(&server, &token);
    assert_eq!(call(&caller).await, ErrorKind::PermissionDenied);
    assert_eq!(call(&caller.clone().with_tenant("other")).await, ACCEPTED);
    let token = issuer.sign(json!({"aud": "only-other", "scp": ["read"]}));
    assert_eq!(
        call(&client(&server, &token).with_tenant("other")).await,
        ErrorKind::PermissionDenied
    );
    for (org, expected) in [
        (json!("acme"), true),
        (json!(["x", "acme"]), true),
        (json!("*"), false),
    ] {
        let token = issuer.sign(json!({ "org": org }));
        let client = client(&server, &token).with_tenant("acme");
        let sent = client.send_message(attache::model::SendMessageRequest::new(
            attache::model::Message::user("x"),
        ));
        assert_eq!(with_deadline(sent).await.is_ok(), expected, "{org}");
    }
}

/// A token of a new key is accepted at once, one of a removed key is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s34_keys_rotate_under_load() {
    let issuer = Issuer::start().await;
    let server = start(Access::new(issuer.jwt())).await;
    for round in ["two", "three", "four"] {
        let old = issuer.sign(json!({}));
        issuer.rotate(round);
        let new = issuer.sign(json!({}));
        let mut calls = JoinSet::new();
        for number in 0..32 {
            // Tokens with invented key ids arrive at the same time.
            let invented =
                issuer.with_header(json!({"alg": "ES256", "kid": format!("k-{number}")}));
            for (token, expected) in [(new.clone(), ACCEPTED), (invented, REFUSED)] {
                let client = client(&server, &token);
                calls.spawn(async move { assert_eq!(call(&client).await, expected) });
            }
        }
        while let Some(done) = with_deadline(calls.join_next()).await {
            done.unwrap();
        }
        assert_eq!(
            call(&client(&server, &old)).await,
            REFUSED,
            "a key that the issuer has removed"
        );
    }
}

/// Tokens with invented key ids do not cause more fetches than `min_fetch_interval` allows.
#[tokio::test]
async fn s34_invented_key_ids_do_not_cause_fetches() {
    let issuer = Issuer::start().await;
    let jwt = Jwt::key_set(&issuer.url, "agents", &format!("{}/keys", issuer.url)).unwrap();
    let server = start(Access::new(
        jwt.algorithms([Algorithm::Es256])
            .min_fetch_interval(Duration::from_secs(3600)),
    ))
    .await;
    assert_eq!(
        call(&client(&server, &issuer.sign(json!({})))).await,
        ACCEPTED
    );
    for number in 0..20 {
        let token = issuer.with_header(json!({"alg": "ES256", "kid": format!("k-{number}")}));
        assert_eq!(call(&client(&server, &token)).await, REFUSED);
    }
    assert_eq!(issuer.fetches.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_unreachable_issuer_is_reported_as_unavailable() {
    let issuer = Issuer::start().await;
    let jwt = Jwt::key_set(&issuer.url, "agents", "http://127.0.0.1:1/keys").unwrap();
    let server = start(Access::new(jwt)).await;
    assert_eq!(
        call(&client(&server, &issuer.sign(json!({})))).await,
        ErrorKind::Unavailable
    );
}
