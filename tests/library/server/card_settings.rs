//! Settings of the card and of the served bindings.

use attache::auth::{Access, ApiKeys};
use attache::model::AgentSkill;
use attache::wire::card::{CardForm, GrpcOnCard};
use attache::{AgentCard, CardAccess, HostedAgent, ServedBinding, Server, ServerSettings};
use serde_json::{Value, json};

use crate::harness::{
    Answer, Echo, Running, WIRE_FORMATS, changing, message, request, run, start, start_with,
};

const CARD: &str = "/.well-known/agent-card.json";
const OLD_CARD: &str = "/.well-known/agent.json";
const KEY: &str = "ann-has-a-long-key-0001";

async fn with_settings(change: impl FnOnce(&mut ServerSettings)) -> Running {
    let mut settings = ServerSettings::default();
    change(&mut settings);
    start_with(Echo, |server| server.server_settings(settings)).await
}

async fn card(server: &Running) -> Value {
    server.get(CARD).await.json()
}

fn transports(list: &Value) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let interfaces = list.as_array().into_iter().flatten();
    interfaces
        .map(|one| {
            let binding = one.get("protocolBinding").or(one.get("transport"));
            (text(binding.unwrap()), text(&one["url"]))
        })
        .collect()
}

fn access() -> Access {
    let keys = ApiKeys::new();
    keys.add("ann", &KEY.into(), |ann| ann).unwrap();
    Access::new(keys)
}

#[tokio::test]
async fn card_urls_have_no_trailing_slash() {
    let beside = HostedAgent::new("beside", AgentCard::new("Beside", "Is beside"), Echo);
    let server = start_with(Echo, |server| server.agent(beside)).await;
    let base = format!("http://{}", server.address);
    assert_eq!(card(&server).await["url"], json!(base));
    let path = format!("/agents/beside{CARD}");
    let url = server.get(&path).await.json()["url"].clone();
    assert_eq!(url, json!(format!("{base}/agents/beside")));
    let catalog = server.get("/.well-known/ai-catalog.json").await.json();
    let entry = &catalog["entries"][1];
    assert_eq!(entry["identifier"], json!(format!("{base}/agents/beside/")));
    assert_eq!(entry["url"], json!(format!("{base}{path}")));
    // Both URLs are endpoints as they are.
    let body = request("SendMessage", &json!({"message": message("hi", json!({}))}));
    for path in ["/", "/agents/beside", "/agents/beside/"] {
        assert_eq!(server.post(path, &body).await.status, 200, "{path}");
    }
}

/// Some clients append `/v1/…` to a URL that ends with a slash.
#[tokio::test]
async fn s83_a_doubled_slash_before_a_rest_path_is_accepted() {
    let beside = HostedAgent::new("beside", AgentCard::new("Beside", "Is beside"), Echo);
    let server = start_with(Echo, |server| server.agent(beside)).await;
    let v03 =
        json!({"request": {"messageId": "m", "role": "ROLE_USER", "content": [{"text": "hi"}]}});
    let v1 = json!({"message": message("hi", json!({}))});
    for (path, body) in [
        ("//v1/message:send", &v03),
        ("//message:send", &v1),
        ("/agents/beside//v1/message:send", &v03),
        ("/agents/beside//message:send", &v1),
    ] {
        let answer = server.post(path, &body.to_string()).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
    }
    assert_eq!(server.get(&format!("/{CARD}")).await.status, 200);
    for path in [
        "///v1/message:send",
        "/v1//message:send",
        "//agents/beside/v1/message:send",
        "/agents//beside/v1/message:send",
        "/agents/beside///v1/message:send",
    ] {
        let answer = server.post(path, &v03.to_string()).await;
        assert_eq!(answer.status, 404, "{path}: {answer:?}");
    }
}

/// The path is normalized before the rules are checked, so a doubled slash gives no access.
#[tokio::test]
async fn s83_a_doubled_slash_does_not_pass_the_access_rules() {
    let server = start_with(Echo, |server| server.access(access())).await;
    for path in ["/tasks/x", "//tasks/x", "//v1/tasks/x"] {
        assert_eq!(server.get(path).await.status, 401, "{path}");
        let known = format!("GET {path} HTTP/1.1\r\nX-API-Key: {KEY}");
        assert_eq!(server.send(&known, b"").await.status, 404, "{path}");
    }
}

#[tokio::test]
async fn cards_have_a_modification_time_that_a_reload_keeps() {
    let server = || Server::new(AgentCard::new("Echo", "Says it back"), Echo);
    let (running, handle) = changing(server()).await;
    let date = |answer: &Answer| answer.header("last-modified").unwrap().to_owned();
    let first = running.get(CARD).await;
    let since = format!("GET {CARD} HTTP/1.1\r\nIf-Modified-Since: {}", date(&first));
    assert_eq!(running.send(&since, b"").await.status, 304);
    let old = format!("GET {CARD} HTTP/1.1\r\nIf-Modified-Since: Mon, 01 Jan 2024 00:00:00 GMT");
    assert_eq!(running.send(&old, b"").await.status, 200);
    handle.replace(server()).unwrap();
    assert_eq!(date(&running.get(CARD).await), date(&first));
    let catalog = running.get("/.well-known/ai-catalog.json").await;
    assert_eq!(catalog.header("last-modified"), None);
}

/// Peers of item 13: google-adk refuses a card whose 1.0 list has a URL without http.
#[tokio::test]
async fn grpc_is_on_the_list_of_0_3_alone_by_default() {
    let server = start(Echo).await;
    let authority = server.address.to_string();
    let grpc = ("GRPC".to_owned(), authority.clone());
    let default = card(&server).await;
    let modern = transports(&default["supportedInterfaces"]);
    assert!(
        modern.iter().all(|(_, url)| url.starts_with("http://")),
        "{modern:?}"
    );
    assert_eq!(modern.len(), 4);
    let has_grpc = cfg!(feature = "grpc");
    let older = transports(&default["additionalInterfaces"]);
    assert_eq!(older.contains(&grpc), has_grpc);
    let all = with_settings(|settings| settings.grpc_on_card = GrpcOnCard::All).await;
    let grpc = ("GRPC".to_owned(), all.address.to_string());
    let all = card(&all).await;
    let modern = transports(&all["supportedInterfaces"]);
    assert_eq!(
        modern.iter().filter(|one| **one == grpc).count(),
        if has_grpc { 2 } else { 0 }
    );
    let older = transports(&all["additionalInterfaces"]);
    assert_eq!(older.contains(&grpc), has_grpc);
}

#[cfg(feature = "grpc")]
#[tokio::test]
async fn the_scheme_of_grpc_urls_is_written_for_0_3_if_set() {
    let server = with_settings(|settings| {
        settings.grpc_scheme_on_card = true;
        settings.grpc_on_card = GrpcOnCard::All;
    })
    .await;
    let with_scheme = ("GRPC".to_owned(), format!("http://{}", server.address));
    let plain = ("GRPC".to_owned(), server.address.to_string());
    let card = card(&server).await;
    let older = transports(&card["additionalInterfaces"]);
    assert!(
        older.contains(&with_scheme) && !older.contains(&plain),
        "{older:?}"
    );
    assert!(transports(&card["supportedInterfaces"]).contains(&plain));
}

#[tokio::test]
async fn bindings_that_are_not_served_are_off_card_and_port() {
    let body = |format: crate::harness::WireFormat| {
        format.ask(
            "SendMessage",
            json!({"message": format.message("hi", json!({}))}),
        )
    };
    for (bindings, first) in [
        (vec![ServedBinding::Jsonrpc], "JSONRPC"),
        (vec![ServedBinding::Rest], "HTTP+JSON"),
        (
            vec![ServedBinding::Rest, ServedBinding::Jsonrpc],
            "HTTP+JSON",
        ),
    ] {
        let serves_jsonrpc = bindings.contains(&ServedBinding::Jsonrpc);
        let serves_rest = bindings.contains(&ServedBinding::Rest);
        let server = with_settings(|settings| settings.bindings = bindings).await;
        let card = card(&server).await;
        assert_eq!(card["supportedInterfaces"][0]["protocolBinding"], first);
        assert_eq!(card["preferredTransport"], first);
        for format in WIRE_FORMATS {
            let is_served = if format.is_rpc() {
                serves_jsonrpc
            } else {
                serves_rest
            };
            let status = server.ask(&body(format)).await.status;
            assert_eq!(status, if is_served { 200 } else { 404 }, "{format:?}");
        }
        assert_eq!(server.get("/healthz").await.status, 200);
    }
}

#[cfg(feature = "grpc")]
#[tokio::test]
async fn grpc_that_is_not_served_is_unimplemented() {
    use attache_proto::v1;
    let server = with_settings(|settings| settings.bindings = vec![ServedBinding::Jsonrpc]).await;
    let endpoint = format!("http://{}", server.address);
    let channel = tonic::transport::Endpoint::from_shared(endpoint).unwrap();
    let mut client = v1::a2a_service_client::A2aServiceClient::new(channel.connect_lazy());
    let get = client.get_task(v1::GetTaskRequest::default());
    let status = crate::harness::with_deadline(get).await.unwrap_err();
    assert_eq!(status.code(), tonic::Code::Unimplemented);
    assert_eq!(status.message(), "gRPC is not served");
    let only = with_settings(|settings| settings.bindings = vec![ServedBinding::Grpc]).await;
    let card = card(&only).await;
    let authority = only.address.to_string();
    assert_eq!(card["url"], json!(authority));
    let all = vec![("GRPC".to_owned(), authority); 2];
    assert_eq!(transports(&card["supportedInterfaces"]), all);
}

#[tokio::test]
async fn a_list_of_bindings_must_name_each_once() {
    for (bindings, reason) in [
        (vec![], "at least one of jsonrpc, rest and grpc"),
        (
            vec![ServedBinding::Rest, ServedBinding::Rest],
            "each binding once",
        ),
    ] {
        let mut settings = ServerSettings::default();
        settings.bindings = bindings;
        let server = Server::new(AgentCard::new("Echo", "Says it back"), Echo);
        let bound = server.server_settings(settings).bind("127.0.0.1:0").await;
        let error = bound.err().expect("refused").to_string();
        assert!(
            error.contains("bindings") && error.contains(reason),
            "{error}"
        );
    }
}

#[tokio::test]
async fn the_form_of_the_card_depends_on_its_path_or_agent() {
    let is_v1 = |card: &Value| card.get("supportedInterfaces").is_some();
    let is_v03 = |card: &Value| card.get("protocolVersion").is_some();
    let mut settings = ServerSettings::default();
    settings.card_form = CardForm::V1;
    settings.agent_json_form = Some(CardForm::V03);
    let beside = HostedAgent::new("beside", AgentCard::new("Beside", "Is beside"), Echo);
    let beside = beside.card_form(CardForm::V02);
    let server = start_with(Echo, |server| {
        server.server_settings(settings).agent(beside)
    })
    .await;
    let newer = card(&server).await;
    assert!(is_v1(&newer) && !is_v03(&newer), "{newer}");
    let older = server.get(OLD_CARD).await.json();
    assert!(!is_v1(&older) && is_v03(&older), "{older}");
    for path in [CARD, OLD_CARD] {
        let beside = server.get(&format!("/agents/beside{path}")).await.json();
        assert_eq!(beside["protocolVersion"], "0.2.5", "{path}");
    }
}

#[tokio::test]
async fn seed_1_13_a_card_may_need_a_credential() {
    let card = AgentCard::new("Secret", "Hides its card").skill(AgentSkill::new("s", "s", "s"));
    let secret = HostedAgent::new("secret", card, Echo).card_access(CardAccess::Authenticated);
    let public = Server::new(AgentCard::new("Public", "Shows its card"), Echo);
    let access = access().allow_anonymous();
    let server = run(public.agent(secret).access(access)).await;
    assert_eq!(server.get(CARD).await.status, 200);
    for path in [CARD, OLD_CARD] {
        let path = format!("/agents/secret{path}");
        let refused = server.get(&path).await;
        assert_eq!(refused.status, 401);
        assert!(refused.header("www-authenticate").is_some());
        assert!(!refused.body.contains("Secret"), "{refused:?}");
        let wrong = format!("GET {path} HTTP/1.1\r\nX-API-Key: wrong");
        assert_eq!(server.send(&wrong, b"").await.status, 401);
        let known = format!("GET {path} HTTP/1.1\r\nX-API-Key: {KEY}");
        let answer = server.send(&known, b"").await;
        assert_eq!(answer.json()["name"], "Secret");
        let cache = answer.header("cache-control").unwrap();
        assert!(cache.starts_with("private"), "{cache}");
    }
    let catalog = server.get("/.well-known/ai-catalog.json").await;
    assert!(!catalog.body.contains("Secret"), "{catalog:?}");
}

#[tokio::test]
async fn seed_1_13_a_protected_card_needs_authentication_to_be_configured() {
    let card = AgentCard::new("Secret", "Hides its card");
    let secret = HostedAgent::new("secret", card, Echo).card_access(CardAccess::Authenticated);
    let bound = Server::from_agent(secret).bind("127.0.0.1:0").await;
    let error = bound.err().expect("refused").to_string();
    assert!(
        error.contains("card_access") && error.contains("access"),
        "{error}"
    );
}

#[tokio::test]
async fn seed_4_26_a_message_without_text_is_refused_if_text_is_required() {
    let card = AgentCard::new("Text", "Needs text").input_modes(["*/*"]);
    let agent = HostedAgent::new("text", card, Echo).requires_text(true);
    let server = run(Server::from_agent(agent)).await;
    let data = |parts: Value| {
        let message = json!({"messageId": "m", "role": "ROLE_USER", "parts": parts});
        json!({"message": message})
    };
    for parts in [
        json!([{"data": {"a": 1}}]),
        json!([{"raw": "AQID", "mediaType": "image/png"}]),
        json!([{"text": ""}]),
    ] {
        let error = server.error("SendMessage", data(parts)).await;
        assert_eq!(error["code"], -32602);
        let text = error["message"].as_str().unwrap();
        assert!(
            text.contains("message.parts must contain a text part"),
            "{text}"
        );
    }
    let listed = server.result("ListTasks", json!({})).await;
    assert_eq!(listed["totalSize"], 0, "nothing is written");
    let both = json!([{"data": {"a": 1}}, {"text": "hi"}]);
    let sent = server.result("SendMessage", data(both)).await;
    assert_eq!(sent["task"]["status"]["state"], "TASK_STATE_COMPLETED");
}

/// Older clients send an empty object or list if they have no credentials.
#[tokio::test]
async fn push_configs_of_0_3_may_have_an_empty_authentication() {
    let server = start(Echo).await;
    let id = server.say("hi", json!({})).await["id"].clone();
    let set = |authentication: Value| {
        let config = json!({"url": "https://93.184.215.14/hook", "authentication": authentication});
        let params = json!({"taskId": id, "pushNotificationConfig": config});
        request("tasks/pushNotificationConfig/set", &params)
    };
    for empty in [
        json!({}),
        json!({"schemes": []}),
        json!({"schemes": [], "credentials": ""}),
    ] {
        let answer = server.post("/", &set(empty.clone())).await.json();
        let config = &answer["result"]["pushNotificationConfig"];
        assert_eq!(
            config["url"], "https://93.184.215.14/hook",
            "{empty}: {answer}"
        );
        assert_eq!(config.get("authentication"), None, "{empty}");
    }
    for wrong in [
        json!({"schemes": [], "credentials": "x"}),
        json!({"schemes": [""]}),
    ] {
        let answer = server.post("/", &set(wrong.clone())).await.json();
        assert_eq!(answer["error"]["code"], -32602, "{wrong}: {answer}");
    }
}
