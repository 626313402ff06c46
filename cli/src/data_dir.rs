//! Where the program keeps what it must not forget.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// The folder that was named, or `otherwise` in the one that the system has for such things; it is made if need be.
pub(crate) fn create(named: Option<&Path>, otherwise: &str) -> anyhow::Result<PathBuf> {
    let folder = locate(named, otherwise)
        .context("there is no data directory; name one: --data-dir <DIR>")?;
    std::fs::create_dir_all(&folder).with_context(|| {
        format!(
            "cannot make the folder {}; name another: --data-dir <DIR>",
            folder.display()
        )
    })?;
    Ok(folder)
}

/// The same for those who only look: the folder has to be there, unless nobody named it.
pub(crate) fn require(named: Option<&Path>, otherwise: &str) -> anyhow::Result<PathBuf> {
    let folder = locate(named, otherwise)
        .context("there is no data directory; name one: --data-dir <DIR>")?;
    if named.is_some() && !folder.is_dir() {
        bail!("there is no folder {}", folder.display());
    }
    Ok(folder)
}

/// The folder that was named, or `otherwise` in the one that the system has for such things, whether it is there or not.
pub(crate) fn locate(named: Option<&Path>, otherwise: &str) -> Option<PathBuf> {
    match named {
        Some(folder) => Some(folder.to_owned()),
        None => Some(user_data_dir()?.join(otherwise)),
    }
}

/// The user's data directory, as each system has it.
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
    match cfg!(target_os = "macos") {
        true => Some(home()?.join("Library/Application Support")),
        false => from("XDG_DATA_HOME")
            .filter(|path| path.is_absolute())
            .or_else(|| Some(home()?.join(".local/share"))),
    }
}
