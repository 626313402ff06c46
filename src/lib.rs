//! A durable runtime and toolkit for the Agent2Agent (A2A) protocol.

pub mod wire;
