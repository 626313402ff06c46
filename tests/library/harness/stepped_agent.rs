//! An agent whose every step is released by the test.

use std::sync::Arc;

use attache::model::{Call, Message};
use attache::{Agent, Failure, Outcome, Turn};
use tokio::sync::{Mutex, mpsc};

use super::with_deadline;

/// One thing that the agent is to do.
pub(crate) enum Step {
    /// Says a text while it works.
    Say(String),
    /// Adds a piece to its one result.
    Write(String),
    /// Asks for credentials and goes on waiting.
    Auth(String),
    /// Ends its turn.
    End(Outcome),
}

/// Does what it is told, step by step; answers `ping` with a plain message.
pub(crate) struct SteppedAgent {
    started: mpsc::Sender<String>,
    steps: Arc<Mutex<mpsc::Receiver<Step>>>,
}

/// Who pulls the strings.
pub(crate) struct StepController {
    started: mpsc::Receiver<String>,
    steps: mpsc::Sender<Step>,
}

impl SteppedAgent {
    pub(crate) fn new() -> (Self, StepController) {
        let (started, heard) = mpsc::channel(64);
        let (steps, taken) = mpsc::channel(64);
        (
            Self {
                started,
                steps: Arc::new(Mutex::new(taken)),
            },
            StepController {
                started: heard,
                steps,
            },
        )
    }
}

impl Agent for SteppedAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let mut steps = self.steps.lock().await;
        self.started.send(turn.task_id().to_string()).await?;
        let mut writer = turn.writer("result");
        while let Some(step) = steps.recv().await {
            match step {
                Step::Say(text) => turn.say(text).await,
                Step::Write(text) => writer.write(text).await,
                Step::Auth(text) => turn.require_auth(text).await,
                Step::End(outcome) => return Ok(outcome),
            }
        }
        Err("the test is over".into())
    }

    async fn reply(&self, message: &Message, _: &Call) -> Option<Message> {
        (message.text() == "ping").then(|| Message::agent("pong"))
    }
}

impl StepController {
    /// The task of the next turn, once it has begun.
    pub(crate) async fn next_task(&mut self) -> String {
        with_deadline(self.started.recv())
            .await
            .expect("the agent is there")
    }

    pub(crate) async fn say(&self, text: &str) {
        self.send_step(Step::Say(text.to_owned())).await;
    }

    pub(crate) async fn write(&self, text: &str) {
        self.send_step(Step::Write(text.to_owned())).await;
    }

    pub(crate) async fn auth(&self, text: &str) {
        self.send_step(Step::Auth(text.to_owned())).await;
    }

    pub(crate) async fn end(&self, outcome: Outcome) {
        self.send_step(Step::End(outcome)).await;
    }

    async fn send_step(&self, step: Step) {
        assert!(
            with_deadline(self.steps.send(step)).await.is_ok(),
            "the agent is there"
        );
    }
}
