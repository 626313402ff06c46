//! SHA-256 fingerprints of documents that the operator may pin: agent cards and tool lists.

use sha2::{Digest, Sha256};

/// SHA-256 digest of one document or of one member of a document.
pub(crate) type Fingerprint = [u8; 32];

/// Returns the fingerprint of some bytes.
pub(crate) fn fingerprint(bytes: impl AsRef<[u8]>) -> Fingerprint {
    Sha256::digest(bytes).into()
}

/// Combines fingerprints into the value of a `pin` setting: `sha256:` and 64 hexadecimal digits.
///
/// The order of the fingerprints matters.
pub(crate) fn pin<'a>(fingerprints: impl IntoIterator<Item = &'a Fingerprint>) -> String {
    let digest = fingerprints
        .into_iter()
        .fold(Sha256::new(), Sha256::chain_update)
        .finalize();
    format!("sha256:{}", hex(&digest))
}

/// Returns bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
