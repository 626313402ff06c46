//! End-to-end tests of the program: output, responses and exit codes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

#[cfg(unix)]
mod admin;
#[cfg(unix)]
mod backup;
mod bench;
#[cfg(unix)]
mod canary;
mod chat;
mod clients;
#[cfg(unix)]
mod collector;
mod config;
mod contract;
#[cfg(unix)]
mod delegation;
mod demo;
mod harness;
#[cfg(unix)]
mod keys;
#[cfg(unix)]
mod llm;
#[cfg(unix)]
mod mcp;
mod mock;
#[cfg(unix)]
mod nginx;
#[cfg(unix)]
mod observability;
#[cfg(unix)]
mod push_delivery;
#[cfg(unix)]
mod reload;
mod remote;
mod serve;
#[cfg(unix)]
mod traces;
