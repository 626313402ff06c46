//! Generates the list of embedded documentation pages from `docs/map.toml`.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let docs = root.join("../docs");
    let map = docs.join("map.toml");
    println!("cargo::rerun-if-changed={}", map.display());
    let text = fs::read_to_string(&map)?;
    let mut list = "[\n".to_owned();
    for path in text.lines().filter_map(page_path) {
        let file = docs.join(format!("{path}.md"));
        println!("cargo::rerun-if-changed={}", file.display());
        let file = file.display().to_string();
        writeln!(list, "    ({path:?}, include_str!({file:?})),").map_err(io::Error::other)?;
    }
    list.push(']');
    let out = env::var_os("OUT_DIR").unwrap_or_default();
    fs::write(Path::new(&out).join("pages.rs"), list)
}

/// Returns the path of a page if the line of the map has one: `path = "push"`.
fn page_path(line: &str) -> Option<&str> {
    line.strip_prefix("path = \"")?.strip_suffix('"')
}
