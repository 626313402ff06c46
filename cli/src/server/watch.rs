//! `serve --watch`: reloads the configuration when its file changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Reloader;

/// Time between two looks at the file.
const INTERVAL: Duration = Duration::from_millis(500);

/// A configuration file whose changes are applied.
pub(crate) struct WatchedFile {
    path: PathBuf,
    /// Content that is in effect.
    applied: Option<Vec<u8>>,
}

impl WatchedFile {
    /// Watches from now on. Called before the file is read, so that no change is missed.
    pub(crate) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            applied: std::fs::read(path).ok(),
        }
    }
}

/// Reloads on each change of the file. Polls its content: editors replace files in ways that notifications miss.
pub(super) async fn reload_on_change(reloader: &Reloader, file: WatchedFile) -> ! {
    let WatchedFile { path, mut applied } = file;
    let mut seen = applied.clone();
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        let current = std::fs::read(&path).ok();
        // A file that was just written may be incomplete: it must be the same twice.
        if current == seen && current != applied && current.is_some() {
            applied.clone_from(&current);
            let name = path.display();
            match reloader.reload_all() {
                Ok(remark) if remark.is_empty() => eprintln!("Reloaded {name}."),
                Ok(remark) => eprintln!("Reloaded {name}; {remark}."),
                Err(error) => eprintln!("{name} is not applied: {error:#}"),
            }
        }
        seen = current;
    }
}
