//! Internal metadata of the server and its agents reach no caller (S53).

use attache::model::{Artifact, Message, Object};
use attache::{Agent, Failure, Outcome, Question, Turn};
use serde_json::{Value, json};

use crate::harness::webhook_endpoint::{Endpoint, OK};
use crate::harness::{WIRE_FORMATS, local_webhooks, start_with};

const SECRET: &str = "attache.position";

fn metadata() -> Object {
    let mut metadata: Object = [(SECRET, "canary")].into_iter().collect();
    metadata.insert("mine", "visible");
    metadata
}

/// Puts internal metadata everywhere, asks a question, and checks that its own metadata are still there.
struct Secretive;

impl Agent for Secretive {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let with_metadata = |text: &str| Message {
            metadata: Some(metadata()),
            ..Message::agent(text)
        };
        if turn.task().history.len() > 1 {
            let kept = |message: &Message| {
                let metadata = message.metadata.as_ref();
                metadata.is_some_and(|metadata| metadata.get(SECRET).is_some())
            };
            let is_kept = turn.task().history.iter().any(|message| kept(message));
            turn.write("kept", is_kept.to_string()).await;
            return Ok(Outcome::CompletedWith(with_metadata("done")));
        }
        turn.add_metadata(metadata()).await;
        turn.say_message(with_metadata("working")).await;
        let mut artifact = Artifact::text("notes", "visible");
        artifact.metadata = Some(metadata());
        turn.add_artifact(artifact).await;
        Ok(Outcome::InputRequired(Question {
            message: with_metadata("go on?"),
            request: None,
        }))
    }
}

fn check(text: &str, what: &str) {
    assert!(text.contains("visible"), "{what}: {text}");
    assert!(!text.contains("canary"), "{what}: {text}");
    assert!(!text.contains(SECRET), "{what}: {text}");
}

#[tokio::test]
async fn s53_internal_metadata_reach_no_caller() {
    for form in WIRE_FORMATS {
        let webhook = Endpoint::start(OK).await;
        let server = start_with(Secretive, |server| server.push(local_webhooks())).await;
        let mut stream = server.read(&form.stream("begin", json!({}))).await;
        let events = stream.rest().await;
        let id = events.iter().find_map(|event| {
            let payload = form.payload(&event.data);
            let task = payload.get("task").unwrap_or(&payload);
            task["id"].as_str().map(str::to_owned)
        });
        let id = id.unwrap_or_else(|| panic!("{}", stream.text));
        check(&stream.text, &format!("{form:?} stream"));
        let get = server.ask(&form.ask("GetTask", json!({"id": id}))).await;
        check(&get.body, &format!("{form:?} get"));
        let get = json!({"id": id, "historyLength": 1});
        let get = server.ask(&form.ask("GetTask", get)).await;
        check(&get.body, &format!("{form:?} get with historyLength"));
        if form.is_rpc() || form.is_v1() {
            let list = server.ask(&form.ask("ListTasks", json!({}))).await;
            check(&list.body, &format!("{form:?} list"));
        }
        let mut subscription = server.read(&form.subscribe(&id)).await;
        let first = subscription.one().await;
        check(&first.data, &format!("{form:?} subscription"));
        let config = if form.is_v1() {
            json!({"taskId": id, "url": webhook.url})
        } else {
            json!({"taskId": id, "pushNotificationConfig": {"url": webhook.url}})
        };
        let create = form.ask("CreateTaskPushNotificationConfig", config);
        let created = server.ask(&create).await;
        assert_eq!(created.status, 200, "{created:?}");
        let answer = json!({"message": form.message("yes", json!({"taskId": id}))});
        let ended = server.ask(&form.ask("SendMessage", answer)).await;
        check(&ended.body, &format!("{form:?} send"));
        assert!(ended.body.contains("true"), "{ended:?}");
        let is_last = |body: &Value| body.to_string().to_lowercase().contains("completed");
        let got = webhook
            .until(|got| got.iter().any(|one| is_last(&one.body)))
            .await;
        for one in &got {
            assert!(!one.raw.contains("canary"), "{form:?} webhook: {}", one.raw);
        }
        check(&got.last().unwrap().raw, &format!("{form:?} webhook"));
    }
}

#[tokio::test]
async fn s53_internal_metadata_reach_no_chat_completion() {
    let server = start_with(Secretive, |server| server).await;
    for stream in [false, true] {
        let body = json!({"stream": stream, "stream_options": {"include_usage": stream},
            "messages": [{"role": "user", "content": "begin"}]});
        let answer = server.post("/v1/chat/completions", &body.to_string()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        check(&answer.body, "completion");
    }
}
