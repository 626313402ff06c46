//! `serve --watch`: reloads the configuration when its file, or the file of an agent, changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Reloader;

/// Time between two looks at the files.
const INTERVAL: Duration = Duration::from_millis(500);

/// Files whose changes are applied: the configuration, and the code of worker agents.
pub(crate) struct WatchedFiles {
    paths: Vec<PathBuf>,
    /// Contents that are in effect.
    applied: Contents,
}

/// Content of each file; `None` for one that cannot be read.
type Contents = Vec<Option<Vec<u8>>>;

impl WatchedFiles {
    /// Watches from now on. Files that a later configuration adds are watched after a restart.
    pub(crate) fn new(main: &Path, others: Vec<PathBuf>) -> Self {
        let mut paths = vec![main.to_owned()];
        paths.extend(others.into_iter().filter(|other| other != main));
        Self {
            applied: read(&paths),
            paths,
        }
    }
}

fn read(paths: &[PathBuf]) -> Contents {
    paths.iter().map(|path| std::fs::read(path).ok()).collect()
}

/// Reloads on each change. Polls the contents: editors replace files in ways that notifications miss.
pub(super) async fn reload_on_change(reloader: &Reloader, files: WatchedFiles) -> ! {
    let WatchedFiles { paths, mut applied } = files;
    let mut seen = applied.clone();
    let mut ticks = tokio::time::interval(INTERVAL);
    loop {
        ticks.tick().await;
        let current = read(&paths);
        let is_complete = current.iter().all(Option::is_some);
        // A file that was just written may be incomplete: it must be the same twice.
        if current == seen && current != applied && is_complete {
            let changed = paths
                .iter()
                .zip(current.iter().zip(&applied))
                .find(|(_, (new, old))| new != old);
            let name = changed.map_or(&paths[0], |(path, _)| path).display();
            match reloader.reload_all() {
                Ok(remark) if remark.is_empty() => eprintln!("Reloaded {name}."),
                Ok(remark) => eprintln!("Reloaded {name}; {remark}."),
                Err(error) => eprintln!("{name} is not applied: {error:#}"),
            }
            applied.clone_from(&current);
        }
        seen = current;
    }
}
