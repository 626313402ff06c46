//! The verbs that talk to agents, as the CLI contract wants them. The names of tests begin with what they prove:
//! `send_001_…` is for A2ACLI_SEND_001; `docs/cli-conformance.yaml` is made from which of them passed.

mod auth;
mod card;
mod chat;
mod config;
mod conformance;
mod errors;
mod interact;
mod listen;
mod login;
mod output;
mod run;
mod scripted_agent;
mod sdk_servers;
mod send;
mod signature;
mod subscribe;
mod task;
mod terminal;
mod tls;
mod wire;
