//! Durable runtime and toolkit for the Agent2Agent (A2A) protocol, in all its versions and bindings.
//!
//! To serve an agent, implement [`Agent`] and pass it to a [`Server`]:
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
//!     Server::new(AgentCard::new("Echo", "Echoes the message"), Echo).serve("127.0.0.1:8080").await
//! }
//! ```
//!
//! To call an agent, use a [`Client`]:
//!
//! ```no_run
//! use attache::Client;
//! use attache::model::Message;
//!
//! # async fn hello() -> attache::Result<()> {
//! let client = Client::discover("http://127.0.0.1:8080").await?;
//! println!("{}", client.send(Message::user("hello")).await?.text());
//! # Ok(())
//! # }
//! ```
//!
//! # Concepts
//!
//! - A [`Turn`] is one run of an agent on a task. It ends with an [`Outcome`], or a [`Failure`].
//! - A task is an append-only log of events in a [`store`]. Streams, webhooks and recovery after a crash read that log.
//! - [`model`] contains the data types of A2A 1.0. [`wire`] converts them to and from every version and binding.
//! - [`auth`] authenticates and authorizes callers. [`EgressPolicy`] protects outgoing requests against SSRF.
//! - [`telemetry`] contains Prometheus metrics and tracing spans.
//!
//! # Features
//!
//! Features only add dependencies: `server` and `client` (the default), `blocking`, `grpc`, `tls`, `sqlite`, `jwt`, `jws`,
//! `metrics`, `otel` and `schema`.

// Agents.
#[cfg(feature = "server")]
pub use agent::{Agent, ArtifactWriter, Failure, Outcome, Question, Turn};
pub use model::AgentCard;
#[cfg(feature = "server")]
pub use rt::{FairPermit, FairSemaphore, WriteTimeout};

pub use model::{Error, ErrorKind, Result};

// Server.
/// Attribute for implementations of [`Interceptor`].
#[cfg(feature = "server")]
pub use async_trait::async_trait;
#[cfg(feature = "server")]
pub use engine::{AgentSettings, LeaseExpiryPolicy, RestartPolicy, Settings, UnansweredPolicy};
#[cfg(feature = "server")]
pub use hooks::{FailurePolicy, Hook, HookContext, HookError, HookPhase, Interceptor, TurnFilter};
#[cfg(feature = "server")]
pub use push::{DeadLetters, FailedWebhook, PushSettings, UndeliveredNotification};
#[cfg(all(feature = "client", feature = "server"))]
pub use server::InProcessServer;
#[cfg(all(feature = "server", feature = "tls"))]
pub use server::Tls;
#[cfg(all(feature = "server", unix))]
pub use server::{Admin, ConsoleFile, ConsoleFiles, ContentVisibility};
#[cfg(feature = "server")]
pub use server::{
    BoundServer, CardAccess, Exposure, ExposureError, HeadError, HostedAgent, ServedBinding,
    Server, ServerHandle, ServerSettings, check_http1_head,
};

// Listeners of servers and of a push receiver.
#[cfg(feature = "client")]
pub use rt::{AcceptedConnection, ConnectionLimits, ConnectionPermit, LimitedListener};

// Client.
#[cfg(feature = "blocking")]
pub use client::{BlockingClient, BlockingTaskStream};
#[cfg(feature = "client")]
pub use client::{
    CachedCard, CardCache, Client, ClientBuilder, ClientSettings, EventStream, FileEncoding,
    InterfacePreference, MemoryCardCache, PollingPolicy, RetryPolicy, TaskStream, Timeouts,
    Traffic, TrafficHeader,
};

// Client credentials.
#[cfg(feature = "client")]
pub use client::{
    ApiKeyAuth, AuthParam, AuthorizationCodeLogin, AuthorizationServer, BasicAuth, BearerAuth,
    CredentialProvider, DeviceLogin, MutualTlsAuth, OAuth, Token,
};

// Receiver of push notifications.
#[cfg(all(feature = "client", feature = "jws"))]
pub use client::PushSignatureVerifier;
#[cfg(feature = "client")]
pub use client::{
    PushNotification, PushNotifications, PushReceiver, PushReceiverSettings, PushVerifier,
    VerificationError, VerifiedClaims,
};

// Outgoing HTTP.
#[cfg(all(feature = "client", feature = "tls"))]
pub use egress::ClientTls;
#[cfg(feature = "client")]
pub use egress::{
    AllowedTarget, ConnectError, EgressPolicy, HttpClient, HttpResponse, ParseTargetError,
};
#[cfg(feature = "server")]
pub use egress::{FetchedFile, FileFetcher};

#[cfg(feature = "server")]
pub mod auth;
#[cfg(feature = "jws")]
pub mod jws;
pub mod model;
#[cfg(feature = "server")]
pub mod store;
#[cfg(feature = "client")]
pub mod telemetry;
pub mod wire;

#[cfg(feature = "server")]
mod agent;
#[cfg(feature = "server")]
mod bus;
#[cfg(feature = "client")]
mod client;
#[cfg(feature = "client")]
mod egress;
#[cfg(feature = "server")]
mod engine;
#[cfg(feature = "server")]
mod hooks;
#[cfg(feature = "server")]
mod push;
#[cfg(any(feature = "client", feature = "server"))]
mod rt;
#[cfg(feature = "server")]
mod server;
#[cfg(feature = "server")]
mod service;

/// Pages of `docs/` whose code blocks run as doctests.
#[cfg(doctest)]
#[doc = include_str!("../docs/codecs.md")]
#[cfg_attr(feature = "server", doc = include_str!("../docs/agents.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/push.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/auth.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/serve.md"))]
#[cfg_attr(all(feature = "server", feature = "sqlite"), doc = include_str!("../docs/store.md"))]
#[cfg_attr(all(feature = "client", feature = "server"), doc = include_str!("../docs/client.md"))]
#[cfg_attr(all(feature = "client", feature = "jws", feature = "tls"), doc = include_str!("../docs/credentials.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/embed.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/examples/auth.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/examples/converse.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/examples/errors.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/examples/files.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/examples/send.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/examples/stream.md"))]
#[cfg_attr(feature = "server", doc = include_str!("../docs/examples/tasks.md"))]
struct Docs;
