//! The processes of a worker agent: starts them, restarts those that ended, selects one for each turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::launch::Launch;
use super::process::{self, Worker, WorkerEnd, WorkerTurn};
use super::protocol::WorkerCard;
use super::settings::WorkerSettings;
use crate::backoff::Backoff;
use crate::lock::lock;

/// Delays between the end of a process and the start of the next.
const BACKOFF: Backoff = Backoff {
    initial: Duration::from_millis(200),
    max: Duration::from_secs(30),
};
/// A process that ran this long starts again with the first delay.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// The processes of an agent.
#[derive(Debug)]
pub(super) struct Pool {
    pub(super) settings: WorkerSettings,
    launch: Launch,
    slots: Mutex<Vec<Slot>>,
    /// Changes when a slot changes and when a turn ends.
    changed: watch::Sender<()>,
    card: OnceLock<WorkerCard>,
    is_started: AtomicBool,
    tasks: TaskTracker,
    /// Cancelled when the agent is dropped.
    stop: CancellationToken,
}

/// State of one process.
#[derive(Debug)]
enum Slot {
    /// Not started, or without its first line yet.
    Starting,
    Ready(Arc<Worker>),
    /// Ended; starts again after a delay.
    Down {
        reason: String,
    },
}

impl Pool {
    pub(super) fn new(settings: WorkerSettings, launch: Launch, stop: CancellationToken) -> Self {
        let slots = (0..settings.workers).map(|_| Slot::Starting).collect();
        Self {
            settings,
            launch,
            slots: Mutex::new(slots),
            changed: watch::Sender::new(()),
            card: OnceLock::new(),
            is_started: AtomicBool::new(false),
            tasks: TaskTracker::new(),
            stop,
        }
    }

    /// Starts the processes, the first time.
    pub(super) fn start(self: &Arc<Self>) {
        if self.is_started.swap(true, Ordering::Relaxed) {
            return;
        }
        for index in 0..self.settings.workers {
            self.tasks.spawn(self.clone().keep_running(index));
        }
    }

    /// Waits for the first line of a process. Returns its fields of the card.
    ///
    /// # Errors
    /// No process started in time, or all failed. The reason is for the operator.
    pub(super) async fn card(&self) -> Result<WorkerCard, String> {
        let mut changed = self.changed.subscribe();
        let deadline = tokio::time::sleep(self.settings.start_timeout);
        tokio::pin!(deadline);
        loop {
            if let Some(card) = self.card.get() {
                return Ok(card.clone());
            }
            if let Some(reason) = self.common_failure() {
                return Err(reason);
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = &mut deadline => return Err("no worker has started yet".to_owned()),
            }
        }
    }

    /// Reserves room for a turn in the process with the fewest. Waits while all are full.
    ///
    /// # Errors
    /// No process is running and none starts in time. The reason is for the operator.
    pub(super) async fn open_turn(&self) -> Result<WorkerTurn, String> {
        let mut changed = self.changed.subscribe();
        let mut deadline = Instant::now() + self.settings.start_timeout;
        loop {
            let is_any_ready = {
                let slots = lock(&self.slots);
                let ready = slots.iter().filter_map(|slot| match slot {
                    Slot::Ready(worker) => Some(worker),
                    Slot::Starting | Slot::Down { .. } => None,
                });
                let mut ready: Vec<_> = ready.collect();
                ready.sort_by_cached_key(|worker| worker.load());
                if let Some(turn) = ready.iter().find_map(|worker| worker.open_turn()) {
                    return Ok(turn);
                }
                !ready.is_empty()
            };
            if is_any_ready {
                deadline = Instant::now() + self.settings.start_timeout;
            }
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep_until(deadline) => {
                    if !is_any_ready {
                        let reason = self.common_failure();
                        return Err(reason.unwrap_or_else(|| "no worker has started".to_owned()));
                    }
                }
            }
        }
    }

    /// The reason of the first process, if no process is ready or starting.
    fn common_failure(&self) -> Option<String> {
        let slots = lock(&self.slots);
        let reasons = slots.iter().map(|slot| match slot {
            Slot::Down { reason } => Some(reason),
            Slot::Starting | Slot::Ready(_) => None,
        });
        let reasons: Option<Vec<_>> = reasons.collect();
        reasons?.first().map(|reason| (*reason).clone())
    }

    fn set_slot(&self, index: usize, slot: Slot) {
        lock(&self.slots)[index] = slot;
        self.changed.send_replace(());
    }

    /// Runs one process after another until the agent is dropped.
    async fn keep_running(self: Arc<Self>, index: usize) {
        let mut failures = 0;
        while !self.stop.is_cancelled() {
            let started_at = Instant::now();
            let end = self.run_one(index).await;
            if self.stop.is_cancelled() {
                return;
            }
            if started_at.elapsed() >= STABLE_AFTER {
                failures = 0;
            }
            let delay = BACKOFF.delay(failures);
            failures += 1;
            let WorkerEnd { reason, lost_turns } = end;
            let program = self.launch.program();
            tracing::warn!(
                program,
                worker = index,
                reason,
                lost_turns,
                restart_in = ?delay,
                "worker ended"
            );
            self.set_slot(index, Slot::Down { reason });
            tokio::select! {
                () = self.stop.cancelled() => {}
                () = tokio::time::sleep(delay) => {}
            }
        }
    }

    async fn run_one(&self, index: usize) -> WorkerEnd {
        let ready = |worker, card| {
            let _ = self.card.set(card);
            self.set_slot(index, Slot::Ready(worker));
        };
        let end = process::run(
            &self.launch,
            &self.settings,
            self.changed.clone(),
            &self.stop,
            ready,
        );
        end.await.unwrap_or_else(|error| WorkerEnd {
            reason: format!("{} cannot be started: {error}", self.launch.program()),
            lost_turns: 0,
        })
    }
}
