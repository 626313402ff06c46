//! Data directories of servers.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// Returns the named directory, else `default` in the user's data directory, and creates it.
pub(crate) fn create(named: Option<&Path>, default: &str) -> anyhow::Result<PathBuf> {
    let folder =
        locate(named, default).context("there is no data directory; give one: --data-dir <DIR>")?;
    std::fs::create_dir_all(&folder).with_context(|| {
        format!(
            "cannot create the directory {}; give another: --data-dir <DIR>",
            folder.display()
        )
    })?;
    Ok(folder)
}

/// Returns the named directory, which must exist, else `default` in the user's data directory.
pub(crate) fn require(named: Option<&Path>, default: &str) -> anyhow::Result<PathBuf> {
    let folder =
        locate(named, default).context("there is no data directory; give one: --data-dir <DIR>")?;
    if named.is_some() && !folder.is_dir() {
        bail!("there is no directory {}", folder.display());
    }
    Ok(folder)
}

/// Returns the named directory, else `default` in the user's data directory. It need not exist.
pub(crate) fn locate(named: Option<&Path>, default: &str) -> Option<PathBuf> {
    match named {
        Some(folder) => Some(folder.to_owned()),
        None => Some(user_data_dir()?.join(default)),
    }
}

/// The user's data directory, by the convention of the platform.
fn user_data_dir() -> Option<PathBuf> {
    let from = |name: &str| {
        std::env::var_os(name)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if cfg!(windows) {
        return from("LOCALAPPDATA");
    }
    let home = || from("HOME");
    if cfg!(target_os = "macos") {
        return Some(home()?.join("Library/Application Support"));
    }
    from("XDG_DATA_HOME")
        .filter(|path| path.is_absolute())
        .or_else(|| Some(home()?.join(".local/share")))
}
