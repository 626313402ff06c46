//! The demo agent: a script that shows every feature of an agent.

use crate::Script;

/// Returns the demo agent. The first word of a message selects the feature that it shows; `help` lists them.
#[must_use]
pub fn demo_agent() -> Script {
    Script::parse(include_str!("demo.toml"))
        .expect("demo.toml is a valid script, checked by a test")
}
