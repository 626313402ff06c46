//! A reader of the log that posts to webhooks and remembers how far it got.
//!
//! Each webhook of a task has a worker of its own, off the path of the task: it follows the log from the position that
//! is recorded for it, and records the next one when that was delivered. So nothing is lost over a restart, what was not
//! recorded is sent again under the same id, and a webhook that is down holds up nobody but itself.

mod deliveries;
mod notice;
mod settings;
#[cfg(feature = "jws")]
mod signature;
#[cfg(not(feature = "jws"))]
#[path = "push/no_signature.rs"]
mod signature;
#[cfg(test)]
mod tests;
mod verdict;
mod worker;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::egress::{Egress, Guarded};
use crate::engine::Engine;
use crate::model::{Caller, Error, ErrorKind, PushConfigId, Result, TaskId};
use crate::store::{Head, Which};

pub use deliveries::{Deliveries, Letter, Stopped};
pub use settings::PushSettings;
pub(crate) use signature::Signature;

/// How many webhooks are looked at together.
const PAGE: usize = 100;
/// How long to wait where the store has failed.
const PAUSE: Duration = Duration::from_secs(5);
/// How long a caller with too many webhooks is told to wait.
const RETRY_AFTER: Duration = Duration::from_secs(30);

/// Calls webhooks. A clone is the same one.
#[derive(Clone)]
pub(crate) struct Pushes(Arc<Inner>);

struct Inner {
    engine: Engine,
    door: Guarded,
    settings: PushSettings,
    /// Who signs notifications, if they are signed.
    signature: Option<Signature>,
    /// Deliveries to webhooks that answer, and to those that did not the last time.
    answering: Semaphore,
    failing: Semaphore,
    /// For workers.
    places: Arc<Semaphore>,
    active: Mutex<Active>,
    /// Some webhooks have no worker.
    left_over: Notify,
    tracker: TaskTracker,
    stop: CancellationToken,
}

/// Which webhooks have a worker, and how to stop it.
#[derive(Default)]
struct Active {
    workers: HashMap<Name, Hired>,
    /// How many webhooks each caller has.
    callers: HashMap<Caller, usize>,
    last: u64,
}

type Name = (TaskId, PushConfigId);

/// A worker, for whom, and how to stop it.
struct Hired {
    number: u64,
    caller: Caller,
    stop: CancellationToken,
}

impl Active {
    /// Takes a worker in, in the place of the one that may be there; gives its number.
    fn hire(&mut self, name: Name, caller: Caller, stop: CancellationToken) -> u64 {
        self.dismiss(&name);
        self.last += 1;
        *self.callers.entry(caller.clone()).or_default() += 1;
        self.workers.insert(
            name,
            Hired {
                number: self.last,
                caller,
                stop,
            },
        );
        self.last
    }

    /// Stops the worker of a webhook; `false` if it has none.
    fn dismiss(&mut self, name: &Name) -> bool {
        let Some(Hired { caller, stop, .. }) = self.workers.remove(name) else {
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

impl Pushes {
    /// Calls webhooks, on `tracker`, until `stop` is cancelled.
    pub(crate) fn new(
        engine: Engine,
        settings: PushSettings,
        signature: Option<Signature>,
        tasks: (TaskTracker, CancellationToken),
    ) -> Self {
        let door = Egress::guarded(settings.reach.clone(), settings.max_deliveries_per_host);
        Self::through(door, engine, settings, signature, tasks)
    }

    fn through(
        door: Guarded,
        engine: Engine,
        settings: PushSettings,
        signature: Option<Signature>,
        (tracker, stop): (TaskTracker, CancellationToken),
    ) -> Self {
        let most = |number: usize| Semaphore::new(number.clamp(1, Semaphore::MAX_PERMITS));
        Self(Arc::new(Inner {
            engine,
            door,
            answering: most(settings.max_deliveries),
            failing: most(settings.max_deliveries),
            places: Arc::new(most(settings.max_webhooks)),
            settings,
            signature,
            active: Mutex::default(),
            left_over: Notify::new(),
            tracker,
            stop,
        }))
    }

    /// Whether a webhook may be registered; `field` is where its url stands.
    ///
    /// # Errors
    /// Invalid parameters: we do not post there.
    pub(crate) async fn check(&self, url: &str, field: &'static str) -> Result<()> {
        self.0
            .door
            .check(url)
            .await
            .map_err(|why| Error::invalid(field, why.to_string()))
    }

    /// Whether a caller may have one more webhook (S26). Those whom nobody knows are not counted: they are not one.
    ///
    /// # Errors
    /// Rate limited: some of their tasks have to end first.
    pub(crate) fn room(
        &self,
        caller: &Caller,
        task: &TaskId,
        id: Option<&PushConfigId>,
    ) -> Result<()> {
        let active = self.0.active();
        let has = active.callers.get(caller).copied().unwrap_or_default();
        // One that takes the place of another is not one more.
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
    pub(crate) fn registered(&self, task: &Head, id: &PushConfigId) {
        match self.0.places.clone().try_acquire_owned() {
            Ok(place) => self.start(task.clone(), id.clone(), place),
            Err(_) => self.0.left_over.notify_one(),
        }
    }

    /// A webhook was removed: what is on its way is dropped.
    pub(crate) fn removed(&self, task: &TaskId, id: &PushConfigId) {
        if self.0.active().dismiss(&(task.clone(), id.clone())) {
            tracing::info!(task = %task, webhook = %id, "deliveries dropped with their webhook");
        }
    }

    /// Takes up what was left over: by an earlier process, or because there was no place.
    pub(crate) async fn keep_delivering(&self) -> Infallible {
        loop {
            match self.take_up().await {
                Ok(()) => self.0.left_over.notified().await,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "webhooks cannot be read"
                    );
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }
    }

    /// Waits until nothing is on its way any more, after it was told to stop.
    pub(crate) async fn ended(&self) {
        self.0.tracker.close();
        self.0.tracker.wait().await;
    }

    async fn take_up(&self) -> crate::engine::Result<()> {
        let mut after = None;
        loop {
            let page = self.0.engine.pushes(Which::Open, after, PAGE).await?;
            for push in &page {
                let Some(id) = push.registered.config.id.clone() else {
                    continue;
                };
                if self
                    .0
                    .active()
                    .workers
                    .contains_key(&(push.task.id.clone(), id.clone()))
                {
                    continue;
                }
                let Ok(place) = self.0.places.clone().acquire_owned().await else {
                    return Ok(());
                };
                self.start(push.task.clone(), id, place);
            }
            match page.last() {
                Some(last) if page.len() == PAGE => after = Some(last.number),
                _ => return Ok(()),
            }
        }
    }

    /// Starts a worker, in the place of the one that may be there.
    fn start(&self, task: Head, id: PushConfigId, place: OwnedSemaphorePermit) {
        let (name, stop) = ((task.id.clone(), id.clone()), self.0.stop.child_token());
        let number = self
            .0
            .active()
            .hire(name.clone(), task.scope.owner.clone(), stop.clone());
        let inner = self.0.clone();
        self.0.tracker.spawn(async move {
            let left = Left {
                inner: inner.clone(),
                name,
                number,
            };
            stop.run_until_cancelled(worker::deliver(inner, task, id))
                .await;
            drop(place);
            drop(left);
        });
    }
}

/// A worker that has left, however it did.
struct Left {
    inner: Arc<Inner>,
    name: Name,
    number: u64,
}

impl Drop for Left {
    fn drop(&mut self) {
        let mut active = self.inner.active();
        if active
            .workers
            .get(&self.name)
            .is_some_and(|hired| hired.number == self.number)
        {
            active.dismiss(&self.name);
        }
    }
}

impl Inner {
    fn active(&self) -> MutexGuard<'_, Active> {
        // Every section leaves the map whole.
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether somebody may wait for a place.
    fn is_crowded(&self) -> bool {
        self.places.available_permits() == 0
    }
}
