//! Starts and stops the delivery worker of each webhook.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::active_workers::{ActiveWorkers, WebhookKey};
use super::bodies::NotificationBodies;
use super::{NotificationSigner, PushSettings, worker};
use crate::egress::{Egress, GuardedClient};
use crate::engine::{self, Engine};
use crate::model::{Caller, CallerKey, Error, ErrorKind, PushConfigId, Result, TaskId};
use crate::rt::{ByteBudget, lock};
use crate::store::{Head, Holder, Webhook, WebhookFilter};

/// Number of webhooks read per page when pending deliveries are resumed.
const RESUME_PAGE_SIZE: usize = 100;
/// Delay before a failed store operation is retried.
pub(super) const STORE_RETRY_DELAY: Duration = Duration::from_secs(5);
/// `Retry-After` of a refused webhook.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Delivers push notifications to webhooks. Clones share their state.
#[derive(Clone)]
pub(crate) struct PushDispatcher(pub(super) Arc<DispatcherInner>);

pub(super) struct DispatcherInner {
    pub(super) engine: Engine,
    pub(super) egress: GuardedClient,
    pub(super) settings: PushSettings,
    pub(super) bodies: NotificationBodies,
    /// Signs notifications, if configured.
    pub(super) signer: Option<NotificationSigner>,
    /// Concurrent first attempts.
    pub(super) healthy_permits: Semaphore,
    /// Concurrent retries. Separate, so that failing webhooks do not delay healthy ones.
    pub(super) failing_permits: Semaphore,
    worker_permits: Arc<Semaphore>,
    pub(super) workers: Mutex<ActiveWorkers>,
    /// Notified when a webhook has no worker because all permits were in use.
    pub(super) pending_webhooks: Notify,
    /// Returns whether all credentials of a caller were revoked.
    revocation_check: OnceLock<RevocationCheck>,
    tracker: TaskTracker,
    stop: CancellationToken,
}

type RevocationCheck = Box<dyn Fn(&Caller) -> bool + Send + Sync>;

impl PushDispatcher {
    /// Creates a dispatcher whose workers run on `tracker` until `stop` is cancelled. Large bodies count against
    /// `outgoing`.
    pub(crate) fn new(
        engine: Engine,
        settings: PushSettings,
        outgoing: Option<Arc<ByteBudget>>,
        signer: Option<NotificationSigner>,
        tracker: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let egress = Egress::guarded(settings.egress.clone(), settings.max_deliveries_per_host);
        let bodies = NotificationBodies::new(outgoing);
        Self::with_egress(egress, bodies, engine, settings, signer, tracker, stop)
    }

    pub(super) fn with_egress(
        egress: GuardedClient,
        bodies: NotificationBodies,
        engine: Engine,
        settings: PushSettings,
        signer: Option<NotificationSigner>,
        tracker: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        let permits = |number: usize| Semaphore::new(number.clamp(1, Semaphore::MAX_PERMITS));
        Self(Arc::new(DispatcherInner {
            engine,
            egress,
            healthy_permits: permits(settings.max_deliveries),
            failing_permits: permits(settings.max_deliveries),
            worker_permits: Arc::new(permits(settings.max_webhooks)),
            settings,
            bodies,
            signer,
            workers: Mutex::default(),
            pending_webhooks: Notify::new(),
            revocation_check: OnceLock::new(),
            tracker,
            stop,
        }))
    }

    /// Sets the check whether all credentials of a caller were revoked. The webhooks of such a caller end. Without a check
    /// none do; a second check is ignored.
    pub(crate) fn set_revocation_check(
        &self,
        check: impl Fn(&Caller) -> bool + Send + Sync + 'static,
    ) {
        let _ = self.0.revocation_check.set(Box::new(check));
    }

    /// Checks the webhook URL of a caller against the egress policy. `field` is the path of the URL in the request.
    ///
    /// # Errors
    /// Invalid parameters: the policy forbids the target. Rate limited: the caller has too many name lookups.
    pub(crate) async fn check_url(
        &self,
        caller: CallerKey,
        url: &str,
        field: &'static str,
    ) -> Result<()> {
        let checked = self.0.egress.check_for(caller, url).await;
        checked.map_err(|error| error.into_error(field))
    }

    /// Checks that a caller may register one more webhook (S26). Anonymous callers share one identity and have no quota.
    ///
    /// # Errors
    /// Rate limited: the caller has `max_webhooks_per_caller` webhooks of tasks that have not ended.
    pub(crate) async fn check_quota(
        &self,
        caller: &Caller,
        task: &TaskId,
        id: Option<&PushConfigId>,
    ) -> Result<()> {
        if *caller == Caller::anonymous() {
            return Ok(());
        }
        let max = self.0.settings.max_webhooks_per_caller;
        let (is_new, mut count) = {
            let workers = lock(&self.0.workers);
            // A webhook that replaces another does not count as new.
            let is_new = id.is_none_or(|id| !workers.contains(&(task.clone(), id.clone())));
            (is_new, workers.webhook_count(caller))
        };
        if is_new && self.0.engine.is_shared() {
            let counted = self.0.engine.count_open_webhooks(caller).await?;
            count = counted.map_or(count, |counted| usize::try_from(counted).unwrap_or(max));
        }
        if !is_new || count < max {
            return Ok(());
        }
        Err(Error::new(ErrorKind::RateLimited)
            .with_message(format!(
                "too many open webhooks for this caller (limit: max_webhooks_per_caller = {max})"
            ))
            .with_retry_after(RETRY_AFTER))
    }

    /// Starts delivery to a webhook that was registered or replaced. Without a free permit it is resumed later.
    pub(crate) fn start_delivery(&self, task: &Head, id: &PushConfigId) {
        match self.0.worker_permits.clone().try_acquire_owned() {
            Ok(permit) => self.spawn_worker(task.clone(), id.clone(), permit),
            Err(_) => self.0.pending_webhooks.notify_one(),
        }
    }

    /// Stops delivery to a webhook that was deleted. Undelivered notifications are dropped.
    pub(crate) fn stop_delivery(&self, task: &TaskId, id: &PushConfigId) {
        if lock(&self.0.workers).stop(&(task.clone(), id.clone())) {
            tracing::info!(task = %task, webhook = %id, "webhook deleted; pending notifications dropped");
        }
    }

    /// Resumes webhooks without a worker, and takes over those of removed replicas.
    pub(crate) async fn run(&self) -> Infallible {
        let (never, _) = tokio::join!(self.run_resumption(), self.run_takeovers());
        never
    }

    /// Takes over webhooks whose holder has left or was evicted.
    async fn run_takeovers(&self) -> Infallible {
        loop {
            self.0.engine.wait_for_webhook_takeover().await;
            if let Err(error) = self.take_over().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "cannot take over webhooks; retrying"
                );
                tokio::time::sleep(STORE_RETRY_DELAY).await;
            }
        }
    }

    /// Takes over at most as many webhooks as have a permit. Other replicas take the rest.
    async fn take_over(&self) -> engine::Result<()> {
        loop {
            let free = self.0.worker_permits.available_permits();
            let limit = free.min(RESUME_PAGE_SIZE);
            if limit == 0 {
                return Ok(());
            }
            let taken = self.0.engine.take_over_webhooks(limit).await?;
            if !taken.is_empty() {
                tracing::info!(count = taken.len(), "webhooks taken over");
            }
            for webhook in &taken {
                let Some(id) = webhook.registration.config.id.clone() else {
                    continue;
                };
                let Ok(permit) = self.0.worker_permits.clone().acquire_owned().await else {
                    return Ok(());
                };
                self.spawn_worker(webhook.task.clone(), id, permit);
            }
            if taken.len() < limit {
                return Ok(());
            }
        }
    }

    /// Resumes webhooks without a worker: left by an earlier process, or started while no permit was free.
    async fn run_resumption(&self) -> Infallible {
        loop {
            match self.resume_pending().await {
                Ok(()) => self.0.pending_webhooks.notified().await,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "cannot read webhooks; retrying"
                    );
                    tokio::time::sleep(STORE_RETRY_DELAY).await;
                }
            }
        }
    }

    /// Waits for all workers to end. The token must have been cancelled.
    pub(crate) async fn wait_stopped(&self) {
        self.0.tracker.close();
        self.0.tracker.wait().await;
    }

    async fn resume_pending(&self) -> engine::Result<()> {
        let engine = &self.0.engine;
        let mut after = None;
        loop {
            let page = engine
                .list_webhooks(WebhookFilter::Active, after, RESUME_PAGE_SIZE)
                .await?;
            for webhook in page.iter().filter(|webhook| self.0.may_deliver(webhook)) {
                let Some(id) = webhook.registration.config.id.clone() else {
                    continue;
                };
                let key = (webhook.task.id.clone(), id.clone());
                if lock(&self.0.workers).contains(&key) {
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

    /// Starts a worker and stops its predecessor.
    fn spawn_worker(&self, task: Head, id: PushConfigId, permit: OwnedSemaphorePermit) {
        let webhook = (task.id.clone(), id.clone());
        let stop = self.0.stop.child_token();
        let number =
            lock(&self.0.workers).insert(webhook.clone(), task.scope.owner.clone(), stop.clone());
        let inner = self.0.clone();
        self.0.tracker.spawn(async move {
            let guard = WorkerGuard {
                inner: inner.clone(),
                webhook,
                number,
            };
            stop.run_until_cancelled(worker::run_worker(inner, task, id))
                .await;
            drop(permit);
            drop(guard);
        });
    }
}

impl DispatcherInner {
    /// Whether all credentials of a caller were revoked.
    pub(super) fn is_revoked(&self, caller: &Caller) -> bool {
        let check = self.revocation_check.get();
        check.is_some_and(|check| check(caller))
    }

    /// Whether this process delivers to a webhook: on a shared store its holder does.
    pub(super) fn may_deliver(&self, webhook: &Webhook) -> bool {
        !self.engine.is_shared() || webhook.holder == Holder::Local
    }

    /// Whether webhooks may be waiting for a worker permit.
    pub(super) fn is_at_capacity(&self) -> bool {
        self.worker_permits.available_permits() == 0
    }
}

/// Removes a worker from the registry on drop: when it finishes, is cancelled or panics.
struct WorkerGuard {
    inner: Arc<DispatcherInner>,
    webhook: WebhookKey,
    number: u64,
}

impl Drop for WorkerGuard {
    fn drop(&mut self) {
        lock(&self.inner.workers).remove_finished(&self.webhook, self.number);
    }
}
