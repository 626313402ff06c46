//! Byte budget of outgoing data: in total, and for each caller.
//!
//! A reservation belongs to bytes that are produced for a reader: encoded replies, replayed pages, webhook bodies. It is
//! released when the bytes are written or dropped. A reader that does not read thereby uses up the share of its caller,
//! and no memory beyond it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::timeout;

use super::byte_waiters::ByteWaiters;
use super::{BudgetLimits, ExceededLimit, KeyedBudget, lock};
use crate::model::{CallerKey, Error, ErrorKind, Result};
use crate::telemetry::metrics;

/// Amount that each caller gets even if the total is exhausted. Small replies therefore never wait.
const FLOOR_BYTES: usize = 256 << 10;
/// Size up to which bytes are not counted.
const UNCOUNTED_BYTES: usize = 4 << 10;
/// Part of the budget that data may take in addition while it waits for a reservation, as a divisor.
const HELD_SHARE: usize = 4;
/// `Retry-After` of a refused reply.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Limits of a [`ByteBudget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutgoingLimits {
    /// `max_outgoing_bytes`.
    pub(crate) total: usize,
    /// `max_outgoing_bytes_per_caller`.
    pub(crate) per_caller: usize,
    /// How long a reservation is awaited (`outgoing_timeout`).
    pub(crate) timeout: Duration,
}

/// Budget of outgoing bytes.
#[derive(Debug)]
pub(crate) struct ByteBudget {
    reserved: KeyedBudget<CallerKey>,
    limits: BudgetLimits,
    /// Data that exists and waits for a reservation.
    held: KeyedBudget<CallerKey>,
    held_limits: BudgetLimits,
    timeout: Duration,
    waiters: Mutex<ByteWaiters>,
    /// Number of callers of [`reserve`](Self::reserve) that wait or are about to. Without one, a release does not lock
    /// `waiters`.
    waiting: AtomicUsize,
}

/// Place of a waiter in its queue. Dropping it leaves the queue.
struct WaiterPlace<'a> {
    budget: &'a Arc<ByteBudget>,
    caller: &'a CallerKey,
    ticket: Option<u64>,
}

/// Part of a [`ByteBudget`]. Released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: Arc<ByteBudget>,
    caller: CallerKey,
    bytes: usize,
}

/// Whether data of this size counts against the budget.
pub(crate) fn is_counted(bytes: usize) -> bool {
    bytes > UNCOUNTED_BYTES
}

impl ByteBudget {
    pub(crate) fn new(limits: OutgoingLimits) -> Arc<Self> {
        Arc::new(Self {
            reserved: KeyedBudget::default(),
            limits: BudgetLimits {
                total: limits.total,
                per_key: limits.per_caller,
                floor: FLOOR_BYTES,
            },
            held: KeyedBudget::default(),
            held_limits: BudgetLimits {
                total: limits.total / HELD_SHARE,
                per_key: limits.per_caller / HELD_SHARE,
                floor: FLOOR_BYTES,
            },
            timeout: limits.timeout,
            waiters: Mutex::default(),
            waiting: AtomicUsize::new(0),
        })
    }

    /// Reserves bytes for a caller. More than the share of a caller counts as the whole share, so that data of any size
    /// can be sent, one at a time.
    ///
    /// # Errors
    /// Unavailable: the budget of the caller or of the server is exhausted.
    pub(crate) fn try_reserve(
        self: &Arc<Self>,
        caller: &CallerKey,
        bytes: usize,
    ) -> Result<Reservation> {
        let reserved = self.find_room(caller, self.clamp(bytes));
        reserved.map_err(|exceeded| self.exceeded(exceeded))
    }

    /// Reserves bytes like [`try_reserve`](Self::try_reserve) for a reply that is refused otherwise.
    ///
    /// # Errors
    /// Those of [`try_reserve`](Self::try_reserve). They are counted as hits of the limit.
    pub(crate) fn reserve_or_refuse(
        self: &Arc<Self>,
        caller: &CallerKey,
        bytes: usize,
    ) -> Result<Reservation> {
        let reserved = self.find_room(caller, self.clamp(bytes));
        reserved.map_err(|exceeded| self.refuse(exceeded))
    }

    fn find_room(
        self: &Arc<Self>,
        caller: &CallerKey,
        bytes: usize,
    ) -> Result<Reservation, ExceededLimit> {
        self.reserved.reserve(caller, bytes, self.limits)?;
        Ok(Reservation {
            budget: self.clone(),
            caller: caller.clone(),
            bytes,
        })
    }

    /// Reserves bytes for a caller, and waits up to `outgoing_timeout` for them, behind earlier waiters of the caller. The
    /// caller of this function holds none of the data meanwhile.
    ///
    /// # Errors
    /// Unavailable: the budget was exhausted for that time.
    pub(crate) async fn reserve(
        self: &Arc<Self>,
        caller: &CallerKey,
        bytes: usize,
    ) -> Result<Reservation> {
        let bytes = self.clamp(bytes);
        // Counted before the first try: a release after it finds the waiter.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut place = WaiterPlace {
            budget: self,
            caller,
            ticket: None,
        };
        let granted = {
            let mut waiters = lock(&self.waiters);
            if !waiters.has_waiters(caller)
                && let Ok(reservation) = self.find_room(caller, bytes)
            {
                return Ok(reservation);
            }
            let (ticket, granted) = waiters.push(caller, bytes);
            place.ticket = Some(ticket);
            granted
        };
        if let Ok(Ok(reservation)) = timeout(self.timeout, granted).await {
            return Ok(reservation);
        }
        drop(place);
        self.reserve_or_refuse(caller, bytes)
    }

    /// Grants released bytes to waiters.
    fn serve_waiters(self: &Arc<Self>) {
        if self.waiting.load(Ordering::SeqCst) == 0 {
            return;
        }
        let mut waiters = lock(&self.waiters);
        let granted = waiters.take_granted(|caller, bytes| self.find_room(caller, bytes).ok());
        drop(waiters);
        for (grant, reservation) in granted {
            // A waiter that is gone gives its bytes to the next one.
            drop(grant.send(reservation));
        }
    }

    /// Reserves bytes for data that exists and cannot be produced again, and waits up to `outgoing_timeout`. The waiting
    /// data of all callers is bounded by a quarter of the budget.
    ///
    /// # Errors
    /// Unavailable: the budget was exhausted for that time, or too much data waits already.
    pub(crate) async fn reserve_held(
        self: &Arc<Self>,
        caller: &CallerKey,
        bytes: usize,
    ) -> Result<Reservation> {
        if let Ok(reservation) = self.try_reserve(caller, bytes) {
            return Ok(reservation);
        }
        let held = bytes.min(self.held_limits.per_key.max(FLOOR_BYTES));
        let reserved = self.held.reserve(caller, held, self.held_limits);
        reserved.map_err(|exceeded| self.refuse(exceeded))?;
        let _held = HeldData {
            budget: self,
            caller,
            bytes: held,
        };
        self.reserve(caller, bytes).await
    }

    /// Reserves bytes for a small reply that must not be lost, even if the budget is exhausted.
    pub(crate) fn force_reserve(self: &Arc<Self>, caller: &CallerKey, bytes: usize) -> Reservation {
        let bytes = self.clamp(bytes);
        self.reserved.force_reserve(caller, bytes);
        Reservation {
            budget: self.clone(),
            caller: caller.clone(),
            bytes,
        }
    }

    fn clamp(&self, bytes: usize) -> usize {
        bytes.min(self.limits.per_key).min(self.limits.total)
    }

    /// Returns the error of a refused reply, and counts it.
    fn refuse(&self, exceeded: ExceededLimit) -> Error {
        metrics::record_limit_hit(setting(exceeded));
        self.exceeded(exceeded)
    }

    fn exceeded(&self, exceeded: ExceededLimit) -> Error {
        let setting = setting(exceeded);
        let (subject, limit) = match exceeded {
            ExceededLimit::Total => ("", self.limits.total),
            ExceededLimit::Key => (" of this caller", self.limits.per_key),
        };
        Error::new(ErrorKind::Unavailable)
            .with_message(format!(
                "too many unread responses{subject} in memory (limit: {setting} = {limit})"
            ))
            .with_retry_after(RETRY_AFTER)
    }

    /// Returns the reserved bytes in total.
    #[cfg(test)]
    pub(crate) fn reserved_bytes(&self) -> usize {
        self.reserved.total()
    }
}

impl Reservation {
    /// Extends the reservation.
    ///
    /// # Errors
    /// Those of [`ByteBudget::try_reserve`]. The reservation is unchanged then.
    pub(crate) fn try_grow(&mut self, bytes: usize) -> Result<()> {
        let total = self.budget.clamp(self.bytes.saturating_add(bytes));
        let mut more = self.budget.try_reserve(&self.caller, total - self.bytes)?;
        self.bytes += std::mem::take(&mut more.bytes);
        Ok(())
    }

    /// Sets the size once it is known. The data exists already, so this does not fail.
    fn set_bytes(&mut self, bytes: usize) {
        let bytes = self.budget.clamp(bytes);
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            self.budget.reserved.force_reserve(&self.caller, more);
            self.bytes = bytes;
        } else {
            self.release(self.bytes - bytes);
        }
    }

    /// Returns the bytes, which hold the reservation until they are dropped.
    pub(crate) fn attach(mut self, bytes: Bytes) -> Bytes {
        self.set_bytes(bytes.len());
        Bytes::from_owner(ReservedBytes {
            bytes,
            _reservation: self,
        })
    }

    fn release(&mut self, bytes: usize) {
        if bytes > 0 {
            self.budget.reserved.release(&self.caller, bytes);
            self.bytes -= bytes;
            self.budget.serve_waiters();
        }
    }
}

impl Drop for WaiterPlace<'_> {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            lock(&self.budget.waiters).remove(self.caller, ticket);
            // The next one in its queue may fit.
            self.budget.serve_waiters();
        }
        self.budget.waiting.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Returns the name of a limit.
fn setting(exceeded: ExceededLimit) -> &'static str {
    match exceeded {
        ExceededLimit::Total => "max_outgoing_bytes",
        ExceededLimit::Key => "max_outgoing_bytes_per_caller",
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.release(self.bytes);
    }
}

/// Data that waits for a reservation. Counted until it is dropped.
struct HeldData<'a> {
    budget: &'a ByteBudget,
    caller: &'a CallerKey,
    bytes: usize,
}

impl Drop for HeldData<'_> {
    fn drop(&mut self) {
        self.budget.held.release(self.caller, self.bytes);
    }
}

/// Bytes with their reservation.
struct ReservedBytes {
    bytes: Bytes,
    _reservation: Reservation,
}

impl AsRef<[u8]> for ReservedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::model::Caller;

    const MIB: usize = 1 << 20;
    const TIMEOUT: Duration = Duration::from_secs(30);

    fn budget() -> Arc<ByteBudget> {
        ByteBudget::new(OutgoingLimits {
            total: 8 * MIB,
            per_caller: 4 * MIB,
            timeout: TIMEOUT,
        })
    }

    fn caller(name: &str) -> CallerKey {
        CallerKey::Caller(Caller::new(name))
    }

    #[test]
    fn d02_one_caller_gets_its_share_and_others_the_rest() {
        let budget = budget();
        let [ann, bob, eve] = ["ann", "bob", "eve"].map(caller);
        let _held = budget.try_reserve(&ann, 4 * MIB).unwrap();
        let refused = budget.try_reserve(&ann, 1).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(refused.retry_after().is_some());
        assert!(
            refused
                .message()
                .contains("max_outgoing_bytes_per_caller = 4194304"),
            "{refused}"
        );
        let _other = budget.try_reserve(&bob, 4 * MIB).unwrap();
        let refused = budget.try_reserve(&eve, MIB).unwrap_err();
        assert!(
            refused.message().contains("max_outgoing_bytes = 8388608"),
            "{refused}"
        );
        let _floor = budget.try_reserve(&eve, FLOOR_BYTES).unwrap();
        assert!(budget.try_reserve(&eve, 1).is_err(), "the floor is used up");
    }

    #[test]
    fn d02_data_above_the_share_is_sent_alone() {
        let budget = budget();
        let ann = caller("ann");
        let held = budget.try_reserve(&ann, 100 * MIB).unwrap();
        assert_eq!(budget.reserved_bytes(), 4 * MIB);
        assert!(budget.try_reserve(&ann, 1).is_err());
        drop(held);
        assert_eq!(budget.reserved_bytes(), 0);
    }

    #[test]
    fn d02_bytes_hold_their_reservation_until_they_are_dropped() {
        let budget = budget();
        let mut reservation = budget.try_reserve(&caller("ann"), MIB).unwrap();
        reservation.try_grow(MIB).unwrap();
        assert!(reservation.try_grow(100 * MIB).is_ok(), "up to the share");
        let mut bytes = reservation.attach(Bytes::from(vec![7; 3 * MIB]));
        assert_eq!(budget.reserved_bytes(), 3 * MIB);
        let first = bytes.split_to(MIB);
        drop(bytes);
        assert_eq!(first[0], 7);
        assert_eq!(budget.reserved_bytes(), 3 * MIB, "a slice is unread");
        drop(first);
        assert_eq!(budget.reserved_bytes(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn d02_a_reservation_waits_for_a_release_or_times_out() {
        let budget = budget();
        let ann = caller("ann");
        let held = budget.try_reserve(&ann, 4 * MIB).unwrap();
        let start = Instant::now();
        let refused = budget.reserve(&ann, MIB).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert_eq!(start.elapsed(), TIMEOUT);
        let (waited, ()) = tokio::join!(budget.reserve(&ann, MIB), async { drop(held) });
        assert!(waited.is_ok());
        assert_eq!(start.elapsed(), TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn d02_data_that_exists_waits_up_to_a_quarter_of_the_share() {
        let budget = budget();
        let ann = caller("ann");
        let full = budget.try_reserve(&ann, 4 * MIB).unwrap();
        let start = Instant::now();
        let (first, second, ()) = tokio::join!(
            budget.reserve_held(&ann, MIB),
            budget.reserve_held(&ann, MIB),
            async { drop(full) }
        );
        assert!(first.is_ok(), "waits for the release");
        assert!(second.is_err(), "would be more than a quarter");
        drop(first);
        let _full = budget.try_reserve(&ann, 4 * MIB).unwrap();
        assert!(budget.reserve_held(&ann, MIB).await.is_err());
        assert_eq!(start.elapsed(), TIMEOUT);
        assert_eq!(budget.held.total(), 0);
        let forced = budget.force_reserve(&ann, MIB);
        assert_eq!(budget.reserved_bytes(), 5 * MIB);
        drop(forced);
        assert_eq!(budget.reserved_bytes(), 4 * MIB);
    }

    /// Released bytes go to the waiters of a caller in order. A large waiter is not overtaken by smaller ones behind it.
    #[tokio::test(start_paused = true)]
    async fn d02_waiters_are_served_in_order() {
        let budget = budget();
        let [ann, bob] = ["ann", "bob"].map(caller);
        let held: Vec<_> = (0..4)
            .map(|_| budget.try_reserve(&ann, MIB).unwrap())
            .collect();
        let order = Mutex::new(Vec::new());
        let wait = async |name: &'static str, bytes: usize| {
            let reservation = budget.reserve(&ann, bytes).await.unwrap();
            lock(&order).push(name);
            reservation
        };
        let release = async {
            for reservation in held {
                drop(reservation);
                tokio::task::yield_now().await;
            }
        };
        let (_large, _small, _other, ()) = tokio::join!(
            biased;
            wait("large", 2 * MIB),
            wait("small", MIB),
            budget.reserve(&bob, MIB),
            release,
        );
        assert_eq!(*lock(&order), ["large", "small"]);
        assert_eq!(budget.waiting.load(Ordering::SeqCst), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn d02_a_waiter_that_gives_up_delays_no_other() {
        let budget = budget();
        let ann = caller("ann");
        let mut held = budget.try_reserve(&ann, 4 * MIB).unwrap();
        let impatient = timeout(Duration::from_secs(1), budget.reserve(&ann, 4 * MIB));
        let start = Instant::now();
        let (given_up, patient, ()) = tokio::join!(biased; impatient, budget.reserve(&ann, MIB), async {
            held.set_bytes(3 * MIB);
        });
        assert!(given_up.is_err());
        assert_eq!(start.elapsed(), Duration::from_secs(1));
        assert!(patient.is_ok());
    }
}
