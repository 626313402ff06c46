//! Dedicated threads for blocking work, shared fairly between its owners.
//!
//! Tokio has one pool of blocking threads. Work of one kind that hangs there delays all other kinds. Each kind of
//! blocking work (store reads, name lookups, parsing of large bodies) therefore has a [`ThreadPool`] of its own.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::Hash;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use super::lock;

/// Limits of a [`ThreadPool`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct PoolLimits {
    /// Maximum number of threads. They start on demand.
    pub(crate) threads: usize,
    /// Maximum number of threads that run jobs of one owner.
    pub(crate) threads_per_owner: usize,
    /// Maximum number of waiting jobs of one owner.
    pub(crate) queue_per_owner: usize,
}

/// Pool of named threads with a bounded queue for each owner. Owners with waiting jobs are served in turn.
///
/// Dropping the pool discards waiting jobs. Running jobs end on their own.
pub(crate) struct ThreadPool<K: Eq + Hash + Clone + Send + 'static>(Arc<PoolInner<K>>);

/// Reason why a job has no result.
#[derive(Debug)]
pub(crate) enum PoolError {
    /// The owner has `queue_per_owner` waiting jobs.
    QueueFull,
    /// The job panicked. The panic hook has reported it.
    Panicked,
    /// No thread could be started.
    NoThread(io::Error),
}

impl fmt::Display for PoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull => f.write_str("too many jobs are waiting"),
            Self::Panicked => f.write_str("the job panicked"),
            Self::NoThread(error) => write!(f, "cannot start a thread: {error}"),
        }
    }
}

impl std::error::Error for PoolError {}

struct PoolInner<K> {
    name: &'static str,
    limits: PoolLimits,
    state: Mutex<PoolState<K>>,
    job_ready: Condvar,
}

struct PoolState<K> {
    /// Owners with waiting or running jobs.
    owners: HashMap<K, OwnerJobs>,
    /// Owners that have a waiting job and a free share, each once, in the order of service.
    turns: VecDeque<K>,
    threads: usize,
    /// Threads that wait and have not been woken.
    idle_threads: usize,
    /// Threads that were woken and have not started to run yet.
    woken_threads: usize,
    is_closed: bool,
}

/// Jobs of one owner.
#[derive(Default)]
struct OwnerJobs {
    waiting: VecDeque<Box<dyn Job>>,
    running: usize,
}

impl OwnerJobs {
    /// Whether the owner has used its share and its queue. Counts both together: a job that a thread is about to take
    /// does not occupy the queue.
    fn is_full(&self, limits: &PoolLimits) -> bool {
        self.running + self.waiting.len() >= limits.threads_per_owner + limits.queue_per_owner
    }
}

/// Type-erased [`ReplyingJob`].
trait Job: Send {
    /// Whether the result has no receiver any more.
    fn is_abandoned(&self) -> bool;

    fn run(self: Box<Self>);
}

/// Job with the channel for its result.
struct ReplyingJob<T, F> {
    run: F,
    reply: oneshot::Sender<T>,
}

impl<T: Send, F: FnOnce() -> T + Send> Job for ReplyingJob<T, F> {
    fn is_abandoned(&self) -> bool {
        self.reply.is_closed()
    }

    fn run(self: Box<Self>) {
        let Self { run, reply } = *self;
        if reply.is_closed() {
            return;
        }
        // Unwind safe: a panic drops `reply`, and the state of the job with it.
        if let Ok(result) = catch_unwind(AssertUnwindSafe(run)) {
            let _ = reply.send(result);
        }
    }
}

impl<K: Eq + Hash + Clone + Send + 'static> ThreadPool<K> {
    /// Creates a pool whose threads have this name. No thread is started yet.
    pub(crate) fn new(name: &'static str, limits: PoolLimits) -> Self {
        let limits = PoolLimits {
            threads: limits.threads.max(1),
            threads_per_owner: limits.threads_per_owner.max(1),
            queue_per_owner: limits.queue_per_owner.max(1),
        };
        Self(Arc::new(PoolInner {
            name,
            limits,
            state: Mutex::new(PoolState::new()),
            job_ready: Condvar::new(),
        }))
    }

    /// Runs a job on one of the threads, and returns its result.
    ///
    /// Waits while all threads, or those of the owner's share, are busy. If the future is dropped, a waiting job is
    /// discarded and a running one ends without a receiver.
    ///
    /// # Errors
    /// The queue of the owner is full; the job panicked; no thread could be started.
    pub(crate) async fn run<T, F>(&self, owner: &K, job: F) -> Result<T, PoolError>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (reply, result) = oneshot::channel();
        self.submit(owner, Box::new(ReplyingJob { run: job, reply }))?;
        result.await.map_err(|_| PoolError::Panicked)
    }

    fn submit(&self, owner: &K, job: Box<dyn Job>) -> Result<(), PoolError> {
        let inner = &self.0;
        let mut state = lock(&inner.state);
        // Dropped after the lock: dropping a job runs code of its owner, which may submit or drop the pool.
        let abandoned = state.discard_abandoned(owner, &inner.limits);
        let is_runnable = state.enqueue(owner, job, &inner.limits)?;
        if is_runnable && state.idle_threads > 0 {
            state.idle_threads -= 1;
            state.woken_threads += 1;
            inner.job_ready.notify_one();
        } else if is_runnable && state.threads < inner.limits.threads {
            inner.start_thread(&mut state)?;
        }
        drop(state);
        drop(abandoned);
        Ok(())
    }
}

impl<K: Eq + Hash + Clone + Send + 'static> Drop for ThreadPool<K> {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.is_closed = true;
        let discarded = std::mem::take(&mut state.owners);
        state.turns.clear();
        drop(state);
        drop(discarded);
        self.0.job_ready.notify_all();
    }
}

impl<K: Eq + Hash + Clone + Send + 'static> fmt::Debug for ThreadPool<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ThreadPool")
            .field("name", &self.0.name)
            .field("limits", &self.0.limits)
            .finish_non_exhaustive()
    }
}

impl<K: Eq + Hash + Clone + Send + 'static> PoolInner<K> {
    /// Starts one more thread. If that fails, the jobs wait for the running threads.
    ///
    /// # Errors
    /// There is no thread at all.
    fn start_thread(self: &Arc<Self>, state: &mut PoolState<K>) -> Result<(), PoolError> {
        let inner = self.clone();
        let started = std::thread::Builder::new()
            .name(self.name.to_owned())
            .spawn(move || inner.run_thread());
        match started {
            Ok(_) => state.threads += 1,
            Err(error) if state.threads == 0 => return Err(PoolError::NoThread(error)),
            Err(_) => {}
        }
        Ok(())
    }

    /// Main function of a thread. Returns when the pool is dropped.
    fn run_thread(&self) {
        let mut state = lock(&self.state);
        loop {
            while let Some((owner, job)) = state.next_job(&self.limits) {
                drop(state);
                job.run();
                state = lock(&self.state);
                state.finish(&owner, &self.limits);
            }
            if state.is_closed {
                return;
            }
            state = self.wait(state);
        }
    }

    /// Waits until a job is ready or the pool is dropped.
    fn wait<'a>(&self, mut state: MutexGuard<'a, PoolState<K>>) -> MutexGuard<'a, PoolState<K>> {
        state.idle_threads += 1;
        let is_waiting = |state: &mut PoolState<K>| state.woken_threads == 0 && !state.is_closed;
        let mut state = self
            .job_ready
            .wait_while(state, is_waiting)
            .unwrap_or_else(PoisonError::into_inner);
        state.woken_threads = state.woken_threads.saturating_sub(1);
        state
    }
}

impl<K: Eq + Hash + Clone> PoolState<K> {
    fn new() -> Self {
        Self {
            owners: HashMap::new(),
            turns: VecDeque::new(),
            threads: 0,
            idle_threads: 0,
            woken_threads: 0,
            is_closed: false,
        }
    }

    /// Adds a job to the queue of its owner. Returns whether a free thread may run it now.
    fn enqueue(
        &mut self,
        owner: &K,
        job: Box<dyn Job>,
        limits: &PoolLimits,
    ) -> Result<bool, PoolError> {
        let jobs = self.owners.entry(owner.clone()).or_default();
        if jobs.is_full(limits) {
            return Err(PoolError::QueueFull);
        }
        let has_share = jobs.running < limits.threads_per_owner;
        if has_share && jobs.waiting.is_empty() {
            self.turns.push_back(owner.clone());
        }
        jobs.waiting.push_back(job);
        Ok(has_share)
    }

    /// Removes the abandoned jobs of an owner whose queue is full.
    fn discard_abandoned(&mut self, owner: &K, limits: &PoolLimits) -> VecDeque<Box<dyn Job>> {
        let Some(jobs) = self.owners.get_mut(owner) else {
            return VecDeque::new();
        };
        if !jobs.is_full(limits) {
            return VecDeque::new();
        }
        let (abandoned, waiting) = std::mem::take(&mut jobs.waiting)
            .into_iter()
            .partition(|job| job.is_abandoned());
        jobs.waiting = waiting;
        if jobs.waiting.is_empty() {
            self.turns.retain(|other| other != owner);
        }
        abandoned
    }

    /// Takes the first job of the owner whose turn it is.
    fn next_job(&mut self, limits: &PoolLimits) -> Option<(K, Box<dyn Job>)> {
        let owner = self.turns.pop_front()?;
        let jobs = self.owners.get_mut(&owner)?;
        let job = jobs.waiting.pop_front()?;
        jobs.running += 1;
        if !jobs.waiting.is_empty() && jobs.running < limits.threads_per_owner {
            self.turns.push_back(owner.clone());
        }
        Some((owner, job))
    }

    /// Records that a job of an owner has ended.
    fn finish(&mut self, owner: &K, limits: &PoolLimits) {
        let Some(jobs) = self.owners.get_mut(owner) else {
            return;
        };
        let had_share = jobs.running < limits.threads_per_owner;
        jobs.running -= 1;
        if jobs.waiting.is_empty() && jobs.running == 0 {
            self.owners.remove(owner);
        } else if !jobs.waiting.is_empty() && !had_share {
            self.turns.push_back(owner.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const LIMITS: PoolLimits = PoolLimits {
        threads: 3,
        threads_per_owner: 2,
        queue_per_owner: 2,
    };

    /// Submits a job that ends when the returned sender is dropped. Returns after it has started or was queued.
    fn submit_hanging(
        pool: &ThreadPool<&'static str>,
        owner: &'static str,
    ) -> Result<(mpsc::SyncSender<()>, oneshot::Receiver<()>), PoolError> {
        let (end, ended) = mpsc::sync_channel::<()>(0);
        let (reply, result) = oneshot::channel();
        let run = move || {
            let _ = ended.recv();
        };
        pool.submit(&owner, Box::new(ReplyingJob { run, reply }))?;
        Ok((end, result))
    }

    async fn answer(pool: &ThreadPool<&'static str>, owner: &'static str) -> Option<u8> {
        let answer = timeout(Duration::from_secs(20), pool.run(&owner, || 7)).await;
        answer.expect("a free thread runs the job").ok()
    }

    #[tokio::test]
    async fn d01_hanging_jobs_occupy_only_the_share_of_their_owner() {
        let pool = ThreadPool::new("test", LIMITS);
        let hanging: Vec<_> = (0..4).map(|_| submit_hanging(&pool, "mallory")).collect();
        assert!(hanging.iter().all(Result::is_ok), "2 run, 2 wait");
        assert!(matches!(
            submit_hanging(&pool, "mallory"),
            Err(PoolError::QueueFull)
        ));
        for owner in ["alice", "bob", "alice"] {
            assert_eq!(answer(&pool, owner).await, Some(7), "{owner}");
        }
    }

    #[tokio::test]
    async fn owners_are_served_in_turn() {
        let limits = PoolLimits {
            threads: 1,
            ..LIMITS
        };
        let pool = ThreadPool::new("test", limits);
        let (end, _) = submit_hanging(&pool, "first").unwrap();
        let order = Arc::new(Mutex::new(Vec::new()));
        let submit = |owner| {
            let order = order.clone();
            let (reply, done) = oneshot::channel();
            let run = move || lock(&order).push(owner);
            let job = Box::new(ReplyingJob { run, reply });
            pool.submit(&owner, job).unwrap();
            done
        };
        let jobs = ["mallory", "mallory", "alice"].map(submit);
        drop(end);
        for job in jobs {
            timeout(Duration::from_secs(20), job)
                .await
                .unwrap()
                .unwrap();
        }
        assert_eq!(*lock(&order), ["mallory", "alice", "mallory"]);
    }

    #[tokio::test]
    async fn abandoned_jobs_free_their_queue() {
        let pool = ThreadPool::new("test", LIMITS);
        let running = [(); 2].map(|()| submit_hanging(&pool, "mallory").unwrap());
        for _ in 0..10 {
            // The receiver is dropped, as if the caller had gone.
            submit_hanging(&pool, "mallory").unwrap();
        }
        drop(running);
        assert_eq!(answer(&pool, "mallory").await, Some(7));
    }

    #[tokio::test]
    async fn a_panic_fails_its_own_job_only() {
        let pool = ThreadPool::new("test", LIMITS);
        let panicked = pool.run(&"alice", || panic!("expected by this test")).await;
        assert!(matches!(panicked, Err::<(), _>(PoolError::Panicked)));
        assert_eq!(answer(&pool, "alice").await, Some(7));
    }
}
