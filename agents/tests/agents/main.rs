//! One test binary for the ready-made agents: each is driven through the library's server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(unix)]
mod command;
mod delegation;
#[cfg(unix)]
mod dialects;
mod harness;
mod http;
mod llm;
#[cfg(unix)]
mod llm_tools;
#[cfg(unix)]
mod mcp;
mod nodes;
mod practice;
mod remote;
mod router;
mod script;
#[cfg(unix)]
mod traced;
