//! A reader of the log that posts to webhooks and remembers how far it got.
//!
//! Each webhook of a task has a worker of its own, off the path of the task: it follows the log from the position that
//! is recorded for it, and records the next one when that was delivered. So nothing is lost over a restart, what was not
//! recorded is sent again under the same id, and a webhook that is down holds up nobody but itself.

mod attempt_result;
mod dead_letters;
mod notification;
mod settings;
#[cfg(feature = "jws")]
mod signature;
#[cfg(not(feature = "jws"))]
#[path = "signature_disabled.rs"]
mod signature;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::egress::{Egress, GuardedClient};
use crate::engine::Engine;
use crate::model::{Caller, Error, ErrorKind, PushConfigId, Result, TaskId};
use crate::store::{Head, WebhookFilter};

pub use dead_letters::{DeadLetters, FailedWebhook, UndeliveredNotification};
pub use settings::PushSettings;
pub(crate) use signature::NotificationSigner;

/// How many webhooks are looked at together.
const RESUME_PAGE_SIZE: usize = 100;
/// How long to wait where the store has failed.
const STORE_RETRY_DELAY: Duration = Duration::from_secs(5);
/// How long a caller with too many webhooks is told to wait.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Calls webhooks. A clone is the same one.
#[derive(Clone)]
pub(crate) struct PushDispatcher(Arc<DispatcherInner>);

struct DispatcherInner {
    engine: Engine,
    egress: GuardedClient,
    settings: PushSettings,
    /// Who signs notifications, if they are signed.
    signature: Option<NotificationSigner>,
    /// Deliveries to webhooks that answer, and to those that did not the last time.
    healthy_permits: Semaphore,
    failing_permits: Semaphore,
    /// For workers.
    worker_permits: Arc<Semaphore>,
    active: Mutex<ActiveWorkers>,
    /// Some webhooks have no worker.
    pending_webhooks: Notify,
    tracker: TaskTracker,
    stop: CancellationToken,
}

/// Which webhooks have a worker, and how to stop it.
#[derive(Default)]
struct ActiveWorkers {
    workers: HashMap<WebhookKey, WorkerHandle>,
    /// How many webhooks each caller has.
    callers: HashMap<Caller, usize>,
    last: u64,
}

type WebhookKey = (TaskId, PushConfigId);

/// A worker, for whom, and how to stop it.
struct WorkerHandle {
    number: u64,
    caller: Caller,
    stop: CancellationToken,
}

impl ActiveWorkers {
    /// Takes a worker in, in the permit of the one that may be there; gives its number.
    fn insert(&mut self, name: WebhookKey, caller: Caller, stop: CancellationToken) -> u64 {
        self.stop_worker(&name);
        self.last += 1;
        *self.callers.entry(caller.clone()).or_default() += 1;
        self.workers.insert(
            name,
            WorkerHandle {
                number: self.last,
                caller,
                stop,
            },
        );
        self.last
    }

    /// Stops the worker of a webhook; `false` if it has none.
    fn stop_worker(&mut self, name: &WebhookKey) -> bool {
        let Some(WorkerHandle { caller, stop, .. }) = self.workers.remove(name) else {
            return false;
        };
        stop.cancel();
        if let Entry::Occupied(mut count) = self.callers.entry(caller) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        true
    }
}

impl PushDispatcher {
    /// Calls webhooks, on `tracker`, until `stop` is cancelled.
    pub(crate) fn new(
        engine: Engine,
        settings: PushSettings,
        signature: Option<NotificationSigner>,
        tasks: (TaskTracker, CancellationToken),
    ) -> Self {
        let egress = Egress::guarded(settings.egress.clone(), settings.max_deliveries_per_host);
        Self::with_egress(egress, engine, settings, signature, tasks)
    }

    fn with_egress(
        egress: GuardedClient,
        engine: Engine,
        settings: PushSettings,
        signature: Option<NotificationSigner>,
        (tracker, stop): (TaskTracker, CancellationToken),
    ) -> Self {
        let permits = |number: usize| Semaphore::new(number.clamp(1, Semaphore::MAX_PERMITS));
        Self(Arc::new(DispatcherInner {
            engine,
            egress,
            healthy_permits: permits(settings.max_deliveries),
            failing_permits: permits(settings.max_deliveries),
            worker_permits: Arc::new(permits(settings.max_webhooks)),
            settings,
            signature,
            active: Mutex::default(),
            pending_webhooks: Notify::new(),
            tracker,
            stop,
        }))
    }

    /// Whether a webhook may be registered; `field` is where its url stands.
    ///
    /// # Errors
    /// Invalid parameters: we do not post there.
    pub(crate) async fn check_url(&self, url: &str, field: &'static str) -> Result<()> {
        self.0
            .egress
            .check(url)
            .await
            .map_err(|error| Error::invalid(field, error.to_string()))
    }

    /// Whether a caller may have one more webhook (S26). Those whom nobody knows are not counted: they are not one.
    ///
    /// # Errors
    /// Rate limited: some of their tasks have to end first.
    pub(crate) fn check_quota(
        &self,
        caller: &Caller,
        task: &TaskId,
        id: Option<&PushConfigId>,
    ) -> Result<()> {
        let active = self.0.active();
        let has = active.callers.get(caller).copied().unwrap_or_default();
        // One that takes the permit of another is not one more.
        let is_new = id.is_none_or(|id| !active.workers.contains_key(&(task.clone(), id.clone())));
        match is_new
            && has >= self.0.settings.max_webhooks_per_caller
            && *caller != Caller::anonymous()
        {
            true => Err(Error::new(ErrorKind::RateLimited)
                .with_message(
                    "as many webhooks of the caller are open as max_webhooks_per_caller allows",
                )
                .with_retry_after(RETRY_AFTER)),
            false => Ok(()),
        }
    }

    /// A webhook was registered, or registered anew: what happens to its task is delivered from now on.
    pub(crate) fn start_delivery(&self, task: &Head, id: &PushConfigId) {
        match self.0.worker_permits.clone().try_acquire_owned() {
            Ok(permit) => self.spawn_worker(task.clone(), id.clone(), permit),
            Err(_) => self.0.pending_webhooks.notify_one(),
        }
    }

    /// A webhook was removed: what is on its way is dropped.
    pub(crate) fn stop_delivery(&self, task: &TaskId, id: &PushConfigId) {
        if self.0.active().stop_worker(&(task.clone(), id.clone())) {
            tracing::info!(task = %task, webhook = %id, "deliveries dropped with their webhook");
        }
    }

    /// Takes up what was left over: by an earlier process, or because there was no place.
    pub(crate) async fn run(&self) -> Infallible {
        loop {
            match self.resume_pending().await {
                Ok(()) => self.0.pending_webhooks.notified().await,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "webhooks cannot be read"
                    );
                    tokio::time::sleep(STORE_RETRY_DELAY).await;
                }
            }
        }
    }

    /// Waits until nothing is on its way any more, after it was told to stop.
    pub(crate) async fn wait_stopped(&self) {
        self.0.tracker.close();
        self.0.tracker.wait().await;
    }

    async fn resume_pending(&self) -> crate::engine::Result<()> {
        let mut after = None;
        loop {
            let page = self
                .0
                .engine
                .list_webhooks(WebhookFilter::Active, after, RESUME_PAGE_SIZE)
                .await?;
            for webhook in &page {
                let Some(id) = webhook.registration.config.id.clone() else {
                    continue;
                };
                if self
                    .0
                    .active()
                    .workers
                    .contains_key(&(webhook.task.id.clone(), id.clone()))
                {
                    continue;
                }
                let Ok(permit) = self.0.worker_permits.clone().acquire_owned().await else {
                    return Ok(());
                };
                self.spawn_worker(webhook.task.clone(), id, permit);
            }
            match page.last() {
                Some(last) if page.len() == RESUME_PAGE_SIZE => after = Some(last.number),
                _ => return Ok(()),
            }
        }
    }

    /// Starts a worker, in the permit of the one that may be there.
    fn spawn_worker(&self, task: Head, id: PushConfigId, permit: OwnedSemaphorePermit) {
        let (name, stop) = ((task.id.clone(), id.clone()), self.0.stop.child_token());
        let number = self
            .0
            .active()
            .insert(name.clone(), task.scope.owner.clone(), stop.clone());
        let inner = self.0.clone();
        self.0.tracker.spawn(async move {
            let guard = WorkerGuard {
                inner: inner.clone(),
                name,
                number,
            };
            stop.run_until_cancelled(worker::run_worker(inner, task, id))
                .await;
            drop(permit);
            drop(guard);
        });
    }
}

/// A worker that has left, however it did.
struct WorkerGuard {
    inner: Arc<DispatcherInner>,
    name: WebhookKey,
    number: u64,
}

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        let mut active = self.inner.active();
        if active
            .workers
            .get(&self.name)
            .is_some_and(|worker| worker.number == self.number)
        {
            active.stop_worker(&self.name);
        }
    }
}

impl DispatcherInner {
    fn active(&self) -> MutexGuard<'_, ActiveWorkers> {
        // Every section leaves the map whole.
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody may wait for a place.
    fn is_at_capacity(&self) -> bool {
        self.worker_permits.available_permits() == 0
    }
}
