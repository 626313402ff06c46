//! Time and chance: given to the engine, so that a test can hold both still.

use crate::model::Timestamp;

/// Where the engine gets the time and fresh ids.
pub(crate) trait Clock: Send + Sync + 'static {
    /// Now.
    fn now(&self) -> Timestamp;

    /// An id that nobody has had before.
    fn id(&self) -> String;
}

/// The clock of the machine, and 122 random bits.
pub(crate) struct System;

impl Clock for System {
    fn now(&self) -> Timestamp {
        // A clock outside the years 1 to 9999 is broken; the log's order does not depend on it.
        Timestamp::from_millis(jiff::Timestamp::now().as_millisecond()).unwrap_or_default()
    }

    fn id(&self) -> String {
        uuid::Uuid::new_v4().to_string()
    }
}
