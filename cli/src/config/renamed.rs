//! Configuration keys and values that have been renamed.
//!
//! Old names are refused. The error names the new one.

/// Renamed keys: old and new name. `*` stands for one segment of any name.
const RENAMED_KEYS: &[(&str, &str)] = &[
    ("auth.allowance", "auth.limits"),
    ("auth.limits.parked_tasks", "auth.limits.waiting_tasks"),
    ("auth.max_guesses", "auth.max_failed_logins_per_minute"),
    ("auth.nodes", "auth.delegation"),
    ("server.max_blocking", "server.max_blocking_wait"),
    ("server.max_reading_bytes", "server.max_buffered_body_bytes"),
    ("server.node_signing_key", "server.delegation_signing_key"),
    (
        "server.parked_stream_timeout",
        "server.waiting_stream_timeout",
    ),
    (
        "store.max_parked_tasks",
        "store.max_anonymous_waiting_tasks",
    ),
    ("store.max_resting_bytes", "store.task_cache_bytes"),
    ("store.max_silent_age", "store.orphan_timeout"),
];

/// Renamed values.
const RENAMED_VALUES: &[RenamedValue] = &[RenamedValue {
    key: "agents.*.type",
    old: "practice",
    new: "demo",
}];

struct RenamedValue {
    key: &'static str,
    old: &'static str,
    new: &'static str,
}

/// Returns the new name of a key, if the key has been renamed.
pub(super) fn renamed_key(key: &str) -> Option<String> {
    RENAMED_KEYS.iter().find_map(|(old, new)| {
        let segments = match_key(old, key)?;
        Some(fill(new, &segments))
    })
}

/// Returns the new name of a value, if the value of this key has been renamed.
pub(super) fn renamed_value(key: &str, value: &str) -> Option<&'static str> {
    RENAMED_VALUES
        .iter()
        .find(|renamed| renamed.old == value && match_key(renamed.key, key).is_some())
        .map(|renamed| renamed.new)
}

/// Returns the segments that stand for `*`, if the key matches the pattern.
fn match_key<'a>(pattern: &str, key: &'a str) -> Option<Vec<&'a str>> {
    let mut wildcards = Vec::new();
    let mut segments = key.split('.');
    for expected in pattern.split('.') {
        let segment = segments.next()?;
        match expected {
            "*" => wildcards.push(segment),
            expected if expected == segment => {}
            _ => return None,
        }
    }
    segments.next().is_none().then_some(wildcards)
}

/// Replaces each `*` of a pattern by a segment.
fn fill(pattern: &str, segments: &[&str]) -> String {
    segments.iter().fold(pattern.to_owned(), |key, segment| {
        key.replacen('*', segment, 1)
    })
}

#[cfg(test)]
mod tests {
    use super::super::{Config, FlagValues};
    use super::*;

    /// Loads a file with this text, and returns the error.
    fn error(text: &str) -> String {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("agents.toml");
        std::fs::write(&file, text).unwrap();
        let loaded = Config::load(Some(&file), &|_| None, &FlagValues::default());
        loaded.map(drop).unwrap_err().to_string()
    }

    #[test]
    fn every_renamed_key_is_refused_with_the_new_key() {
        for (old, new) in RENAMED_KEYS {
            let key = old.replace('*', "a");
            let new = new.replace('*', "a");
            let (section, name) = key.rsplit_once('.').unwrap();
            let text = format!("[agents.a]\ntype = \"echo\"\n[{section}]\n{name} = 1\n");
            let said = error(&text);
            let expected = format!("unknown key `{key}`: renamed to `{new}`");
            assert!(said.contains(&expected), "{said}\n{expected}");
        }
    }

    #[test]
    fn every_renamed_value_is_refused_with_the_new_value() {
        for RenamedValue { key, old, new } in RENAMED_VALUES {
            let key = key.replace('*', "a");
            let (section, name) = key.rsplit_once('.').unwrap();
            let said = error(&format!("[{section}]\n{name} = \"{old}\"\n"));
            let expected = format!("unknown value `{old}`: renamed to `{new}`");
            assert!(said.contains(&expected), "{said}\n{expected}");
        }
    }
}
