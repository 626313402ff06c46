//! Locking helper for the mutexes of this crate.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks a mutex and ignores poisoning.
///
/// Every mutex of this crate guards data that is consistent between any two statements, so a panic of another thread
/// leaves no partial update behind.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
