//! Ready-made A2A agents, built on the public API of `attache` only.
//!
//! | Agent | Source of the answers |
//! | --- | --- |
//! | [`CommandAgent`] | a program: message text on stdin, artifact from stdout |
//! | [`WorkerAgent`] | long-lived processes, for example a Python or TypeScript function |
//! | [`HttpAgent`] | an HTTP backend |
//! | [`RemoteAgent`] | another A2A agent |
//! | [`LlmAgent`] | a language model that calls tools |
//! | [`McpAgent`] | the tools of an MCP server |
//! | [`Router`] | one of several other agents |
//! | [`Script`] | rules in a TOML file; [`demo_agent`] is one |
//! | [`Echo`] | the message itself |
//!
//! [`McpServer`] works the other way round: it exposes A2A agents as tools of an MCP server.

mod any_agent;
mod backend_context;
mod backoff;
mod caller_propagation;
mod chat_model;
mod circuit_breaker;
#[cfg(unix)]
mod command;
mod connect_failure;
mod cost;
mod delegation_limits;
mod demo;
mod echo;
mod fingerprint;
mod hooks;
mod http;
mod line_buffer;
mod lineage;
mod llm;
mod lock;
mod mcp_client;
mod mcp_server;
mod outgoing;
mod redact;
mod remote;
mod router;
mod script;
mod supervisor;
mod tool_name;
#[cfg(unix)]
mod turn_output;
mod utf8_decoder;
#[cfg(unix)]
mod worker;

pub use any_agent::AnyAgent;
pub use chat_model::ModelSettings;
#[cfg(unix)]
pub use command::{
    CommandAgent, CommandInput, CommandSettings, CommandSettingsError, CommandSpec, ExitCode,
    ExitMeaning, StderrAudience, StdoutFormat,
};
pub use demo::demo_agent;
pub use echo::Echo;
#[cfg(unix)]
pub use hooks::{CommandHookSettings, CommandHookSettingsError};
pub use hooks::{
    DenialKind, DenyHook, ExternalHook, HttpHookSettings, HttpHookSettingsError, MaskHook,
    PatternError,
};
pub use http::{HttpAgent, HttpSettings, HttpSettingsError, RequestBody};
pub use llm::{LlmAgent, LlmSettings, LlmSettingsError, ToolSettings};
pub use mcp_client::{McpAgent, McpServerSettings, McpSettings, McpSettingsError};
pub use mcp_server::{
    Document, DocumentSection, Documents, ExposedAgent, McpHttpSettings, McpServer,
};
pub use remote::{
    RemoteAgent, RemoteBinding, RemoteFileEncoding, RemoteSettings, RemoteSettingsError,
    RemoteVersion,
};
pub use router::{RouteTarget, Router, RouterSettings, RouterSettingsError, RoutingRule};
pub use script::{Fault, ParseScriptError, Script};
pub use supervisor::Supervisor;
#[cfg(unix)]
pub use supervisor::supervise;
#[cfg(unix)]
pub use worker::{WorkerAgent, WorkerCard, WorkerSettings, WorkerSettingsError};
