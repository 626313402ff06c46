//! Requirements of the CLI contract for client verbs. The names of tests begin with the requirement: `send_001_…` is for
//! A2ACLI_SEND_001. `docs/cli-conformance.yaml` is generated from the test results.

mod auth;
mod card;
mod chat;
mod config;
mod conformance;
#[cfg(unix)]
mod doctor;
mod errors;
mod frameworks;
mod interact;
#[path = "../../../tests/stand_in/kaos.rs"]
mod kaos_server;
mod listen;
mod login;
mod output;
mod peer_checks;
mod people;
#[cfg(target_os = "linux")]
mod repl;
mod run;
mod scripted_agent;
mod sdk_servers;
mod seeds;
mod send;
mod signature;
mod subscribe;
mod task;
mod terminal;
mod tls;
mod wire;
