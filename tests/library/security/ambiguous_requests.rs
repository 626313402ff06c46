//! Ambiguous and unknown input: every binding interprets it in the same, single way (S66, S81, S83,
//! S84, R33).

use serde_json::{Value, json};

use crate::harness::{Echo, WIRE_FORMATS, WireFormat, WireRequest, start};
use crate::security::hostile_clients::{HoldingAgent, send};

#[tokio::test]
async fn s83_paths_have_a_single_interpretation() {
    let server = start(Echo).await;
    let get = |path: &str| format!("GET {path}");
    for (form, base) in [(WireFormat::Rest1, ""), (WireFormat::Rest03, "/v1")] {
        // Paths that name a task, and its id.
        for (line, id) in [
            (get("/tasks/a:b"), "a:b"),
            (get("/tasks/a%2Fb"), "a/b"),
            (get("/tasks/..%2F..%2Fetc"), "../../etc"),
            (get("/tasks/x;y=z"), "x;y=z"),
            (get("/tasks/a%3Acancel"), "a:cancel"),
            (get("/tasks/a%3asubscribe"), "a:subscribe"),
            (get("/tasks/a%253Acancel"), "a%3Acancel"),
            (get("/tasks/a:b:subscribe"), "a:b"),
            ("POST /tasks/a:b:cancel".to_owned(), "a:b"),
            ("POST /tasks/a:cancel:cancel".to_owned(), "a:cancel"),
            ("POST /tasks/a%3Acancel:cancel".to_owned(), "a:cancel"),
            ("POST /tasks/a:subscribe:cancel".to_owned(), "a:subscribe"),
            (get("/tasks/a%20b?x=/tasks/c:cancel"), "a b"),
        ] {
            let (method, path) = line.split_once(' ').unwrap();
            let answer = server
                .send(&format!("{method} {base}{path} HTTP/1.1"), b"")
                .await;
            assert_eq!(
                (form.refusal(&answer).0, answer.status),
                (-32001, 404),
                "{line}"
            );
            let body: Value = serde_json::from_str(&answer.body).unwrap();
            assert_eq!(
                body["error"]["details"][0]["metadata"]["taskId"], id,
                "{line}"
            );
        }
        for path in [
            "/tasks/",
            "/tasks//a",
            "///tasks/a",
            "/tasks/a/",
            "/tasks%2Fa",
            "/tasks/%ff",
            "/tasks/:cancel",
            "/./tasks/a",
            "/tasks/a/b",
            "/tasks/a;/b",
            "/tasks/../tasks/a",
            "/%2e%2e/tasks/a",
            "/tasks/a/pushNotificationConfigs/",
        ] {
            let answer = server
                .send(&format!("GET {base}{path} HTTP/1.1"), b"")
                .await;
            assert_eq!(
                (form.refusal(&answer).0, answer.status),
                (-32601, 404),
                "{path}"
            );
        }
        // If the verb is part of the id, the methods of the id apply.
        for line in [
            "POST /tasks/a%3Acancel",
            "GET /tasks/a:cancel",
            "PUT /tasks/a",
            "DELETE /message:send",
        ] {
            let (method, path) = line.split_once(' ').unwrap();
            let answer = server
                .send(&format!("{method} {base}{path} HTTP/1.1"), b"")
                .await;
            assert_eq!(
                (answer.status, answer.header("allow").is_some()),
                (405, true),
                "{line}"
            );
        }
        for id in ["a%00b", "%0d%0aX-Evil:%20x", &"x".repeat(257)] {
            let answer = server
                .send(&format!("GET {base}/tasks/{id} HTTP/1.1"), b"")
                .await;
            assert_eq!(form.refusal(&answer).0, -32602, "{id}");
            assert!(!answer.head.contains("evil"), "{answer:?}");
        }
    }
    // The absolute form of the request target is the same path.
    let answer = server
        .send("GET http://localhost/tasks/a:b HTTP/1.1", b"")
        .await;
    assert_eq!(WireFormat::Rest1.refusal(&answer).0, -32001);
}

#[tokio::test]
async fn s66_numbers_are_parsed_alike_on_every_binding() {
    let server = start(Echo).await;
    let id = server.say("hi", json!({})).await["id"].clone();
    let bad = [
        "-1",
        "-2147483649",
        "2147483648",
        "99999999999999999999",
        "1.5",
        "1e300",
        "\"NaN\"",
        "\"abc\"",
        "\"1.5\"",
        "\"-1\"",
    ];
    let good = ["1", "1.0", "\"1\"", "100"];
    let rows = [
        ("GetTask", "historyLength", &["0"][..], &[][..]),
        ("ListTasks", "historyLength", &["0"], &[]),
        ("ListTasks", "pageSize", &[], &["0", "101", "1000000"]),
    ];
    for (operation, name, also_good, also_bad) in rows {
        for form in WIRE_FORMATS {
            // 0.3 REST cannot list tasks.
            if operation == "ListTasks" && form == WireFormat::Rest03 {
                continue;
            }
            let ask = |number: &&str| {
                let mut params = json!({name: serde_json::from_str::<Value>("7").unwrap()});
                if operation == "GetTask" {
                    params["id"] = id.clone();
                }
                let ask = form.ask(operation, params);
                let quoted = format!("{name}={}", number.trim_matches('"'));
                WireRequest {
                    head: ask.head.replace(&format!("{name}=7"), &quoted),
                    body: ask
                        .body
                        .replace(&format!("\"{name}\":7"), &format!("\"{name}\":{number}")),
                }
            };
            for number in bad.iter().chain(also_bad) {
                let answer = server.ask(&ask(number)).await;
                let (code, words) = form.refusal(&answer);
                assert_eq!(code, -32602, "{form:?} {operation} {name} {number}");
                assert!(words.contains(name), "{form:?} {number} {words}");
            }
            for number in good.iter().chain(also_good) {
                assert_eq!(
                    server.ask(&ask(number)).await.status,
                    200,
                    "{form:?} {operation} {name} {number}"
                );
            }
        }
    }
}

#[tokio::test]
async fn s81_errors_reveal_no_internals() {
    let server = start(HoldingAgent).await;
    let mut told = Vec::new();
    for form in WIRE_FORMATS {
        let ask = send(form, "hi");
        for body in [
            "{",
            "[]",
            "{}",
            "null",
            "\u{0}",
            r#"{"message":5}"#,
            r#"{"jsonrpc":"2.0","id":1,"method":"hunter"}"#,
        ] {
            told.push(
                server
                    .ask(&WireRequest {
                        body: body.to_owned(),
                        ..ask.clone()
                    })
                    .await,
            );
        }
        for text in ["panic", "error"] {
            told.push(server.ask(&send(form, text)).await);
        }
        for params in [
            json!({"id": "gone"}),
            json!({"id": "x".repeat(300)}),
            json!({"id": "a", "historyLength": -1}),
        ] {
            told.push(server.ask(&form.ask("GetTask", params)).await);
        }
        told.push(server.ask(&ask.clone().with("A2A-Version", "9.9")).await);
        told.push(
            server
                .ask(&ask.clone().with("Content-Type", "text/plain"))
                .await,
        );
        told.push(server.ask(&ask.clone().with("Idempotency-Key", "")).await);
    }
    for path in ["/nowhere", "/v1/nowhere", "/tasks", "/.well-known/x"] {
        told.push(server.send(&format!("PATCH {path} HTTP/1.1"), b"").await);
    }
    for answer in told {
        let text = format!("{}{}", answer.head, answer.body);
        for inside in [
            "hunter2",
            "/srv",
            ".rs",
            "postgres",
            "panicked",
            "serde",
            "hyper",
            "tokio",
            "attache",
            "line 1",
            "column",
            "thread",
            "unwrap",
            "missing field",
            "server:",
        ] {
            assert!(!text.contains(inside), "{inside} in {text}");
        }
    }
}

#[tokio::test]
async fn r33_unknown_members_are_ignored_and_metadata_is_kept() {
    let server = start(Echo).await;
    for form in [WireFormat::Rpc1, WireFormat::Rest1, WireFormat::Rpc03] {
        let odd = r#"{"big":123456789012345678901234567890,"float":1.0,"exp":1E+2,"null":null,"é":"\u00e9","nested":[{"a":[]}]}"#;
        let ask = form.ask(
            "SendMessage",
            json!({
                "message": form.message("hi", json!({"metadata": "ODD", "futureField": {"x": [1]}})),
                "configuration": {"futureField": true}, "futureField": 7,
            }),
        );
        let ask = WireRequest {
            body: ask.body.replace("\"ODD\"", odd),
            ..ask
        };
        let answer = server.ask(&ask).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        assert!(
            answer.body.contains(&odd.replace("\\u00e9", "é")) || answer.body.contains(odd),
            "{answer:?}"
        );
        assert!(!answer.body.contains("futureField"), "{answer:?}");
    }
    let listed = async |form: WireFormat, time: &str| {
        let time = if form.is_rpc() {
            time.to_owned()
        } else {
            time.replace('+', "%2B")
        };
        server
            .ask(&form.ask("ListTasks", json!({"statusTimestampAfter": time})))
            .await
    };
    for form in [WireFormat::Rpc1, WireFormat::Rest1] {
        for time in [
            "2020-01-01T00:00:00Z",
            "2020-01-01T02:00:00.123456789+02:00",
            "2020-01-01T00:00:00-11:30",
        ] {
            let answer = listed(form, time).await;
            assert_eq!(form.payload(&answer.body)["totalSize"], 3, "{answer:?}");
        }
        let answer = server
            .ask(&form.ask("ListTasks", json!({"status": "TASK_STATE_DREAMING"})))
            .await;
        assert_eq!(form.refusal(&answer).0, -32602);
    }
}

#[tokio::test]
async fn s84_conflicting_headers_are_rejected() {
    let server = start(Echo).await;
    for form in WIRE_FORMATS {
        for ask in [send(form, "hi"), form.stream("hi", json!({}))] {
            let two = ask
                .clone()
                .with("Idempotency-Key", "a")
                .with("idempotency-key", "b");
            let (code, words) = form.refusal(&server.ask(&two).await);
            assert!(
                code == -32602 && words.contains("Idempotency-Key"),
                "{words}"
            );
            let key = format!("{form:?}");
            let twice = ask
                .with("Idempotency-Key", &key)
                .with("Idempotency-Key", &key);
            assert_eq!(server.ask(&twice).await.status, 200);
        }
    }
}
