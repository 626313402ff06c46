//! `${NAME}` and `${file:path}` in values: what should not stand in a file, or is not the same everywhere.

use std::path::Path;

use super::layers::Environment;

/// The largest file that a value may be in.
const MAX_FILE: u64 = 64 << 10;

/// Fills in what a value refers to: `None` if it refers to nothing. `$${` is a plain `${`.
///
/// # Errors
/// Why it cannot be filled in, in words; never what was filled in before.
pub(super) fn expand(
    text: &str,
    folder: &Path,
    environment: Environment<'_>,
) -> Result<Option<String>, String> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut filled = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('$') {
            filled.push_str(before);
            filled.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        filled.push_str(&rest[..at]);
        let (name, after) = rest[at + 2..]
            .split_once('}')
            .ok_or("a `${` has no `}`; write `$${` for a plain `${`")?;
        filled.push_str(&value(name, folder, environment)?);
        rest = after;
    }
    filled.push_str(rest);
    Ok(Some(filled))
}

fn value(name: &str, folder: &Path, environment: Environment<'_>) -> Result<String, String> {
    if let Some(path) = name.strip_prefix("file:") {
        return read(&folder.join(path))
            .map_err(|why| format!("cannot read `{path}` for `${{{name}}}`: {why}"));
    }
    let (name, otherwise) = match name.split_once(":-") {
        Some((name, otherwise)) => (name, Some(otherwise)),
        None => (name, None),
    };
    let good = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(good) {
        return Err(format!(
            "`${{{name}}}` is no name of a variable; write `$${{` for a plain `${{`"
        ));
    }
    let set = environment(name).filter(|value| !value.is_empty());
    set.or(otherwise.map(str::to_owned)).ok_or_else(|| {
        format!("the variable {name} is not set; set it, or say what to use instead: ${{{name}:-something}}")
    })
}

/// The text of a small file, without the end of its last line.
fn read(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path)
        .map_err(|error| error.to_string())?
        .len();
    if size > MAX_FILE {
        return Err(format!("it is larger than {MAX_FILE} bytes"));
    }
    let text = std::fs::read_to_string(path).map_err(|error| error.to_string())?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s38_values_come_from_the_environment_and_from_files() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("token"), "hunter2\n").unwrap();
        let environment = |name: &str| match name {
            "NAME" => Some("tide".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        };
        let expand = |text: &str| expand(text, folder.path(), &environment);
        assert_eq!(expand("plain $NAME"), Ok(None));
        assert_eq!(
            expand("a ${NAME}, ${NAME}!"),
            Ok(Some("a tide, tide!".to_owned()))
        );
        assert_eq!(
            expand("Bearer ${file:token}"),
            Ok(Some("Bearer hunter2".to_owned()))
        );
        assert_eq!(
            expand("${NOBODY:-else}${EMPTY:-}"),
            Ok(Some("else".to_owned()))
        );
        assert_eq!(
            expand("$${NAME} ${NAME}"),
            Ok(Some("${NAME} tide".to_owned()))
        );
        for (text, why) in [
            ("${NOBODY}", "NOBODY is not set"),
            ("${EMPTY}", "EMPTY is not set"),
            ("${file:none}", "cannot read `none`"),
            ("${NAME", "has no `}`"),
            ("${a b}", "no name"),
            ("${}", "no name"),
        ] {
            assert!(expand(text).unwrap_err().contains(why), "{text}");
        }
    }
}
