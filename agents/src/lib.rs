//! Ready-made A2A agents, written against the public API of attache like anybody's own.

mod breaker;
#[cfg(unix)]
mod command;
mod echo;
mod face;
mod http;
mod lineage;
mod llm;
mod masked;
mod mcp;
mod model;
mod onward;
mod practice;
mod remote;
mod router;
mod script;
mod shared;
mod text;
mod unreached;

#[cfg(unix)]
pub use command::{
    BadCommand, Command, CommandSettings, ExitCode, Input, Meaning, OutputForm, StderrFor, Words,
};
pub use echo::Echo;
pub use face::{Faced, McpFace};
pub use http::{BadHttp, Body, Http, HttpSettings};
pub use llm::{BadLlm, Llm, LlmSettings, ToolSettings};
pub use mcp::{BadMcp, Mcp, McpServerSettings, McpSettings};
pub use model::ModelSettings;
pub use practice::practice;
pub use remote::{BadRemote, Remote, RemoteBinding, RemoteSettings, RemoteVersion};
pub use router::{BadRouter, Choice, Route, Router, RouterSettings};
pub use script::{BadScript, Fault, Script};
pub use shared::Shared;
