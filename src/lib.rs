//! A durable runtime and toolkit for the Agent2Agent (A2A) protocol, every version of it.
//!
//! Implement [`Agent`], give it to a [`Server`]:
//!
//! ```no_run
//! use attache::{Agent, AgentCard, Failure, Outcome, Server, Turn};
//!
//! struct Echo;
//!
//! impl Agent for Echo {
//!     async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
//!         turn.write("echo", turn.text()).await;
//!         Ok(Outcome::Completed)
//!     }
//! }
//!
//! #[tokio::main]
//! async fn main() -> attache::Result<()> {
//!     Server::new(AgentCard::new("Echo", "Says it back"), Echo).serve("127.0.0.1:8080").await
//! }
//! ```

#[cfg(feature = "server")]
pub use agent::{Agent, Failure, Outcome, Question, Turn, Writer};
#[cfg(all(feature = "client", feature = "jws"))]
pub use client::PushSignatures;
#[cfg(feature = "blocking")]
pub use client::blocking;
#[cfg(feature = "client")]
pub use client::{
    ApiKey, Basic, Bearer, CodeLogin, Credentials, DeviceLogin, Endpoints, MutualTls, OAuth, Shown,
    Token,
};
#[cfg(feature = "client")]
pub use client::{
    Budgets, CardStore, Choice, Client, ClientBuilder, ClientSettings, EventStream, Header,
    KeptCard, MemoryCards, Polling, Retries, TaskStream, Traffic,
};
#[cfg(feature = "client")]
pub use client::{
    NotVouched, Notification, PushCheck, PushNotifications, PushReceiver, PushReceiverSettings,
    Vouched,
};
#[cfg(all(feature = "client", feature = "tls"))]
pub use egress::ClientTls;
#[cfg(feature = "client")]
pub use egress::{Allowed, Http, HttpResponse, NotAPlace, Reach};
#[cfg(feature = "server")]
pub use egress::{Fetched, FileFetcher};
#[cfg(feature = "server")]
pub use engine::{AgentSettings, Restart, Settings, Waiting};
pub use model::AgentCard;
#[cfg(feature = "server")]
pub use push::{Deliveries, Letter, PushSettings, Stopped};
#[cfg(all(feature = "server", unix))]
pub use server::Admin;
#[cfg(all(feature = "client", feature = "server"))]
pub use server::Local;
#[cfg(all(feature = "server", feature = "tls"))]
pub use server::Tls;
#[cfg(feature = "server")]
pub use server::{Bound, Running, Served, Server, ServerSettings};

pub use model::{Error, ErrorKind, Result};

#[cfg(feature = "server")]
pub mod auth;
#[cfg(feature = "jws")]
pub mod jws;
#[cfg(feature = "metrics")]
pub mod metrics;
pub mod model;
#[cfg(feature = "server")]
pub mod store;
#[cfg(feature = "client")]
pub mod trace;
pub mod wire;

#[cfg(feature = "server")]
mod agent;
#[cfg(feature = "server")]
mod bell;
#[cfg(feature = "server")]
mod bus;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod egress;
#[cfg(feature = "server")]
mod engine;
#[cfg(all(feature = "server", not(feature = "metrics")))]
#[path = "metrics/off.rs"]
mod metrics;
#[cfg(feature = "server")]
mod push;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod service;
#[cfg(feature = "server")]
mod stop;

/// The pages of `docs/` whose programs are run as tests.
#[cfg(doctest)]
#[doc = include_str!("../docs/codecs.md")]
#[cfg_attr(feature = "server", doc = include_str!("../docs/agents.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/push.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/auth.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/serve.md"))]
#[cfg_attr(all(feature = "client", feature = "server"), doc = include_str!("../docs/client.md"))]
#[cfg_attr(all(feature = "client", feature = "jws", feature = "tls"), doc = include_str!("../docs/credentials.md"))]
struct Docs;
