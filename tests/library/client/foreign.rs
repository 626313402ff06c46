//! Interoperability with servers of the official SDKs: small echo agents in `tests/peers/servers`, over every binding and
//! version that each supports.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use attache::model::{
    Binding, CancelTaskRequest, ErrorKind, GetTaskRequest, ListTasksRequest, Message, Part,
    StreamResponse, TaskState, Version,
};
use attache::{Client, ClientSettings, InterfacePreference, TaskStream, Timeouts};

use crate::harness::with_deadline;

/// Server process. It ends when its standard input is closed, even if the test is killed.
struct SdkServer {
    url: String,
    child: Child,
}

impl SdkServer {
    fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // The servers log every request.
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|fault| {
                panic!("{}: {fault}; run tests/peers/setup", program.display())
            });
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line
            .trim()
            .strip_prefix("Listening on ")
            .expect("the server prints its URL; run it by hand to see why not")
            .to_owned();
        Self { url, child }
    }

    /// Returns a client that uses only this binding and version.
    async fn client(&self, binding: Binding, version: Version) -> Client {
        let interface = InterfacePreference {
            bindings: vec![binding],
            only_listed: true,
            version: Some(version),
            no_fallback: true,
        };
        // 0.3.26 neither reports a cancellation in the stream of the task nor closes it.
        let timeouts = Timeouts {
            idle: Duration::from_secs(3),
            ..Timeouts::default()
        };
        let settings = ClientSettings {
            interface,
            timeouts,
            ..ClientSettings::default()
        };
        let builder = Client::builder().settings(settings);
        let client = with_deadline(builder.discover(&self.url)).await.unwrap();
        assert_eq!(client.card().unwrap().name, "Echo");
        client
    }
}

impl Drop for SdkServer {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Returns the folder of the installed SDKs: `ATTACHE_PEERS`, else `target/peers`, installed on first use.
fn sdk_folder() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(folder) = std::env::var_os("ATTACHE_PEERS") {
            return folder.into();
        }
        let made = Command::new(peers_source().join("setup"))
            .stdout(Stdio::null())
            .status();
        assert!(
            made.is_ok_and(|status| status.success()),
            "the SDKs are not installed; run tests/peers/setup"
        );
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers")
    });
    &FOLDER
}

fn peers_source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

fn python(version: &str) -> SdkServer {
    let script = peers_source().join(format!("servers/sdk{version}.py"));
    let program = sdk_folder().join(format!("server{version}/bin/python"));
    SdkServer::start(&program, &[script.to_str().unwrap()])
}

fn is_quick() -> bool {
    std::env::var_os("ATTACHE_QUICK").is_some_and(|value| value == "1")
}

async fn follow_until(stream: &mut TaskStream, is_match: impl Fn(&StreamResponse) -> bool) {
    loop {
        let event = with_deadline(stream.next())
            .await
            .expect("more to come")
            .unwrap();
        if is_match(&event) {
            return;
        }
    }
}

/// Calls every operation, and reconnects to a stream that is cut.
async fn call_every_operation(client: &Client) {
    let answer = with_deadline(client.send(Message::user("hello")))
        .await
        .unwrap();
    assert_eq!(
        (answer.text().as_str(), answer.state()),
        ("hello", TaskState::Completed)
    );
    let done = answer.task().unwrap();

    let got = with_deadline(client.get_task(GetTaskRequest {
        id: done.id.clone(),
        ..Default::default()
    }))
    .await
    .unwrap();
    assert_eq!(
        (got.text().as_str(), got.status.state),
        ("hello", TaskState::Completed)
    );
    let ended = with_deadline(client.follow(done.id.clone(), None).finish())
        .await
        .unwrap();
    assert_eq!(ended.text(), "hello", "a task that has ended is read");
    let nobody = GetTaskRequest {
        id: "nobody".into(),
        ..Default::default()
    };
    assert_eq!(
        with_deadline(client.get_task(nobody))
            .await
            .unwrap_err()
            .kind(),
        ErrorKind::TaskNotFound
    );

    let interrupted = with_deadline(client.send(Message::user("ask")))
        .await
        .unwrap();
    assert_eq!(interrupted.state(), TaskState::InputRequired);
    let interrupted = interrupted.task().unwrap();
    let mut more = Message::user("more");
    more.task_id = Some(interrupted.id.clone());
    more.context_id = Some(interrupted.context_id.clone());
    assert_eq!(
        with_deadline(client.send(more)).await.unwrap().text(),
        "more"
    );

    let mut cut = with_deadline(client.stream(Message::user("drip")))
        .await
        .unwrap();
    follow_until(&mut cut, |event| {
        matches!(event, StreamResponse::ArtifactUpdate(_))
    })
    .await;
    let id = cut.task().unwrap().id.clone();
    drop(cut);
    let whole = with_deadline(client.follow(id, None).finish())
        .await
        .unwrap();
    let numbers: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    let text = whole.text();
    let mut chunks: Vec<_> = text.split_whitespace().collect();
    // 0.3.26 stores a chunk twice while a second subscriber is connected.
    chunks.dedup();
    assert_eq!(chunks, numbers);

    let mut slow = with_deadline(client.stream(Message::user("slow")))
        .await
        .unwrap();
    follow_until(&mut slow, |_| true).await;
    let id = slow.task().unwrap().id.clone();
    let canceled = with_deadline(client.cancel_task(CancelTaskRequest {
        id,
        ..Default::default()
    }))
    .await
    .unwrap();
    assert_eq!(canceled.status.state, TaskState::Canceled);
    assert_eq!(
        with_deadline(slow.finish()).await.unwrap().state(),
        TaskState::Canceled
    );

    match with_deadline(client.list_tasks(ListTasksRequest::default())).await {
        Ok(page) => assert!(page.tasks.iter().any(|task| task.id == done.id)),
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::UnsupportedOperation);
            assert_eq!(client.interface().protocol_version, Version::V03.as_str());
        }
    }
}

fn bindings() -> impl Iterator<Item = Binding> {
    Binding::ALL
        .into_iter()
        .filter(|binding| *binding != Binding::Grpc || cfg!(feature = "grpc"))
}

#[tokio::test]
async fn a2a_sdk_1_interoperates() {
    if is_quick() {
        return;
    }
    let server = python("10");
    for binding in bindings() {
        for version in Version::ALL {
            eprintln!("{binding} {version}");
            call_every_operation(&server.client(binding, version).await).await;
        }
    }
}

#[tokio::test]
async fn a2a_sdk_0_3_interoperates() {
    if is_quick() {
        return;
    }
    let server = python("03");
    for binding in bindings() {
        eprintln!("{binding}");
        let client = server.client(binding, Version::V03).await;
        call_every_operation(&client).await;
        echo_file(&client).await;
    }
}

/// Sends a file that is echoed in an artifact.
async fn echo_file(client: &Client) {
    let file = Part::file(b"\x00\xffbinary", "application/octet-stream").with_filename("f.bin");
    let message = Message::user("hello").part(file.clone());
    let answer = with_deadline(client.send(message)).await.unwrap();
    let artifacts = &answer.task().unwrap().artifacts;
    let echoed = artifacts
        .iter()
        .find(|one| one.name.as_deref() == Some("file"));
    assert_eq!(echoed.unwrap().parts[0].content, file.content);
}

#[tokio::test]
async fn a2a_js_1_interoperates() {
    if is_quick() {
        return;
    }
    let script = peers_source().join("servers/sdk10.mjs");
    let packages = sdk_folder().join("js");
    let server = SdkServer::start(
        Path::new("node"),
        &[script.to_str().unwrap(), packages.to_str().unwrap()],
    );
    for binding in bindings() {
        eprintln!("{binding}");
        call_every_operation(&server.client(binding, Version::V1).await).await;
    }
}
