//! Events as they are written on disk.

use super::{FORMAT, USUAL_EVENT, Writer, write_behind};
use crate::model::{Event, Timestamp};

/// Events that were recorded at one time.
pub(in crate::store) fn write_events(time: Timestamp, events: &[Event]) -> Vec<u8> {
    write_behind(
        Writer::behind(&[], FORMAT, events.len() * USUAL_EVENT),
        time,
        events,
    )
}
