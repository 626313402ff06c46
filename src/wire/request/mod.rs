//! JSON requests: deserialization for servers, serialization for clients.

mod read_params;
mod read_rest;
mod write_params;
mod write_rest;

pub use read_params::{read_params, read_unversioned_params};
pub use read_rest::read_rest;
#[cfg(feature = "grpc")]
pub(super) use write_params::list_tasks_unsupported;
pub use write_params::write_params;
pub use write_rest::{RestRequest, write_rest};
