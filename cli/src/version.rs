//! Which version to speak: 1.x unless another is named, and never another in silence.

use attache::ErrorKind;
use attache::model::{AgentInterface, Version};

use crate::failure::{Failure, Outcome};
use crate::settings::Settings;

/// The oldest version that is spoken unasked.
const FLOOR: u32 = 1;

/// What the user wants to speak.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The highest that both speak, from the floor up.
    Current,
    /// The highest that both speak.
    Any,
    /// This one, signalled as it was typed.
    Exactly(String),
}

impl Wanted {
    pub(crate) fn of(settings: &Settings) -> Outcome<Self> {
        match settings.version.as_deref() {
            None => Ok(Self::Current),
            Some("auto") => Ok(Self::Any),
            Some(version) if spoken(version).is_some() => Ok(Self::Exactly(version.to_owned())),
            Some(version) => Err(Failure::protocol(
                ErrorKind::VersionNotSupported,
                format!("this program does not speak {version}"),
            )
            .hint("1.x, 0.3 and 0.2 are spoken; leave out --a2a-version for the highest that both speak")),
        }
    }

    /// What is signalled when the card is fetched.
    pub(crate) fn of_card(&self) -> &str {
        match self {
            Self::Exactly(version) => version,
            Self::Current | Self::Any => Version::V1.as_str(),
        }
    }

    /// Whether agents of before 1.0 are welcome.
    pub(crate) fn takes_old(&self) -> bool {
        match self {
            Self::Current => false,
            Self::Any => true,
            Self::Exactly(version) => major(version).is_some_and(|major| major < FLOOR),
        }
    }

    /// The version of an interface, if it is wanted: how it is written, and what is signalled.
    pub(crate) fn take(&self, interface: &AgentInterface) -> Option<(Version, String)> {
        let offered = &interface.protocol_version;
        let version = spoken(offered)?;
        let wanted = match self {
            Self::Current => major(offered)? >= FLOOR,
            Self::Any => true,
            Self::Exactly(asked) => spoken(asked) == Some(version),
        };
        let signal = match self {
            Self::Exactly(asked) => asked.clone(),
            Self::Current | Self::Any => short(offered),
        };
        wanted.then_some((version, signal))
    }
}

/// How a version is written on the wire.
fn spoken(version: &str) -> Option<Version> {
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
fn short(version: &str) -> String {
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
        assert_eq!(Wanted::Current.take(&old), None);
        assert_eq!(
            Wanted::Current.take(&new),
            Some((Version::V1, "1.2".to_owned()))
        );
        assert_eq!(
            Wanted::Any.take(&old),
            Some((Version::V03, "0.3".to_owned()))
        );
        let exactly = |version: &str| Wanted::Exactly(version.to_owned());
        assert_eq!(
            exactly("1.7").take(&new),
            Some((Version::V1, "1.7".to_owned()))
        );
        assert_eq!(
            exactly("0.2").take(&old),
            Some((Version::V03, "0.2".to_owned()))
        );
        assert_eq!(exactly("0.3").take(&new), None);
        let settings = Settings {
            version: Some("2.0".to_owned()),
            ..Settings::default()
        };
        assert_eq!(
            Wanted::of(&settings).unwrap_err().code,
            "VersionNotSupportedError"
        );
    }
}
