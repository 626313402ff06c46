//! Small runtime helpers shared by several modules: locking, cancellation, conditional polling, fair queueing,
//! byte budgets, connection limits, private files, threads.

#[cfg(feature = "server")]
mod byte_budget;
#[cfg(feature = "server")]
mod byte_waiters;
#[cfg(feature = "server")]
pub(crate) mod cancel;
#[cfg(feature = "server")]
mod fair_semaphore;
#[cfg(feature = "client")]
mod keyed_budget;
#[cfg(feature = "client")]
mod listener;
#[cfg(feature = "server")]
mod private_file;
#[cfg(feature = "client")]
mod thread_pool;
#[cfg(feature = "server")]
mod wake_flag;
#[cfg(feature = "server")]
mod write_timeout;

use std::sync::{Mutex, MutexGuard, PoisonError};
#[cfg(feature = "server")]
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(feature = "server")]
pub(crate) use byte_budget::{ByteBudget, OutgoingLimits, Reservation, is_counted};
#[cfg(feature = "server")]
pub use fair_semaphore::{FairPermit, FairSemaphore};
#[cfg(feature = "server")]
pub(crate) use keyed_budget::{BudgetLimits, ExceededLimit, KeyedBudget};
#[cfg(feature = "client")]
pub(crate) use listener::run_until_evicted;
#[cfg(feature = "client")]
pub use listener::{AcceptedConnection, ConnectionLimits, ConnectionPermit, LimitedListener};
#[cfg(feature = "server")]
pub(crate) use private_file::create_private_file;
#[cfg(feature = "client")]
pub(crate) use thread_pool::{PoolError, PoolLimits, ThreadPool};
#[cfg(feature = "server")]
pub(crate) use wake_flag::WakeFlag;
#[cfg(feature = "server")]
pub use write_timeout::WriteTimeout;

/// Locks a mutex and ignores poisoning: critical sections leave their data consistent at every point that can panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for reading and ignores poisoning, like [`lock`].
#[cfg(feature = "server")]
pub(crate) fn read_lock<T>(lock: &RwLock<T>) -> RwLockReadGuard<'_, T> {
    lock.read().unwrap_or_else(PoisonError::into_inner)
}

/// Locks for writing and ignores poisoning, like [`lock`].
#[cfg(feature = "server")]
pub(crate) fn write_lock<T>(lock: &RwLock<T>) -> RwLockWriteGuard<'_, T> {
    lock.write().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the size of the future that a function returns, without calling it.
#[cfg(all(test, feature = "server"))]
pub(crate) fn future_size<A, F: Future>(_: impl FnOnce(A) -> F) -> usize {
    size_of::<F>()
}
