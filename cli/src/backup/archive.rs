//! Reading and writing of archives.

use std::fs::{self, File};
use std::io::{self, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};
use attache::model::Timestamp;
use sha2::{Digest, Sha256};

use super::manifest::{ArchivePart, FileRecord, MANIFEST_NAME, Manifest};
use crate::private_file;

/// Maximum size of a manifest, in bytes.
const MAX_MANIFEST_BYTES: u64 = 64 << 10;

/// Archive to write.
pub(crate) struct ArchiveDraft {
    manifest: Manifest,
    contents: Vec<PartContent>,
}

/// Content of a file of an archive.
pub(crate) enum PartContent {
    /// Bytes that were read once: the file itself may be replaced during the backup.
    Bytes(Vec<u8>),
    /// A file that does not change during the backup.
    File(PathBuf),
}

impl PartContent {
    fn open(&self) -> io::Result<Box<dyn Read + '_>> {
        Ok(match self {
            Self::Bytes(bytes) => Box::new(&**bytes),
            Self::File(path) => Box::new(BufReader::new(File::open(path)?)),
        })
    }
}

impl ArchiveDraft {
    /// Creates an archive without files. `is_protected`: whether the server authenticates its callers.
    pub(crate) fn new(created: Timestamp, is_protected: bool) -> Self {
        Self {
            manifest: Manifest::new(created, is_protected),
            contents: Vec::new(),
        }
    }

    /// Adds a private file and its checksum.
    pub(crate) fn add(&mut self, name: ArchivePart, content: PartContent) -> anyhow::Result<()> {
        self.add_with_mode(name, content, private_file::MODE)
    }

    /// Adds a file with its permissions and its checksum.
    pub(crate) fn add_with_mode(
        &mut self,
        name: ArchivePart,
        content: PartContent,
        mode: u32,
    ) -> anyhow::Result<()> {
        let mut sink = HashingWriter::new(io::sink());
        let bytes = io::copy(&mut content.open()?, &mut sink)?;
        self.manifest.files.push(FileRecord {
            name,
            mode,
            bytes,
            sha256: sink.finish(),
        });
        self.contents.push(content);
        Ok(())
    }

    /// Adds the database, whose schema has this version.
    pub(crate) fn add_database(&mut self, file: PathBuf, version: u32) -> anyhow::Result<()> {
        self.manifest.database_version = Some(version);
        self.add(ArchivePart::Database, PartContent::File(file))
    }

    pub(crate) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Writes the archive with mode 600, and verifies what was written. It appears under its name only when complete.
    ///
    /// # Errors
    /// The file exists or cannot be written, or what was written cannot be read back.
    pub(crate) fn write(&self, path: &Path) -> anyhow::Result<()> {
        if path.try_exists()? {
            bail!("{} exists already; choose another name", path.display());
        }
        let part = private_file::with_suffix(path, ".part");
        private_file::remove_if_exists(&part)?;
        let written = self.write_part(&part).and_then(|()| {
            let manifest = verify(&part)?;
            if manifest != self.manifest {
                bail!("the written manifest differs");
            }
            Ok(fs::rename(&part, path)?)
        });
        if written.is_err() {
            let _ = fs::remove_file(&part);
        }
        written?;
        private_file::sync_folder(private_file::parent(path))?;
        Ok(())
    }

    fn write_part(&self, part: &Path) -> anyhow::Result<()> {
        let mut archive = tar::Builder::new(private_file::create(part)?);
        let manifest = serde_json::to_vec_pretty(&self.manifest)?;
        let bytes = u64::try_from(manifest.len())?;
        self.append(&mut archive, MANIFEST_NAME, bytes, &mut &*manifest)?;
        for (record, content) in self.manifest.files.iter().zip(&self.contents) {
            let name = record.name.name();
            self.append(&mut archive, name, record.bytes, &mut content.open()?)?;
        }
        archive.into_inner()?.sync_all()?;
        Ok(())
    }

    fn append(
        &self,
        archive: &mut tar::Builder<File>,
        name: &str,
        bytes: u64,
        content: &mut dyn Read,
    ) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes);
        header.set_mode(0o600);
        header.set_mtime(u64::try_from(self.manifest.created.as_millis() / 1000).unwrap_or(0));
        archive.append_data(&mut header, name, content)
    }
}

/// Reads the whole archive, and compares every checksum.
///
/// # Errors
/// The archive is damaged, incomplete, or not one of ours.
pub(crate) fn verify(path: &Path) -> anyhow::Result<Manifest> {
    read(path, |_| Ok(io::sink()))
}

/// Extracts the files into a directory, with their permissions, and compares every checksum. They belong to the owner of the directory
/// `owner`. If this succeeds, they are complete and synchronized to disk.
///
/// # Errors
/// As [`verify`], or a file cannot be written.
pub(crate) fn extract(path: &Path, folder: &Path, owner: &Path) -> anyhow::Result<Manifest> {
    let manifest = read(path, |record| {
        let file = private_file::create(&folder.join(record.name.name()))?;
        private_file::give_to_owner_of(owner, &file)?;
        private_file::set_mode(&file, record.mode)?;
        Ok(file)
    })?;
    for record in &manifest.files {
        File::open(folder.join(record.name.name()))?.sync_all()?;
    }
    private_file::sync_folder(folder)?;
    Ok(manifest)
}

/// Reads an archive into the writers of its files.
fn read<W: Write>(
    path: &Path,
    open: impl FnMut(&FileRecord) -> io::Result<W>,
) -> anyhow::Result<Manifest> {
    let file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
    read_entries(file, open).with_context(|| format!("{} cannot be restored", path.display()))
}

fn read_entries<W: Write>(
    file: File,
    mut open: impl FnMut(&FileRecord) -> io::Result<W>,
) -> anyhow::Result<Manifest> {
    let mut archive = tar::Archive::new(BufReader::new(file));
    let mut entries = archive.entries()?;
    let mut next = |name: &str| {
        let entry = entries
            .next()
            .ok_or_else(|| anyhow!("{name} is missing"))?
            .with_context(|| format!("{name} cannot be read"))?;
        // Only expected names, so that no path of the archive reaches the file system.
        if &*entry.path_bytes() != name.as_bytes() || !entry.header().entry_type().is_file() {
            bail!("{name} is expected, and another entry was found");
        }
        Ok(entry)
    };
    let mut text = Vec::new();
    next(MANIFEST_NAME)
        .context("not an archive of `attache backup`")?
        .take(MAX_MANIFEST_BYTES)
        .read_to_end(&mut text)?;
    let manifest: Manifest = serde_json::from_slice(&text).context("invalid manifest")?;
    manifest.check()?;
    for record in &manifest.files {
        let name = record.name.name();
        let mut writer = HashingWriter::new(open(record)?);
        let mut content = next(name)?.take(record.bytes.saturating_add(1));
        let bytes = io::copy(&mut content, &mut writer)
            .with_context(|| format!("{name} cannot be read"))?;
        if bytes != record.bytes || writer.finish() != record.sha256 {
            bail!("{name} is damaged: its checksum differs from that of the manifest");
        }
    }
    if entries.next().is_some() {
        bail!("it has files that its manifest does not list");
    }
    Ok(manifest)
}

/// Writer that computes the SHA-256 of what passes.
struct HashingWriter<W> {
    inner: W,
    hasher: Sha256,
}

impl<W> HashingWriter<W> {
    fn new(inner: W) -> Self {
        Self {
            inner,
            hasher: Sha256::new(),
        }
    }

    /// The checksum in hexadecimal.
    fn finish(self) -> String {
        let digest = self.hasher.finalize();
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }
}

impl<W: Write> Write for HashingWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
