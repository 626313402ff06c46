//! The agent to practise on.

use crate::Script;

/// The agent to practise on: shows everything that an agent can do, as the first word of a message asks for it.
#[must_use]
pub fn demo_agent() -> Script {
    Script::parse(include_str!("demo.toml"))
        .expect("a script that ships with the crate and is tested")
}
