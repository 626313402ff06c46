//! The promises of the library, one file each.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod dialects;
mod golden;
mod refusals;
mod rooms;
