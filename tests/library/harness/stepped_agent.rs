//! An agent that executes one step each time the test sends one.

use std::sync::Arc;

use attache::model::{Call, Message};
use attache::{Agent, Failure, Outcome, Turn};
use tokio::sync::{Mutex, mpsc};

use super::with_deadline;

/// One step of the agent.
pub(crate) enum Step {
    /// Sends a `working` status with a text.
    Say(String),
    /// Appends a chunk to the artifact.
    Write(String),
    /// Sets `auth-required` and continues.
    Auth(String),
    /// Ends the turn.
    End(Outcome),
}

/// Executes the steps that its [`StepController`] sends; replies to `ping` with a direct message.
pub(crate) struct SteppedAgent {
    started: mpsc::Sender<String>,
    steps: Arc<Mutex<mpsc::Receiver<Step>>>,
}

/// Sends steps to a [`SteppedAgent`].
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
    /// Waits for the next turn and returns its task id.
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
