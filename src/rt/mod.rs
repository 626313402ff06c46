//! Small runtime helpers shared by several modules: locking, cancellation, conditional polling.

#[cfg(feature = "server")]
pub(crate) mod cancel;
#[cfg(feature = "server")]
mod wake_flag;

use std::sync::{Mutex, MutexGuard, PoisonError};

#[cfg(feature = "server")]
pub(crate) use wake_flag::WakeFlag;

/// Locks a mutex and ignores poisoning: every critical section of this crate leaves its data consistent even if it panics.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
