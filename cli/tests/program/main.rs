//! End-to-end tests of the program: output, responses and exit codes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(unix)]
mod admin;
#[cfg(unix)]
mod backup;
mod bench;
#[cfg(unix)]
mod canary;
#[cfg(unix)]
mod card_settings;
mod chat;
mod clients;
#[cfg(unix)]
mod cluster;
#[cfg(unix)]
mod collector;
mod config;
mod contract;
#[cfg(unix)]
mod database;
#[cfg(unix)]
mod delegation;
mod demo;
mod docs;
mod harness;
#[cfg(unix)]
mod hooks;
#[cfg(unix)]
mod keys;
#[cfg(unix)]
mod llm;
#[cfg(unix)]
mod mcp;
mod mcp_limits;
mod mock;
#[cfg(unix)]
mod nginx;
#[cfg(unix)]
mod observability;
mod peer_server;
#[cfg(unix)]
mod processes;
#[cfg(target_os = "linux")]
mod pty;
#[cfg(unix)]
mod push_delivery;
#[cfg(unix)]
mod reload;
mod remote;
mod serve;
#[cfg(unix)]
mod top;
#[cfg(unix)]
mod traces;
#[cfg(unix)]
mod worker;
