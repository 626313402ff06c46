//! Credentials that must not be printed or logged.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Credential text. Debug output is `***` (S38). Serialization exposes it, because the protocol
/// returns some credentials.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Secret {
    /// Returns the text, for sending or comparing.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Secret {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl From<String> for Secret {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl AsRef<str> for Secret {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn s38_debug_output_hides_the_secret() {
        assert_eq!(format!("{:?}", Some(Secret::from("hunter2"))), "Some(***)");
    }
}
