//! Transport errors: paths, methods, media types, sizes, envelopes, and shutdown.

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;

use crate::harness::{Echo, WIRE_FORMATS, WireRequest, message, request, start, with_deadline};
use crate::security::hostile_clients::send;
use crate::server::operations::Held;

#[tokio::test]
async fn the_card_says_where_the_agent_is() {
    let server = start(Echo).await;
    for path in ["/.well-known/agent-card.json", "/.well-known/agent.json"] {
        let card = server.get(path).await.json();
        assert_eq!(card["name"], "Echo");
        let url = format!("http://{}", server.address);
        let mut interfaces = Vec::new();
        for version in ["1.0", "0.3"] {
            for binding in ["JSONRPC", "HTTP+JSON"] {
                interfaces.push(
                    json!({"url": url, "protocolBinding": binding, "protocolVersion": version}),
                );
            }
        }
        assert_eq!(card["supportedInterfaces"], json!(interfaces));
        assert_eq!(
            (&card["url"], &card["protocolVersion"]),
            (&json!(url), &json!("0.3.0"))
        );
        assert_eq!(card["skills"][0]["id"], "echo");
    }
}

#[tokio::test]
async fn json_rpc_is_at_three_paths_and_nothing_else_anywhere() {
    let server = start(Echo).await;
    let body = request("SendMessage", &json!({"message": message("hi", json!({}))}));
    for path in ["/", "/a2a", "/a2a/", "/api/a2a", "/api/a2a/"] {
        let answer = server.post(path, &body).await.json();
        assert_eq!(
            answer["result"]["task"]["status"]["state"], "TASK_STATE_COMPLETED",
            "{path}"
        );
    }
    for path in ["/a2a/b", "/api", "//", "/.well-known"] {
        assert_eq!(server.post(path, &body).await.status, 404, "{path}");
    }
    let answer = server.get("/a2a").await;
    assert_eq!(answer.status, 405);
    assert!(answer.head.contains("allow: post"), "{answer:?}");
    assert_eq!(server.post("/.well-known/agent.json", "").await.status, 405);
}

#[tokio::test]
async fn s69_what_is_no_call_gets_an_error_and_http_200() {
    let server = start(Echo).await;
    for (body, code, id) in [
        ("{", -32700, Value::Null),
        ("[]", -32600, Value::Null),
        (
            r#"{"jsonrpc":"2.0","id":"u","method":"Nope"}"#,
            -32601,
            json!("u"),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"tasks/frobnicate","params":{}}"#,
            -32601,
            json!(7),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":{}}"#,
            -32602,
            json!(7),
        ),
        (
            r#"{"jsonrpc":"2.0","id":7,"method":"SendMessage","params":[]}"#,
            -32602,
            json!(7),
        ),
    ] {
        let answer = server.post("/", body).await;
        assert_eq!(answer.status, 200, "{body}");
        let answer = answer.json();
        assert_eq!(
            (&answer["error"]["code"], &answer["id"]),
            (&json!(code), &id),
            "{body}"
        );
    }
}

#[tokio::test]
async fn s79_another_media_type_is_refused_before_it_is_parsed() {
    let server = start(Echo).await;
    let answer = server
        .send("POST / HTTP/1.1\r\nContent-Type: text/plain", b"{")
        .await
        .json();
    assert_eq!(
        (&answer["error"]["code"], &answer["id"]),
        (&json!(-32005), &Value::Null)
    );
    let body = request("SendMessage", &json!({"message": message("hi", json!({}))}));
    let answer = server.send("POST / HTTP/1.1", body.as_bytes()).await.json();
    assert_eq!(answer["error"], Value::Null);
}

#[tokio::test]
async fn a_body_over_eight_mebibytes_is_refused_and_the_caller_sees_it() {
    let server = start(Echo).await;
    for length in [(8 << 20) + 1, 20 << 20] {
        let answer = server.post("/", &" ".repeat(length)).await;
        assert_eq!(answer.status, 200);
        assert_eq!(answer.json()["error"]["code"], -32600);
    }
    assert_eq!(
        server.post("/", &" ".repeat(8 << 20)).await.json()["error"]["code"],
        -32700
    );
}

#[tokio::test]
async fn a_server_that_stops_answers_the_calls_it_has() {
    let (started, mut heard) = mpsc::channel(1);
    let held = Held::new(started);
    let mut server = start(held.clone()).await;
    let body = request("SendMessage", &json!({"message": message("hi", json!({}))}));
    let head = "POST / HTTP/1.1\r\nContent-Type: application/json";
    let mut stream = server.begin(head, body.as_bytes()).await;
    with_deadline(heard.recv())
        .await
        .expect("the turn has begun");
    let answer = async {
        held.release();
        let mut text = String::new();
        stream.read_to_string(&mut text).await.unwrap();
        text
    };
    let ((), text) = with_deadline(async { tokio::join!(server.stop(), answer) }).await;
    assert!(text.contains("TASK_STATE_COMPLETED"), "{text}");
    assert!(
        tokio::net::TcpStream::connect(server.address)
            .await
            .is_err()
    );
}

#[tokio::test]
async fn every_refusal_says_which_version_it_is_in() {
    let server = start(Echo).await;
    for form in WIRE_FORMATS {
        let ask = send(form, "hi");
        let head = ask.head.replace("application/json", "text/plain");
        for wrong in [
            WireRequest {
                head,
                ..ask.clone()
            },
            WireRequest {
                body: "{".to_owned(),
                ..ask.clone()
            },
            WireRequest {
                body: "{}".to_owned(),
                ..ask.clone()
            },
            ask.clone().with("A2A-Version", "9.9"),
        ] {
            let answer = server.ask(&wrong).await;
            assert!(form.refusal(&answer).0 < 0);
            assert_eq!(
                answer.header("a2a-version"),
                Some(form.version()),
                "{answer:?}"
            );
        }
    }
    let answer = server.send("GET /nowhere HTTP/1.1", b"").await;
    assert_eq!(
        (answer.status, answer.header("a2a-version")),
        (404, Some("1.0"))
    );
}
