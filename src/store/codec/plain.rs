//! Events as they are written on disk.

use super::{LogEncoder, PLAIN_FORMAT, TYPICAL_EVENT_BYTES, encode_batch};
use crate::model::{Event, Timestamp};

/// Events that were recorded at one time.
pub(in crate::store) fn encode_events(time: Timestamp, events: &[Event]) -> Vec<u8> {
    encode_batch(
        LogEncoder::with_prefix(&[], PLAIN_FORMAT, events.len() * TYPICAL_EVENT_BYTES),
        time,
        events,
    )
}
