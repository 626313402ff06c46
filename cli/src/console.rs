//! Files of the web console in the program.
//!
//! `cli/console` contains them. [`FILES`] must list each one; a test compares both. In debug builds the variable
//! `CONSOLE_DIR` names a folder from which the files are read on each request.

use attache::{ConsoleFile, ConsoleFiles};
use bytes::Bytes;

/// Path below `cli/console`, and content.
type EmbeddedFile = (&'static str, &'static [u8]);

/// Lists files below `cli/console` with their content.
macro_rules! embedded_files {
    ($($path:literal),* $(,)?) => {
        &[$(($path, include_bytes!(concat!("../console/", $path)))),*]
    };
}

/// All files of the console.
const FILES: &[EmbeddedFile] = embedded_files![
    "app/api.js",
    "app/format.js",
    "app/h.js",
    "app/keys.js",
    "app/live.js",
    "app/main.js",
    "app/parts/axis.js",
    "app/parts/common.js",
    "app/parts/content.js",
    "app/parts/dialog.js",
    "app/parts/diff.js",
    "app/parts/flame.js",
    "app/parts/json.js",
    "app/parts/lanes.js",
    "app/parts/list.js",
    "app/parts/markdown.js",
    "app/route.js",
    "app/store.js",
    "app/views/agents.js",
    "app/views/find.js",
    "app/views/frame.js",
    "app/views/inbox.js",
    "app/views/login.js",
    "app/views/overview.js",
    "app/views/server.js",
    "app/views/task.js",
    "app/views/task_actions.js",
    "app/views/task_content.js",
    "app/views/task_copy.js",
    "app/views/task_data.js",
    "app/views/task_filters.js",
    "app/views/task_list.js",
    "app/views/tasks.js",
    "app/views/try.js",
    "app/views/try_wire.js",
    "app/views/webhooks.js",
    "app/views/wire.js",
    "index.html",
    "style/forms.css",
    "style/frame.css",
    "style/icon.svg",
    "style/screens.css",
    "style/table.css",
    "style/task.css",
    "style/tokens.css",
];

/// Console of the program.
pub(crate) struct BuiltInConsole;

impl ConsoleFiles for BuiltInConsole {
    fn file(&self, path: &str) -> Option<ConsoleFile> {
        let media_type = media_type(path)?;
        #[cfg(debug_assertions)]
        if let Some(folder) = std::env::var_os("CONSOLE_DIR") {
            return read_file(folder.as_ref(), path, media_type);
        }
        let (_, content) = FILES.iter().find(|(own, _)| *own == path)?;
        Some(ConsoleFile {
            media_type,
            content: Bytes::from_static(content),
        })
    }
}

/// Reads a file of a folder, for development. A path may not leave the folder.
#[cfg(debug_assertions)]
fn read_file(
    folder: &std::path::Path,
    path: &str,
    media_type: &'static str,
) -> Option<ConsoleFile> {
    use std::path::{Component, Path};
    let is_below = Path::new(path)
        .components()
        .all(|component| matches!(component, Component::Normal(_)));
    let content = is_below.then(|| std::fs::read(folder.join(path)))?.ok()?;
    Some(ConsoleFile {
        media_type,
        content: content.into(),
    })
}

/// Returns the media type of a file by its extension; `None` for one that the console does not serve.
fn media_type(path: &str) -> Option<&'static str> {
    let (_, extension) = path.rsplit_once('.')?;
    match extension {
        "html" => Some("text/html; charset=utf-8"),
        "css" => Some("text/css; charset=utf-8"),
        "js" => Some("text/javascript; charset=utf-8"),
        "svg" => Some("image/svg+xml"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Adds the paths of the files below a folder, without the tests of the console.
    fn add_files(root: &Path, folder: &Path, files: &mut BTreeSet<String>) {
        let Ok(entries) = fs::read_dir(folder) else {
            return;
        };
        for entry in entries {
            let path = entry.unwrap().path();
            let name = path
                .strip_prefix(root)
                .unwrap()
                .to_str()
                .unwrap()
                .to_owned();
            if path.is_dir() && name != "test" && name != "node_modules" {
                add_files(root, &path, files);
            } else if media_type(&name).is_some() {
                files.insert(name);
            }
        }
    }

    #[test]
    fn all_files_are_embedded() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("console");
        let mut files = BTreeSet::new();
        add_files(&root, &root, &mut files);
        let embedded = FILES.iter().map(|(path, _)| (*path).to_owned()).collect();
        assert_eq!(files, embedded, "list every file of cli/console in FILES");
    }

    /// Budget of the console.
    #[test]
    fn the_files_are_small() {
        let bytes: usize = FILES.iter().map(|(_, content)| content.len()).sum();
        let modules = FILES.iter().filter(|(path, _)| path.ends_with(".js"));
        assert!(bytes <= 300_000, "{bytes} bytes");
        assert!(modules.count() <= 60);
    }
}
