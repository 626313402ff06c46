//! Slow and failing hooks: a task stays cancelable, no text is lost, and panics are caught.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use attache::model::{
    Artifact, MessageId, Operation, Request, StreamResponse, TaskArtifactUpdateEvent, TaskState,
};
use attache::{
    Agent, Client, Failure, FailurePolicy, Hook, HookContext, HookError, Interceptor, Outcome,
    Server, Settings, Turn, TurnFilter, async_trait,
};
use tokio::sync::Semaphore;

use super::super::{begin, cancel, send_text};
use super::server;
use crate::harness::everywhere::{card, everywhere_on};

/// Number of events that the agent sends at once.
const EVENTS: usize = 200;

/// Agent that sends many events at once, and never ends.
struct Burst;

impl Agent for Burst {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        // Committed first, so that the caller has the task before a hook waits.
        turn.say("started").await;
        tokio::task::yield_now().await;
        for _ in 0..EVENTS {
            turn.write("a", "text").await;
        }
        std::future::pending().await
    }
}

/// Hook whose events wait for a cancel call, and are slow after it.
struct SlowAfterCancel {
    cancel_called: Semaphore,
    seen: Arc<AtomicUsize>,
}

#[async_trait]
impl Interceptor for SlowAfterCancel {
    async fn before_call(
        &self,
        _: &HookContext<'_>,
        request: &mut Request,
    ) -> Result<(), HookError> {
        if request.operation() == Operation::CancelTask {
            self.cancel_called.close();
        }
        Ok(())
    }

    async fn on_event(
        &self,
        _: &HookContext<'_>,
        event: &mut StreamResponse,
    ) -> Result<(), HookError> {
        if let StreamResponse::ArtifactUpdate(_) = event {
            let _ = self.cancel_called.acquire().await;
            for _ in 0..500 {
                tokio::task::yield_now().await;
            }
            self.seen.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_task_with_a_slow_event_hook_is_cancelable() {
    let seen = Arc::new(AtomicUsize::new(0));
    let hook = || {
        seen.store(0, Ordering::Relaxed);
        let slow = SlowAfterCancel {
            cancel_called: Semaphore::new(0),
            seen: seen.clone(),
        };
        Hook::new("slow", slow).timeout(Duration::from_secs(60))
    };
    let settings = Settings {
        cancel_grace: Duration::ZERO,
        ..Settings::default()
    };
    everywhere_on(
        || {
            Server::new(card(), Burst)
                .settings(settings.clone())
                .hook(hook())
        },
        async |client: Client| {
            let task = begin(&client, "go").await;
            let canceled = cancel(&client, &task.id).await.unwrap();
            assert_eq!(canceled.status.state, TaskState::Canceled);
            // The remaining events did not delay the cancel.
            let seen = seen.load(Ordering::Relaxed);
            assert!((1..EVENTS).contains(&seen), "{seen}");
        },
    )
    .await;
}

/// Occasion on which a filter fails.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Failing {
    Creation,
    Filter,
    Finish,
    Never,
}

/// Hook with a state per turn, which counts its events.
#[derive(Clone)]
struct FailingHook(Failing, Arc<AtomicUsize>);

#[async_trait]
impl Interceptor for FailingHook {
    fn turn_filter(&self, _: &HookContext<'_>) -> Option<Box<dyn TurnFilter>> {
        assert_ne!(self.0, Failing::Creation);
        Some(Box::new(self.clone()))
    }
}

impl TurnFilter for FailingHook {
    fn filter(&mut self, event: &mut StreamResponse) -> Result<(), HookError> {
        self.1.fetch_add(1, Ordering::Relaxed);
        if let StreamResponse::StatusUpdate(update) = event
            && let Some(message) = &mut update.status.message
        {
            Arc::make_mut(message).message_id = MessageId::from("changed");
        }
        match self.0 {
            Failing::Filter => Err("failed".into()),
            Failing::Creation | Failing::Finish | Failing::Never => Ok(()),
        }
    }

    fn release(&mut self, event: &mut StreamResponse) {
        if let StreamResponse::ArtifactUpdate(update) = event {
            update.artifact.parts.insert(0, "held ".into());
        }
    }

    fn finish(&mut self) -> Vec<StreamResponse> {
        assert_ne!(self.0, Failing::Finish);
        vec![StreamResponse::ArtifactUpdate(TaskArtifactUpdateEvent {
            artifact: Artifact::text("rest", "rest").with_id("rest"),
            ..TaskArtifactUpdateEvent::default()
        })]
    }
}

/// Hook that checks the ids of every event.
struct IdCheck;

#[async_trait]
impl Interceptor for IdCheck {
    async fn on_event(
        &self,
        context: &HookContext<'_>,
        event: &mut StreamResponse,
    ) -> Result<(), HookError> {
        if let StreamResponse::ArtifactUpdate(update) = event {
            assert_eq!(Some(&update.task_id), context.task_id());
            assert_eq!(Some(&update.context_id), context.context_id());
        }
        Ok(())
    }
}

#[tokio::test]
async fn a_failure_of_a_filter_follows_the_policy() {
    for (failing, policy, expected) in [
        (Failing::Never, FailurePolicy::Deny, &["hi", "rest"][..]),
        (Failing::Creation, FailurePolicy::Allow, &["hi"]),
        (
            Failing::Filter,
            FailurePolicy::Allow,
            &["held \nhi", "rest"],
        ),
        (Failing::Finish, FailurePolicy::Allow, &["hi"]),
        (Failing::Creation, FailurePolicy::Deny, &[]),
        (Failing::Filter, FailurePolicy::Deny, &[]),
        (Failing::Finish, FailurePolicy::Deny, &["hi"]),
    ] {
        let hook = FailingHook(failing, Arc::default());
        let own = || Hook::new("test", hook.clone()).on_failure(policy);
        everywhere_on(
            || server([own(), Hook::new("ids", IdCheck)]),
            async |client: Client| {
                let task = send_text(&client, "hi").await;
                let texts: Vec<_> = task.artifacts.iter().map(|one| one.as_text()).collect();
                assert_eq!(texts, expected, "{failing:?} {policy:?}");
                let is_closed = policy == FailurePolicy::Deny && failing != Failing::Never;
                assert_eq!(task.status.state == TaskState::Failed, is_closed);
                let status = task.status.message.as_ref();
                assert!(status.is_none_or(|message| message.message_id.as_str() != "changed"));
            },
        )
        .await;
        // A failure is no timeout: the hook also sees the following events of the batch.
        if failing == Failing::Filter && policy == FailurePolicy::Allow {
            assert!(hook.1.load(Ordering::Relaxed) > 1);
        }
    }
}

/// Hook that never decides about an event.
struct Stuck;

#[async_trait]
impl Interceptor for Stuck {
    async fn on_event(&self, _: &HookContext<'_>, _: &mut StreamResponse) -> Result<(), HookError> {
        std::future::pending().await
    }
}

/// The agent ends its turn at once, so the first events and the last ones wait for the hook.
#[tokio::test]
async fn a_slow_hook_does_not_delay_a_send_that_returns_immediately() {
    everywhere_on(
        || {
            let hook = Hook::new("stuck", Stuck).timeout(Duration::from_secs(3600));
            server([hook])
        },
        async |client: Client| {
            let task = begin(&client, "hi").await;
            assert_eq!(task.status.state, TaskState::Submitted);
            let read = super::super::get(&client, &task).await;
            assert!(!read.is_ended());
        },
    )
    .await;
}

/// Hook that changes a message differently each time.
struct Counter(AtomicUsize);

#[async_trait]
impl Interceptor for Counter {
    async fn before_call(
        &self,
        _: &HookContext<'_>,
        request: &mut Request,
    ) -> Result<(), HookError> {
        if let Request::SendMessage(send) = request {
            let count = self.0.fetch_add(1, Ordering::Relaxed);
            send.message.parts.push(format!("number {count}").into());
        }
        Ok(())
    }
}

#[tokio::test]
async fn an_idempotency_key_covers_the_message_that_the_caller_sent() {
    let settings = Settings {
        idempotent_message_ids: true,
        ..Settings::default()
    };
    everywhere_on(
        || {
            let hook = Hook::new("count", Counter(AtomicUsize::new(0)));
            server([hook]).settings(settings.clone())
        },
        async |client: Client| {
            let request = super::message("hi");
            let first = client.send_message(request.clone()).await.unwrap();
            let again = client.send_message(request).await.unwrap();
            assert_eq!(first.task().unwrap().id, again.task().unwrap().id);
        },
    )
    .await;
}
