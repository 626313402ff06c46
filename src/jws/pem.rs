//! PEM files with a private key.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Returns the DER bytes of the first private key in a PEM file.
pub(super) fn private_key(text: &str) -> Option<Vec<u8>> {
    let mut lines = text.lines().map(str::trim);
    let kind = lines.find_map(|line| {
        line.strip_prefix("-----BEGIN ")?
            .strip_suffix("PRIVATE KEY-----")
    })?;
    let end = format!("-----END {kind}PRIVATE KEY-----");
    let body: String = lines.take_while(|line| *line != end).collect();
    STANDARD.decode(body).ok()
}
