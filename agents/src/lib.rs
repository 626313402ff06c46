//! Ready-made A2A agents, written against the public API of attache like anybody's own.

mod any_agent;
mod caller_propagation;
mod chat_model;
mod circuit_breaker;
#[cfg(unix)]
mod command;
mod connect_failure;
mod demo;
mod echo;
mod http;
mod lineage;
mod llm;
mod mcp_client;
mod mcp_server;
mod redact;
mod remote;
mod router;
mod script;
mod utf8_decoder;

pub use any_agent::AnyAgent;
pub use chat_model::ModelSettings;
#[cfg(unix)]
pub use command::{
    CommandAgent, CommandInput, CommandSettings, CommandSettingsError, CommandSpec, ExitCode,
    ExitMeaning, StderrAudience, StdoutFormat,
};
pub use demo::demo_agent;
pub use echo::Echo;
pub use http::{HttpAgent, HttpSettings, HttpSettingsError, RequestBody};
pub use llm::{LlmAgent, LlmSettings, LlmSettingsError, ToolSettings};
pub use mcp_client::{McpAgent, McpServerSettings, McpSettings, McpSettingsError};
pub use mcp_server::{ExposedAgent, McpServer};
pub use remote::{RemoteAgent, RemoteBinding, RemoteSettings, RemoteSettingsError, RemoteVersion};
pub use router::{RouteTarget, Router, RouterSettings, RouterSettingsError, RoutingRule};
pub use script::{Fault, ParseScriptError, Script};
