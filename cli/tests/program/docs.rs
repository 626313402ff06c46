//! `attache docs`: pages in the terminal, search, the static site, the local server and the MCP tools.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::harness::{attache, run_expecting_error};

fn stdout(args: &[&str]) -> String {
    let output = attache(args).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_page_is_printed_without_escape_sequences_to_a_pipe() {
    let page = stdout(&["docs", "push"]);
    assert!(page.starts_with("# Webhooks\n\n"), "{page}");
    assert!(!page.contains('\x1b'));
    assert!(page.contains("See also:\n"), "{page}");
    let narrow = attache(&["docs", "push"])
        .env("COLUMNS", "50")
        .output()
        .unwrap();
    let narrow = String::from_utf8(narrow.stdout).unwrap();
    assert!(narrow.lines().count() > page.lines().count());
}

#[test]
fn an_unknown_page_names_the_nearest_ones() {
    for (name, suggestion) in [
        ("pussh", "; did you mean `push`"),
        ("two", "; did you mean `tutorials/two-servers`"),
        ("kubernetes", "; did you mean `container`"),
        ("xyzzy", "; all pages: attache docs list"),
    ] {
        let (code, error) = run_expecting_error(&["docs", name]);
        assert_eq!(code, Some(1));
        let expected = format!("there is no page `{name}`{suggestion}");
        assert!(error.contains(&expected), "{error}");
        let search = format!("attache docs search {name}");
        assert!(error.contains(&search), "{error}");
    }
}

#[test]
fn the_pages_are_listed_if_the_output_is_not_a_terminal() {
    assert_eq!(stdout(&["docs"]), stdout(&["docs", "list"]));
}

#[test]
fn the_help_has_one_usage_line_for_each_form() {
    let help = stdout(&["help", "docs"]);
    let usage = "Usage: attache docs [OPTIONS] [PAGE]\n       attache docs <COMMAND>\n";
    assert!(help.contains(usage), "{help}");
    assert!(help.contains("\nCommands:\n  list "), "{help}");
}

#[test]
fn one_section_of_a_page_is_printed() {
    let section = stdout(&["docs", "push#retries-and-dead-letters"]);
    assert!(
        section.starts_with("## Retries and dead letters\n"),
        "{section}"
    );
    assert!(!section.contains("Allowed targets\n"), "{section}");
    let (code, error) = run_expecting_error(&["docs", "push#nothing"]);
    assert_eq!(code, Some(1));
    assert!(
        error.contains("there is no section `push#nothing`; the whole page: attache docs push"),
        "{error}"
    );
}

#[test]
fn search_prints_sections_with_the_command_that_shows_them() {
    let found = stdout(&["docs", "search", "webhook", "retries"]);
    assert!(found.starts_with("Webhooks"), "{found}");
    let command = "\n  attache docs push#retries-and-dead-letters\n";
    assert!(found.contains(command), "{found}");
    let (code, error) = run_expecting_error(&["docs", "search", "xyzzy"]);
    assert_eq!(code, Some(1));
    assert!(error.contains("no page contains `xyzzy`"), "{error}");
}

#[test]
fn the_list_has_every_page_with_a_summary() {
    let list = stdout(&["docs", "list"]);
    assert!(list.starts_with("Start\n  index "), "{list}");
    assert!(list.contains("\nReference\n"), "{list}");
}

#[test]
fn the_static_site_is_written_to_an_empty_folder_only() {
    let folder = TempDir::new().unwrap();
    let site = folder.path().join("site");
    let site = site.display().to_string();
    stdout(&["docs", "build", &site, "--origin", "https://docs.example"]);
    for file in [
        "index.html",
        "push.html",
        "push.md",
        "style.css",
        "site.js",
        "search.json",
        "llms.txt",
        "sitemap.xml",
    ] {
        assert!(folder.path().join("site").join(file).is_file(), "{file}");
    }
    let (code, error) = run_expecting_error(&["docs", "build", &site]);
    assert_eq!(code, Some(1));
    assert!(
        error.contains("is not empty; give an empty or new folder"),
        "{error}"
    );
}

#[test]
fn the_local_server_sends_pages_with_a_content_security_policy() {
    let mut server = attache(&["docs", "--no-open"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut lines = BufReader::new(server.stdout.take().unwrap());
    lines.read_line(&mut line).unwrap();
    let url = line.split_whitespace().nth(2).unwrap().to_owned();
    let get = |path: &str, extra: &[&str]| {
        let output = std::process::Command::new("curl")
            .args(["-sS", "-i", "--max-time", "20"])
            .args(extra)
            .arg(format!("{url}{path}"))
            .output()
            .unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let page = get("push.html", &[]);
    let missing = get("../Cargo.toml", &["--path-as-is"]);
    let foreign = get("", &["-H", "Host: evil.example"]);
    let written = get("", &["-X", "POST"]);
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(page.starts_with("HTTP/1.1 200"), "{page}");
    assert!(page.contains("content-security-policy: default-src 'none'; script-src 'self'"));
    assert!(page.contains("<h1 id=\"webhooks\">"), "{page}");
    assert!(missing.starts_with("HTTP/1.1 404"), "{missing}");
    assert!(foreign.starts_with("HTTP/1.1 421"), "{foreign}");
    assert!(written.starts_with("HTTP/1.1 405"), "{written}");
}

/// Sends MCP requests to `attache mcp --docs` and returns the responses.
fn mcp(requests: &[Value]) -> Vec<Value> {
    let mut server = attache(&["mcp", "--docs"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = server.stdin.take().unwrap();
    let mut lines = BufReader::new(server.stdout.take().unwrap()).lines();
    let mut responses = Vec::new();
    let client = json!({"name": "test", "version": "1"});
    let hello = json!({"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client});
    writeln!(
        stdin,
        "{}",
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello})
    )
    .unwrap();
    responses.push(serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap());
    writeln!(
        stdin,
        "{}",
        json!({"jsonrpc": "2.0", "method": "notifications/initialized"})
    )
    .unwrap();
    for request in requests {
        writeln!(stdin, "{request}").unwrap();
        responses.push(serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap());
    }
    drop(stdin);
    server.wait().unwrap();
    responses
}

#[test]
fn mcp_clients_list_read_and_search_the_pages() {
    let call = |id: u32, name: &str, arguments: Value| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name, "arguments": arguments}});
    let responses = mcp(&[
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}),
        call(2, "docs_list", json!({})),
        call(3, "docs_search", json!({"query": "webhook retries"})),
        call(4, "docs_read", json!({"path": "push"})),
        call(5, "docs_read", json!({"path": "no-such-page"})),
    ]);
    let tools = responses[1]["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["docs_list", "docs_read", "docs_search"]);
    let text = |response: &Value| {
        response["result"]["content"][0]["text"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert!(text(&responses[2]).contains("- push: Webhooks. "));
    assert!(
        text(&responses[3]).starts_with("- Webhooks"),
        "{}",
        responses[3]
    );
    assert!(text(&responses[4]).starts_with("# Webhooks\n"));
    assert_eq!(responses[5]["result"]["isError"], true, "{}", responses[5]);
}
