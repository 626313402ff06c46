//! Archives of a data directory: database, keys and configuration in one tar file, with a manifest of checksums.

mod archive;
mod manifest;

pub(crate) use archive::{ArchiveDraft, PartContent, extract, verify};
pub(crate) use manifest::{ArchivePart, Manifest};
