//! Events as they are written on disk.

use super::{FORMAT, write_as};
use crate::model::{Event, Timestamp};

/// Events that were recorded at one time.
pub(in crate::store) fn write_events(time: Timestamp, events: &[Event]) -> Vec<u8> {
    write_as(FORMAT, time, events)
}
