//! `attache restore`: puts the files of an archive in place.
//!
//! All checks precede the first change: checksums, the running server, protection of the callers, existing files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use attache::store::Sqlite;

use crate::args::RestoreArgs;
use crate::backup::{self, ArchivePart, Manifest};
use crate::config::ConfigSummary;
use crate::private_file::{self, ScratchDir};
use crate::{admin, clock, data_dir};

/// Files that SQLite keeps beside a database. They belong to the old one.
const DATABASE_SIDE_FILES: [&str; 2] = ["tasks.db-wal", "tasks.db-shm"];

pub(crate) fn run(args: &RestoreArgs) -> anyhow::Result<()> {
    backup::verify(&args.file)?;
    let folder = data_dir::create(args.folder.data_dir.as_deref(), super::serve::DATA_DIR_NAME)?;
    if admin::is_server_running(&folder) {
        bail!("a server is running in {}; stop it first", folder.display());
    }
    let database = folder.join(ArchivePart::Database.name());
    let _lock = Sqlite::lock(&database).context("stop the server first")?;
    let scratch = ScratchDir::create(&folder, "restore")?;
    let manifest = backup::extract(&args.file, scratch.path(), &folder)?;
    let restore = Restore {
        args,
        folder,
        scratch,
        manifest,
    };
    let tasks = restore.check_database()?;
    restore.check_protection()?;
    let replaced = restore.existing_files();
    if !args.replace
        && let Some(file) = replaced.first()
    {
        bail!(
            "{} exists; to replace it, and keep the old files aside: --replace",
            file.display()
        );
    }
    let kept = restore.keep_aside(&replaced)?;
    restore.install()?;
    restore.report(tasks, kept.as_deref());
    Ok(())
}

/// A verified archive and its target.
struct Restore<'a> {
    args: &'a RestoreArgs,
    folder: PathBuf,
    /// The extracted files.
    scratch: ScratchDir,
    manifest: Manifest,
}

impl Restore<'_> {
    /// The extracted file of a part.
    fn extracted(&self, part: ArchivePart) -> PathBuf {
        self.scratch.path().join(part.name())
    }

    /// The path that a part is restored to.
    fn target(&self, part: ArchivePart) -> PathBuf {
        match (&self.args.config, part) {
            (Some(file), ArchivePart::Configuration) => file.clone(),
            _ => self.folder.join(part.name()),
        }
    }

    /// Checks the integrity of the database and that this program can read it. Returns the number of its tasks.
    fn check_database(&self) -> anyhow::Result<Option<u64>> {
        if !self.manifest.contains(ArchivePart::Database) {
            return Ok(None);
        }
        let found = Sqlite::inspect(self.extracted(ArchivePart::Database))
            .with_context(|| format!("the archive is of attache {}", self.manifest.program))?;
        if let Some(fault) = found.faults.first() {
            bail!("the database in the archive is damaged: {fault}");
        }
        Ok(Some(found.tasks))
    }

    /// Refuses to lower protection: if callers were authenticated, in the archive or in the target, the archive must have
    /// their keys or a configuration with authentication.
    fn check_protection(&self) -> anyhow::Result<()> {
        if self.args.allow_anonymous || self.archive_authenticates()? {
            return Ok(());
        }
        let reason = if self.target_authenticates()? {
            format!(
                "callers of the server in {} need credentials",
                self.folder.display()
            )
        } else if self.manifest.is_protected {
            "callers of the archived server had credentials".to_owned()
        } else {
            return Ok(());
        };
        bail!(
            "{reason}, but the archive has neither keys.json nor a configuration with authentication; restored, the \
             server would accept every caller. Restore another archive, or accept this: --allow-anonymous"
        )
    }

    fn archive_authenticates(&self) -> anyhow::Result<bool> {
        if self.manifest.contains(ArchivePart::CallerKeys) {
            return Ok(true);
        }
        if self.manifest.contains(ArchivePart::Configuration) {
            return has_authentication(&self.extracted(ArchivePart::Configuration));
        }
        Ok(false)
    }

    fn target_authenticates(&self) -> anyhow::Result<bool> {
        if self.target(ArchivePart::CallerKeys).exists() {
            return Ok(true);
        }
        let configuration = self.target(ArchivePart::Configuration);
        Ok(configuration.exists() && has_authentication(&configuration)?)
    }

    /// Files that the restore replaces or removes. Keys of callers are removed if the archive has none: the restored server
    /// is that of the archive.
    fn existing_files(&self) -> Vec<PathBuf> {
        let mut files: Vec<_> = self
            .manifest
            .files
            .iter()
            .map(|file| self.target(file.name))
            .collect();
        if self.manifest.contains(ArchivePart::Database) {
            files.extend(DATABASE_SIDE_FILES.map(|name| self.folder.join(name)));
        }
        if !self.manifest.contains(ArchivePart::CallerKeys) {
            files.push(self.target(ArchivePart::CallerKeys));
        }
        files.retain(|file| file.symlink_metadata().is_ok());
        files
    }

    /// Moves the files of the old database into a directory, and links the other files there. Returns the directory.
    ///
    /// A file that the archive replaces stays in place until then, so that keys are never missing. The write-ahead log goes
    /// first: SQLite would apply it to the new database.
    fn keep_aside(&self, files: &[PathBuf]) -> anyhow::Result<Option<PathBuf>> {
        if files.is_empty() {
            return Ok(None);
        }
        let time = clock::now().to_string().replace([':', '-'], "");
        let aside = self.folder.join(format!("replaced-{time}"));
        private_file::create_folder(&aside)?;
        for file in files {
            let name = file.file_name().context("a file has a name")?;
            let kept = aside.join(name);
            let is_replaced = self
                .manifest
                .files
                .iter()
                .any(|record| self.target(record.name) == *file);
            let moved = if is_replaced {
                fs::hard_link(file, &kept).or_else(|_| fs::copy(file, &kept).map(drop))
            } else {
                fs::rename(file, &kept)
            };
            moved.with_context(|| format!("cannot keep {} aside", file.display()))?;
        }
        private_file::sync_folder(&aside)?;
        Ok(Some(aside))
    }

    /// Puts the extracted files in place, each atomically, keys first.
    fn install(&self) -> anyhow::Result<()> {
        let mut parts: Vec<_> = self.manifest.files.iter().collect();
        parts.sort_by_key(|file| file.name == ArchivePart::Database);
        for record in parts {
            let target = self.target(record.name);
            let extracted = self.extracted(record.name);
            let installed = if target.parent() == Some(&self.folder) {
                fs::rename(&extracted, &target)
            } else {
                copy_into_place(&extracted, &target, record.mode)
            };
            installed.with_context(|| format!("cannot write {}", target.display()))?;
            private_file::sync_folder(private_file::parent(&target))?;
        }
        Ok(())
    }

    fn report(&self, tasks: Option<u64>, kept: Option<&Path>) {
        let folder = self.folder.display();
        let names: Vec<_> = self
            .manifest
            .files
            .iter()
            .map(|file| file.name.name())
            .collect();
        eprintln!(
            "Restored {} of {} into {folder}.",
            names.join(", "),
            self.manifest.created
        );
        if let Some(tasks) = tasks {
            eprintln!("The database has {tasks} tasks.");
        }
        if self.manifest.contains(ArchivePart::Configuration) {
            eprintln!(
                "Configuration: {}",
                self.target(ArchivePart::Configuration).display()
            );
        }
        if let Some(kept) = kept {
            eprintln!("The replaced files are in {}.", kept.display());
        }
    }
}

fn has_authentication(configuration: &Path) -> anyhow::Result<bool> {
    let text = fs::read_to_string(configuration)
        .with_context(|| format!("cannot read {}", configuration.display()))?;
    Ok(ConfigSummary::parse(configuration, &text)?.has_authentication())
}

/// Copies a file into another directory, whose owner then owns it, and renames it into place.
fn copy_into_place(from: &Path, target: &Path, mode: u32) -> io::Result<()> {
    let fresh = private_file::with_suffix(target, ".new");
    private_file::remove_if_exists(&fresh)?;
    let mut file = private_file::create(&fresh)?;
    private_file::give_to_owner_of(private_file::parent(target), &file)?;
    io::copy(&mut fs::File::open(from)?, &mut file)?;
    private_file::set_mode(&file, mode)?;
    file.sync_all()?;
    fs::rename(&fresh, target)
}
