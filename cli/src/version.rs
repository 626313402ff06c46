//! Selection of the protocol version: 1.x by default, older versions only if the user requests them.

use attache::ErrorKind;
use attache::model::{AgentInterface, Version};

use crate::error::{CliError, CliResult};
use crate::settings::Settings;

/// Lowest major version that is used without a request.
const MIN_MAJOR_VERSION: u32 = 1;

/// Versions that the user accepts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VersionPreference {
    /// The highest common version, from 1.0 up.
    Current,
    /// The highest common version.
    Any,
    /// This version, sent exactly as given.
    Exactly(String),
}

/// A version to use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SelectedVersion {
    /// The wire format.
    pub(crate) version: Version,
    /// Value of the `A2A-Version` header.
    pub(crate) header: String,
}

impl VersionPreference {
    pub(crate) fn from_settings(settings: &Settings) -> CliResult<Self> {
        match settings.version.as_deref() {
            None => Ok(Self::Current),
            Some("auto") => Ok(Self::Any),
            Some(version) if wire_version(version).is_some() => {
                Ok(Self::Exactly(version.to_owned()))
            }
            Some(version) => Err(CliError::protocol(
                ErrorKind::VersionNotSupported,
                format!("version {version} is not supported"),
            )
            .hint(
                "1.x, 0.3 and 0.2 are supported; omit --a2a-version for the highest common version",
            )),
        }
    }

    /// The version header of the card request.
    pub(crate) fn card_version(&self) -> &str {
        match self {
            Self::Exactly(version) => version,
            Self::Current | Self::Any => Version::V1.as_str(),
        }
    }

    /// Whether versions below 1.0 are accepted.
    pub(crate) fn allows_legacy(&self) -> bool {
        match self {
            Self::Current => false,
            Self::Any => true,
            Self::Exactly(version) => major(version).is_some_and(|major| major < MIN_MAJOR_VERSION),
        }
    }

    /// Selects an interface if its version is accepted; returns the wire format and the version header.
    pub(crate) fn select(&self, interface: &AgentInterface) -> Option<SelectedVersion> {
        let offered = &interface.protocol_version;
        let version = wire_version(offered)?;
        let is_accepted = match self {
            Self::Current => major(offered)? >= MIN_MAJOR_VERSION,
            Self::Any => true,
            Self::Exactly(requested) => wire_version(requested) == Some(version),
        };
        let header = match self {
            Self::Exactly(requested) => requested.clone(),
            Self::Current | Self::Any => major_minor(offered),
        };
        is_accepted.then_some(SelectedVersion { version, header })
    }
}

/// The wire format of a version; `None` if it is not supported.
pub(crate) fn wire_version(version: &str) -> Option<Version> {
    major(version)?;
    match rank(version)[..] {
        // Versions before 0.2 have other method names.
        [0] | [0, 0 | 1, ..] => None,
        [0, ..] => Some(Version::V03),
        [1, ..] => Some(Version::V1),
        _ => None,
    }
}

fn major(version: &str) -> Option<u32> {
    version.trim().split('.').next()?.parse().ok()
}

/// Major and minor number: the patch number is not part of the header.
fn major_minor(version: &str) -> String {
    version
        .trim()
        .splitn(3, '.')
        .take(2)
        .collect::<Vec<_>>()
        .join(".")
}

/// Sort key of a version: 1.10 is above 1.9.
pub(crate) fn rank(version: &str) -> Vec<u32> {
    version
        .trim()
        .split('.')
        .map(|number| number.parse().unwrap_or_default())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use attache::model::Binding;

    #[test]
    fn ver_001_below_1_0_only_when_named() {
        let old = AgentInterface::new("http://x", Binding::JsonRpc, Version::V03);
        let new = AgentInterface {
            protocol_version: "1.2.3".to_owned(),
            ..old.clone()
        };
        let selected = |version, header: &str| {
            let header = header.to_owned();
            Some(SelectedVersion { version, header })
        };
        assert_eq!(VersionPreference::Current.select(&old), None);
        assert_eq!(
            VersionPreference::Current.select(&new),
            selected(Version::V1, "1.2")
        );
        assert_eq!(
            VersionPreference::Any.select(&old),
            selected(Version::V03, "0.3")
        );
        let exactly = |version: &str| VersionPreference::Exactly(version.to_owned());
        assert_eq!(exactly("1.7").select(&new), selected(Version::V1, "1.7"));
        assert_eq!(exactly("0.2").select(&old), selected(Version::V03, "0.2"));
        assert_eq!(exactly("0.3").select(&new), None);
        let settings = Settings {
            version: Some("2.0".to_owned()),
            ..Settings::default()
        };
        assert_eq!(
            VersionPreference::from_settings(&settings)
                .unwrap_err()
                .code,
            "VersionNotSupportedError"
        );
    }
}
