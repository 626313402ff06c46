//! `attache backup`: database, keys and configuration as one archive.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use attache::store::Sqlite;

use crate::args::BackupArgs;
use crate::backup::{ArchiveDraft, ArchivePart, PartContent};
use crate::config::ConfigSummary;
use crate::private_file::{self, ScratchDir};
use crate::{clock, data_dir, server};

pub(crate) fn run(args: &BackupArgs) -> anyhow::Result<()> {
    let configuration = match &args.config {
        Some(file) => Some(ConfigurationFile::read(file)?),
        None => None,
    };
    let folder = locate(args, configuration.as_ref())?;
    let scratch = ScratchDir::create(private_file::parent(&args.file), "backup")?;
    let database = copy_database(&folder, scratch.path())?;
    let keys = read_keys(&folder)?;
    let has_keys = keys
        .iter()
        .any(|(part, _)| *part == ArchivePart::CallerKeys);
    let has_authentication = has_keys
        || configuration
            .as_ref()
            .is_some_and(|file| file.summary.has_authentication());
    let is_protected = has_authentication
        || database
            .as_ref()
            .is_some_and(|database| database.has_named_callers);
    let mut draft = ArchiveDraft::new(clock::now(), is_protected);
    if let Some(database) = database {
        draft.add_database(database.copy, database.version)?;
    }
    for (part, content) in keys {
        draft.add(part, PartContent::Bytes(content))?;
    }
    if draft.manifest().files.is_empty() {
        bail!(
            "there is nothing to back up in {}; give its directory: --data-dir <DIR>",
            folder.display()
        );
    }
    if let Some(file) = &configuration {
        let content = PartContent::Bytes(file.content.clone());
        draft.add_with_mode(ArchivePart::Configuration, content, file.mode)?;
    }
    draft.write(&args.file)?;
    report(&args.file, &draft);
    if is_protected && !has_authentication {
        eprintln!(
            "warning: callers had credentials, but the archive has neither keys.json nor a configuration with \
             authentication; include it: --config <FILE>"
        );
    }
    if let Some(file) = configuration {
        warn_of_files(&file.summary.file_keys());
    }
    Ok(())
}

/// The data directory: the flag, else that of the configuration, else the default.
fn locate(args: &BackupArgs, configuration: Option<&ConfigurationFile>) -> anyhow::Result<PathBuf> {
    let mut named = args.folder.data_dir.clone();
    if let (None, Some(file), Some(path)) = (&named, configuration, &args.config) {
        let folder = private_file::parent(path);
        let found = file.summary.data_dir(folder, &server::environment);
        named = found.map_err(|why| {
            anyhow::anyhow!("store.data_dir: {why}; or give the directory: --data-dir <DIR>")
        })?;
    }
    data_dir::require(named.as_deref(), super::serve::DATA_DIR_NAME)
}

/// Configuration file to include.
struct ConfigurationFile {
    content: Vec<u8>,
    mode: u32,
    summary: ConfigSummary,
}

impl ConfigurationFile {
    fn read(file: &Path) -> anyhow::Result<Self> {
        let text =
            fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
        Ok(Self {
            summary: ConfigSummary::parse(file, &text)?,
            mode: mode(file)?,
            content: text.into_bytes(),
        })
    }
}

#[cfg(unix)]
fn mode(file: &Path) -> io::Result<u32> {
    use std::os::unix::fs::PermissionsExt;
    Ok(fs::metadata(file)?.permissions().mode() & 0o777)
}

#[cfg(not(unix))]
fn mode(_: &Path) -> io::Result<u32> {
    Ok(private_file::MODE)
}

/// Consistent copy of the database.
struct DatabaseCopy {
    copy: PathBuf,
    version: u32,
    has_named_callers: bool,
}

/// Copies the database, and checks the copy; `None` if there is no database.
fn copy_database(folder: &Path, scratch: &Path) -> anyhow::Result<Option<DatabaseCopy>> {
    let file = folder.join(ArchivePart::Database.name());
    if !file.is_file() {
        return Ok(None);
    }
    let copy = scratch.join(ArchivePart::Database.name());
    Sqlite::back_up(&file, &copy)?;
    let found = Sqlite::inspect(&copy)?;
    if let Some(fault) = found.faults.first() {
        bail!("{} is damaged: {fault}", file.display());
    }
    Ok(Some(DatabaseCopy {
        version: found.version,
        has_named_callers: Sqlite::find_named_caller(&copy)?.is_some(),
        copy,
    }))
}

/// Reads the key files that exist.
fn read_keys(folder: &Path) -> anyhow::Result<Vec<(ArchivePart, Vec<u8>)>> {
    let mut found = Vec::new();
    for part in ArchivePart::KEY_FILES {
        let file = folder.join(part.name());
        match fs::read(&file) {
            Ok(content) => found.push((part, content)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        }
    }
    Ok(found)
}

fn report(file: &Path, draft: &ArchiveDraft) {
    let names: Vec<_> = draft
        .manifest()
        .files
        .iter()
        .map(|file| file.name.name())
        .collect();
    eprintln!(
        "Wrote and verified {}: {}. It contains secrets: keep it private.",
        file.display(),
        names.join(", ")
    );
}

fn warn_of_files(keys: &[String]) {
    if !keys.is_empty() {
        eprintln!(
            "Not included, copy them yourself: the files of {}.",
            keys.join(", ")
        );
    }
}
