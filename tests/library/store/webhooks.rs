//! Webhooks over sockets: deliveries across restarts, encryption at rest, SSRF refusals, signatures.

use std::path::Path;
use std::time::Duration;

use attache::auth::{Access, ApiKey, ApiKeys};
use attache::jws::{PublishedKeys, Signer};
use attache::model::{
    AuthenticationInfo, Binding, GetTaskRequest, ListPushConfigsRequest, Message, PushConfig,
    Secret, SendMessageConfiguration, SendMessageRequest, SendMessageResponse, TaskId, Version,
};
use attache::store::Sqlite;
use attache::store::sqlite::Options;
use attache::{
    AgentCard, Client, PushReceiver, PushReceiverSettings, PushSettings, PushSignatureVerifier,
    Server,
};
use bytes::Bytes;
use http_body_util::Full;
use tokio::net::TcpListener;

use crate::harness::webhook_endpoint::{Endpoint, FAILING, OK, ReceivedRequest};
use crate::harness::{Echo, Running, local_webhooks, start_with, with_deadline};

async fn serve(file: &Path) -> Running {
    let store = Sqlite::open(file, Options::default()).unwrap();
    start_with(Echo, |server| server.store(store).push(quick_retries())).await
}

/// Returns settings with short retry delays and no limit.
fn quick_retries() -> PushSettings {
    let mut settings = local_webhooks();
    settings.first_retries = vec![Duration::from_millis(5); 3];
    settings.retry_every = Duration::from_millis(20);
    settings
}

/// Sends a message with a webhook and returns the task id.
async fn send_with_webhook(server: &Running, url: &str, version: Version) -> String {
    let client = Client::new(
        &format!("http://{}", server.address),
        Binding::JsonRpc,
        version,
    )
    .unwrap();
    send_with_client(&client, url).await
}

async fn send_with_client(client: &Client, url: &str) -> String {
    let credentials = Some(Secret::from("canary-credentials"));
    let config = PushConfig {
        token: Some("canary-token".into()),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials,
        }),
        ..PushConfig::new(url)
    };
    let configuration = SendMessageConfiguration {
        task_push_notification_config: Some(config),
        ..Default::default()
    };
    let request = SendMessageRequest {
        configuration: Some(configuration),
        ..SendMessageRequest::new(Message::user("hello"))
    };
    match with_deadline(client.send_message(request)).await.unwrap() {
        SendMessageResponse::Task(task) => task.id.to_string(),
        SendMessageResponse::Message(message) => panic!("{message:?}"),
    }
}

fn has_ended(got: &[ReceivedRequest]) -> bool {
    got.iter().any(|one| {
        let state = [
            &one.body["statusUpdate"]["status"]["state"],
            &one.body["status"]["state"],
        ];
        one.answer == OK
            && state
                .iter()
                .any(|state| *state == "TASK_STATE_COMPLETED" || *state == "completed")
    })
}

#[tokio::test]
async fn r13_r28_a_restarted_server_delivers_pending_notifications() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    for version in Version::ALL {
        let webhook = Endpoint::start(FAILING).await;
        let mut server = serve(&file).await;
        let task = send_with_webhook(&server, &webhook.url, version).await;
        webhook.until(|got| got.len() > 5).await;
        server.stop().await;
        // A request that the server sent before it stopped would get the next response, and be delivered twice.
        webhook.until_disconnected().await;
        let before = webhook.until(|_| true).await;
        webhook.set_response(OK);
        let mut server = serve(&file).await;
        let got = webhook.until(has_ended).await;
        server.stop().await;
        let accepted: Vec<_> = got.iter().filter(|one| one.answer == OK).collect();
        let positions: Vec<u64> = accepted
            .iter()
            .map(|one| one.header("a2a-event-sequence").parse().unwrap())
            .collect();
        assert!(
            positions.is_sorted_by(|one, other| one < other),
            "{positions:?}"
        );
        assert_eq!(
            accepted[0].header("a2a-event-id"),
            before[0].header("a2a-event-id"),
            "no notification was skipped"
        );
        assert_eq!(accepted[0].header("a2a-version"), version.as_str());
        assert_eq!(
            accepted[0].header("authorization"),
            "Bearer canary-credentials"
        );
        assert!(
            accepted
                .iter()
                .all(|one| one.body.to_string().contains(&task))
        );
    }
}

#[tokio::test]
async fn s38_webhook_credentials_are_encrypted_in_the_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("tasks.db");
    let webhook = Endpoint::start(OK).await;
    let mut server = serve(&file).await;
    send_with_webhook(
        &server,
        &format!("{}/canary-path", webhook.url),
        Version::V1,
    )
    .await;
    webhook.until(has_ended).await;
    server.stop().await;
    let mut files = 0;
    for entry in std::fs::read_dir(folder.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(7).any(|seven| seven == b"canary-"));
        files += 1;
    }
    assert!(files >= 2);
}

#[tokio::test]
async fn agent_cards_declare_push_notifications() {
    let server = start_with(Echo, |server| server).await;
    let card = server.get("/.well-known/agent-card.json").await.json();
    assert_eq!(card["capabilities"]["pushNotifications"], true);
}

/// S15, S24: refused at registration, with the same message for every address.
#[tokio::test]
async fn s15_s24_a_private_webhook_is_refused_over_the_wire() {
    let server = start_with(Echo, |server| server).await;
    let task = server.say("hi", serde_json::json!({})).await["id"].clone();
    for url in [
        "http://127.0.0.1:9/",
        "https://169.254.169.254/",
        "https://localhost/",
        "https://no.such.invalid/",
    ] {
        let params = serde_json::json!({"taskId": task, "url": url});
        let error = server
            .error("CreateTaskPushNotificationConfig", params)
            .await;
        assert_eq!(error["code"], -32602, "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains("url") && message.contains("must lead to a public address"),
            "{message}"
        );
    }
}

const FAILING_WITH_CONTENT: &str = "HTTP/1.1 500 hunter2\r\nContent-Length: 7\r\n\r\nhunter2";

/// S24: a caller cannot use webhooks to probe addresses. Status, content and timing of the response are not visible.
#[tokio::test]
async fn s24_webhook_responses_are_not_visible_to_the_caller() {
    let server = start_with(Echo, |server| server.push(quick_retries())).await;
    let ok = Endpoint::start(OK).await;
    let failing = Endpoint::start(FAILING_WITH_CONTENT).await;
    let closed = TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let urls = [
        ok.url.clone(),
        failing.url.clone(),
        format!("http://{closed}/hook"),
    ];
    for binding in Binding::ALL {
        for version in Version::ALL {
            let client =
                Client::new(&format!("http://{}", server.address), binding, version).unwrap();
            let mut visible = Vec::new();
            for url in &urls {
                let id: TaskId = send_with_webhook(&server, url, Version::V1).await.into();
                let before = failing.count();
                if *url == failing.url {
                    // A repeated call means that its first responses were read.
                    failing.until(|got| got.len() > before + 2).await;
                }
                let list = ListPushConfigsRequest {
                    task_id: id.clone(),
                    ..Default::default()
                };
                let configs = with_deadline(client.list_push_configs(list)).await.unwrap();
                let task = with_deadline(client.get_task(GetTaskRequest {
                    id: id.clone(),
                    ..Default::default()
                }))
                .await;
                let mut task = task.unwrap();
                task.status.timestamp = None;
                let text = format!("{configs:?} {:?} {:?}", task.status, task.metadata);
                let own = configs.configs[0].id.clone().unwrap();
                let same = text
                    .replace(url.as_str(), "URL")
                    .replace(id.as_str(), "ID")
                    .replace(own.as_str(), "OWN");
                visible.push(same);
            }
            assert!(!visible[0].contains("hunter2"), "{}", visible[0]);
            assert!(
                visible.iter().all(|one| *one == visible[0]),
                "{binding} {version}: {visible:#?}"
            );
        }
    }
}

/// Rebuilds a received request with another body and changed headers.
fn replay(
    got: &ReceivedRequest,
    body: &str,
    change: impl FnOnce(&mut http::HeaderMap),
) -> http::Request<Full<Bytes>> {
    let mut request = http::Request::post("/hook")
        .body(Full::from(body.to_owned()))
        .unwrap();
    for name in ["a2a-notification-jwt", "authorization", "a2a-event-id"] {
        request
            .headers_mut()
            .insert(name, got.header(name).parse().unwrap());
    }
    change(request.headers_mut());
    request
}

/// S73, S74: a signed notification is accepted once. A replay, another body, audience or sender is not.
#[tokio::test]
async fn s73_s74_a_signed_notification_is_accepted_once_and_unchanged() {
    let signer = || {
        Signer::from_pem_with_thumbprint(&rcgen::KeyPair::generate().unwrap().serialize_pem())
            .unwrap()
    };
    let own = signer();
    let server = start_with(Echo, |server| {
        server.push(local_webhooks()).sign_notifications(own)
    })
    .await;
    let stranger = start_with(Echo, |server| server.sign_notifications(signer())).await;
    let webhook = Endpoint::start(OK).await;
    let task = server.say("hi", serde_json::json!({})).await["id"].clone();
    let config = serde_json::json!({"url": webhook.url});
    let params = serde_json::json!({"message": crate::harness::message("hi", serde_json::json!({})),
        "configuration": {"taskPushNotificationConfig": config}});
    let other = server.result("SendMessage", params).await["task"]["id"].clone();
    assert_ne!(task, other);
    let got = webhook.until(has_ended).await;
    let first = &got[0];
    let second = &got[1];
    assert_eq!(
        first.header("authorization"),
        format!("Bearer {}", first.header("a2a-notification-jwt"))
    );
    let issuer = format!("http://{}", server.address);
    let verifier = |from: &Running| {
        let keys =
            PublishedKeys::from_url(&format!("http://{}/.well-known/jwks.json", from.address))
                .unwrap();
        PushSignatureVerifier::new(keys)
    };
    let receiver = |check| {
        let (receiver, accepted) = PushReceiver::new(PushReceiverSettings::default());
        (receiver.with_verifier(check), accepted)
    };
    let post = async |receiver: &PushReceiver, request| {
        with_deadline(receiver.handle(request))
            .await
            .status()
            .as_u16()
    };
    let same = |got: &ReceivedRequest| replay(got, &got.raw, |_| {});
    let (ours, mut accepted) = receiver(verifier(&server).issuer(&issuer).audience(&webhook.url));
    let altered = first
        .raw
        .replace(other.as_str().unwrap(), task.as_str().unwrap());
    for request in [
        replay(first, &altered, |_| {}),
        replay(first, &second.raw, |_| {}),
        replay(first, &format!("{} ", first.raw), |_| {}),
        replay(first, &first.raw, |headers| headers.clear()),
        replay(first, &first.raw, |headers| {
            drop(headers.insert("a2a-notification-jwt", "a.b.c".parse().unwrap()))
        }),
    ] {
        assert_eq!(post(&ours, request).await, 401);
    }
    assert_eq!(post(&ours, same(first)).await, 200);
    // A replay is dropped, also under another event id.
    assert_eq!(post(&ours, same(first)).await, 200);
    let renamed = replay(first, &first.raw, |headers| {
        drop(headers.insert("a2a-event-id", "new".parse().unwrap()))
    });
    assert_eq!(post(&ours, renamed).await, 200);
    // Other senders put the token into `Authorization` only.
    let plain = replay(second, &second.raw, |headers| {
        drop(headers.remove("a2a-notification-jwt"))
    });
    assert_eq!(post(&ours, plain).await, 200);
    let ids: Vec<_> = [
        with_deadline(accepted.next()).await,
        with_deadline(accepted.next()).await,
    ]
    .map(|one| one.unwrap().id.unwrap())
    .to_vec();
    assert_eq!(
        ids,
        [first.header("a2a-event-id"), second.header("a2a-event-id")],
        "no other notification is delivered"
    );
    for check in [
        verifier(&server).audience("http://127.0.0.1:9/other"),
        verifier(&server).issuer("http://elsewhere.example"),
        verifier(&stranger),
    ] {
        assert_eq!(post(&receiver(check).0, same(first)).await, 401);
    }
    drop(ours);
    assert!(with_deadline(accepted.next()).await.is_none());
}

/// Webhooks end with the last key of their caller. A rotation and an expired key end none.
#[tokio::test]
async fn d18_r48_a_webhook_ends_with_the_last_key_of_its_caller() {
    let (secret, mut key) = ApiKey::generate("ann");
    let (_, new_key) = ApiKey::generate("ann");
    let keys = ApiKeys::new();
    keys.replace([&key]);
    let server = Server::new(AgentCard::new("Echo", "Says it back"), Echo)
        .push(quick_retries())
        .access(Access::new(keys.clone()));
    let server = with_deadline(server.serve_in_process()).await.unwrap();
    let client = server.client(Binding::JsonRpc, Version::V1).unwrap();
    let client = client.with_bearer(&secret).unwrap();
    let webhook = Endpoint::start(FAILING).await;
    send_with_client(&client, &webhook.url).await;
    webhook.until(|got| got.len() > 1).await;
    key.expires_ms = Some(key.created_ms);
    for valid in [&[&key][..], &[&key, &new_key], &[&new_key]] {
        keys.replace(valid.iter().copied());
        let before = webhook.until(|_| true).await.len();
        webhook.until(|got| got.len() > before + 1).await;
    }
    keys.replace([]);
    let failed = async {
        loop {
            let page = server
                .dead_letters()
                .failed_webhooks(None, 10)
                .await
                .unwrap();
            if let Some(letter) = page.into_iter().next() {
                return letter;
            }
            tokio::task::yield_now().await;
        }
    };
    let letter = with_deadline(failed).await;
    assert!(letter.reason.contains("revoked"), "{letter:?}");
}
