//! Buffer of a request body, whose allocation follows the bytes received.

use bytes::Bytes;

use super::budget::BodyReservation;
use crate::model::{CallerKey, Result};

/// Allocates at most 4 times the bytes received so far, whatever `Content-Length` says. A client
/// cannot reserve memory without sending data.
const MAX_OVERALLOCATION: usize = 4;

/// Received part of a body. A body that arrives in one frame, as most do, is not copied.
pub(super) enum BodyBuffer {
    Empty,
    Single(Bytes),
    Joined(Vec<u8>),
}

/// Bounds for the allocation of a [`BodyBuffer`].
#[derive(Clone, Copy)]
pub(super) struct ExpectedLength {
    /// Bytes that `Content-Length` announces, 0 if unknown.
    pub(super) announced: usize,
    /// Limit on the body.
    pub(super) max: usize,
}

impl BodyBuffer {
    /// Returns the capacity for `more` bytes: the announced length, or else twice the bytes
    /// received.
    ///
    /// It is at most `expected.max`, and at most [`MAX_OVERALLOCATION`] times the bytes received.
    fn capacity_for(&self, more: usize, expected: ExpectedLength) -> usize {
        let (length, capacity) = match self {
            Self::Empty => return more,
            Self::Single(first) => (first.len(), 0),
            Self::Joined(all) => (all.len(), all.capacity()),
        };
        let received = length + more;
        if received <= capacity {
            return capacity;
        }
        let wanted = if expected.announced >= received {
            expected.announced
        } else {
            2 * received
        };
        wanted
            .min(expected.max)
            .min(MAX_OVERALLOCATION * received)
            .max(received)
    }

    /// Appends a frame. The capacity is reserved before it is allocated.
    ///
    /// # Errors
    /// Unavailable: the budget is exhausted.
    pub(super) fn push(
        self,
        data: Bytes,
        expected: ExpectedLength,
        reservation: &mut BodyReservation<'_, impl FnOnce() -> CallerKey>,
    ) -> Result<Self> {
        let capacity = self.capacity_for(data.len(), expected);
        reservation.grow(capacity)?;
        let mut all = match self {
            Self::Empty => return Ok(Self::Single(data)),
            Self::Single(first) => {
                let mut all = Vec::with_capacity(capacity);
                all.extend_from_slice(&first);
                all
            }
            Self::Joined(all) => all,
        };
        all.reserve_exact(capacity.saturating_sub(all.len()));
        all.extend_from_slice(&data);
        Ok(Self::Joined(all))
    }

    pub(super) fn into_bytes(self) -> Bytes {
        match self {
            Self::Empty => Bytes::new(),
            Self::Single(frame) => frame,
            Self::Joined(all) => all.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::model::ErrorKind;
    use crate::rt::BudgetLimits;
    use crate::server::body::BodyBudget;
    use crate::server::body::budget::tests::{counted, frame};

    const LIMIT: usize = 8 << 20;

    const UNLIMITED: BudgetLimits = BudgetLimits {
        total: usize::MAX,
        per_key: usize::MAX,
        floor: 0,
    };

    #[test]
    fn s62_allocation_follows_received_bytes_and_is_reserved_first() {
        const FRAME: usize = 64 << 10;
        for (announced, lengths, max_capacity) in [
            (8 << 20, &[1, FRAME][..], 4 * (FRAME + 1)),
            (8 << 20, &[1, FRAME, 4 * FRAME], 4 * (5 * FRAME + 1)),
            (8 << 20, &[1, FRAME, 63 * FRAME], 8 << 20),
            (9 << 20, &[1, FRAME, 63 * FRAME], 8 << 20),
            (0, &[1, 1_000, 5_000, 20_000, 70_000, 70_000], 2 * 166_001),
            (0, &[1, 5 << 20, 2 << 20], 8 << 20),
            (100_000, &[60_000, 40_000], 100_000),
            (8 << 20, &[FRAME / 8, FRAME / 8], FRAME),
        ] {
            let budget = Arc::new(BodyBudget::default());
            let mut reservation = counted(&budget, UNLIMITED, "ann");
            let expected = ExpectedLength {
                announced,
                max: LIMIT,
            };
            let mut buffer = BodyBuffer::Empty;
            for length in lengths {
                buffer = buffer
                    .push(frame(*length), expected, &mut reservation)
                    .unwrap();
            }
            let BodyBuffer::Joined(all) = &buffer else {
                panic!("several frames are joined")
            };
            let capacity = all.capacity();
            assert!(capacity <= max_capacity, "{capacity} of {announced}");
            assert_eq!(budget.total(), capacity);
            assert_eq!(buffer.into_bytes().len(), lengths.iter().sum::<usize>());
        }
    }

    #[test]
    fn s62_allocation_beyond_the_budget_is_refused() {
        let budget = Arc::new(BodyBudget::default());
        let limits = BudgetLimits {
            total: 10_000,
            per_key: 10_000,
            floor: 0,
        };
        let mut reservation = counted(&budget, limits, "ann");
        let expected = ExpectedLength {
            announced: LIMIT,
            max: LIMIT,
        };
        let buffer = BodyBuffer::Empty
            .push(frame(1), expected, &mut reservation)
            .unwrap();
        let refused = buffer
            .push(frame(5_000), expected, &mut reservation)
            .err()
            .unwrap();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
    }

    #[test]
    fn announced_length_is_allocated_once() {
        let budget = Arc::new(BodyBudget::default());
        let announced = 1_000_000;
        let mut reservation = counted(&budget, UNLIMITED, "ann");
        let expected = ExpectedLength {
            announced,
            max: announced,
        };
        let mut buffer = BodyBuffer::Empty;
        for length in [100_000, 400_000] {
            buffer = buffer
                .push(frame(length), expected, &mut reservation)
                .unwrap();
        }
        assert!(matches!(buffer, BodyBuffer::Joined(all) if all.capacity() == announced));
    }
}
