//! Many clients at once: contention and fan-out.

#[cfg(feature = "server")]
pub(crate) mod contention;
#[cfg(feature = "server")]
pub(crate) mod fan_out;
