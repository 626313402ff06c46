//! Secrets that stand in the file itself, where others than its owner can read it.

use std::path::Path;

use toml::Value;

use super::Config;
use super::print::REDACTED;
use super::tree::ValueOrigin;

impl Config {
    /// What is to be said of them, if there are any.
    pub(crate) fn exposed_secret(&self) -> Option<String> {
        let file = self.tree.file();
        if !is_open(Path::new(file)) {
            return None;
        }
        let key = self.agents.iter().find_map(|agent| {
            let values = agent.kind.values().ok()?;
            self.written(&format!("agents.{}", agent.name), &values)
        })?;
        Some(format!(
            "others can read {file}, and {key} is a secret: chmod 600, or take it from elsewhere with ${{NAME}} or ${{file:name}}"
        ))
    }

    /// The first secret below a key that the file has as it is.
    fn written(&self, key: &str, value: &Value) -> Option<String> {
        match value {
            Value::String(text) if text == REDACTED => {
                let is_written = matches!(
                    self.tree.origin(key),
                    Some(ValueOrigin::Line { written: None, .. })
                );
                is_written.then(|| key.to_owned())
            }
            Value::Table(table) => table
                .iter()
                .find_map(|(name, value)| self.written(&format!("{key}.{name}"), value)),
            Value::Array(items) => items
                .iter()
                .enumerate()
                .find_map(|(at, value)| self.written(&format!("{key}.{at}"), value)),
            _ => None,
        }
    }
}

#[cfg(unix)]
fn is_open(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(file).is_ok_and(|file| file.permissions().mode() & 0o077 != 0)
}

#[cfg(not(unix))]
fn is_open(_: &Path) -> bool {
    false
}
