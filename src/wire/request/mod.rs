//! Requests: read into the model, and written as a client does.

mod params;
mod rest;
mod write_params;
mod write_rest;

pub use params::read_params;
pub use rest::read_rest;
#[cfg(feature = "grpc")]
pub(super) use write_params::not_in_v03;
pub use write_params::write_params;
pub use write_rest::{RestRequest, write_rest};
