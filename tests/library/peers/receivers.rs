//! Compatibility with official webhook receivers and card verifiers.

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use attache::jws::Signer;
use attache::model::{
    AgentSkill, Binding, Message, PushConfig, SendMessageConfiguration, SendMessageRequest, Version,
};
use attache::{AgentCard, Client, Server};
use serde_json::{Value, json};

use super::{folder, is_quick_run, repository};
use crate::harness::{Echo, local_webhooks, run, with_deadline};

/// Time limit for a line of output.
const DEADLINE: Duration = Duration::from_secs(30);

/// Receiver program; killed when the test ends.
struct Program {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Program {
    fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (send, lines) = sync_channel(64);
        thread::spawn(move || {
            stdout
                .lines()
                .map_while(Result::ok)
                .try_for_each(|line| send.send(line))
        });
        Self { child, lines }
    }

    fn next(&self) -> Value {
        let line = self
            .lines
            .recv_timeout(DEADLINE)
            .expect("a line within the deadline");
        serde_json::from_str(&line).unwrap_or_else(|fault| panic!("{fault}: {line}"))
    }
}

fn program(name: &str, args: &[&str]) -> Program {
    let here = repository().join("tests/peers/receivers");
    let mut command = match name {
        "js" => {
            let mut node = Command::new("node");
            node.arg(here.join("receiver.mjs")).arg(folder().join("js"));
            node
        }
        python => {
            let mut command = Command::new(folder().join(python).join("bin/python"));
            command
                .arg(here.join("receiver.py"))
                .env("PYTHONDONTWRITEBYTECODE", "1");
            command
        }
    };
    Program::start(command.args(args))
}

fn skill() -> AgentSkill {
    AgentSkill {
        tags: vec!["say".to_owned()],
        ..AgentSkill::new("e", "Echo", "Echoes")
    }
}

/// S44: SDKs with signature support verify the card in both forms.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s44_s74_official_sdks_verify_cards_and_accept_notifications() {
    if is_quick_run() {
        return;
    }
    let signer = || {
        Signer::from_pem_with_thumbprint(&rcgen::KeyPair::generate().unwrap().serialize_pem())
            .unwrap()
    };
    let card = AgentCard::new("Écho", "Says it back: «ça va»").skill(skill());
    let server = Server::new(card, Echo)
        .push(local_webhooks())
        .public_url("https://agents.example.com/a")
        .allow_anonymous()
        .sign_cards(signer())
        .sign_cards(signer())
        .sign_notifications(signer());
    let server = run(server).await;
    let at = |path: &str| format!("http://{}{path}", server.address);
    let keys = at("/.well-known/jwks.json");
    let card = at("/.well-known/agent-card.json");
    for (name, version, args) in [
        ("v10", Version::V1, vec![&*keys, &card]),
        ("js", Version::V1, vec![&keys, &card]),
        // 0.3 defines no canonical form of a card, so its clients cannot verify signatures.
        ("v03", Version::V03, vec![&keys]),
    ] {
        let receiver = program(name, &args);
        if args.len() > 1 {
            assert_eq!(receiver.next(), json!({"card": "Écho"}), "{name}");
        }
        let hook = receiver.next()["listening"].as_str().unwrap().to_owned();
        let client = Client::new(&at("/"), Binding::JsonRpc, version).unwrap();
        let configuration = SendMessageConfiguration {
            task_push_notification_config: Some(PushConfig::new(hook)),
            ..Default::default()
        };
        let request = SendMessageRequest {
            configuration: Some(configuration),
            ..SendMessageRequest::new(Message::user("hi"))
        };
        let answer = with_deadline(client.send_message(request)).await.unwrap();
        let attache::model::SendMessageResponse::Task(task) = answer else {
            panic!("{name}: {answer:?}")
        };
        loop {
            let told = receiver.next();
            assert_eq!(told["task"], task.id.as_str(), "{name}: {told}");
            if told["state"] == "TASK_STATE_COMPLETED" || told["state"] == "completed" {
                break;
            }
        }
    }
}
