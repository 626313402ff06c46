//! `attache conformance --kit`: runs the official test kit (a2a-tck) from a local checkout.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde::Serialize;
use tokio::process::Command;

use crate::error::{CliError, CliResult};
use crate::output::{Output, TextPage};
use crate::reference::ResolvedCard;
use crate::settings::Settings;
use crate::token_store::CLIENT_SECRET;

/// Script that starts the kit.
const RUNNER: &str = "run_tck.py";
/// Variables that the kit does not inherit: it has its own configuration of credentials.
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

/// Runs the kit of this directory to its end, and returns whether all its tests passed. Its output goes to stderr.
pub(super) async fn run(
    folder: &Path,
    found: &ResolvedCard,
    settings: &Settings,
    out: &mut Output,
) -> CliResult<bool> {
    let address = found.base().ok_or_else(|| {
        CliError::usage("--kit needs the URL of an agent, not a card file").hint("-a <host or url>")
    })?;
    let runner = folder.join(RUNNER);
    let script = std::fs::read_to_string(&runner).map_err(|error| {
        CliError::usage(format!("--kit: cannot read {}: {error}", runner.display()))
            .hint("give the directory of a checkout of a2a-tck")
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
        .map_err(|error| CliError::internal(format!("cannot start the kit: {error}")))?;
    let passed = match status.code() {
        Some(0) => true,
        Some(1) => false,
        _ => {
            return Err(CliError::internal(format!(
                "the kit ended abnormally: {status}"
            )));
        }
    };
    let agent = found.card.name.as_str();
    let outcome = if passed { "pass" } else { "fail" };
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

/// The interpreter of the kit's virtual environment, else the one of the system.
fn python(folder: &Path) -> PathBuf {
    // Symbolic links are not resolved: Python finds its environment by the path it is started with.
    let own = folder.join(".venv/bin/python");
    let own = std::path::absolute(&own).unwrap_or(own);
    if own.exists() { own } else { "python3".into() }
}

/// Command-line options of the kit. Kits of 1.0 take a host and transports; older ones take a URL, categories and other
/// names of transports.
fn options(script: &str, address: &str, transports: &[String]) -> Vec<String> {
    let is_v1 = script.contains("--sut-host");
    let named = |name: &String| match name.to_ascii_uppercase().as_str() {
        "HTTP+JSON" if is_v1 => "http_json".to_owned(),
        "HTTP+JSON" => "rest".to_owned(),
        other => other.to_ascii_lowercase(),
    };
    let transports: Vec<_> = transports.iter().map(named).collect();
    let (address_option, transport_option) = if is_v1 {
        ("--sut-host", "--transport")
    } else {
        ("--sut-url", "--transports")
    };
    let mut options = vec![address_option.to_owned(), address.to_owned()];
    if !is_v1 {
        options.extend(["--category".to_owned(), "all".to_owned()]);
    }
    if !transports.is_empty() {
        options.extend([transport_option.to_owned(), transports.join(",")]);
    }
    options
}

#[cfg(test)]
mod tests {
    #[test]
    fn conform_001_kits_of_both_generations_get_their_options() {
        let transports = ["HTTP+JSON".to_owned(), "GRPC".to_owned()];
        let options = |script: &str, transports: &[String]| {
            super::options(script, "http://a", transports).join(" ")
        };
        assert_eq!(options("--sut-host", &[]), "--sut-host http://a");
        assert_eq!(
            options("--sut-host", &transports),
            "--sut-host http://a --transport http_json,grpc"
        );
        assert_eq!(
            options("--sut-url", &transports),
            "--sut-url http://a --category all --transports rest,grpc"
        );
    }
}
