//! The program as people meet it: what it prints, what it answers, how it ends.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

mod clients;
mod config;
mod demo;
mod harness;
mod mock;
mod serve;
