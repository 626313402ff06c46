//! Decoded rows of a log, shared by the databases.

use super::codec::{self, CodecError};
use crate::model::{Entry, Event, Seq, Timestamp};

/// One decoded row: the events of a batch, or of a part of it.
pub(super) struct LogRow {
    /// Position before the first event.
    pub(super) before: Seq,
    time: Timestamp,
    events: Vec<Event>,
}

impl LogRow {
    /// Decodes a row whose last entry has this position.
    pub(super) fn decode(last: Seq, body: &[u8]) -> Result<Self, CodecError> {
        let (time, events) = codec::decode_events(codec::verify_checksum(body)?)?;
        let before = last.0.checked_sub(events.len() as u64);
        let before = before.ok_or(CodecError("more events than positions"))?;
        Ok(Self {
            before: Seq(before),
            time,
            events,
        })
    }

    /// Checks that the row follows a row that ends at `previous`, or that it contains the entry after `after`.
    pub(super) fn check_order(&self, after: Seq, previous: Option<Seq>) -> Result<(), CodecError> {
        let has_gap = match previous {
            Some(previous) => previous != self.before,
            None => self.before > after,
        };
        if has_gap {
            return Err(CodecError("positions with a gap"));
        }
        Ok(())
    }

    /// Returns the position of the last event.
    pub(super) fn last(&self) -> Seq {
        Seq(self.before.0 + self.events.len() as u64)
    }

    pub(super) fn into_entries(self) -> impl Iterator<Item = Entry> {
        let numbered = self.events.into_iter().zip(self.before.0 + 1..);
        numbered.map(move |(event, seq)| Entry {
            seq: Seq(seq),
            time: self.time,
            event,
        })
    }
}
