//! The promises of the library, one file each.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on stops")]

mod fold;
mod generate;
mod golden;
mod lossy;
mod robust;
mod rooms;
mod roundtrip;
mod shape;
