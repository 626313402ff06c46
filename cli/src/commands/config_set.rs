//! `attache config set` and `unset`: defaults in the global settings file.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::args::CommonFlags;
use crate::error::{CliError, CliResult};
use crate::output::{Output, TextPage};
use crate::private_file;
use crate::settings::flags::{FLAGS, Flag};
use crate::settings::{OutputFormat, SettingSources, Settings};

/// Name of the file in the configuration directory.
const FILE_NAME: &str = ".env";

#[derive(Serialize)]
struct ChangeReport<'a> {
    schema: &'static str,
    name: &'static str,
    value: Option<&'a str>,
    file: String,
}

/// Stores a default.
pub(crate) fn set(name: &str, value: &str, settings: &Settings, out: &mut Output) -> CliResult {
    let flag = storable_flag(name)?;
    // Every value that a flag accepts is valid, so the parsers of the flags check it.
    let typed = CommonFlags::default().with(flag, value);
    Settings::new(&typed, &SettingSources::default())?;
    let variable = variable_for(flag, value)
        .ok_or_else(|| CliError::usage(format!("--{name} has no variable")))?;
    let assignment = format!("{variable}={}", quote(value)?);
    change(flag, Some((value, &assignment)), settings, out)
}

/// Removes a default.
pub(crate) fn unset(name: &str, settings: &Settings, out: &mut Output) -> CliResult {
    change(storable_flag(name)?, None, settings, out)
}

/// The flag of this name, if a file may store it: no credential, and nothing of an interaction.
fn storable_flag(name: &str) -> CliResult<&'static Flag> {
    let name = name.trim_start_matches('-');
    let can_store = |flag: &Flag| flag.is_listed && flag.variable().is_some();
    let flag = FLAGS.iter().copied().find(|flag| flag.name == name);
    let Some(flag) = flag.filter(|flag| can_store(flag)) else {
        let storable = FLAGS
            .iter()
            .filter(|flag| can_store(flag) && !flag.is_secret && !flag.is_of_interaction());
        let names: Vec<_> = storable.map(|flag| flag.name).collect();
        return Err(CliError::usage(format!("there is no setting {name}"))
            .hint(format!("one of {}", names.join(", "))));
    };
    if flag.is_secret {
        return Err(CliError::usage(format!("{name} is a credential"))
            .hint("store one with attache auth login, or set its variable"));
    }
    if flag.is_of_interaction() {
        return Err(CliError::usage(format!(
            "{name} belongs to one interaction, and is not stored"
        ))
        .hint(format!("give it as a flag: --{name}")));
    }
    Ok(flag)
}

/// The variable that stores the value. Other programs read `A2ACLI_OUTPUT` and know only the formats of the contract.
fn variable_for(flag: &Flag, value: &str) -> Option<String> {
    let is_of_contract = OutputFormat::from_name(value).is_none_or(OutputFormat::is_of_contract);
    match flag.terminal_variable {
        Some(variable) if !is_of_contract => Some(variable.to_owned()),
        _ => flag.variable(),
    }
}

/// Quotes a value as the reader of dotenv files needs it.
fn quote(value: &str) -> CliResult<String> {
    if value.contains(['\n', '\r']) {
        return Err(CliError::usage("the value has more than one line"));
    }
    let is_plain =
        !value.contains(" #") && value.trim() == value && !value.starts_with(['"', '\'']);
    if is_plain {
        return Ok(value.to_owned());
    }
    let quote = ['"', '\'']
        .into_iter()
        .find(|quote| !value.contains(*quote));
    let quote = quote.ok_or_else(|| CliError::usage("the value has both kinds of quotes"))?;
    Ok(format!("{quote}{value}{quote}"))
}

/// Replaces the lines of a flag in the global file by an assignment, and reports it.
fn change(
    flag: &'static Flag,
    new: Option<(&str, &str)>,
    settings: &Settings,
    out: &mut Output,
) -> CliResult {
    let folder = settings.config_dir.as_deref().ok_or_else(|| {
        CliError::usage("there is no configuration directory").hint("set HOME or XDG_CONFIG_HOME")
    })?;
    let path = folder.join(FILE_NAME);
    let cannot_write =
        |error: io::Error| CliError::internal(format!("cannot write {}: {error}", path.display()));
    let old = read(&path).map_err(cannot_write)?;
    let text = with_assignment(&old, flag, new.map(|(_, assignment)| assignment));
    if text != old {
        write(folder, &path, &text).map_err(cannot_write)?;
    }
    let value = new.map(|(value, _)| value);
    let file = path.display().to_string();
    if out.is_json() {
        return out.print_json(&ChangeReport {
            schema: "attache.config-set/1",
            name: flag.name,
            value,
            file,
        });
    }
    let mut page = TextPage::new(false);
    page.add_field(flag.name, value.unwrap_or("not set"));
    page.add_field("File", &file);
    out.print_page(&page)
}

fn read(path: &Path) -> io::Result<String> {
    match fs::read_to_string(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(String::new()),
        read => read,
    }
}

/// The text without the lines that set the flag, and with the assignment at the end.
fn with_assignment(text: &str, flag: &Flag, assignment: Option<&str>) -> String {
    let variables: Vec<_> = flag
        .variable()
        .into_iter()
        .chain(flag.terminal_variable.map(str::to_owned))
        .collect();
    let sets_flag = |line: &str| {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        let key = line.split_once('=').map(|(key, _)| key.trim());
        key.is_some_and(|key| variables.iter().any(|variable| variable == key))
    };
    let kept = text.lines().filter(|line| !sets_flag(line));
    kept.chain(assignment)
        .map(|line| format!("{line}\n"))
        .collect()
}

/// Replaces the file atomically. Only its owner can read it.
fn write(folder: &Path, path: &Path, text: &str) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    // A link is followed: some users keep their settings elsewhere.
    let target: PathBuf = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let new = private_file::with_suffix(&target, ".new");
    private_file::remove_if_exists(&new)?;
    let mut file = private_file::create(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&new, &target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::flags;

    #[test]
    fn an_assignment_replaces_both_variables_and_keeps_other_lines() {
        let old = "# mine\nexport A2ACLI_OUTPUT=json\nA2ACLI_TIMEOUT=5s\nATTACHE_OUTPUT=plain\n";
        let new = with_assignment(old, &flags::OUTPUT, Some("ATTACHE_OUTPUT=pretty"));
        assert_eq!(new, "# mine\nA2ACLI_TIMEOUT=5s\nATTACHE_OUTPUT=pretty\n");
        let unset = with_assignment(&new, &flags::OUTPUT, None);
        assert_eq!(unset, "# mine\nA2ACLI_TIMEOUT=5s\n");
    }

    #[test]
    fn credentials_and_ids_are_not_stored() {
        for name in ["bearer", "task-id", "nonsense", "stream"] {
            assert_eq!(storable_flag(name).unwrap_err().exit, 2, "{name}");
        }
        assert_eq!(storable_flag("timeout").unwrap().name, "timeout");
    }

    #[test]
    fn values_are_quoted_only_if_needed() {
        assert_eq!(
            quote("https://x.example/#a").unwrap(),
            "https://x.example/#a"
        );
        assert_eq!(quote("a #b").unwrap(), "\"a #b\"");
        assert!(quote("a\nb").is_err());
    }
}
