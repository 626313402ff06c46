//! Test binary of the ready-made agents. Each is called through a real server.

#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

mod backend_context;
#[cfg(unix)]
mod command;
mod delegation;
mod demo;
#[cfg(unix)]
mod dialects;
mod harness;
mod hooks;
mod http;
mod llm;
#[cfg(unix)]
mod llm_tools;
#[cfg(unix)]
mod mcp;
mod remote;
mod router;
mod script;
mod signed_delegation;
#[cfg(unix)]
mod trace_propagation;
#[cfg(unix)]
mod worker;
