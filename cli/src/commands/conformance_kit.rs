//! `attache conformance --kit`: the test kit of the protocol, where somebody has one.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::Serialize;
use tokio::process::Command;

use crate::error::{CliError, CliResult};
use crate::output::{Output, TextPage};
use crate::reference::ResolvedCard;
use crate::settings::Settings;
use crate::token_store::CLIENT_SECRET;

/// What starts a kit.
const RUNNER: &str = "run_tck.py";
/// What a kit is not told: it has ways of its own to take credentials.
const SECRETS: [&str; 3] = ["A2ACLI_BEARER", "A2ACLI_API_KEY", CLIENT_SECRET];

#[derive(Serialize)]
struct KitReport<'a> {
    schema: &'static str,
    agent: &'a str,
    kit: KitRun<'a>,
}

#[derive(Serialize)]
struct KitRun<'a> {
    folder: &'a Path,
    outcome: &'static str,
}

/// Runs the kit in this folder to its end, and says whether everything in it passed. What it prints goes to stderr.
pub(super) async fn run(
    folder: &Path,
    found: &ResolvedCard,
    settings: &Settings,
    out: &mut Output,
) -> CliResult<bool> {
    let address = found.base().ok_or_else(|| {
        CliError::usage("a kit needs an agent that is named by its address")
            .hint("-a <host or url>")
    })?;
    let runner = folder.join(RUNNER);
    let script = std::fs::read_to_string(&runner).map_err(|error| {
        CliError::usage(format!("--kit: cannot read {}: {error}", runner.display()))
            .hint("name the folder of a checkout of a2a-tck")
    })?;
    let mut command = Command::new(python(folder));
    command
        .arg(RUNNER)
        .args(options(&script, &address, &settings.transports));
    for name in SECRETS {
        command.env_remove(name);
    }
    let status = command
        .current_dir(folder)
        .env("NO_COLOR", "1")
        .env("PYTEST_ADDOPTS", "--color=no")
        .stdin(Stdio::null())
        .stdout(std::io::stderr())
        .kill_on_drop(true)
        .status()
        .await
        .map_err(|error| CliError::internal(format!("the kit cannot be started: {error}")))?;
    let passed = match status.code() {
        Some(0) => true,
        Some(1) => false,
        _ => {
            return Err(CliError::internal(format!(
                "the kit did not get to its end: {status}"
            )));
        }
    };
    let (agent, outcome) = (
        found.card.name.as_str(),
        if passed { "pass" } else { "fail" },
    );
    if out.is_json() {
        let kit = KitRun { folder, outcome };
        out.print_json(&KitReport {
            schema: "attache.conformance/1",
            agent,
            kit,
        })?;
    } else {
        let mut page = TextPage::new(false);
        page.add_field("Agent", agent);
        page.add_field("Kit", &folder.display().to_string());
        page.add_field("Outcome", outcome);
        out.print_page(&page)?;
    }
    Ok(passed)
}

/// The interpreter that the kit was installed for, else the one of the system.
fn python(folder: &Path) -> PathBuf {
    // Not resolved: it is the name that makes it the one of its environment.
    let own = folder.join(".venv/bin/python");
    let own = std::path::absolute(&own).unwrap_or(own);
    if own.exists() { own } else { "python3".into() }
}

/// Kits of 1.0 are told of a host and of transports; those of before of a url, of categories, and of other names.
fn options(script: &str, address: &str, transports: &[String]) -> Vec<String> {
    let is_new = script.contains("--sut-host");
    let named = |name: &String| match name.to_ascii_uppercase().as_str() {
        "HTTP+JSON" if is_new => "http_json".to_owned(),
        "HTTP+JSON" => "rest".to_owned(),
        other => other.to_ascii_lowercase(),
    };
    let transports: Vec<_> = transports.iter().map(named).collect();
    let (place, which) = if is_new {
        ("--sut-host", "--transport")
    } else {
        ("--sut-url", "--transports")
    };
    let mut options = vec![place.to_owned(), address.to_owned()];
    if !is_new {
        options.extend(["--category".to_owned(), "all".to_owned()]);
    }
    if !transports.is_empty() {
        options.extend([which.to_owned(), transports.join(",")]);
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conform_001_kits_of_both_generations_are_told_what_they_understand() {
        let transports = ["HTTP+JSON".to_owned(), "GRPC".to_owned()];
        let told =
            |script: &str, transports: &[String]| options(script, "http://a", transports).join(" ");
        assert_eq!(told("--sut-host", &[]), "--sut-host http://a");
        assert_eq!(
            told("--sut-host", &transports),
            "--sut-host http://a --transport http_json,grpc"
        );
        assert_eq!(
            told("--sut-url", &transports),
            "--sut-url http://a --category all --transports rest,grpc"
        );
    }
}
