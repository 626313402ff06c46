//! Layering: the imports that each top-level module of the library may have, and the crates it must not use.
//!
//! The check reads the text of `src/`, not the compiler's output. It blanks comments and strings, splits the rest
//! into tokens and resolves every path, including groups and `super::`. Unit tests inside a module obey the same
//! rules. `src/lib.rs` only re-exports and is not checked. The check does not see renamed imports
//! (`use std::time as t`), paths inside strings (`#[serde(with = "…")]`), or versions matched inside a tuple.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules that each module may import. `model`, `rt`, `telemetry` and the module itself are always allowed.
/// A module may only name modules above its own line, so the graph has no cycle. Argue for a new import in its commit.
const ALLOWED_IMPORTS: &[(&str, &[&str])] = &[
    ("model", &[]),
    ("telemetry", &[]),
    ("rt", &[]),
    ("wire", &[]),
    ("agent", &[]),
    ("egress", &[]),
    // TLS of the connections to PostgreSQL: authorities and client certificate.
    ("store", &["egress"]),
    // The transport of messages between replicas.
    ("bus", &["store"]),
    ("hooks", &[]),
    ("jws", &["egress"]),
    ("auth", &["egress", "jws"]),
    ("engine", &["store", "bus", "agent", "hooks"]),
    ("push", &["engine", "wire", "egress", "store"]),
    (
        "service",
        &["engine", "bus", "agent", "store", "push", "hooks"],
    ),
    ("client", &["wire", "egress", "jws"]),
    ("server", &["service", "auth", "wire"]),
];

/// Files that may import every module: they assemble the server, reload it, serve the admin routes, or sign cards.
const COMPOSITION_ROOTS: &[&str] = &[
    "server/assembly.rs",
    "server/bound_server.rs",
    "server/builder.rs",
    "server/reloadable_config.rs",
    "server/handle.rs",
    "server/hosted_agent.rs",
    "server/in_process.rs",
    "server/admin/activity.rs",
    "server/admin/routes.rs",
    "server/signing.rs",
];

/// Path prefixes that must not occur in the modules of the first list.
const FORBIDDEN_PATHS: &[(&[&str], &[&str])] = &[
    (
        &["model", "wire"],
        &[
            "tokio",
            "http",
            "hyper",
            "rusqlite",
            "std::net",
            "std::fs",
            "std::time::SystemTime",
        ],
    ),
    (&["engine"], &["http", "hyper", "tonic", "serde_json"]),
    (&["service"], &["http", "hyper", "tonic", "rusqlite"]),
];

/// The only modules that may match on a protocol version.
const VERSION_AWARE: &[&str] = &["model", "wire"];

#[test]
fn every_import_is_in_the_table() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut findings = Vec::new();
    for file in rust_files(&src) {
        let name = file
            .strip_prefix(&src)
            .expect("listed under src")
            .to_string_lossy()
            .replace('\\', "/");
        findings.extend(check(
            &name,
            &fs::read_to_string(&file).expect("a source file is readable"),
        ));
    }
    let list: String = findings
        .iter()
        .map(|finding| format!("\n  {finding}"))
        .collect();
    assert!(
        findings.is_empty(),
        "{list}\nthe tables are at the top of {}",
        file!()
    );
}

#[test]
fn the_import_graph_has_no_cycle() {
    for (line, (module, others)) in ALLOWED_IMPORTS.iter().enumerate() {
        for other in *others {
            assert!(
                ALLOWED_IMPORTS[..line]
                    .iter()
                    .any(|(above, _)| above == other),
                "{module} -> {other} is a cycle or names a module below its own line"
            );
        }
    }
}

#[test]
fn the_checker_reports_violations() {
    let table: &[(&str, &str, &[&str])] = &[
        (
            "store/memory.rs",
            "use crate::engine::Journal;",
            &["1: store -> engine"],
        ),
        (
            "store/memory.rs",
            "\n\nfn f() { crate::service::g() }",
            &["3: store -> service"],
        ),
        (
            "bus/mod.rs",
            "use crate::{\n  model::{Seq, TaskId},\n  engine::Engine,\n};",
            &["3: bus -> engine"],
        ),
        (
            "bus/mod.rs",
            "use crate::{bus::local, model, engine};",
            &["1: bus -> engine"],
        ),
        (
            "bus/mod.rs",
            "use {std::fmt, crate::engine::{self, Engine}};",
            &["1: bus -> engine", "1: bus -> engine"],
        ),
        (
            "agent.rs",
            "pub(crate) use crate::engine as e;",
            &["1: agent -> engine"],
        ),
        (
            "agent.rs",
            "use super::engine::Engine;",
            &["1: agent -> engine"],
        ),
        (
            "agent.rs",
            "mod tests {\n  use super::super::bus;\n}",
            &["2: agent -> bus"],
        ),
        (
            "agent.rs",
            "mod tests { }\nuse super::bus;",
            &["2: agent -> bus"],
        ),
        (
            "wire/v03/task.rs",
            "use super::super::super::engine;",
            &["1: wire -> engine"],
        ),
        (
            "wire/v03/mod.rs",
            "use super::super::engine;",
            &["1: wire -> engine"],
        ),
        (
            "server/bindings/rest.rs",
            "fn f(_: Vec<crate::engine::E>) {}",
            &["1: server -> engine"],
        ),
        (
            "server/bindings/rest.rs",
            "const C: char = '\"'; use crate::push::P;",
            &["1: server -> push"],
        ),
        (
            "server/bindings/rest.rs",
            "fn f<'a>(_: &'a str) { crate::push::p::<crate::store::S>() }",
            &["1: server -> push", "1: server -> store"],
        ),
        (
            "client/mod.rs",
            "use crate::Task;",
            &["1: client -> `Task`, through a re-export of lib.rs"],
        ),
        ("utils.rs", "", &["1: `utils` is not in the table"]),
        (
            "model/task.rs",
            "use tokio::sync::watch;",
            &["1: `tokio` must not be used in model"],
        ),
        (
            "model/task.rs",
            "use tokio;",
            &["1: `tokio` must not be used in model"],
        ),
        (
            "model/task.rs",
            "use ::tokio::sync;",
            &["1: `tokio` must not be used in model"],
        ),
        (
            "wire/mod.rs",
            "#[tokio::test]\nasync fn f() {}",
            &["1: `tokio` must not be used in wire"],
        ),
        (
            "wire/mod.rs",
            "use std::{fmt, time::{Duration, SystemTime}};",
            &["1: `std::time::SystemTime` must not be used in wire"],
        ),
        (
            "wire/mod.rs",
            "fn f() { std::fs::read(p) }",
            &["1: `std::fs` must not be used in wire"],
        ),
        (
            "wire/mod.rs",
            "use std::{io, net};",
            &["1: `std::net` must not be used in wire"],
        ),
        (
            "service.rs",
            "match v { Version::V03 => 1, Version::V1 => 2 }",
            &[
                "1: `Version::V03` is matched outside model and wire",
                "1: `Version::V1` is matched outside model and wire",
            ],
        ),
        (
            "service.rs",
            "if let model::Version::V1 = v {}",
            &["1: `Version::V1` is matched outside model and wire"],
        ),
    ];
    for (file, source, expected) in table {
        let findings: Vec<String> = check(file, source).iter().map(Finding::to_string).collect();
        let expected: Vec<String> = expected
            .iter()
            .map(|line| format!("src/{file}:{line}"))
            .collect();
        assert_eq!(findings, expected, "{source}");
    }
}

#[test]
fn the_checker_accepts_allowed_code() {
    let table: &[(&str, &str)] = &[
        (
            "lib.rs",
            "pub use crate::engine::Engine; pub use model::Task;",
        ),
        (
            "server/assembly.rs",
            "use crate::{engine, push, store}; use crate::Result;",
        ),
        (
            "engine/journal.rs",
            "use crate::{bus::Bus, engine::runner, model::Seq, store};",
        ),
        (
            "push.rs",
            "use crate::store::Store; pub(crate) fn f() {} pub(in crate::push) fn g() {}",
        ),
        (
            "store/memory.rs",
            "// use crate::engine::E;\n/* crate::engine /* nested */ crate::engine */",
        ),
        (
            "store/memory.rs",
            "/// See [`crate::engine`].\n//! crate::engine::E\nstruct S;",
        ),
        (
            "store/memory.rs",
            "const A: &str = \"crate::engine \\\" crate::engine\"; const B: char = '\\'';",
        ),
        (
            "store/memory.rs",
            "const A: &str = r#\"crate::\"engine\" crate::engine::E\"#; const B: &[u8] = b\"\\\\\";",
        ),
        (
            "store/memory.rs",
            "mod tests { use super::*; use super::super::Store; }",
        ),
        (
            "model/card.rs",
            "enum E { Http } fn f(http: &str) { g(http, E::Http); tokio_like::f() }",
        ),
        (
            "model/card.rs",
            "use crate::model::http; use super::http::X; use serde::de; use std::time::Duration;",
        ),
        (
            "wire/errors.rs",
            "match v { Version::V03 => 1, Version::V1 => 2 }",
        ),
        (
            "server/bindings/rest.rs",
            "match v { http::Version::HTTP_11 => 1, _ => f(Version::V03) }",
        ),
    ];
    for (file, source) in table {
        assert_eq!(check(file, source), [], "{source}");
    }
}

#[derive(Debug, PartialEq)]
struct Finding {
    file: String,
    line: usize,
    what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "src/{}:{}: {}", self.file, self.line, self.what)
    }
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).expect("a source folder is readable") {
        let path = entry.expect("a source folder is readable").path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files.sort();
    files
}

/// Returns all violations in one file; `file` is its path below `src/`.
fn check(file: &str, source: &str) -> Vec<Finding> {
    if file == "lib.rs" {
        return Vec::new();
    }
    let path = module_path(file);
    let module = path.first().map_or("", String::as_str);
    let finding = |line, what| Finding {
        file: file.to_owned(),
        line,
        what,
    };
    let Some((_, allowed)) = ALLOWED_IMPORTS.iter().find(|(name, _)| *name == module) else {
        return vec![finding(1, format!("`{module}` is not in the table"))];
    };
    let tokens = tokens(&blank(source));
    let mut findings = Vec::new();
    for found in paths(&tokens, &path) {
        let problem = match found.target() {
            Some(_) if COMPOSITION_ROOTS.contains(&file) => None,
            Some(target) => forbidden_import(module, allowed, target),
            None => forbidden_path(module, &found),
        };
        let problem = problem.or_else(|| version_match(module, &found));
        findings.extend(problem.map(|what| finding(found.line, what)));
    }
    findings
}

/// Returns the module path of a file: `wire/v03/mod.rs` is the module `wire::v03`.
fn module_path(file: &str) -> Vec<String> {
    let name = file.trim_end_matches(".rs").trim_end_matches("/mod");
    name.split('/').map(str::to_owned).collect()
}

fn forbidden_import(module: &str, allowed: &[&str], target: &str) -> Option<String> {
    if target == module
        || ["model", "rt", "telemetry"].contains(&target)
        || allowed.contains(&target)
    {
        return None;
    }
    if ALLOWED_IMPORTS.iter().any(|(name, _)| *name == target) {
        return Some(format!("{module} -> {target}"));
    }
    // A re-export would hide which module it comes from.
    Some(format!(
        "{module} -> `{target}`, through a re-export of lib.rs"
    ))
}

fn forbidden_path(module: &str, path: &CodePath) -> Option<String> {
    let names = FORBIDDEN_PATHS
        .iter()
        .filter(|(modules, _)| modules.contains(&module))
        .flat_map(|(_, names)| *names);
    let mut met = names.filter(|name| path.starts_with(name));
    met.next()
        .map(|name| format!("`{name}` must not be used in {module}"))
}

fn version_match(module: &str, path: &CodePath) -> Option<String> {
    let [.., enumeration, variant] = path.segments.as_slice() else {
        return None;
    };
    let is_version = enumeration == "Version"
        && variant
            .strip_prefix('V')
            .is_some_and(|rest| rest.starts_with(char::is_numeric));
    (is_version && path.is_pattern && !VERSION_AWARE.contains(&module)).then(|| {
        format!(
            "`Version::{variant}` is matched outside {}",
            VERSION_AWARE.join(" and ")
        )
    })
}

/// One path of the code, with groups expanded and `crate`, `self` and `super` resolved.
#[derive(Debug)]
struct CodePath {
    line: usize,
    /// Whether the path starts at the root of this crate.
    is_local: bool,
    segments: Vec<String>,
    /// Whether the path is the pattern of a match arm or a `let`.
    is_pattern: bool,
}

impl CodePath {
    /// Returns the top-level module that the path names, if it starts at this crate's root.
    fn target(&self) -> Option<&str> {
        self.segments
            .first()
            .filter(|_| self.is_local)
            .map(String::as_str)
    }

    fn starts_with(&self, name: &str) -> bool {
        let mut segments = self.segments.iter();
        name.split("::")
            .all(|part| segments.next().is_some_and(|segment| segment == part))
    }
}

/// Returns every path in the code: the leaves of `use` trees, and all other paths with a `::`.
fn paths(tokens: &[Token], module: &[String]) -> Vec<CodePath> {
    let mut found = Vec::new();
    let mut modules = ModuleTracker {
        path: module.to_vec(),
        opened_at: Vec::new(),
        depth: 0,
    };
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        modules.advance(tokens, at);
        if !token.is_name() || token.text == "use" {
            at += 1;
            continue;
        }
        let before = at.checked_sub(1).map_or("", |before| &tokens[before].text);
        let mut leaves = Vec::new();
        let next = leaves_of(tokens, at, &[], &mut leaves);
        let after = tokens.get(next).map_or("", |token| &token.text);
        let is_pattern = before == "let" || ["=>", "|", "if"].contains(&after);
        leaves.retain(|(segments, _)| segments.len() > 1 || before == "use");
        found.extend(
            leaves
                .into_iter()
                .map(|(segments, line)| modules.resolve(segments, line, is_pattern)),
        );
        at = next.max(at + 1);
    }
    found
}

/// Reads one path or one `use` tree that starts at `at`. Adds its leaves and returns the index after it.
fn leaves_of(
    tokens: &[Token],
    mut at: usize,
    prefix: &[String],
    leaves: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    let mut segments = prefix.to_vec();
    let mut line = 0;
    while let Some(token) = tokens.get(at) {
        if token.text == "{" {
            return leaves_of_group(tokens, at + 1, &segments, leaves);
        }
        if !token.is_name() && token.text != "*" {
            break;
        }
        line = token.line;
        segments.push(token.text.clone());
        at += 1;
        if tokens.get(at).is_none_or(|token| token.text != "::") {
            break;
        }
        at += 1;
    }
    leaves.push((segments, line));
    at
}

fn leaves_of_group(
    tokens: &[Token],
    mut at: usize,
    prefix: &[String],
    leaves: &mut Vec<(Vec<String>, usize)>,
) -> usize {
    while let Some(token) = tokens.get(at) {
        match token.text.as_str() {
            "}" => return at + 1,
            "," => at += 1,
            // The alias is not a path.
            "as" => at += 2,
            _ => at = leaves_of(tokens, at, prefix, leaves).max(at + 1),
        }
    }
    at
}

/// The module at the current token, needed to resolve `self` and `super`.
struct ModuleTracker {
    path: Vec<String>,
    /// The depth of braces at which each inline module began.
    opened_at: Vec<usize>,
    depth: usize,
}

impl ModuleTracker {
    fn advance(&mut self, tokens: &[Token], at: usize) {
        match tokens[at].text.as_str() {
            "{" => {
                if let [.., keyword, name] = &tokens[..at]
                    && keyword.text == "mod"
                {
                    self.path.push(name.text.clone());
                    self.opened_at.push(self.depth);
                }
                self.depth += 1;
            }
            "}" => {
                self.depth = self.depth.saturating_sub(1);
                if self
                    .opened_at
                    .pop_if(|depth| *depth == self.depth)
                    .is_some()
                {
                    self.path.pop();
                }
            }
            _ => {}
        }
    }

    fn resolve(&self, segments: Vec<String>, line: usize, is_pattern: bool) -> CodePath {
        let supers = segments
            .iter()
            .skip_while(|name| *name == "self")
            .take_while(|name| *name == "super")
            .count();
        let start = match segments[0].as_str() {
            "crate" => Some(Vec::new()),
            "self" | "super" => Some(self.path[..self.path.len().saturating_sub(supers)].to_vec()),
            _ => None,
        };
        let is_local = start.is_some();
        let is_step =
            |name: &String| is_local && ["crate", "self", "super"].contains(&name.as_str());
        let rest = segments.iter().filter(|name| !is_step(name)).cloned();
        CodePath {
            line,
            is_local,
            segments: start.unwrap_or_default().into_iter().chain(rest).collect(),
            is_pattern,
        }
    }
}

#[derive(Debug)]
struct Token {
    text: String,
    line: usize,
}

impl Token {
    fn is_name(&self) -> bool {
        self.text.starts_with(is_name_char)
    }
}

fn is_name_char(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// Names, `::` and `=>` whole, everything else by the character.
fn tokens(code: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    for (number, text) in code.lines().enumerate() {
        let line = number + 1;
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let length = match c {
                _ if is_name_char(c) => rest.find(|c| !is_name_char(c)).unwrap_or(rest.len()),
                _ if rest.starts_with("::") || rest.starts_with("=>") => 2,
                _ => c.len_utf8(),
            };
            let (token, after) = rest.split_at(length);
            let begins = text.len() - rest.len();
            // The `::` of `::tokio::sync` begins a path and says nothing.
            let leading =
                token == "::" && !text[..begins].ends_with(|c| is_name_char(c) || c == '>');
            if !c.is_whitespace() && !leading {
                tokens.push(Token {
                    text: token.to_owned(),
                    line,
                });
            }
            rest = after;
        }
    }
    tokens
}

/// The source with comments, strings and characters gone, every line still in its place.
fn blank(source: &str) -> String {
    let mut code = String::new();
    let mut rest = source;
    while let Some(c) = rest.chars().next() {
        let in_name = code.ends_with(is_name_char);
        let skipped = if in_name {
            quoted(rest)
        } else {
            raw_string(rest).or_else(|| quoted(rest))
        };
        let length = skipped.unwrap_or(c.len_utf8()).min(rest.len());
        let (piece, after) = rest.split_at(length);
        match skipped {
            Some(_) => code.extend(piece.chars().map(|c| if c == '\n' { '\n' } else { ' ' })),
            None => code.push(c),
        }
        rest = after;
    }
    code
}

/// The length of the comment, string or character that begins here.
fn quoted(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return Some(block_comment(text));
    }
    if text.starts_with('"') {
        return Some(until_quote(text, '"'));
    }
    let character = text.strip_prefix('\'')?;
    let one = character.chars().next()?;
    // Otherwise it is a lifetime, which has no end quote.
    let is_character = one == '\\' || character[one.len_utf8()..].starts_with('\'');
    is_character.then(|| until_quote(text, '\''))
}

fn block_comment(text: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        if rest.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with(b"*/") {
            depth -= 1;
            at += 2;
        } else {
            at += 1;
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn until_quote(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return at + 1,
            _ => {}
        }
    }
    text.len()
}

/// The length of the raw string that begins here: `r"…"`, `br#"…"#` and so on.
fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["r", "br", "cr"].iter().find(|prefix| {
        text.strip_prefix(**prefix)
            .is_some_and(|rest| rest.trim_start_matches('#').starts_with('"'))
    })?;
    let hashes = text[prefix.len()..]
        .bytes()
        .take_while(|byte| *byte == b'#')
        .count();
    let begin = prefix.len() + hashes + 1;
    let end = format!("\"{}", "#".repeat(hashes));
    Some(
        text[begin..]
            .find(&end)
            .map_or(text.len(), |at| begin + at + end.len()),
    )
}
