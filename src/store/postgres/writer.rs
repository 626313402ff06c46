//! Writers: group commit, retries, and the rule for unknown commit outcomes.
//!
//! A writer takes all queued commands and sends one statement for the creates and one for the appends, both before it awaits
//! the first. They are two independent commits. The next group gathers during the round trip.
//!
//! If the connection breaks before the answer, a commit may exist, may not exist, or may still be running in the old backend.
//! The writer then compares the first log row of each command on a new connection. Equal bytes prove the commit. Without a row
//! it writes again. A refusal after a broken connection is not final: the writer compares the row once more, because the first
//! attempt may have committed after the read.

mod attempt;
mod columns;

use std::collections::{HashSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use tokio::time::sleep;

use super::error::{DatabaseError, Failure};
use super::health::Health;
use super::number_cache::NumberCache;
use super::session::{Connector, Purpose, Session};
use super::write_command::{Command, CommandQueue};
use crate::model::{Scope, TaskId};
use crate::store::HealthProblem;
use crate::telemetry::metrics;
use attempt::Attempt;

/// Maximum number of commands, and of bytes of bodies, in a group. A larger command is a group of its own.
const COMMANDS_PER_GROUP: usize = 256;
const BYTES_PER_GROUP: usize = 1 << 20;

/// Number of attempts of a command that meets concurrent statements.
const MAX_CONTENTIONS: u32 = 5;

/// Pauses between attempts to connect.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// State of one writer.
pub(super) struct Writer {
    queue: CommandQueue,
    connector: Arc<Connector>,
    session: Option<Session>,
    numbers: Arc<NumberCache>,
    /// Id of this replica; 0 if it is not a member.
    replica: Arc<AtomicI64>,
    /// Number of this writer within the replica.
    index: i64,
    health: Arc<Health>,
    /// Commands that could not join the last group.
    deferred: VecDeque<Command>,
    pause: Duration,
}

/// Parts of a replica that its writers share.
pub(super) struct WriterContext {
    pub(super) queue: CommandQueue,
    pub(super) connector: Arc<Connector>,
    pub(super) numbers: Arc<NumberCache>,
    pub(super) replica: Arc<AtomicI64>,
    pub(super) health: Arc<Health>,
}

impl Writer {
    pub(super) fn new(context: WriterContext, index: usize) -> Self {
        Self {
            queue: context.queue,
            connector: context.connector,
            session: None,
            numbers: context.numbers,
            replica: context.replica,
            index: i64::try_from(index).unwrap_or_default(),
            health: context.health,
            deferred: VecDeque::new(),
            pause: MIN_PAUSE,
        }
    }

    /// Executes commands until the queue is closed and empty. A panic fails the commands of its group alone.
    pub(super) async fn run(mut self) {
        // Unwind safe: the session is gone, and the queue is unchanged.
        while AssertUnwindSafe(self.execute_groups())
            .catch_unwind()
            .await
            .is_err()
        {
            self.health.report(HealthProblem::Failing);
        }
    }

    async fn execute_groups(&mut self) {
        loop {
            if self.deferred.is_empty() {
                let received = self.queue.receive(COMMANDS_PER_GROUP).await;
                if received.is_empty() {
                    return;
                }
                self.deferred.extend(received);
            }
            let group = self.take_group();
            self.execute(group).await;
        }
    }

    /// Takes the commands of the next group from those that wait: one command per task and per idempotency key.
    fn take_group(&mut self) -> Vec<Command> {
        let mut group: Vec<Command> = Vec::with_capacity(self.deferred.len());
        let mut rest = VecDeque::new();
        let mut tasks: HashSet<TaskId> = HashSet::new();
        let mut keys: HashSet<(Scope, String)> = HashSet::new();
        let mut bytes = 0;
        for command in self.deferred.drain(..) {
            let size = command.body_bytes();
            let is_full = !group.is_empty() && bytes + size > BYTES_PER_GROUP;
            let has_task = command.task().is_some_and(|task| tasks.contains(task));
            let key = command
                .key()
                .map(|(scope, key)| (scope.clone(), key.to_owned()));
            let has_key = key.as_ref().is_some_and(|key| keys.contains(key));
            // Also if the command waits: a later command of the task must not overtake it.
            tasks.extend(command.task().cloned());
            keys.extend(key);
            if is_full || has_task || has_key {
                rest.push_back(command);
            } else {
                bytes += size;
                group.push(command);
            }
        }
        self.deferred = rest;
        group
    }

    /// Executes a group until every command is answered.
    async fn execute(&mut self, group: Vec<Command>) {
        metrics::record_group(group.len());
        let mut pending = group;
        while !pending.is_empty() {
            let (alone, together): (Vec<_>, Vec<_>) =
                pending.into_iter().partition(|command| command.runs_alone);
            pending = Vec::new();
            if !together.is_empty() {
                pending.extend(self.attempt(together).await);
            }
            for command in alone {
                pending.extend(self.attempt(vec![command]).await);
            }
        }
    }

    /// Attempts commands once and returns those that need another attempt.
    async fn attempt(&mut self, group: Vec<Command>) -> Vec<Command> {
        let Some(session) = self.take_session().await else {
            return self.give_up_expired(group).await;
        };
        let attempt = Attempt {
            writer: self,
            session: &session,
        };
        let again = attempt.run(group).await;
        if session.is_usable() {
            self.session = Some(session);
        }
        again
    }

    /// Returns the open session, or opens one.
    async fn take_session(&mut self) -> Option<Session> {
        let open = self.session.take().filter(Session::is_usable);
        if open.is_some() {
            return open;
        }
        match self.connector.connect(Purpose::Writer, None).await {
            Ok(session) => {
                self.pause = MIN_PAUSE;
                // Another server may have taken over and may have lost commits: numbers could be given to other rows.
                self.numbers.clear();
                Some(session)
            }
            Err(error) => {
                self.health.report(error.health_problem());
                tracing::warn!(%error, "a writer cannot connect to the database");
                None
            }
        }
    }

    /// Fails the commands that are not to be repeated any more, and waits before the next attempt.
    async fn give_up_expired(&mut self, group: Vec<Command>) -> Vec<Command> {
        let (expired, waiting): (Vec<_>, Vec<_>) = group.into_iter().partition(Command::is_expired);
        for command in expired {
            command.fail(DatabaseError::lost("the database cannot be reached"));
        }
        if !waiting.is_empty() {
            sleep(self.pause).await;
            self.pause = (self.pause * 2).min(MAX_PAUSE);
        }
        waiting
    }

    /// Returns whether the replica of a command is still a member.
    fn is_current(&self, command: &Command) -> bool {
        command.replica == self.replica.load(Ordering::Acquire)
    }

    /// Records that the database refuses the writes of a replica because it was evicted.
    fn record_eviction(&self, replica: i64) {
        let evicted =
            self.replica
                .compare_exchange(replica, 0, Ordering::AcqRel, Ordering::Relaxed);
        if evicted.is_ok() {
            tracing::warn!(
                replica,
                "evicted: the database refuses the writes of this replica"
            );
        }
    }

    /// Returns the shard of the counters that this writer updates.
    fn shard(&self, replica: i64) -> i64 {
        replica * 256 + self.index
    }

    /// Decides what follows the error of a statement: another attempt of its commands, or their failure.
    async fn handle_failure(&self, error: DatabaseError, group: Vec<Command>) -> Vec<Command> {
        match error.failure {
            Failure::Lost => {
                tracing::warn!(%error, commands = group.len(), "commit outcome unknown");
                metrics::record_unknown_outcomes(group.len());
                let mut again = group;
                for command in &mut again {
                    command.is_uncertain = true;
                }
                again
            }
            Failure::Unwritable(problem) => {
                self.health.report(problem);
                tracing::error!(%error, "the database refuses writes");
                let message = error.to_string();
                for command in group {
                    command.fail(DatabaseError::refused(message.clone()));
                }
                Vec::new()
            }
            Failure::Contention => self.repeat_contended(error, group).await,
            Failure::Damaged | Failure::Other if group.len() > 1 => run_alone(group),
            Failure::Damaged | Failure::Other => {
                tracing::error!(%error, "a write failed");
                let message = error.to_string();
                for command in group {
                    command.fail(DatabaseError::refused(message.clone()));
                }
                Vec::new()
            }
        }
    }

    /// Repeats commands that met a concurrent statement, each on its own.
    async fn repeat_contended(&self, error: DatabaseError, group: Vec<Command>) -> Vec<Command> {
        if group.len() > 1 {
            return run_alone(group);
        }
        let mut again = Vec::new();
        let mut last = Some(error);
        for mut command in group {
            command.contentions += 1;
            command.runs_alone = true;
            if command.contentions < MAX_CONTENTIONS {
                // Different pauses on different writers, so that they do not meet again.
                let step = u64::from(command.contentions) * 10 - 5 + 2 * self.index.unsigned_abs();
                sleep(Duration::from_millis(step)).await;
                again.push(command);
            } else if let Some(error) = last.take() {
                command.fail(error);
            }
        }
        again
    }
}

/// Makes every command of a failed group run on its own.
fn run_alone(mut group: Vec<Command>) -> Vec<Command> {
    for command in &mut group {
        command.runs_alone = true;
    }
    group
}
