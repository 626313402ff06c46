//! Ready-made A2A agents, written against the public API of attache like anybody's own.

#[cfg(unix)]
mod command;
mod echo;
mod practice;
mod script;

#[cfg(unix)]
pub use command::{BadCommand, Command};
pub use echo::Echo;
pub use practice::practice;
pub use script::{BadScript, Script};
