//! Agent that sends turns to long-lived worker processes.
//!
//! The processes start once and run many turns at a time, so that the start of an interpreter is not part of a turn.
//! [`Pool`] keeps them running, `process` speaks with one of them, `protocol` has the lines. The helper libraries for Python
//! and JavaScript are in `agents/sdk`.

mod launch;
mod pool;
mod process;
mod protocol;
mod settings;
mod stderr_log;

use std::sync::Arc;

use attache::model::CallerKey;
use attache::{Agent, Failure, FairSemaphore, Outcome, Turn};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::turn_output::{OutputLine, TurnOutput, json_error};
use launch::Launch;
use pool::Pool;
use process::{TurnOutputLine, WorkerTurn};
pub use protocol::WorkerCard;
pub use settings::{WorkerSettings, WorkerSettingsError};

/// Agent that sends turns to long-lived worker processes, for example to a Python or TypeScript function.
///
/// Each process runs several turns at a time. A process that ends loses only its own turns, which fail, and is started
/// again. Dropping the agent ends the processes.
///
/// ```
/// use attache_agents::{WorkerAgent, WorkerSettings};
///
/// let settings = WorkerSettings { file: Some("agent.py".into()), ..WorkerSettings::default() };
/// let agent = WorkerAgent::new(settings)?;
/// # Ok::<(), attache_agents::WorkerSettingsError>(())
/// ```
#[derive(Debug, Clone)]
pub struct WorkerAgent {
    pool: Arc<Pool>,
    /// Bounds the number of concurrent turns, fairly among callers.
    permits: FairSemaphore<CallerKey>,
    /// Ends the processes with the last clone.
    _stop: Arc<DropGuard>,
}

impl WorkerAgent {
    /// Creates an agent. Its processes start with the first turn, or with [`start`](Self::start).
    ///
    /// # Errors
    /// A setting is invalid.
    pub fn new(settings: WorkerSettings) -> Result<Self, WorkerSettingsError> {
        settings.check()?;
        let launch = Launch::new(&settings)?;
        let all = settings.workers * settings.turns_per_worker;
        let permits = FairSemaphore::new(all, settings.max_turns_per_caller);
        let stop = CancellationToken::new();
        Ok(Self {
            pool: Arc::new(Pool::new(settings, launch, stop.clone())),
            permits,
            _stop: Arc::new(stop.drop_guard()),
        })
    }

    /// Starts the processes and waits for the first. Returns its fields of the card.
    ///
    /// # Errors
    /// No process started in time. The reason is for the operator. The processes are tried again.
    pub async fn start(&self) -> Result<WorkerCard, String> {
        self.pool.start();
        self.pool.card().await
    }

    /// Applies the lines of a turn until it ends.
    async fn follow(&self, mut worker: WorkerTurn, turn: &Turn) -> Result<Outcome, WorkerError> {
        let mut output = TurnOutput::new(turn);
        let cancelled = turn.cancelled();
        tokio::pin!(cancelled);
        let mut is_cancelled = false;
        let outcome = loop {
            let line = tokio::select! {
                () = &mut cancelled, if !is_cancelled => {
                    is_cancelled = true;
                    worker.cancel().await;
                    continue;
                }
                line = worker.next() => line,
            };
            match line {
                None => break Err(WorkerError::Ended),
                Some(TurnOutputLine::TooLarge) => {
                    break Err(WorkerError::OutputTooLarge(self.pool.settings.max_output));
                }
                Some(TurnOutputLine::Output(line)) => {
                    let line: Result<OutputLine, _> = line.as_json().read();
                    let line = line.map_err(|error| json_error(&error));
                    let applied = match line {
                        Ok(line) => output.apply(line).await,
                        Err(reason) => Err(reason),
                    };
                    if let Err(reason) = applied {
                        break Err(WorkerError::InvalidOutput(reason));
                    }
                    if output.has_outcome() {
                        worker.end();
                        break Ok(());
                    }
                }
            }
        };
        let declared = output.finish().await;
        outcome.map(|()| declared.unwrap_or(Outcome::Completed))
    }
}

impl Agent for WorkerAgent {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        self.pool.start();
        let _permit = self.permits.acquire(turn.call().caller_key()).await;
        let worker = match self.pool.open_turn().await {
            Ok(worker) => worker,
            Err(reason) => {
                tracing::warn!(task = %turn.task_id(), reason, "no worker for a turn");
                return Ok(Outcome::failed("no worker is running"));
            }
        };
        let max_line = self.pool.settings.max_line;
        let Some(line) = protocol::start(worker.id(), &turn, max_line) else {
            worker.end();
            return Ok(Outcome::rejected(format!(
                "the message is larger than a worker accepts (max_line = {max_line} bytes)"
            )));
        };
        worker.send(line).await;
        let followed = async {
            match self.pool.settings.timeout {
                None => self.follow(worker, &turn).await,
                Some(timeout) => tokio::time::timeout(timeout, self.follow(worker, &turn))
                    .await
                    .unwrap_or(Err(WorkerError::TimedOut(timeout))),
            }
        };
        let outcome = followed.await;
        Ok(outcome.unwrap_or_else(|error| {
            tracing::warn!(task = %turn.task_id(), %error, "turn of a worker failed");
            Outcome::failed(error.to_string())
        }))
    }

    /// Returns `true`: a worker may have side effects, which must not happen twice for one turn.
    fn needs_durable_start(&self) -> bool {
        true
    }
}

/// Failure of a turn, in words for the caller.
#[derive(Debug)]
enum WorkerError {
    Ended,
    OutputTooLarge(usize),
    InvalidOutput(&'static str),
    TimedOut(std::time::Duration),
}

impl std::fmt::Display for WorkerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Ended => f.write_str("the worker ended before the turn did"),
            Self::OutputTooLarge(limit) => write!(f, "the output is larger than {limit} bytes"),
            Self::InvalidOutput(reason) => write!(f, "the output is invalid: {reason}"),
            Self::TimedOut(limit) => write!(f, "the worker took longer than {limit:?}"),
        }
    }
}

impl std::error::Error for WorkerError {}
