//! The HTTP agent, with well-behaved and misbehaving backends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache_agents::{HttpAgent, HttpSettings, RequestBody};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::harness::{TestServer, artifact, start, state, status_text, with_deadline};

/// Backend that sends the next prepared response to every request, and then closes the connection.
pub(crate) struct Backend {
    pub(crate) url: String,
    pub(crate) asked: Arc<AtomicUsize>,
    pub(crate) requests: Arc<std::sync::Mutex<Vec<String>>>,
    _server: JoinSet<()>,
}

pub(crate) async fn backend(answers: &'static [&'static str]) -> Backend {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/chat", listener.local_addr().unwrap());
    let asked = Arc::new(AtomicUsize::new(0));
    let requests: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let mut server = JoinSet::new();
    let count = asked.clone();
    let log = requests.clone();
    server.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let request = request(&mut stream).await;
            log.lock().unwrap().push(request);
            let answer = answers[count.fetch_add(1, Ordering::SeqCst).min(answers.len() - 1)];
            if answer == "hang" {
                std::future::pending::<()>().await;
            }
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    Backend {
        url,
        asked,
        requests,
        _server: server,
    }
}

/// Reads the head and the body of one request.
pub(crate) async fn request(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    loop {
        let read = stream.read(&mut buffer).await.unwrap();
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let length = text
            .to_lowercase()
            .split("content-length: ")
            .nth(1)
            .and_then(|rest| rest.lines().next()?.parse().ok());
        if text
            .split_once("\r\n\r\n")
            .is_some_and(|(_, body)| body.len() >= length.unwrap_or(0))
            || read == 0
        {
            return text;
        }
    }
}

async fn agent(backend: &Backend, settings: HttpSettings) -> TestServer {
    start(
        HttpAgent::new(HttpSettings {
            url: backend.url.clone(),
            ..settings
        })
        .unwrap(),
    )
    .await
}

fn answer(task: &Value) -> &str {
    artifact(task, "answer")[0]["text"].as_str().unwrap()
}

#[tokio::test]
async fn every_response_format_becomes_an_artifact() {
    let at = |place: &str| HttpSettings {
        text_at: Some(place.to_owned()),
        ..HttpSettings::default()
    };
    for (reply, settings, parts) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nhello é",
            HttpSettings::default(),
            json!([{"text": "hello é"}]),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"n\": 1}",
            HttpSettings::default(),
            json!([{"data": {"n": 1}}]),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n\"hi\"",
            HttpSettings::default(),
            json!([{"text": "hi"}]),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"a\": [{\"b\": \"hi\"}]}",
            at("/a/0/b"),
            json!([{"text": "hi"}]),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: {\"d\":\"one \"}\n\ndata: {}\n\ndata: {\"d\":\"two\"}\n\ndata: [DONE]\n\n",
            at("/d"),
            json!([{"text": "one two"}]),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: application/x-ndjson\r\nConnection: close\r\n\r\n\"one \"\n\"two\"",
            HttpSettings::default(),
            json!([{"text": "one two"}]),
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: image/png\r\nConnection: close\r\n\r\nhi",
            HttpSettings::default(),
            json!([{"raw": "aGk=", "mediaType": "image/png"}]),
        ),
    ] {
        let backend = backend(Box::leak(Box::new([reply]))).await;
        let task = agent(&backend, settings).await.send_text("hello").await;
        assert_eq!(
            (state(&task), artifact(&task, "answer")),
            ("COMPLETED", &parts),
            "{reply}"
        );
    }
}

const FINE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nfine";

#[tokio::test]
async fn a_request_has_message_ids_and_headers() {
    let backend = backend(&[FINE]).await;
    let headers = [("Authorization".to_owned(), "Bearer hunter2".into())].into();
    let running = agent(
        &backend,
        HttpSettings {
            headers,
            forward_caller: true,
            ..HttpSettings::default()
        },
    )
    .await;
    let task = running.send_text("hello").await;
    let request = backend.requests.lock().unwrap()[0].to_lowercase();
    let id = task["id"].as_str().unwrap();
    for line in [
        "post /chat http/1.1".to_owned(),
        "authorization: bearer hunter2".to_owned(),
        "attache-caller: anonymous".to_owned(),
        format!("attache-task-id: {id}"),
        format!("idempotency-key: {id}:m"),
    ] {
        assert!(
            request.lines().any(|found| found == line),
            "{line}: {request}"
        );
    }
    let body: Value = serde_json::from_str(request.split_once("\r\n\r\n").unwrap().1).unwrap();
    assert_eq!(
        (&body["text"], &body["taskid"]),
        (&json!("hello"), &json!(id))
    );
    let running = agent(
        &backend,
        HttpSettings {
            body: RequestBody::Text,
            ..HttpSettings::default()
        },
    )
    .await;
    running.send_text("hello").await;
    let request = backend.requests.lock().unwrap()[1].clone();
    assert!(
        request.ends_with("\r\n\r\nhello") && !request.contains("attache-caller"),
        "{request}"
    );
}

#[tokio::test]
async fn r35_a_broken_response_fails_the_task_and_keeps_its_beginning() {
    for (reply, why) in [
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf",
            "broke off",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: half\n\ndata: x",
            "broke off",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\ndata: half\n\nevent: error\ndata: x\n\n",
            "reported an error",
        ),
    ] {
        let backend = backend(Box::leak(Box::new([reply]))).await;
        let task = agent(&backend, HttpSettings::default())
            .await
            .send_text("hello")
            .await;
        assert!(
            state(&task) == "FAILED" && status_text(&task).contains(why),
            "{reply}: {task}"
        );
        assert_eq!(answer(&task), "half");
        assert_eq!(
            backend.asked.load(Ordering::SeqCst),
            1,
            "it may have arrived: not sent again"
        );
    }
}

#[tokio::test]
async fn a_request_is_retried_only_if_that_is_safe() {
    const BUSY: &str =
        "HTTP/1.1 503 Busy\r\nRetry-After: 0\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let plain = backend(&[BUSY, FINE]).await;
    let task = agent(&plain, HttpSettings::default())
        .await
        .send_text("hello")
        .await;
    assert_eq!(
        (state(&task), status_text(&task)),
        (
            "FAILED",
            "the backend is not available: 503 Service Unavailable"
        )
    );
    let safe = backend(&[BUSY, BUSY, FINE]).await;
    let task = agent(
        &safe,
        HttpSettings {
            idempotent: true,
            ..HttpSettings::default()
        },
    )
    .await
    .send_text("hello")
    .await;
    assert_eq!((state(&task), answer(&task)), ("COMPLETED", "fine"));
    let keys = safe.requests.lock().unwrap();
    let key = |request: &String| {
        request
            .lines()
            .find(|line| line.starts_with("idempotency-key"))
            .unwrap()
            .to_owned()
    };
    assert!(
        keys.len() == 3 && keys.iter().all(|request| key(request) == key(&keys[0])),
        "{keys:?}"
    );
}

#[tokio::test]
async fn r35_a_slow_or_missing_backend_fails_the_task() {
    let slow = backend(&["hang"]).await;
    let settings = HttpSettings {
        timeout: Duration::from_millis(100),
        ..HttpSettings::default()
    };
    let task = agent(&slow, settings).await.send_text("hello").await;
    assert_eq!(
        (state(&task), status_text(&task)),
        ("FAILED", "the backend took longer than 100ms")
    );
    let gone = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", gone.local_addr().unwrap());
    drop(gone);
    let agent = start(
        HttpAgent::new(HttpSettings {
            url,
            ..HttpSettings::default()
        })
        .unwrap(),
    )
    .await;
    assert_eq!(state(&agent.send_text("hello").await), "FAILED");
    let waits = backend(&["hang"]).await;
    let agent = self::agent(&waits, HttpSettings::default()).await;
    let task = agent.send_without_waiting("hello").await;
    assert_eq!(state(&with_deadline(agent.cancel(&task)).await), "CANCELED");
}

#[tokio::test]
async fn statuses_and_sizes_map_to_outcomes() {
    for (reply, end, why) in [
        (
            "HTTP/1.1 422 No\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret",
            "REJECTED",
            "the backend refuses: 422",
        ),
        (
            "HTTP/1.1 500 No\r\nContent-Length: 6\r\nConnection: close\r\n\r\nsecret",
            "FAILED",
            "the backend failed: 500",
        ),
        (
            "HTTP/1.1 302 No\r\nLocation: http://10.0.0.1/\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            "FAILED",
            "the backend failed: 302",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 11\r\nConnection: close\r\n\r\n01234567890",
            "FAILED",
            "larger than 10 bytes",
        ),
        (
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 1\r\nConnection: close\r\n\r\n{",
            "FAILED",
            "not JSON",
        ),
    ] {
        let backend = backend(Box::leak(Box::new([reply]))).await;
        let task = agent(
            &backend,
            HttpSettings {
                max_output: 10,
                ..HttpSettings::default()
            },
        )
        .await
        .send_text("hello")
        .await;
        assert!(
            state(&task) == end && status_text(&task).contains(why),
            "{reply}: {task}"
        );
        assert!(!task.to_string().contains("secret"), "{task}");
    }
}

#[test]
fn s38_invalid_settings_are_refused() {
    let wrong = |url: &str, headers: &[(&str, &str)]| {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into()))
            .collect();
        HttpAgent::new(HttpSettings {
            url: url.to_owned(),
            headers,
            ..HttpSettings::default()
        })
        .unwrap_err()
    };
    for url in ["", "localhost:1", "ftp://x/", "/x", "http://me:hunter2@x/"] {
        let wrong = wrong(url, &[]);
        assert!(
            wrong.key == "url" && !wrong.to_string().contains("hunter2"),
            "{url}: {wrong}"
        );
    }
    let wrong = wrong("http://x/", &[("X-Token", "hunter2\n")]);
    assert!(
        wrong.key == "headers" && !wrong.to_string().contains("hunter2"),
        "{wrong}"
    );
}

#[tokio::test]
async fn r35_each_backend_has_its_own_circuit_breaker() {
    let down =
        backend(&["HTTP/1.1 503 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"]).await;
    let up =
        backend(&["HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nhere"])
            .await;
    let settings = || HttpSettings {
        breaker_failures: 2,
        breaker_pause: Duration::from_secs(3600),
        ..HttpSettings::default()
    };
    let failing = agent(&down, settings()).await;
    let healthy = agent(&up, settings()).await;
    for _ in 0..2 {
        assert_eq!(
            status_text(&failing.send_text("hello").await),
            "the backend is not available: 503 Service Unavailable"
        );
    }
    let left = failing.send_text("hello").await;
    assert_eq!(
        status_text(&left),
        "the backend is not available: too many consecutive failures, try again later"
    );
    assert_eq!(down.asked.load(Ordering::SeqCst), 2);
    assert_eq!(answer(&healthy.send_text("hello").await), "here");
}

/// Runs 50 turns concurrently, with a backend that answers, breaks off or never answers: every task ends in the expected
/// state, and no connection is left.
#[tokio::test]
async fn r35_fifty_turns_with_a_misbehaving_backend_end_as_expected() {
    const HALF: &str =
        "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf";
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let open = Arc::new(AtomicUsize::new(0));
    let counted = open.clone();
    let mut server = JoinSet::new();
    server.spawn(async move {
        let mut visits = JoinSet::new();
        while let Ok((mut stream, _)) = listener.accept().await {
            let open = counted.clone();
            open.fetch_add(1, Ordering::SeqCst);
            visits.spawn(async move {
                let asked = request(&mut stream).await;
                match asked {
                    _ if asked.contains("fine") => stream.write_all(FINE.as_bytes()).await.unwrap(),
                    _ if asked.contains("half") => stream.write_all(HALF.as_bytes()).await.unwrap(),
                    // Until the client disconnects.
                    _ => assert_eq!(stream.read(&mut [0; 16]).await.unwrap_or(0), 0),
                }
                drop(stream);
                open.fetch_sub(1, Ordering::SeqCst);
            });
        }
    });
    let settings = HttpSettings {
        url,
        timeout: Duration::from_secs(1),
        breaker_failures: 0,
        ..HttpSettings::default()
    };
    let agent = start(HttpAgent::new(settings).unwrap()).await;
    let kinds = [
        ("fine", "COMPLETED"),
        ("half", "FAILED"),
        ("silence", "FAILED"),
    ];
    let mut tasks = Vec::new();
    for number in 0..50 {
        tasks.push(
            agent
                .send_without_waiting(kinds[number % kinds.len()].0)
                .await,
        );
    }
    for (number, task) in tasks.iter().enumerate() {
        let task = agent
            .poll_until(task, |task| !matches!(state(task), "SUBMITTED" | "WORKING"))
            .await;
        let (kind, end) = kinds[number % kinds.len()];
        assert_eq!(state(&task), end, "{kind}: {task}");
        assert!(kind != "half" || answer(&task) == "half", "{task}");
    }
    with_deadline(async {
        while open.load(Ordering::SeqCst) > 0 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
