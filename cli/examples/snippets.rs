//! Runs a Rust program of the documentation: `snippets docs/examples/send.md:124 URL`. `tests/docs` calls it.
//!
//! `build.rs` writes the programs to `snippets.rs`, and replaces the address of the demo agent by [`url`].

use std::error::Error;

/// The `main` of a program.
type Snippet = fn() -> Result<(), Box<dyn Error>>;

include!(concat!(env!("OUT_DIR"), "/snippets.rs"));

/// Returns the URL of a path on the server of this run.
fn url(path: &str) -> String {
    let server = std::env::args().nth(2).unwrap_or_default();
    format!("{}{path}", server.trim_end_matches('/'))
}

fn main() -> Result<(), Box<dyn Error>> {
    let wanted = std::env::args().nth(1).unwrap_or_default();
    let snippet = SNIPPETS.iter().find(|(place, _)| *place == wanted);
    let (_, run) = snippet.ok_or_else(|| format!("no program at {wanted}; build again"))?;
    run()
}
