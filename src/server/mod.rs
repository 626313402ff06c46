//! HTTP server: listens, routes requests to agents through the protocol bindings, and drains on
//! shutdown.
//!
//! Path of a request, from its connection to the service. Every binding has the same steps
//! ([`bindings`]); JSON-RPC is the example:
//!
//! ```text
//! connections::handle_request      takes the current routes
//! → Routes::handle                 host and origin check, common headers
//! → Routes::dispatch               path → agent and binding
//! → jsonrpc::handle                authenticate, decode, error reply
//! → CallSpan::instrument           tracing
//! → jsonrpc::execute               resolve agent → authorize → rate-limit → call → encode
//! → AdmittedCall::call             metrics
//! → Service::call
//! ```
//!
//! | module | content |
//! | --- | --- |
//! | `builder`, `bound_server`, `in_process`, `handle` | public API |
//! | `assembly`, `reloadable_config`, `exposure` | engine and routes from the configuration |
//! | `http_server`, `transport`, `tls` | accepting connections, draining |
//! | `connections`, `connection_io`, `http1_head`, `timer`, `active_streams`, `h2_stall`, `peer` | one connection |
//! | `routes`, `cors`, `card`, `signing`, `base_url` | dispatch, origin checks, discovery documents |
//! | `admission`, `admitted_call`, `body`, `client_address`, `call_headers`, `call_span`, `bindings` | the request pipeline |
//! | `reply`, `event_encoder`, `chunked_stream`, `sse_body`, `encodings` | replies and streams |
//! | `admin` | interface for operators |

mod active_streams;
#[cfg(unix)]
mod admin;
mod admission;
mod admitted_call;
mod assembly;
mod base_url;
mod bindings;
mod body;
mod body_decoder;
mod bound_server;
mod builder;
mod call_headers;
mod call_span;
mod card;
mod chunk_buffer;
mod chunked_stream;
mod client_address;
mod connection_io;
mod connections;
mod cors;
mod document;
mod encodings;
mod event_encoder;
mod exposure;
mod h2_stall;
mod handle;
mod hosted_agent;
mod http1_head;
mod http_server;
#[cfg(feature = "client")]
mod in_process;
mod peer;
mod rate_limit_headers;
mod reloadable_config;
mod reply;
mod routes;
mod settings;
#[cfg(feature = "jws")]
mod signing;
mod sse_body;
mod timer;
#[cfg(feature = "tls")]
mod tls;
mod transport;
mod unsent_frames;

#[cfg(unix)]
pub use admin::{Admin, ConsoleFile, ConsoleFiles, ContentVisibility};
pub use bound_server::BoundServer;
pub use builder::Server;
pub use card::CardAccess;
pub use exposure::{Exposure, ExposureError};
pub use handle::ServerHandle;
pub use hosted_agent::HostedAgent;
pub use http1_head::{HeadError, check_http1_head};
#[cfg(feature = "client")]
pub use in_process::InProcessServer;
pub use settings::{ServedBinding, ServerSettings};
#[cfg(feature = "tls")]
pub use tls::Tls;
