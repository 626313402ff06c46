//! Codecs: golden files, dialects, conversions between versions, protobuf.

pub(crate) mod dialects;
pub(crate) mod fold;
pub(crate) mod golden;
#[cfg(feature = "grpc")]
pub(crate) mod golden_grpc;
pub(crate) mod lossy_conversion;
pub(crate) mod members;
#[cfg(feature = "grpc")]
pub(crate) mod protobuf;
pub(crate) mod roundtrip;
