//! Configuration files: `A2ACLI_X=value`, a line each. Other keys of a project's `.env` are not even looked at.

use std::path::{Path, PathBuf};

/// A file of settings.
#[derive(Debug, Default)]
pub(crate) struct Dotenv {
    pub(crate) path: PathBuf,
    entries: Vec<(String, String, usize)>,
}

impl Dotenv {
    /// Reads a file; `None` if there is none.
    pub(crate) fn read(path: &Path) -> Option<std::io::Result<Self>> {
        match std::fs::read_to_string(path) {
            Ok(text) => Some(Ok(Self::parse(path, &text))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => Some(Err(error)),
        }
    }

    pub(crate) fn parse(path: &Path, text: &str) -> Self {
        let ours = |key: &str| key.starts_with("A2ACLI_") || key.starts_with("ATTACHE_");
        let lines = text.lines().zip(1..);
        let entries = lines.filter_map(|(line, at)| {
            let line = line.trim();
            let line = line.strip_prefix("export ").unwrap_or(line);
            let (key, value) = line.split_once('=')?;
            let key = key.trim();
            ours(key).then(|| (key.to_owned(), unquoted(value.trim()), at))
        });
        Self {
            path: path.to_owned(),
            entries: entries.collect(),
        }
    }

    /// The value of a key and its line; the last one counts.
    pub(crate) fn get(&self, key: &str) -> Option<(&str, usize)> {
        let found = self.entries.iter().rev().find(|(name, ..)| name == key)?;
        Some((&found.1, found.2))
    }
}

fn unquoted(value: &str) -> String {
    for quote in ['"', '\''] {
        let rest = value.strip_prefix(quote);
        if let Some((inside, _)) = rest.and_then(|rest| rest.split_once(quote)) {
            return inside.to_owned();
        }
    }
    // A comment needs a space before it: a url may have a fragment.
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
