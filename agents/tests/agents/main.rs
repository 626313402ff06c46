//! One test binary for the ready-made agents: each is driven through the library's server.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(unix)]
mod command;
mod delegation;
mod demo;
#[cfg(unix)]
mod dialects;
mod harness;
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
