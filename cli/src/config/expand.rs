//! References in values: `${NAME}` for environment variables, `${file:path}` for files. For secrets, and for values that
//! differ per machine.

use std::path::Path;

use super::layers::Environment;

/// Maximum size of a referenced file, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// Expands the references of a value; `None` if it has none. `$${` is a literal `${`.
///
/// # Errors
/// A reference cannot be resolved. The message never contains expanded values.
pub(super) fn expand(
    text: &str,
    folder: &Path,
    environment: Environment<'_>,
) -> Result<Option<String>, String> {
    if !text.contains("${") {
        return Ok(None);
    }
    let mut expanded = String::new();
    let mut rest = text;
    while let Some(at) = rest.find("${") {
        if let Some(before) = rest[..at].strip_suffix('$') {
            expanded.push_str(before);
            expanded.push_str("${");
            rest = &rest[at + 2..];
            continue;
        }
        expanded.push_str(&rest[..at]);
        let (name, after) = rest[at + 2..]
            .split_once('}')
            .ok_or("a `${` has no `}`; write `$${` for a literal `${`")?;
        expanded.push_str(&value(name, folder, environment)?);
        rest = after;
    }
    expanded.push_str(rest);
    Ok(Some(expanded))
}

fn value(name: &str, folder: &Path, environment: Environment<'_>) -> Result<String, String> {
    if let Some(path) = name.strip_prefix("file:") {
        return read(&folder.join(path))
            .map_err(|why| format!("cannot read `{path}` for `${{{name}}}`: {why}"));
    }
    let (name, default) = match name.split_once(":-") {
        Some((name, default)) => (name, Some(default)),
        None => (name, None),
    };
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.is_empty() || !name.chars().all(is_allowed) {
        return Err(format!(
            "`${{{name}}}` is not a variable name; write `$${{` for a literal `${{`"
        ));
    }
    let set = environment(name).filter(|value| !value.is_empty());
    set.or(default.map(str::to_owned)).ok_or_else(|| {
        format!("the variable {name} is not set; set it, or give a default: ${{{name}:-value}}")
    })
}

/// The text of a file, without the line end of its last line.
fn read(path: &Path) -> Result<String, String> {
    let size = std::fs::metadata(path)
        .map_err(|error| error.to_string())?
        .len();
    if size > MAX_FILE {
        return Err(format!("larger than {MAX_FILE} bytes"));
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
            expand("${UNSET:-else}${EMPTY:-}"),
            Ok(Some("else".to_owned()))
        );
        assert_eq!(
            expand("$${NAME} ${NAME}"),
            Ok(Some("${NAME} tide".to_owned()))
        );
        for (text, why) in [
            ("${UNSET}", "UNSET is not set"),
            ("${EMPTY}", "EMPTY is not set"),
            ("${file:none}", "cannot read `none`"),
            ("${NAME", "has no `}`"),
            ("${a b}", "not a variable name"),
            ("${}", "not a variable name"),
        ] {
            assert!(expand(text).unwrap_err().contains(why), "{text}");
        }
    }
}
