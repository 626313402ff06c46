//! `attache check`: validates a configuration file without serving it.

use std::io::{self, Write};
use std::path::Path;

use serde_json::json;

use super::serve;
use crate::args::CheckArgs;
use crate::config::{self, CheckedConfig, FlagValues, schema};
use crate::error::CliError;
use crate::output::{Output, TextPage};
use crate::server::{self, environment};

const HINT_NO_FILE: &str = "write one with `attache init`, or name a file";

/// Exit code if the configuration has errors.
const EXIT_INVALID: u8 = 1;

pub(crate) async fn run(args: &CheckArgs, out: &mut Output) -> anyhow::Result<u8> {
    if args.schema {
        writeln!(io::stdout(), "{:#}", schema())?;
        return Ok(0);
    }
    let file = serve::config_file(args.file.as_deref(), HINT_NO_FILE)?;
    let mut flags = FlagValues::default();
    if let Some(folder) = &args.folder.data_dir {
        flags.set("store.data_dir", folder.display().to_string());
    }
    let checked = match config::check(&file, &environment, &flags) {
        Ok(checked) => checked,
        Err(errors) => {
            let errors: Vec<_> = errors.iter().map(ToString::to_string).collect();
            return report_errors(&file, &errors, out);
        }
    };
    let CheckedConfig { config, agents } = checked;
    let count = agents.len();
    if agents.is_empty() {
        let error = format!("{} has no agents; add one: [agents.<name>]", file.display());
        return report_errors(&file, &[error], out);
    }
    if let Err(error) = server::dry_run(agents, serve::DATA_DIR_NAME, &config).await {
        return report_errors(&file, &[format!("{error:#}")], out);
    }
    let warning = config.exposed_secret();
    if out.is_json() {
        let warnings: Vec<_> = warning.iter().collect();
        out.print_json(&json!({
            "schema": "attache.check/1", "file": file, "valid": true, "agents": count, "errors": [], "warnings": warnings,
        }))?;
        return Ok(0);
    }
    if let Some(warning) = warning {
        out.warn(&warning);
    }
    out.print_line(&format!(
        "{} is fine: {}",
        file.display(),
        agent_count(count)
    ))?;
    Ok(0)
}

/// Prints all errors: as the result with JSON, else in the form of other errors.
fn report_errors(file: &Path, errors: &[String], out: &mut Output) -> anyhow::Result<u8> {
    if out.is_json() {
        out.print_json(&json!({
            "schema": "attache.check/1", "file": file, "valid": false, "agents": null, "errors": errors, "warnings": [],
        }))?;
        return Ok(EXIT_INVALID);
    }
    let mut page = TextPage::new(false);
    page.add_field("Error", &CliError::config_invalid("").code);
    for error in errors {
        page.add_field("Message", error);
    }
    io::stderr().write_all(page.as_str().as_bytes())?;
    Ok(EXIT_INVALID)
}

fn agent_count(agents: usize) -> String {
    if agents == 1 {
        "one agent".to_owned()
    } else {
        format!("{agents} agents")
    }
}
