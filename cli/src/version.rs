//! Which version to speak: 1.x unless another is named, and never another in silence.

use attache::ErrorKind;
use attache::model::{AgentInterface, Version};

use crate::error::{CliError, CliResult};
use crate::settings::Settings;

/// The oldest version that is spoken unasked.
const MIN_MAJOR_VERSION: u32 = 1;

/// What the user wants to speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum VersionPreference {
    /// The highest that both speak, from the floor up.
    Current,
    /// The highest that both speak.
    Any,
    /// This one, signalled as it was typed.
    Exactly(String),
}

impl VersionPreference {
    pub(crate) fn from_settings(settings: &Settings) -> CliResult<Self> {
        match settings.version.as_deref() {
            None => Ok(Self::Current),
            Some("auto") => Ok(Self::Any),
            Some(version) if wire_version(version).is_some() => Ok(Self::Exactly(version.to_owned())),
            Some(version) => Err(CliError::protocol(
                ErrorKind::VersionNotSupported,
                format!("this program does not speak {version}"),
            )
            .hint("1.x, 0.3 and 0.2 are spoken; leave out --a2a-version for the highest that both speak")),
        }
    }

    /// What is signalled when the card is fetched.
    pub(crate) fn card_version(&self) -> &str {
        match self {
            Self::Exactly(version) => version,
            Self::Current | Self::Any => Version::V1.as_str(),
        }
    }

    /// Whether agents of before 1.0 are welcome.
    pub(crate) fn allows_legacy(&self) -> bool {
        match self {
            Self::Current => false,
            Self::Any => true,
            Self::Exactly(version) => major(version).is_some_and(|major| major < MIN_MAJOR_VERSION),
        }
    }

    /// The version of an interface, if it is wanted: how it is written, and what is signalled.
    pub(crate) fn select(&self, interface: &AgentInterface) -> Option<(Version, String)> {
        let offered = &interface.protocol_version;
        let version = wire_version(offered)?;
        let wanted = match self {
            Self::Current => major(offered)? >= MIN_MAJOR_VERSION,
            Self::Any => true,
            Self::Exactly(asked) => wire_version(asked) == Some(version),
        };
        let signal = match self {
            Self::Exactly(asked) => asked.clone(),
            Self::Current | Self::Any => major_minor(offered),
        };
        wanted.then_some((version, signal))
    }
}

/// How a version is written on the wire.
fn wire_version(version: &str) -> Option<Version> {
    major(version)?;
    match rank(version)[..] {
        // Before 0.2 methods had other names.
        [0] | [0, 0 | 1, ..] => None,
        [0, ..] => Some(Version::V03),
        [1, ..] => Some(Version::V1),
        _ => None,
    }
}

fn major(version: &str) -> Option<u32> {
    version.trim().split('.').next()?.parse().ok()
}

/// Major and minor: a patch number means nothing.
fn major_minor(version: &str) -> String {
    version
        .trim()
        .splitn(3, '.')
        .take(2)
        .collect::<Vec<_>>()
        .join(".")
}

/// For comparing: 1.10 is above 1.9.
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
        assert_eq!(VersionPreference::Current.select(&old), None);
        assert_eq!(
            VersionPreference::Current.select(&new),
            Some((Version::V1, "1.2".to_owned()))
        );
        assert_eq!(
            VersionPreference::Any.select(&old),
            Some((Version::V03, "0.3".to_owned()))
        );
        let exactly = |version: &str| VersionPreference::Exactly(version.to_owned());
        assert_eq!(
            exactly("1.7").select(&new),
            Some((Version::V1, "1.7".to_owned()))
        );
        assert_eq!(
            exactly("0.2").select(&old),
            Some((Version::V03, "0.2".to_owned()))
        );
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
