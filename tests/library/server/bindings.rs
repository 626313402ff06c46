//! Both JSON bindings in both versions: push configs, extensions, cards, media types.

use attache::auth::{Access, ApiKeys};
use attache::model::AgentExtension;
use attache::{AgentCard, Server};
use serde_json::{Value, json};

use crate::harness::{
    Answer, Echo, Running, WIRE_FORMATS, WireFormat, WireRequest, local_webhooks, start, start_as,
    start_with,
};

const KEY: &str = "ann-has-a-long-key-0001";

async fn with_push() -> Running {
    start_with(Echo, |server| server.push(local_webhooks())).await
}

impl WireFormat {
    /// Builds a push-config call in the members of this wire format.
    fn push(self, operation: &str, task: &str, config: Value) -> WireRequest {
        let name = format!(
            "{operation}TaskPushNotificationConfig{}",
            if operation == "List" { "s" } else { "" }
        );
        let params = match (self, operation) {
            (Self::Rpc1 | Self::Rest1, _) => {
                let mut params = config;
                params["taskId"] = json!(task);
                params
            }
            (Self::Rpc03, "Create") => json!({"taskId": task, "pushNotificationConfig": config}),
            (Self::Rpc03, _) => match config.get("id") {
                Some(id) => json!({"id": task, "pushNotificationConfigId": id}),
                None => json!({"id": task}),
            },
            (Self::Rest03, "Create") => {
                let id = config["id"].as_str().unwrap_or_default();
                let name = format!("tasks/{task}/pushNotificationConfigs/{id}");
                json!({
                    "taskId": task, "parent": format!("tasks/{task}"), "configId": id,
                    "config": {"name": name, "pushNotificationConfig": config},
                })
            }
            (Self::Rest03, _) => {
                let mut params = config;
                params["taskId"] = json!(task);
                params
            }
        };
        self.ask(&name, params)
    }

    /// Reads id and URL of a push config.
    fn registration(self, task: &str, id: &str, url: &str) -> Value {
        let nested = json!({"id": id, "url": url, "token": "t-1"});
        match self {
            Self::Rpc1 | Self::Rest1 => {
                json!({"taskId": task, "id": id, "url": url, "token": "t-1"})
            }
            Self::Rpc03 => json!({"taskId": task, "pushNotificationConfig": nested}),
            Self::Rest03 => {
                json!({"name": format!("tasks/{task}/pushNotificationConfigs/{id}"), "pushNotificationConfig": nested})
            }
        }
    }
}

async fn task(server: &Running) -> String {
    server.say("hi", json!({})).await["id"]
        .as_str()
        .unwrap()
        .to_owned()
}

async fn result(server: &Running, form: WireFormat, ask: &WireRequest) -> Value {
    let answer = server.ask(ask).await;
    assert_eq!(answer.status, 200, "{form:?} {ask:?} {answer:?}");
    form.payload(&answer.body)
}

#[tokio::test]
async fn webhooks_are_registered_read_listed_and_removed() {
    let server = with_push().await;
    for form in WIRE_FORMATS {
        let task = task(&server).await;
        let config = |id: &str, url: &str| json!({"id": id, "url": url, "token": "t-1"});
        let one = "http://127.0.0.1:9/one";
        let two = "http://localhost:9/two";
        let made = result(
            &server,
            form,
            &form.push("Create", &task, config("mine", one)),
        )
        .await;
        assert_eq!(made, form.registration(&task, "mine", one));
        // A repeated id replaces the URL of the webhook.
        let made = result(
            &server,
            form,
            &form.push("Create", &task, config("mine", two)),
        )
        .await;
        assert_eq!(made, form.registration(&task, "mine", two));
        // Every format reads configs created in another one.
        for form in WIRE_FORMATS {
            let read = result(
                &server,
                form,
                &form.push("Get", &task, json!({"id": "mine"})),
            )
            .await;
            assert_eq!(read, form.registration(&task, "mine", two));
        }
        result(
            &server,
            form,
            &form.push("Create", &task, config("other", one)),
        )
        .await;
        let list = result(&server, form, &form.push("List", &task, json!({}))).await;
        let both = json!([
            form.registration(&task, "mine", two),
            form.registration(&task, "other", one)
        ]);
        assert_eq!(
            list,
            if form == WireFormat::Rpc03 {
                both
            } else {
                json!({"configs": both})
            }
        );
        for _ in 0..2 {
            // Deleting is idempotent.
            let gone = result(
                &server,
                form,
                &form.push("Delete", &task, json!({"id": "mine"})),
            )
            .await;
            assert_eq!(
                gone,
                if form.is_rpc() {
                    Value::Null
                } else {
                    json!({})
                }
            );
        }
        let answer = server
            .ask(&form.push("Get", &task, json!({"id": "mine"})))
            .await;
        assert_eq!(form.refusal(&answer).0, -32001);
    }
}

#[tokio::test]
async fn a_webhook_without_an_id_gets_one_by_the_rule_of_its_version() {
    let server = with_push().await;
    for form in WIRE_FORMATS {
        let task = task(&server).await;
        let config = json!({"url": "http://127.0.0.1:9/", "token": "t-1"});
        for _ in 0..2 {
            result(&server, form, &form.push("Create", &task, config.clone())).await;
        }
        let list = result(
            &server,
            WireFormat::Rpc1,
            &WireFormat::Rpc1.push("List", &task, json!({})),
        )
        .await;
        let ids: Vec<_> = list["configs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|config| &config["id"])
            .collect();
        match form.is_v1() {
            true => assert!(
                ids.len() == 2 && ids[0] != ids[1] && !ids.contains(&&json!(task)),
                "{ids:?}"
            ),
            // A second config without an id replaces the first.
            false => assert_eq!(ids, [&json!(task)]),
        }
        // 0.3 may omit the config id.
        let any = result(
            &server,
            WireFormat::Rpc03,
            &WireFormat::Rpc03.push("Get", &task, json!({})),
        )
        .await;
        assert_eq!(any["pushNotificationConfig"]["id"], *ids[0]);
    }
}

#[tokio::test]
async fn a_webhook_is_refused_alike_everywhere() {
    let mut card = AgentCard::new("Echo", "Says it back");
    card.capabilities.push_notifications = Some(false);
    let server = with_push().await;
    let silent = start_as(card, Echo, |server| server).await;
    let config = json!({"id": "c", "url": "http://127.0.0.1:9/"});
    for form in WIRE_FORMATS {
        let task = task(&server).await;
        for operation in ["Create", "Get", "List", "Delete"] {
            let code = async |server: &Running| {
                form.refusal(
                    &server
                        .ask(&form.push(operation, "gone", config.clone()))
                        .await,
                )
                .0
            };
            assert_eq!(code(&server).await, -32001, "{form:?} {operation}");
            // Checked before the task lookup.
            assert_eq!(code(&silent).await, -32003, "{form:?} {operation}");
        }
        for url in [
            "",
            "example.com/hook",
            "ftp://example.com/",
            "file:///etc/passwd",
            "https://",
            "https://a b/",
            "javascript:x",
        ] {
            let answer = server
                .ask(&form.push("Create", &task, json!({"url": url})))
                .await;
            let (code, words) = form.refusal(&answer);
            assert_eq!(code, -32602, "{form:?} {url}");
            assert!(
                words.contains("url") && !words.contains("passwd"),
                "{words}"
            );
        }
        for number in 0..32 {
            let config = json!({"id": number.to_string(), "url": "http://127.0.0.1:9/"});
            result(&server, form, &form.push("Create", &task, config)).await;
        }
        let answer = server
            .ask(&form.push("Create", &task, config.clone()))
            .await;
        let (code, words) = form.refusal(&answer);
        assert!(
            code == -32602 && words.contains("max_push_configs"),
            "{words}"
        );
    }
}

#[tokio::test]
async fn a_webhook_that_comes_with_a_message_is_registered() {
    let server = with_push().await;
    for form in WIRE_FORMATS {
        let config = json!({"id": "inline", "url": "http://127.0.0.1:9/", "token": "t-1"});
        let name = match form {
            WireFormat::Rpc1 | WireFormat::Rest1 => "taskPushNotificationConfig",
            WireFormat::Rpc03 => "pushNotificationConfig",
            WireFormat::Rest03 => "pushNotification",
        };
        let send = |config: &Value, more: Value| {
            let configuration = json!({name: config, "blocking": true});
            form.ask(
                "SendMessage",
                json!({"message": form.message("hi", more), "configuration": configuration}),
            )
        };
        let sent = result(&server, form, &send(&config, json!({}))).await;
        let id = if form == WireFormat::Rpc03 {
            &sent["id"]
        } else {
            &sent["task"]["id"]
        }
        .as_str()
        .unwrap();
        let read = result(
            &server,
            form,
            &form.push("Get", id, json!({"id": "inline"})),
        )
        .await;
        assert_eq!(read, form.registration(id, "inline", "http://127.0.0.1:9/"));
        // The refused call stored nothing.
        let late = json!({"id": "late", "url": "http://127.0.0.1:9/"});
        assert_eq!(
            form.refusal(&server.ask(&send(&late, json!({"taskId": id}))).await)
                .0,
            -32004
        );
        assert_eq!(
            form.refusal(
                &server
                    .ask(&form.push("Get", id, json!({"id": "late"})))
                    .await
            )
            .0,
            -32001
        );
        let bad = json!({"id": "x", "url": "gopher://example.com/"});
        assert_eq!(
            form.refusal(&server.ask(&send(&bad, json!({}))).await).0,
            -32602
        );
    }
}

async fn with_extensions() -> Running {
    let mut card = AgentCard::new("Echo", "Says it back");
    for (uri, required) in [
        ("urn:need", Some(true)),
        ("urn:may", None),
        ("urn:idle", Some(false)),
    ] {
        card.capabilities.extensions.push(AgentExtension {
            uri: uri.to_owned(),
            required,
            ..AgentExtension::default()
        });
    }
    start_as(card, Echo, |server| server).await
}

#[tokio::test]
async fn extensions_are_active_when_asked_for_and_the_answer_says_so() {
    let server = with_extensions().await;
    for form in WIRE_FORMATS {
        for operation in ["SendMessage", "SendStreamingMessage"] {
            let send = form.ask(operation, json!({"message": form.message("hi", json!({}))}));
            let one = send
                .clone()
                .with("A2A-Extensions", "urn:need, urn:other,,urn:may");
            let answer = server.ask(&one).await;
            assert_eq!(
                answer.header("a2a-extensions"),
                Some("urn:need, urn:may"),
                "{answer:?}"
            );
            assert_eq!(answer.header("x-a2a-extensions"), None);
            let old = send.clone().with("X-A2A-Extensions", "urn:need");
            let answer = server.ask(&old).await;
            assert_eq!(answer.header("x-a2a-extensions"), Some("urn:need"));
            assert_eq!(answer.header("a2a-extensions"), None);
            // Both header names and repeated lines are merged; the response carries both names.
            let both = send
                .with("X-A2A-Extensions", "urn:may")
                .with("a2a-extensions", "urn:x")
                .with("A2A-Extensions", "urn:need");
            let answer = server.ask(&both).await;
            for name in ["a2a-extensions", "x-a2a-extensions"] {
                assert_eq!(answer.header(name), Some("urn:need, urn:may"));
            }
        }
    }
}

#[tokio::test]
async fn an_extension_that_is_required_must_be_asked_for() {
    let server = with_extensions().await;
    for form in WIRE_FORMATS {
        let send = form.ask(
            "SendMessage",
            json!({"message": form.message("hi", json!({}))}),
        );
        for ask in [
            send.clone(),
            send.clone()
                .with("A2A-Extensions", "urn:may, URN:NEED, urn:need2"),
            form.subscribe("x"),
        ] {
            let answer = server.ask(&ask).await;
            assert_eq!(form.refusal(&answer).0, -32008, "{answer:?}");
            assert_eq!(answer.status, if form.is_rpc() { 200 } else { 400 });
            assert!(answer.body.contains("urn:need"), "{answer:?}");
        }
        // Errors of the request itself take precedence.
        assert_eq!(
            form.refusal(&server.ask(&form.ask("SendMessage", json!({}))).await)
                .0,
            -32602
        );
    }
    assert_eq!(server.get("/.well-known/agent-card.json").await.status, 200);
}

#[tokio::test]
async fn the_extended_card_is_there_if_there_is_one() {
    let declared = || {
        let mut card = AgentCard::new("Public", "For all");
        card.capabilities.extended_agent_card = Some(true);
        card
    };
    let extended = AgentCard::new("Extended", "For some").interface(
        "http://localhost/",
        attache::model::Binding::JsonRpc,
        attache::model::Version::V03,
    );
    let plain = start(Echo).await;
    let empty = start_as(declared(), Echo, |server| server).await;
    let keys = ApiKeys::new();
    keys.add("ann", &KEY.into(), |ann| ann).unwrap();
    let known = Access::new(keys);
    let full = start_as(
        AgentCard::new("Public", "For all"),
        Echo,
        |server: Server| server.extended_card(extended).access(known),
    )
    .await;
    for form in WIRE_FORMATS {
        let ask = form.ask("GetExtendedAgentCard", json!({}));
        let undeclared = form.refusal(&plain.ask(&ask).await).0;
        assert_eq!(undeclared, if form.is_v1() { -32004 } else { -32007 });
        assert_eq!(form.refusal(&empty.ask(&ask).await).0, -32007);
        assert_eq!(full.ask(&ask).await.status, 401, "{form:?}");
        let card = result(&full, form, &ask.with("X-API-Key", KEY)).await;
        assert_eq!(card["name"], "Extended", "{form:?}");
        assert_eq!(card.get("url").is_some(), !form.is_v1(), "{card}");
        assert_eq!(
            card.get("supportedInterfaces").is_some(),
            form.is_v1(),
            "{card}"
        );
    }
    let old = format!("GET /agent/authenticatedExtendedCard HTTP/1.1\r\nX-API-Key: {KEY}");
    let old = full.send(&old, b"").await;
    assert_eq!(old.json()["name"], "Extended");
    assert_eq!(
        full.get("/.well-known/agent-card.json").await.json()["capabilities"]["extendedAgentCard"],
        true
    );
}

#[tokio::test]
async fn an_answer_comes_in_the_media_type_of_the_request() {
    let server = start(Echo).await;
    let a2a = "application/a2a+json";
    let media_type = |answer: &Answer| answer.header("content-type").unwrap().to_owned();
    for form in WIRE_FORMATS {
        let ask = form.ask(
            "SendMessage",
            json!({"message": form.message("hi", json!({}))}),
        );
        let own = if form == WireFormat::Rest1 {
            a2a
        } else {
            "application/json"
        };
        let typed = |media_type: &str| WireRequest {
            head: ask.head.replace("application/json", media_type),
            body: ask.body.clone(),
        };
        for (ask, expected) in [
            (ask.clone(), "application/json"),
            (typed(a2a), own),
            (typed("Application/A2A+JSON; charset=utf-8"), own),
            (typed("application/vnd.example+json"), "application/json"),
            (
                ask.clone()
                    .with("Accept", "text/html, application/a2a+json;q=0.9"),
                own,
            ),
            (ask.clone().with("Accept", "*/*"), "application/json"),
        ] {
            let answer = server.ask(&ask).await;
            assert_eq!(
                (answer.status, media_type(&answer)),
                (200, expected.to_owned()),
                "{form:?} {ask:?}"
            );
        }
        // Errors keep the media type that every client reads.
        let bad = WireRequest {
            body: "{".to_owned(),
            ..typed(a2a)
        };
        let answer = server.ask(&bad).await;
        assert_eq!(
            (form.refusal(&answer).0, media_type(&answer)),
            (-32700, "application/json".to_owned())
        );
    }
    let task = task(&server).await;
    let get = WireFormat::Rest1
        .ask("GetTask", json!({"id": task}))
        .with("Accept", a2a);
    assert_eq!(media_type(&server.ask(&get).await), a2a);
}

#[tokio::test]
async fn s79_another_media_type_is_refused_on_every_binding() {
    let server = start(Echo).await;
    for form in WIRE_FORMATS {
        let ask = form.ask(
            "SendMessage",
            json!({"message": form.message("hi", json!({}))}),
        );
        for media_type in [
            "text/plain",
            "application/x-www-form-urlencoded",
            "multipart/form-data; boundary=application/json",
        ] {
            let wrong = WireRequest {
                head: ask.head.replace("application/json", media_type),
                body: ask.body.clone(),
            };
            let twice = ask.clone().with("Content-Type", media_type);
            for ask in [wrong, twice] {
                let answer = server.ask(&ask).await;
                assert_eq!(form.refusal(&answer).0, -32005, "{answer:?}");
                assert_eq!(answer.status, if form.is_rpc() { 200 } else { 415 });
                assert!(!form.is_rpc() || answer.body.contains(r#""id":null"#));
            }
        }
    }
    assert_eq!(server.result("ListTasks", json!({})).await["totalSize"], 0);
}

#[tokio::test]
async fn r19_a_task_is_canceled_without_a_body_and_only_once() {
    let server = start(
        async |turn: attache::Turn| -> Result<attache::Outcome, attache::Failure> {
            turn.say("on it").await;
            std::future::pending().await
        },
    )
    .await;
    for form in WIRE_FORMATS {
        let mut reader = server.read(&form.stream("go", json!({}))).await;
        let payload = form.payload(&reader.one().await.data);
        let id = if form == WireFormat::Rpc03 {
            &payload["id"]
        } else {
            &payload["task"]["id"]
        }
        .as_str()
        .unwrap()
        .to_owned();
        let cancel = form.ask("CancelTask", json!({"id": id}));
        let bare = match form {
            WireFormat::Rpc1 | WireFormat::Rpc03 => cancel.clone(),
            WireFormat::Rest1 | WireFormat::Rest03 => WireRequest {
                head: cancel
                    .head
                    .replace("\r\nContent-Type: application/json", ""),
                body: String::new(),
            },
        };
        let canceled = result(&server, form, &bare).await;
        assert_eq!(canceled["id"], id);
        let code = async |ask: &WireRequest| form.refusal(&server.ask(ask).await);
        assert_eq!(code(&cancel).await.0, -32002);
        assert_eq!(
            code(&form.ask("CancelTask", json!({"id": "gone"}))).await.0,
            -32001
        );
        assert_eq!(reader.rest().await.len(), 2);
    }
}

#[tokio::test]
async fn a_card_is_cached_and_asked_for_again_cheaply() {
    let server = start(Echo).await;
    for path in ["/.well-known/agent-card.json", "/.well-known/agent.json"] {
        let whole = server.get(path).await;
        let tag = whole.header("etag").unwrap().to_owned();
        assert!(
            whole
                .header("cache-control")
                .unwrap()
                .contains("max-age=300"),
            "{whole:?}"
        );
        for known in [
            tag.clone(),
            format!("W/{tag}"),
            format!("\"x\", {tag}"),
            "*".to_owned(),
        ] {
            let answer = server
                .send(
                    &format!("GET {path} HTTP/1.1\r\nIf-None-Match: {known}"),
                    b"",
                )
                .await;
            assert_eq!((answer.status, answer.body.as_str()), (304, ""), "{known}");
            assert_eq!(answer.header("etag"), Some(tag.as_str()));
        }
        let other = server
            .send(&format!("GET {path} HTTP/1.1\r\nIf-None-Match: \"x\""), b"")
            .await;
        assert_eq!((other.status, other.body), (200, whole.body.clone()));
        let head = server.send(&format!("HEAD {path} HTTP/1.1"), b"").await;
        assert_eq!((head.status, head.body.as_str()), (200, ""));
        assert_eq!(
            head.header("content-length"),
            whole.header("content-length")
        );
        assert_eq!(head.header("etag"), Some(tag.as_str()));
        for method in ["POST", "PUT", "DELETE"] {
            let answer = server.send(&format!("{method} {path} HTTP/1.1"), b"").await;
            assert_eq!(
                (answer.status, answer.header("allow")),
                (405, Some("get, head"))
            );
        }
    }
}
