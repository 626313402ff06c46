//! Memory budget of request bodies: in total, and for each caller.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::model::{CallerKey, Error, ErrorKind, Result};
use crate::rt::{BudgetLimits, ExceededLimit, KeyedBudget};
use crate::server::body_decoder::MAX_INLINE_BYTES;
use crate::telemetry::metrics;

/// `Retry-After` of a request that exceeds the shared budget.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Bytes that the bodies occupy until they are decoded. Bounds the memory of slow senders (S62), and of bodies that wait for
/// a decoder thread (D5).
pub(in crate::server) type BodyBudget = KeyedBudget<CallerKey>;

/// Share of a [`BodyBudget`] that one body occupies. Released on drop.
///
/// Bytes are counted when the body waits for more of them. Most bodies arrive in one frame, and are
/// parsed before anything else runs. A large body is counted until it is decoded.
pub(super) struct BodyReservation<'a, K: FnOnce() -> CallerKey> {
    budget: &'a Arc<BodyBudget>,
    limits: BudgetLimits,
    bytes: usize,
    /// Returns the caller, until bytes are counted.
    find_caller: Option<K>,
    /// Caller whose share the bytes count against, once they do.
    caller: Option<CallerKey>,
}

impl<'a, K: FnOnce() -> CallerKey> BodyReservation<'a, K> {
    /// Creates the reservation of a body that has no bytes yet.
    pub(super) fn new(budget: &'a Arc<BodyBudget>, limits: BudgetLimits, find_caller: K) -> Self {
        Self {
            budget,
            limits,
            bytes: 0,
            find_caller: Some(find_caller),
            caller: None,
        }
    }

    /// Counts the bytes so far and all further ones. A body without bytes occupies nothing yet.
    ///
    /// # Errors
    /// Unavailable: a limit is reached.
    pub(super) fn start_counting(&mut self) -> Result<()> {
        if self.bytes == 0 {
            return Ok(());
        }
        let Some(find_caller) = self.find_caller.take() else {
            return Ok(());
        };
        let caller = find_caller();
        self.reserve(&caller, self.bytes)?;
        self.caller = Some(caller);
        Ok(())
    }

    /// Extends the reservation to a body of `length` bytes.
    ///
    /// # Errors
    /// Unavailable: a limit is reached.
    pub(super) fn grow(&mut self, length: usize) -> Result<()> {
        let more = length.saturating_sub(self.bytes);
        if let Some(caller) = &self.caller {
            self.reserve(caller, more)?;
        }
        self.bytes += more;
        Ok(())
    }

    fn reserve(&self, caller: &CallerKey, bytes: usize) -> Result<()> {
        let reserved = self.budget.reserve(caller, bytes, self.limits);
        reserved.map_err(|exceeded| budget_exceeded(exceeded, self.limits))
    }

    /// Returns the complete body. It holds the reservation if it is to be decoded on another thread.
    ///
    /// # Errors
    /// Unavailable: a limit is reached.
    pub(super) fn complete(mut self, body: Bytes) -> Result<Bytes> {
        if body.len() <= MAX_INLINE_BYTES {
            return Ok(body);
        }
        self.start_counting()?;
        let Some(caller) = self.caller.take() else {
            return Ok(body);
        };
        Ok(Bytes::from_owner(CountedBytes {
            body,
            budget: self.budget.clone(),
            caller,
            reserved: self.bytes,
        }))
    }
}

/// Complete body that counts against the budget until it is dropped.
struct CountedBytes {
    body: Bytes,
    budget: Arc<BodyBudget>,
    caller: CallerKey,
    reserved: usize,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.body
    }
}

impl Drop for CountedBytes {
    fn drop(&mut self) {
        self.budget.release(&self.caller, self.reserved);
    }
}

impl<K: FnOnce() -> CallerKey> Drop for BodyReservation<'_, K> {
    fn drop(&mut self) {
        if let Some(caller) = &self.caller {
            self.budget.release(caller, self.bytes);
        }
    }
}

pub(super) fn budget_exceeded(exceeded: ExceededLimit, limits: BudgetLimits) -> Error {
    let (subject, setting, limit) = match exceeded {
        ExceededLimit::Total => ("", "max_buffered_body_bytes", limits.total),
        ExceededLimit::Key => (
            " of this caller",
            "max_buffered_body_bytes_per_caller",
            limits.per_key,
        ),
    };
    metrics::record_limit_hit(setting);
    Error::new(ErrorKind::Unavailable)
        .with_message(format!(
            "too many request bodies{subject} in memory (limit: {setting} = {limit})"
        ))
        .with_retry_after(RETRY_AFTER)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::Caller;

    pub(in crate::server::body) fn frame(length: usize) -> Bytes {
        Bytes::from(vec![b' '; length])
    }

    /// Returns a reservation whose bytes are counted.
    pub(in crate::server::body) fn counted<'a>(
        budget: &'a Arc<BodyBudget>,
        limits: BudgetLimits,
        caller: &'static str,
    ) -> BodyReservation<'a, fn() -> CallerKey> {
        BodyReservation {
            budget,
            limits,
            bytes: 0,
            find_caller: None,
            caller: Some(CallerKey::Caller(Caller::new(caller))),
        }
    }

    #[test]
    fn s62_d05_bodies_share_a_budget_in_total_and_per_caller() {
        let budget = Arc::new(BodyBudget::default());
        let limits = BudgetLimits {
            total: 1_000,
            per_key: 600,
            floor: 0,
        };
        let mut first = counted(&budget, limits, "ann");
        first.grow(1).unwrap();
        first.grow(400).unwrap();
        let mut second = counted(&budget, limits, "ann");
        let refused = second.grow(201).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert_eq!(refused.retry_after(), Some(RETRY_AFTER));
        let setting = "max_buffered_body_bytes_per_caller = 600";
        assert!(refused.message().contains(setting), "{refused}");
        let mut other = counted(&budget, limits, "bob");
        other.grow(600).unwrap();
        let refused = second.grow(1).unwrap_err();
        let setting = "max_buffered_body_bytes = 1000";
        assert!(refused.message().contains(setting), "{refused}");
        drop(first);
        second.grow(400).unwrap();
        drop((second, other));
        assert_eq!(budget.total(), 0);
    }

    #[test]
    fn s62_bytes_before_the_first_wait_are_counted_at_it() {
        let budget = Arc::new(BodyBudget::default());
        let mut reservation = BodyReservation {
            budget: &budget,
            limits: BudgetLimits {
                total: 100,
                per_key: 100,
                floor: 0,
            },
            bytes: 0,
            find_caller: Some(|| CallerKey::Caller(Caller::anonymous())),
            caller: None,
        };
        reservation.start_counting().unwrap();
        reservation.grow(60).unwrap();
        assert_eq!(budget.total(), 0);
        reservation.start_counting().unwrap();
        reservation.start_counting().unwrap();
        assert_eq!(budget.total(), 60);
        assert!(reservation.grow(101).is_err());
        drop(reservation);
        assert_eq!(budget.total(), 0);
    }

    #[test]
    fn d05_a_large_body_counts_until_it_is_dropped() {
        let budget = Arc::new(BodyBudget::default());
        let read = |bytes| {
            let mut reservation = BodyReservation {
                budget: &budget,
                limits: BudgetLimits {
                    total: 1 << 20,
                    per_key: 1 << 20,
                    floor: 0,
                },
                bytes: 0,
                find_caller: Some(|| CallerKey::Caller(Caller::new("ann"))),
                caller: None,
            };
            // It has arrived at once.
            reservation.grow(bytes).unwrap();
            reservation.complete(frame(bytes))
        };
        let small = read(MAX_INLINE_BYTES).unwrap();
        assert_eq!(budget.total(), 0, "decoded at once");
        let large = read(600 << 10).unwrap();
        assert_eq!(budget.total(), large.len());
        let refused = read(600 << 10).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        let slice = large.slice(1..2);
        drop((small, large));
        assert_eq!(budget.total(), 600 << 10);
        drop(slice);
        assert_eq!(budget.total(), 0);
    }
}
