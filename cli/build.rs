//! Generates the list of embedded documentation pages from `docs/map.toml`, and the Rust programs of these pages.

use std::fmt::{self, Write as _};
use std::path::{Path, PathBuf};
use std::{env, fs, io};

/// Address of the demo agent in the programs. The example `snippets` replaces it by the address of a test server.
const DEMO_URL: &str = "\"http://127.0.0.1:41241";

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let docs = root.join("../docs");
    let map = docs.join("map.toml");
    println!("cargo::rerun-if-changed={}", map.display());
    let text = fs::read_to_string(&map)?;
    let mut list = "[\n".to_owned();
    let mut snippets = Snippets::default();
    for path in text.lines().filter_map(page_path) {
        let file = docs.join(format!("{path}.md"));
        println!("cargo::rerun-if-changed={}", file.display());
        snippets
            .add_page(path, &fs::read_to_string(&file)?)
            .map_err(io::Error::other)?;
        let file = file.display().to_string();
        writeln!(list, "    ({path:?}, include_str!({file:?})),").map_err(io::Error::other)?;
    }
    list.push(']');
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    let out = Path::new(&out);
    fs::write(out.join("pages.rs"), list)?;
    fs::write(out.join("snippets.rs"), snippets.into_source())
}

/// Returns the path of a page if the line of the map has one: `path = "push"`.
fn page_path(line: &str) -> Option<&str> {
    line.strip_prefix("path = \"")?.strip_suffix('"')
}

/// Modules with the Rust programs of the pages, and a table of them by page and line.
#[derive(Default)]
struct Snippets {
    modules: String,
    table: String,
    count: usize,
}

impl Snippets {
    /// Adds the blocks `rust,no_run` that have a `main`. Doc tests run the blocks without `no_run`.
    fn add_page(&mut self, path: &str, markdown: &str) -> fmt::Result {
        let mut block: Option<(usize, String)> = None;
        for (index, line) in markdown.lines().enumerate() {
            match &mut block {
                None if line == "```rust,no_run" => block = Some((index + 1, String::new())),
                None => {}
                Some((number, code)) if line == "```" => {
                    if code.contains("fn main(") {
                        self.add(&format!("docs/{path}.md:{number}"), code)?;
                    }
                    block = None;
                }
                Some((_, code)) => {
                    // rustdoc hides these lines.
                    let line = if line == "#" { "" } else { line };
                    writeln!(code, "{}", line.strip_prefix("# ").unwrap_or(line))?;
                }
            }
        }
        Ok(())
    }

    fn add(&mut self, place: &str, code: &str) -> fmt::Result {
        self.count += 1;
        let name = format!("snippet_{}", self.count);
        let mut pieces = code.split(DEMO_URL);
        let mut code = pieces.next().unwrap_or_default().to_owned();
        for piece in pieces {
            let (path, rest) = piece.split_once('"').unwrap_or((piece, ""));
            write!(code, "&crate::url(\"{path}\"){rest}")?;
        }
        writeln!(
            self.modules,
            "mod {name} {{\n{code}\npub(super) fn run() -> Result<(), Box<dyn std::error::Error>> {{ main()?; Ok(()) }}\n}}"
        )?;
        writeln!(self.table, "    ({place:?}, {name}::run),")
    }

    fn into_source(self) -> String {
        let Self { modules, table, .. } = self;
        format!("{modules}\nconst SNIPPETS: &[(&str, Snippet)] = &[\n{table}];\n")
    }
}
