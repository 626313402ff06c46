//! Literal secrets in a configuration file that other users can read.

use std::path::Path;

use toml::Value;

use super::Config;
use super::print::REDACTED;
use super::tree::ValueOrigin;

impl Config {
    /// A warning, if other users can read the file and it contains a literal secret.
    pub(crate) fn exposed_secret(&self) -> Option<String> {
        let file = self.tree.file();
        if !is_readable_by_others(Path::new(file)) {
            return None;
        }
        let in_agents = self.agents.iter().find_map(|agent| {
            let values = agent.kind.values().ok()?;
            self.literal_secret(&format!("agents.{}", agent.name), &values)
        });
        let key = in_agents.or_else(|| {
            let hooks = Value::try_from(&self.hooks.hooks).ok()?;
            self.literal_secret("hooks", &hooks)
        })?;
        Some(format!(
            "other users can read {file}, and {key} is a secret: chmod 600, or refer to it with ${{NAME}} or ${{file:name}}"
        ))
    }

    /// The key of the first literal secret below a key.
    fn literal_secret(&self, key: &str, value: &Value) -> Option<String> {
        match value {
            Value::String(text) if text == REDACTED => {
                let is_literal = matches!(
                    self.tree.origin(key),
                    Some(ValueOrigin::Line { written: None, .. })
                );
                is_literal.then(|| key.to_owned())
            }
            Value::Table(table) => table
                .iter()
                .find_map(|(name, value)| self.literal_secret(&format!("{key}.{name}"), value)),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .find_map(|(at, value)| self.literal_secret(&format!("{key}.{at}"), value)),
            _ => None,
        }
    }
}

#[cfg(unix)]
fn is_readable_by_others(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_readable_by_others(_: &Path) -> bool {
    false
}
