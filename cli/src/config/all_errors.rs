//! Finds all errors of a configuration, for `attache check`.
//!
//! Reading stops at the first error, which names its key. That key is removed and the file is read again, until it has no
//! error. So the check and the server cannot disagree about what is valid.

use std::path::Path;

use attache::HostedAgent;

use super::error::{ConfigError, ErrorKey};
use super::layers::{self, Environment, FlagValues};
use super::tree::ConfigTree;
use super::{Config, programs};

/// Maximum number of reported errors. More of them have one cause.
const MAX_ERRORS: usize = 50;

/// A valid configuration with its agents.
pub(crate) struct CheckedConfig {
    pub(crate) config: Config,
    pub(crate) agents: Vec<HostedAgent>,
}

/// Reads a configuration, and builds its agents.
///
/// # Errors
/// All errors, in the order in which they are found.
pub(crate) fn check(
    file: &Path,
    environment: Environment<'_>,
    flags: &FlagValues,
) -> Result<CheckedConfig, Vec<ConfigError>> {
    let mut removed: Vec<String> = Vec::new();
    let mut errors: Vec<ConfigError> = Vec::new();
    while errors.len() < MAX_ERRORS {
        let error = match read(file, environment, flags, &removed) {
            Ok(checked) if errors.is_empty() => return Ok(checked),
            Ok(_) => break,
            Err(error) => error,
        };
        let Some(ErrorKey { name: key, is_set }) = error.key().cloned() else {
            errors.push(error);
            break;
        };
        let is_consequence = names_removed_agent(&error, &removed)
            || has_removed_key(&key, &removed)
            || (!is_set && is_missing_after_removal(&key, &removed));
        if !is_consequence {
            errors.push(error);
        }
        // A key that is missing or was removed: its parent is removed next.
        let next = std::iter::successors(Some(key.as_str()), |key| Some(key.rsplit_once('.')?.0))
            .find(|key| !removed.iter().any(|removed| removed == key))
            .map(str::to_owned);
        match next {
            Some(next) => removed.push(next),
            None => break,
        }
    }
    Err(errors)
}

fn read(
    file: &Path,
    environment: Environment<'_>,
    flags: &FlagValues,
    removed: &[String],
) -> Result<CheckedConfig, ConfigError> {
    let mut tree = ConfigTree::read(file, environment)?;
    layers::apply(&mut tree, environment, flags)?;
    for key in removed {
        tree.remove(key);
    }
    let config = Config::from_tree(tree)?;
    let agents = config.build_agents()?;
    config.build_hooks()?;
    config.postgres_options(environment)?;
    if let Some(error) = programs::find_error(&config.agents, &config.hooks) {
        return Err(config.error(&error));
    }
    Ok(CheckedConfig { config, agents })
}

/// Whether the key, or one below it, was removed.
fn has_removed_key(key: &str, removed: &[String]) -> bool {
    let below = format!("{key}.");
    removed
        .iter()
        .any(|one| one == key || one.starts_with(&below))
}

/// Whether a missing key belongs to a section of which a key was removed: the removal may be the reason.
fn is_missing_after_removal(key: &str, removed: &[String]) -> bool {
    removed.iter().any(|one| section(one) == section(key))
}

/// The section of a key: the agent, else the first name.
fn section(key: &str) -> &str {
    let names = if key.starts_with("agents.") { 2 } else { 1 };
    let end = key.match_indices('.').nth(names - 1);
    end.map_or(key, |(end, _)| &key[..end])
}

/// Whether the error is about an agent that was removed as a whole.
fn names_removed_agent(error: &ConfigError, removed: &[String]) -> bool {
    let message = error.to_string();
    let mut agents = removed.iter().filter_map(|key| key.strip_prefix("agents."));
    agents.any(|name| !name.contains('.') && message.contains(&format!("`{name}`")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn errors(text: &str) -> Vec<String> {
        let folder = tempfile::TempDir::new().unwrap();
        let file = folder.path().join("agents.toml");
        std::fs::write(&file, text).unwrap();
        let found = check(&file, &|_| None, &FlagValues::default());
        let found = found.err().unwrap_or_default();
        let place = format!("{}:", file.display());
        found
            .iter()
            .map(|error| error.to_string().replace(&place, ""))
            .collect()
    }

    #[test]
    fn all_errors_are_found_at_once() {
        let found = errors(
            "[server]\nlisten = 5\nrot = \"a\"\n[limits]\nmax_turns = \"many\"\n[agents.a]\ntype = \"comand\"\n\
             [agents.b]\ntype = \"http\"\nurl = 7\n[agents.c]\ntype = \"echo\"\n[stroe]\nkind = \"memory\"\n",
        );
        let lines: Vec<_> = found
            .iter()
            .map(|error| error.split(':').next().unwrap())
            .collect();
        let mut sorted = lines.clone();
        sorted.sort_by_key(|line| line.parse::<usize>().unwrap());
        assert_eq!(sorted, ["2", "3", "5", "7", "10", "13"], "{found:#?}");
    }

    #[test]
    fn consequences_of_an_error_are_not_reported() {
        let found = errors("[server]\nroot = \"a\"\n[agents.a]\ntype = \"comand\"\n");
        assert_eq!(found.len(), 1, "{found:#?}");
        assert!(found[0].contains("did you mean `command`"), "{found:#?}");
        assert_eq!(
            errors("[agents.a]\ntype = \"echo\"\n"),
            Vec::<String>::new()
        );
        assert_eq!(errors("not toml").len(), 1);
    }

    #[cfg(unix)]
    #[test]
    fn programs_must_exist_and_be_executable() {
        let plain = tempfile::NamedTempFile::new().unwrap();
        let plain = plain.path().display().to_string();
        let found = errors(&format!(
            "[agents.a]\ntype = \"command\"\ncommand = [\"no-such-program-1\"]\n\
             [agents.b]\ntype = \"command\"\ncommand = \"{plain} x\"\n\
             [agents.c]\ntype = \"command\"\ncommand = [\"sh\", \"-c\", \"true\"]\n\
             [agents.d]\ntype = \"mcp\"\nserver = {{ command = [\"./no-such-program-2\"] }}\n\
             [agents.e]\ntype = \"llm\"\nmodel = {{ url = \"http://127.0.0.1:1\", name = \"m\" }}\n\
             [agents.e.tools.t]\ndescription = \"d\"\ncommand = [\"no-such-program-3\"]\n\
             [[hooks]]\nname = \"h\"\ntype = \"command\"\ncommand = [\"no-such-program-4\"]\n\
             [[hooks]]\nname = \"i\"\ntype = \"command\"\ncommand = \"no-such-program-5 | cat\"\nshell = true\n",
        ));
        assert_eq!(found.len(), 5, "{found:#?}");
        assert!(
            found[0].starts_with("3: agents.a.command: there is no program `no-such-program-1`"),
            "{found:#?}"
        );
        assert!(
            found[1].contains(&format!("{plain}` is not executable; chmod +x")),
            "{found:#?}"
        );
        assert!(found[2].contains("no-such-program-2"), "{found:#?}");
        assert!(
            found[3].contains("agents.e.tools.t.command: there is no program `no-such-program-3`"),
            "{found:#?}"
        );
        assert!(found[4].contains("no-such-program-4"), "{found:#?}");
    }
}
