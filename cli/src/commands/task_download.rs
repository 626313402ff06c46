//! `attache task download`: writes artifacts to files. File names from agents are sanitized and cannot leave the directory
//! (S56).

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use attache::model::{Artifact, Content, Json, Object, Part};
use attache::{AllowedTarget, EgressPolicy, FileFetcher};

use super::task_id;
use crate::args::TaskDownloadArgs;
use crate::error::{CliError, CliResult};
use crate::output::{Output, TextPage};
use crate::reference::{is_loopback, url_host};
use crate::session::Session;
use crate::settings::Settings;

/// Metadata key of the path of a saved part.
const SAVED_TO: &str = "attache.savedTo";
/// Maximum number of files with the same base name.
const MAX_COLLISIONS: usize = 1000;
/// Maximum size of a fetched file, in bytes.
const MAX_BYTES: usize = 100 << 20;
/// Time limit of one fetch.
const TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) async fn run(
    args: TaskDownloadArgs,
    settings: &Settings,
    out: &mut Output,
) -> CliResult {
    let id = task_id(args.one.id, settings)?;
    let session = Session::open(settings, out).await?;
    let mut task = session.task(&id, Some(0)).await?;
    let folder = args.output_dir.unwrap_or_else(|| PathBuf::from("."));
    fs::create_dir_all(&folder).map_err(|error| {
        CliError::internal(format!(
            "cannot create the directory {}: {error}",
            folder.display()
        ))
    })?;
    let mut page = TextPage::new(false);
    page.add_ids(task.id.as_str(), task.context_id.as_str());
    page.add_field("State", task.status.state.as_str());
    let is_selected = |artifact: &&mut Artifact| {
        let id = artifact.artifact_id.as_str();
        args.artifact.is_empty() || args.artifact.iter().any(|selected| selected == id)
    };
    let download = Download {
        folder: &folder,
        fetcher: args.fetch_urls.then(|| fetcher(&session)).transpose()?,
        force: args.force,
    };
    let mut saved = 0;
    for artifact in task.artifacts.iter_mut().filter(is_selected) {
        saved += 1;
        download.save(artifact, &mut page, out).await?;
    }
    if saved == 0 && !args.artifact.is_empty() {
        return Err(CliError::usage(format!(
            "the task has no artifact {}",
            args.artifact.join(", ")
        )));
    }
    if out.is_json() {
        out.print_json(&task)
    } else {
        out.print_page(&page)
    }
}

/// Parameters of a download.
struct Download<'a> {
    folder: &'a Path,
    /// Fetches URL parts; `None` without `--fetch-urls`.
    fetcher: Option<FileFetcher>,
    force: bool,
}

impl Download<'_> {
    /// Saves the parts of an artifact, and adds their paths to their metadata and to the page.
    async fn save(
        &self,
        artifact: &mut Artifact,
        page: &mut TextPage,
        out: &mut Output,
    ) -> CliResult {
        page.add_field("Artifact", artifact.artifact_id.as_str());
        let names: Vec<_> = (0..artifact.parts.len())
            .map(|index| file_name(artifact, index))
            .collect();
        for (part, name) in artifact.parts.iter_mut().zip(names) {
            let Some(bytes) = part_bytes(part, self.fetcher.as_ref(), out).await else {
                page.add_field("Not fetched", &describe(part));
                continue;
            };
            let path = write(self.folder, &name, &bytes, self.force)?;
            let path = path.display().to_string();
            page.add_field("Saved", &path);
            let mut metadata = part.metadata().cloned().unwrap_or_else(Object::new);
            metadata.insert(SAVED_TO, Json::from(path.as_str()));
            *part = part.clone().with_metadata(metadata);
        }
        Ok(())
    }
}

/// Fetches URLs of agents without credentials: from the public internet over TLS, from loopback if the agent is on
/// loopback, and from the hosts of `--allow-host`.
fn fetcher(session: &Session<'_>) -> CliResult<FileFetcher> {
    let is_local = is_loopback(&url_host(&session.client.interface().url));
    let allowed = session.settings.allowed_hosts.iter().map(|host| {
        host.parse::<AllowedTarget>()
            .map_err(|error| CliError::usage(format!("--allow-host {host}: {error}")))
    });
    let mut policy = EgressPolicy::default();
    policy.loopback = is_local;
    policy.allow = allowed.collect::<CliResult<_>>()?;
    Ok(FileFetcher::new(policy)
        .max_bytes(MAX_BYTES)
        .timeout(TIMEOUT))
}

/// The bytes of a part to write. A URL is fetched with `--fetch-urls`; a failed fetch is a warning.
async fn part_bytes(
    part: &Part,
    fetcher: Option<&FileFetcher>,
    out: &mut Output,
) -> Option<Vec<u8>> {
    let (Some(fetcher), Content::Url(url)) = (fetcher, &part.content) else {
        return content(part);
    };
    match fetcher.get(url).await {
        Ok(file) => Some(file.bytes),
        Err(error) => {
            out.warn(&format!("{url} was not fetched: {}", error.message()));
            None
        }
    }
}

/// The inline bytes of a part; `None` for a URL.
fn content(part: &Part) -> Option<Vec<u8>> {
    match &part.content {
        Content::Text(text) => Some(text.clone().into_bytes()),
        Content::Raw(bytes) => Some(bytes.decode()),
        Content::Data(data) => Some(format!("{data}\n").into_bytes()),
        Content::Url(_) => None,
    }
}

fn describe(part: &Part) -> String {
    match &part.content {
        Content::Url(url) => url.to_string(),
        Content::Text(_) | Content::Raw(_) | Content::Data(_) => String::new(),
    }
}

/// The file name of a part: its own, else one from its URL, else one from the artifact.
fn file_name(artifact: &Artifact, at: usize) -> String {
    let part = &artifact.parts[at];
    let in_url = match &part.content {
        Content::Url(url) => url
            .split(['?', '#'])
            .next()
            .and_then(|path| path.rsplit('/').next()),
        Content::Text(_) | Content::Raw(_) | Content::Data(_) => None,
    };
    if let Some(name) = part.filename().or(in_url).and_then(safe_file_name) {
        return name;
    }
    let stem = artifact.name.as_deref().and_then(safe_file_name);
    let stem = stem
        .or_else(|| safe_file_name(artifact.artifact_id.as_str()))
        .unwrap_or_else(|| "artifact".to_owned());
    let number = if at == 0 {
        String::new()
    } else {
        format!("-{}", at + 1)
    };
    let extension = match &part.content {
        Content::Text(_) if part.media_type() == Some("text/markdown") => ".md",
        Content::Text(_) => ".txt",
        Content::Data(_) => ".json",
        Content::Raw(_) | Content::Url(_) => "",
    };
    if number.is_empty() && stem.ends_with(extension) {
        stem
    } else {
        format!("{stem}{number}{extension}")
    }
}

/// Sanitizes a file name: no path separators, control characters, leading dots or device names. `None` if nothing is left.
fn safe_file_name(name: &str) -> Option<String> {
    let base = name.rsplit(['/', '\\', ':']).next().unwrap_or_default();
    let odd = |c: char| {
        c.is_control()
            || "<>\"|?*".contains(c)
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
    };
    let clean: String = base.chars().map(|c| if odd(c) { '_' } else { c }).collect();
    let clean = clean.trim_matches([' ', '.']);
    let stem = clean
        .split('.')
        .next()
        .unwrap_or_default()
        .to_ascii_uppercase();
    let devices = ["CON", "PRN", "AUX", "NUL"];
    let numbered = (stem.starts_with("COM") || stem.starts_with("LPT")) && stem.len() == 4;
    if clean.is_empty() || devices.contains(&stem.as_str()) || numbered {
        return None;
    }
    let mut end = clean.len().min(200);
    while !clean.is_char_boundary(end) {
        end -= 1;
    }
    Some(clean[..end].to_owned())
}

/// Writes a new file under the next free name. Never follows a symbolic link; overwrites only with `force`.
fn write(folder: &Path, name: &str, bytes: &[u8], force: bool) -> CliResult<PathBuf> {
    let cannot = |path: &Path, error: &io::Error| {
        CliError::internal(format!("cannot write {}: {error}", path.display()))
    };
    for number in 1..MAX_COLLISIONS {
        let path = folder.join(numbered(name, number));
        if force && fs::symlink_metadata(&path).is_ok_and(|it| it.is_file() || it.is_symlink()) {
            fs::remove_file(&path).map_err(|error| cannot(&path, &error))?;
        }
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(mut file) => {
                file.write_all(bytes)
                    .map_err(|error| cannot(&path, &error))?;
                return Ok(path);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(cannot(&path, &error)),
        }
    }
    Err(CliError::internal(format!(
        "there are already {MAX_COLLISIONS} files called {name}"
    )))
}

/// The file name with a number before its extension; unchanged for 1.
fn numbered(name: &str, number: usize) -> String {
    match (number, name.rsplit_once('.')) {
        (1, _) => name.to_owned(),
        (_, Some((stem, extension))) if !stem.is_empty() => format!("{stem}-{number}.{extension}"),
        (..) => format!("{name}-{number}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s56_file_names_stay_in_the_directory() {
        for (name, expected) in [
            ("report.pdf", Some("report.pdf")),
            ("../../etc/passwd", Some("passwd")),
            ("..\\..\\x.dll", Some("x.dll")),
            ("C:evil.txt", Some("evil.txt")),
            ("/", None),
            ("..", None),
            ("", None),
            (".bashrc", Some("bashrc")),
            ("con.txt", None),
            ("LPT1", None),
            ("a\u{1b}[2Jb\n.txt", Some("a_[2Jb_.txt")),
            ("x\u{202e}txt.exe", Some("x_txt.exe")),
        ] {
            assert_eq!(safe_file_name(name).as_deref(), expected, "{name:?}");
        }
        assert_eq!(safe_file_name(&"ü".repeat(300)).unwrap().len(), 200);
    }

    #[cfg(unix)]
    #[test]
    fn s56_links_are_not_followed_and_files_are_not_overwritten() {
        let folder = tempfile::TempDir::new().unwrap();
        let outside = folder.path().join("outside");
        fs::write(&outside, "mine").unwrap();
        let inside = folder.path().join("in");
        fs::create_dir(&inside).unwrap();
        std::os::unix::fs::symlink(&outside, inside.join("a.txt")).unwrap();
        let path = write(&inside, "a.txt", b"theirs", false).unwrap();
        assert_eq!(path, inside.join("a-2.txt"));
        let path = write(&inside, "a.txt", b"theirs", true).unwrap();
        assert_eq!(path, inside.join("a.txt"));
        assert_eq!(fs::read_to_string(&outside).unwrap(), "mine");
        assert_eq!(fs::read_to_string(path).unwrap(), "theirs");
    }
}
