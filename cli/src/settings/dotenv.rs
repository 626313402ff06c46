//! Dotenv files: `A2ACLI_X=value` per line. Other keys of a project's `.env` are ignored.

use std::path::{Path, PathBuf};

/// A dotenv file with the lines of its keys.
#[derive(Debug, Default)]
pub(crate) struct Dotenv {
    pub(crate) path: PathBuf,
    entries: Vec<DotenvEntry>,
}

#[derive(Debug)]
struct DotenvEntry {
    key: String,
    value: String,
    line: usize,
}

/// Whether a variable belongs to this program.
pub(super) fn is_own_variable(name: &str) -> bool {
    name.starts_with("A2ACLI_") || name.starts_with("ATTACHE_")
}

impl Dotenv {
    /// Reads a file; `None` if it does not exist.
    pub(crate) fn read(path: &Path) -> Option<std::io::Result<Self>> {
        match std::fs::read_to_string(path) {
            Ok(text) => Some(Ok(Self::parse(path, &text))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(error)),
        }
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Self {
        let entries = text.lines().zip(1..).filter_map(|(text, line)| {
            let text = text.trim();
            let text = text.strip_prefix("export ").unwrap_or(text);
            let (key, value) = text.split_once('=')?;
            let key = key.trim();
            is_own_variable(key).then(|| DotenvEntry {
                key: key.to_owned(),
                value: unquote(value.trim()),
                line,
            })
        });
        Self {
            path: path.to_owned(),
            entries: entries.collect(),
        }
    }

    /// The value of a key and its line. The last line of a key wins.
    pub(crate) fn get(&self, key: &str) -> Option<(&str, usize)> {
        let entry = self.entries.iter().rev().find(|entry| entry.key == key)?;
        Some((&entry.value, entry.line))
    }
}

/// Removes quotes, or the comment behind an unquoted value.
fn unquote(value: &str) -> String {
    for quote in ['"', '\''] {
        let rest = value.strip_prefix(quote);
        if let Some((inside, _)) = rest.and_then(|rest| rest.split_once(quote)) {
            return inside.to_owned();
        }
    }
    // A comment starts with a space: a URL may contain `#`.
    value
        .split(" #")
        .next()
        .unwrap_or_default()
        .trim_end()
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn config_002_only_our_keys_are_read_quotes_comments_and_export_are_understood() {
        let text = "# a comment\nexport A2ACLI_OUTPUT=json # why\nA2ACLI_BEARER='a # b'\nDB_PASSWORD=x\n\
                    A2ACLI_TIMEOUT = \"2s\"\nATTACHE_ALLOW_HOST=b\nA2ACLI_OUTPUT=text";
        let file = Dotenv::parse(Path::new(".env"), text);
        assert_eq!(file.get("A2ACLI_OUTPUT"), Some(("text", 7)));
        assert_eq!(file.get("A2ACLI_BEARER"), Some(("a # b", 3)));
        assert_eq!(file.get("A2ACLI_TIMEOUT"), Some(("2s", 5)));
        assert_eq!(file.get("ATTACHE_ALLOW_HOST"), Some(("b", 6)));
        assert_eq!(file.get("DB_PASSWORD"), None);
    }
}
