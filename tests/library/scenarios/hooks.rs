//! Server hooks: order, phases, decisions and failures, and masked text that reaches no reader.

mod decisions;
mod failures;
#[cfg(feature = "sqlite")]
mod masking;
mod reload;

use std::sync::{Arc, Mutex};

use attache::model::{
    CancelTaskRequest, ErrorKind, Message, Part, Request, Response, SendMessageResponse,
    StreamResponse, Task, TaskState,
};
use attache::{
    Agent, Client, Failure, Hook, HookContext, HookError, HookPhase, Interceptor, Outcome, Server,
    Turn, async_trait,
};

use super::{TextCommandAgent, cancel, history_texts, message, send_text};
use crate::harness::everywhere::{card, everywhere_on};

/// Behaviour of a test hook.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Behaviour {
    Allow,
    /// Replaces `secret` by `***`.
    Change,
    Deny,
    /// Never decides.
    Hang,
    Panic,
    Fail,
}

/// Hook that records its runs.
#[derive(Clone)]
struct TestHook {
    name: &'static str,
    behaviour: Behaviour,
    seen: Arc<Mutex<Vec<String>>>,
}

impl TestHook {
    fn new(name: &'static str, behaviour: Behaviour) -> Self {
        Self {
            name,
            behaviour,
            seen: Arc::default(),
        }
    }

    fn hook(&self) -> Hook {
        Hook::new(self.name, self.clone())
    }

    fn seen(&self) -> Vec<String> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    fn record(&self, phase: HookPhase, what: &str) {
        let line = format!("{} {} {what}", self.name, phase.as_str());
        self.seen.lock().unwrap().push(line);
    }

    /// Applies the behaviour to all text parts.
    async fn decide(&self, parts: Vec<&mut Part>) -> Result<(), HookError> {
        match self.behaviour {
            Behaviour::Allow => Ok(()),
            Behaviour::Change => {
                parts.into_iter().for_each(mask);
                Ok(())
            }
            Behaviour::Deny => Err(HookError::deny("the policy forbids it")),
            Behaviour::Hang => std::future::pending().await,
            Behaviour::Panic => panic!("hunter2"),
            Behaviour::Fail => Err("hunter2".into()),
        }
    }
}

fn mask(part: &mut Part) {
    if let Some(text) = part.as_text() {
        *part = Part::text(text.replace("secret", "***"));
    }
}

fn event_parts(event: &mut StreamResponse) -> Vec<&mut Part> {
    match event {
        StreamResponse::Task(_) => Vec::new(),
        StreamResponse::Message(message) => message.parts.iter_mut().collect(),
        StreamResponse::StatusUpdate(update) => {
            let message = update.status.message.as_mut().map(Arc::make_mut);
            let parts = message.map(|message| message.parts.iter_mut());
            parts.into_iter().flatten().collect()
        }
        StreamResponse::ArtifactUpdate(update) => update.artifact.parts.iter_mut().collect(),
    }
}

fn task_parts(task: &mut Task) -> Vec<&mut Part> {
    let artifacts = task.artifacts.iter_mut();
    artifacts.flat_map(|artifact| &mut artifact.parts).collect()
}

#[async_trait]
impl Interceptor for TestHook {
    async fn before_call(
        &self,
        context: &HookContext<'_>,
        request: &mut Request,
    ) -> Result<(), HookError> {
        self.record(HookPhase::Call, &format!("{:?}", request.operation()));
        assert_eq!(context.operation(), Some(request.operation()));
        match request {
            Request::SendMessage(send) | Request::SendStreamingMessage(send) => {
                self.decide(send.message.parts.iter_mut().collect()).await
            }
            _ => self.decide(Vec::new()).await,
        }
    }

    async fn after_call(
        &self,
        context: &HookContext<'_>,
        response: &mut Response,
    ) -> Result<(), HookError> {
        self.record(
            HookPhase::Response,
            &format!("{:?}", context.operation().unwrap()),
        );
        match response {
            Response::Task(task) | Response::SendMessage(SendMessageResponse::Task(task)) => {
                self.decide(task_parts(task)).await
            }
            _ => self.decide(Vec::new()).await,
        }
    }

    async fn on_event(
        &self,
        context: &HookContext<'_>,
        event: &mut StreamResponse,
    ) -> Result<(), HookError> {
        let what = match event {
            StreamResponse::Task(_) => "task".to_owned(),
            StreamResponse::Message(_) => "message".to_owned(),
            StreamResponse::StatusUpdate(update) => update.status.state.as_str().to_owned(),
            StreamResponse::ArtifactUpdate(_) => "artifact".to_owned(),
        };
        // A slow turn has an additional status, a fast one has not.
        if what != TaskState::Working.as_str() {
            self.record(HookPhase::Event, &what);
        }
        assert_eq!(
            (context.agent(), context.caller().name()),
            ("Echo", "anonymous")
        );
        self.decide(event_parts(event)).await
    }
}

fn server(hooks: impl IntoIterator<Item = Hook>) -> Server {
    let server = Server::new(card(), TextCommandAgent);
    hooks.into_iter().fold(server, Server::hook)
}

#[tokio::test]
async fn seed_2_52_hooks_run_in_order_before_and_in_reverse_order_after() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let hook = |name| {
        TestHook {
            seen: seen.clone(),
            ..TestHook::new(name, Behaviour::Allow)
        }
        .hook()
    };
    let taken = || std::mem::take(&mut *seen.lock().unwrap());
    everywhere_on(
        || server([hook("a"), hook("b")]),
        async |client: Client| {
            let task = send_text(&client, "hi").await;
            let completed = TaskState::Completed.as_str();
            assert_eq!(
                taken(),
                [
                    "a call SendMessage",
                    "b call SendMessage",
                    "a event artifact",
                    "b event artifact",
                    &format!("a event {completed}"),
                    &format!("b event {completed}"),
                    "b response SendMessage",
                    "a response SendMessage",
                ]
            );
            let refused = cancel(&client, &task.id).await;
            assert!(refused.is_err());
            // No response: the operation failed.
            assert_eq!(taken(), ["a call CancelTask", "b call CancelTask"]);
        },
    )
    .await;
}

#[tokio::test]
async fn hooks_see_all_operations_and_the_end_of_a_canceled_task() {
    let hook = TestHook::new("audit", Behaviour::Allow);
    everywhere_on(
        || server([hook.hook()]),
        async |client: Client| {
            let task = send_text(&client, "ask").await;
            cancel(&client, &task.id).await.unwrap();
            let seen = hook.seen();
            let events: Vec<_> = seen
                .iter()
                .filter(|line| line.contains(" event "))
                .collect();
            assert_eq!(
                events,
                [
                    &format!("audit event {}", TaskState::InputRequired.as_str()),
                    &format!("audit event {}", TaskState::Canceled.as_str()),
                ]
            );
            assert!(seen.contains(&"audit response CancelTask".to_owned()));
        },
    )
    .await;
}

#[tokio::test]
async fn a_direct_reply_passes_the_event_hooks() {
    struct Replier;
    impl Agent for Replier {
        async fn run(&self, _: Turn) -> Result<Outcome, Failure> {
            Ok(Outcome::Completed)
        }

        async fn reply(&self, _: &Message, _: &attache::model::Call) -> Option<Message> {
            Some(Message::agent("a secret"))
        }
    }
    let changing = || TestHook::new("mask", Behaviour::Change).hook();
    everywhere_on(
        || Server::new(card(), Replier).hook(changing().phases([HookPhase::Event])),
        async |client: Client| {
            let reply = client.send_message(message("hi")).await.unwrap();
            assert_eq!(reply.text(), "a ***");
            let events = super::stream(&client, message("hi"))
                .await
                .event_texts()
                .await;
            assert_eq!(events, ["message a ***"]);
        },
    )
    .await;
}

#[tokio::test]
async fn a_changed_message_is_stored_and_processed() {
    let changing = || TestHook::new("mask", Behaviour::Change).hook();
    everywhere_on(
        || server([changing().phases([HookPhase::Call])]),
        async |client: Client| {
            let task = send_text(&client, "my secret").await;
            assert_eq!(history_texts(&task)[0], "my ***");
            assert_eq!(task.artifacts[0].as_text(), "my ***");
        },
    )
    .await;
}

/// Hook that adds a message to the last status.
struct AddsMessage(Message);

#[async_trait]
impl Interceptor for AddsMessage {
    async fn on_event(
        &self,
        _: &HookContext<'_>,
        event: &mut StreamResponse,
    ) -> Result<(), HookError> {
        if let StreamResponse::StatusUpdate(update) = event
            && update.status.state == TaskState::Completed
        {
            update.status.message = Some(Arc::new(self.0.clone()));
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_message_that_a_hook_adds_to_the_last_status_is_checked() {
    let without_ids = Message {
        message_id: "".into(),
        ..Message::agent("checked")
    };
    let of_another_task = Message {
        task_id: Some("other".into()),
        ..Message::agent("x")
    };
    let empty = Message {
        parts: Vec::new(),
        ..Message::agent("")
    };
    for (added, is_valid) in [
        (without_ids, true),
        (of_another_task, false),
        (empty, false),
    ] {
        let hook = || Hook::new("adds", AddsMessage(added.clone())).phases([HookPhase::Event]);
        everywhere_on(
            || server([hook()]),
            async |client: Client| {
                let sent = client.send_message(message("hi")).await;
                if !is_valid {
                    assert_eq!(sent.unwrap_err().kind(), ErrorKind::InvalidAgentResponse);
                    return;
                }
                let SendMessageResponse::Task(task) = sent.unwrap() else {
                    panic!("no task");
                };
                let message = task.status.message.as_ref().unwrap();
                assert!(!message.message_id.is_empty());
                assert_eq!(message.task_id.as_ref(), Some(&task.id));
                assert_eq!(message.context_id.as_ref(), Some(&task.context_id));
            },
        )
        .await;
    }
}

#[tokio::test]
async fn a_hook_of_another_operation_or_agent_does_not_run() {
    use attache::model::Operation;
    let hook = TestHook::new("deny", Behaviour::Deny);
    let only_cancel = || {
        hook.hook()
            .phases([HookPhase::Call])
            .operations([Operation::CancelTask])
    };
    everywhere_on(
        || server([only_cancel()]),
        async |client: Client| {
            let task = send_text(&client, "ask").await;
            let request = CancelTaskRequest {
                id: task.id.clone(),
                ..CancelTaskRequest::default()
            };
            let denied = client.cancel_task(request).await.unwrap_err();
            assert_eq!(denied.message(), "the policy forbids it");
            let task = super::get(&client, &task).await;
            assert_eq!(task.status.state, TaskState::InputRequired);
        },
    )
    .await;
    let invalid = server([hook.hook().agents(["nobody"])]);
    let refused = invalid.serve_in_process().await.err().unwrap();
    assert!(refused.message().contains("nobody"), "{refused}");
    let twice = server([hook.hook(), hook.hook()]);
    assert!(twice.serve_in_process().await.is_err());
}
