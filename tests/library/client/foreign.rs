//! Other people's servers: small echo agents of the official SDKs in `tests/peers/servers`, on every binding and
//! version that each has.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::time::Duration;

use attache::model::{
    Binding, CancelTaskRequest, ErrorKind, GetTaskRequest, ListTasksRequest, Message,
    StreamResponse, TaskState, Version,
};
use attache::{Client, ClientSettings, InterfacePreference, TaskStream, Timeouts};

use crate::harness::with_deadline;

/// A server that ends when its input does, however we end.
struct Foreign {
    url: String,
    child: Child,
}

impl Foreign {
    fn start(program: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(program)
            .args(arguments)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            // They tell at length of everything that a client does to them.
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
            .expect("the server says where it is; run it by hand to see why not")
            .to_owned();
        Self { url, child }
    }

    /// Our only way to talk there.
    async fn client(&self, binding: Binding, version: Version) -> Client {
        let interface = InterfacePreference {
            bindings: vec![binding],
            only_listed: true,
            version: Some(version),
            no_fallback: true,
        };
        // 0.3.26 does not tell a stream that its task was canceled from elsewhere, and leaves it open.
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

impl Drop for Foreign {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Where the peers live; whoever says where has put them there, and else it is done here, once.
fn peers() -> &'static Path {
    static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
        if let Some(folder) = std::env::var_os("ATTACHE_PEERS") {
            return folder.into();
        }
        let made = Command::new(here().join("setup"))
            .stdout(Stdio::null())
            .status();
        assert!(
            made.is_ok_and(|status| status.success()),
            "the peers are not there; run tests/peers/setup"
        );
        Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers")
    });
    &FOLDER
}

fn here() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/peers")
}

fn python(version: &str) -> Foreign {
    let script = here().join(format!("servers/sdk{version}.py"));
    let program = peers().join(format!("server{version}/bin/python"));
    Foreign::start(&program, &[script.to_str().unwrap()])
}

fn is_quick() -> bool {
    std::env::var_os("ATTACHE_QUICK").is_some_and(|value| value == "1")
}

async fn until(followed: &mut TaskStream, is_it: impl Fn(&StreamResponse) -> bool) {
    loop {
        let event = with_deadline(followed.next())
            .await
            .expect("more to come")
            .unwrap();
        if is_it(&event) {
            return;
        }
    }
}

/// Every operation, and a stream that is cut in the middle.
async fn all_of_it(client: &Client) {
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

    let asked = with_deadline(client.send(Message::user("ask")))
        .await
        .unwrap();
    assert_eq!(asked.state(), TaskState::InputRequired);
    let asked = asked.task().unwrap();
    let mut more = Message::user("more");
    (more.task_id, more.context_id) = (Some(asked.id.clone()), Some(asked.context_id.clone()));
    assert_eq!(
        with_deadline(client.send(more)).await.unwrap().text(),
        "more"
    );

    let mut cut = with_deadline(client.stream(Message::user("drip")))
        .await
        .unwrap();
    until(&mut cut, |event| {
        matches!(event, StreamResponse::ArtifactUpdate(_))
    })
    .await;
    let id = cut.task().unwrap().id.clone();
    drop(cut);
    let whole = with_deadline(client.follow(id, None).finish())
        .await
        .unwrap();
    let numbers: Vec<_> = (0..20).map(|n| n.to_string()).collect();
    let told = whole.text();
    let mut told: Vec<_> = told.split_whitespace().collect();
    // 0.3.26 keeps a chunk twice while somebody has subscribed again, and its own task is what it tells.
    told.dedup();
    assert_eq!(told, numbers);

    let mut slow = with_deadline(client.stream(Message::user("slow")))
        .await
        .unwrap();
    until(&mut slow, |_| true).await;
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
async fn a2a_sdk_1_is_understood() {
    if is_quick() {
        return;
    }
    let server = python("10");
    for binding in bindings() {
        for version in Version::ALL {
            eprintln!("{binding} {version}");
            all_of_it(&server.client(binding, version).await).await;
        }
    }
}

#[tokio::test]
async fn a2a_sdk_0_3_is_understood() {
    if is_quick() {
        return;
    }
    let server = python("03");
    for binding in bindings() {
        eprintln!("{binding}");
        all_of_it(&server.client(binding, Version::V03).await).await;
    }
}

#[tokio::test]
async fn a2a_js_1_is_understood() {
    if is_quick() {
        return;
    }
    let (script, packages) = (here().join("servers/sdk10.mjs"), peers().join("js"));
    let server = Foreign::start(
        Path::new("node"),
        &[script.to_str().unwrap(), packages.to_str().unwrap()],
    );
    for binding in bindings() {
        eprintln!("{binding}");
        all_of_it(&server.client(binding, Version::V1).await).await;
    }
}
