//! How it is written: bytes to model and back, for every version and binding. The only room that behaves by version.

pub mod errors;
#[cfg(feature = "grpc")]
pub mod grpc;
pub mod json;
pub mod jsonrpc;
mod part;
#[cfg(feature = "grpc")]
mod proto;
#[cfg(feature = "grpc")]
pub mod proto_v03;
#[cfg(feature = "grpc")]
pub mod proto_v1;
mod spelling;
pub mod sse;
mod strict;

/// Writes JSON. What we write is our own types: none of them can fail to be JSON.
pub fn write<T: serde::Serialize + ?Sized>(out: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(out, value).expect("our types have string keys and a writer that does not fail");
}
