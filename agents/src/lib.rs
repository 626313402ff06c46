//! Ready-made A2A agents, written against the public API of attache like anybody's own.

mod echo;
mod practice;
mod script;

pub use echo::Echo;
pub use practice::practice;
pub use script::{BadScript, Script};
