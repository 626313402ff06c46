//! Signed delegation between Attache servers: a caller gets no more permissions through a broker than it has itself.

use std::time::Duration;

use attache::auth::{Access, AccessRule, ApiKeys};
use attache::jws::{Delegation, PublishedKeys, Signer};
use attache::model::Secret;
use attache_agents::{LlmAgent, RemoteAgent, RemoteSettings, ToolSettings, demo_agent};
use serde_json::{Value, json};

use crate::harness::{TestServer, start_at_with, start_with, state, status_text};
use crate::llm::{calls, model, request, says, settings};

const LINEAGE: &str = "urn:attache:ext:lineage:v1";

fn broker_key() -> Signer {
    Signer::from_pem_with_thumbprint(include_str!("../../../src/jws/tests/p256.pem")).unwrap()
}

/// A server that requires the scope `books`, and trusts the delegation tokens of a broker.
struct Books {
    books: TestServer,
    /// Keys: the broker and bob have the scope, ann has not.
    broker: Secret,
    ann: Secret,
    bob: Secret,
    /// Address of the broker.
    address: std::net::SocketAddr,
}

impl Books {
    async fn new() -> Self {
        let address = std::net::TcpListener::bind("127.0.0.1:0")
            .unwrap()
            .local_addr()
            .unwrap();
        let keys = ApiKeys::new();
        let broker = keys.issue("broker", |broker| broker.scopes(["books"]));
        let ann = keys.issue("ann", |ann| ann);
        let bob = keys.issue("bob", |bob| bob.scopes(["books"]));
        let broker_keys =
            PublishedKeys::from_url(&format!("http://{address}/.well-known/jwks.json")).unwrap();
        let access = Access::new(keys)
            .rule(AccessRule::require(["books"]))
            .trust_delegation("key:broker", broker_keys);
        let books = start_with(demo_agent(), |server| server.access(access)).await;
        Self {
            books,
            broker,
            ann,
            bob,
            address,
        }
    }

    /// Starts the broker with an agent. It has its own keys for ann, bob and eve.
    async fn broker(&self, agent: impl attache::Agent) -> (TestServer, [Secret; 3]) {
        let keys = ApiKeys::new();
        let known = ["ann", "bob", "eve"].map(|name| keys.issue(name, |identity| identity));
        let set_up =
            |server: attache::Server| server.access(Access::new(keys)).publish_key(broker_key());
        (start_at_with(self.address, agent, set_up).await, known)
    }

    fn tool(&self) -> ToolSettings {
        ToolSettings {
            description: "The books".to_owned(),
            agent: Some(self.books.url()),
            headers: [(
                "authorization".to_owned(),
                format!("Bearer {}", self.broker.expose()).into(),
            )]
            .into(),
            forward_caller: true,
            ..ToolSettings::default()
        }
    }
}

fn as_key(key: &Secret) -> String {
    format!("Authorization: Bearer {}\r\n", key.expose())
}

fn message(text: &str) -> Value {
    json!({"message": {"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]}})
}

async fn send_text(server: &TestServer, key: &Secret, text: &str) -> Value {
    let answer = server
        .call_with_headers(&as_key(key), "SendMessage", message(text))
        .await;
    answer["result"]["task"].clone()
}

/// Returns the number of tasks that the owner of a key has.
async fn tasks(server: &TestServer, key: &Secret) -> usize {
    let listed = server
        .call_with_headers(&as_key(key), "ListTasks", json!({}))
        .await;
    listed["result"]["tasks"].as_array().map_or(0, Vec::len)
}

/// The broker has the scope, but callers do not gain it through the broker.
#[tokio::test]
async fn s61_a_broker_does_not_extend_the_permissions_of_callers() {
    let books = Books::new().await;
    let ask = calls(&[("a", "books", json!({"message": "help"}))]);
    let model = model(&[ask, says("no"), ask, says("no"), ask, says("here")]).await;
    let tools = [("books".to_owned(), books.tool())].into();
    let llm = LlmAgent::new(attache_agents::LlmSettings {
        tools,
        ..settings(&model)
    })
    .unwrap();
    let (broker, [ann, bob, eve]) = books.broker(llm.with_signer(&broker_key())).await;
    for (at, key) in [(1, &ann), (3, &eve)] {
        assert_eq!(state(&send_text(&broker, key, "go").await), "COMPLETED");
        let read = request(&model, at).to_string();
        assert!(
            read.contains("Permission denied"),
            "neither ann nor an unknown caller: {read}"
        );
    }
    assert_eq!(state(&send_text(&broker, &bob, "go").await), "COMPLETED");
    let read = request(&model, 5).to_string();
    assert!(
        !read.contains("denied") && read.contains("text in n chunks"),
        "{read}"
    );
    assert_eq!(
        tasks(&books.books, &books.bob).await,
        1,
        "the task there is bob's"
    );
    assert_eq!(
        tasks(&books.books, &books.broker).await,
        0,
        "and not the broker's"
    );
}

#[tokio::test]
async fn s61_a_remote_agent_signs_calls_and_cancels_for_the_caller() {
    let books = Books::new().await;
    let ToolSettings {
        headers,
        forward_caller,
        ..
    } = books.tool();
    let settings = RemoteSettings {
        url: books.books.url(),
        headers,
        forward_caller,
        ..Default::default()
    };
    let remote = RemoteAgent::new(settings)
        .unwrap()
        .with_signer(&broker_key());
    let (broker, [ann, bob, _]) = books.broker(remote).await;
    let refused = send_text(&broker, &ann, "ask").await;
    assert_eq!(state(&refused), "FAILED", "{refused}");
    let asked = send_text(&broker, &bob, "ask").await;
    assert_eq!(state(&asked), "INPUT_REQUIRED", "{asked}");
    // No turn is running, but the cancel is still signed for bob.
    broker
        .call_with_headers(&as_key(&bob), "CancelTask", json!({"id": asked["id"]}))
        .await;
    let id = &asked["metadata"]["attache.remote"]["taskId"];
    let theirs = books
        .books
        .call_with_headers(&as_key(&books.bob), "GetTask", json!({"id": id}))
        .await;
    assert_eq!(state(&theirs["result"]), "CANCELED", "{theirs}");
}

/// Unsigned claims about callers and lineage, and claims of servers without trust, are ignored.
#[tokio::test]
async fn s60_only_signed_delegation_counts() {
    let books = Books::new().await;
    let (_broker, _) = books.broker(demo_agent()).await;
    let token = |caller: &str, signer: &Signer, lineage: Option<Value>| {
        let delegation = Delegation {
            caller: caller.to_owned(),
            lineage,
        };
        format!(
            "Attache-Delegation: {}\r\n",
            delegation.sign(signer, Duration::from_secs(60)).unwrap()
        )
    };
    let say_as = async |key: &Secret, lines: &str| {
        let mut params = message("hi");
        params["message"]["metadata"] = json!({LINEAGE: {"depth": 0, "tokens": 1_000_000}});
        books
            .books
            .call_with_headers(&format!("{}{lines}", as_key(key)), "SendMessage", params)
            .await
    };
    let signed = token(
        "key:bob",
        &broker_key(),
        Some(json!({"depth": 3, "tokens": 50})),
    );
    let answer = say_as(&books.broker, &signed).await;
    let id = &answer["result"]["task"]["id"];
    let theirs = books
        .books
        .call_with_headers(&as_key(&books.bob), "GetTask", json!({"id": id}))
        .await;
    let line = &theirs["result"]["history"][0]["metadata"][LINEAGE];
    assert_eq!(
        *line,
        json!({"depth": 3, "tokens": 50}),
        "the signed lineage counts: {theirs}"
    );
    let stranger =
        Signer::from_pem(include_str!("../../../src/jws/tests/ed25519.pem"), "k").unwrap();
    let kid = broker_key().public_key()["kid"]
        .as_str()
        .unwrap()
        .to_owned();
    let forger = Signer::from_pem(include_str!("../../../src/jws/tests/ed25519.pem"), kid).unwrap();
    let twice = format!("{signed}{signed}");
    for (key, lines, code) in [
        (&books.broker, token("key:bob", &stranger, None), -31401),
        (&books.broker, token("key:bob", &forger, None), -31401),
        (
            &books.broker,
            "Attache-Delegation: e30.e30.e30\r\n".to_owned(),
            -31401,
        ),
        (&books.broker, twice, -31401),
        (&books.broker, String::new(), -31403),
        (
            &books.broker,
            "Attache-Caller: key:bob\r\n".to_owned(),
            -31403,
        ),
        (&books.broker, token("key:ann", &broker_key(), None), -31403),
        (
            &books.broker,
            token("anonymous", &broker_key(), None),
            -31403,
        ),
        // Ann is not a trusted server, so the token is ignored.
        (&books.ann, signed.clone(), -31403),
        (&books.ann, "Attache-Caller: key:bob\r\n".to_owned(), -31403),
    ] {
        let answer = say_as(key, &lines).await;
        assert_eq!(answer["error"]["code"], code, "{lines}: {answer}");
    }
    let own = say_as(&books.bob, &signed).await["result"]["task"].clone();
    assert_ne!(
        own["id"],
        Value::Null,
        "bob has the scope himself: {}",
        status_text(&own)
    );
    assert_eq!(tasks(&books.books, &books.bob).await, 2);
}
