//! Ready-made A2A agents, written against the public API of attache like anybody's own.

mod echo;

pub use echo::Echo;
