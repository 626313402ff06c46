//! Which version a request is: one rule, one table.

use crate::model::{Error, ErrorKind, Version};

/// What the route itself says about the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Key {
    /// A JSON-RPC method with a slash in its name.
    MethodV03,
    /// A JSON-RPC method of 0.1.
    MethodV01,
    /// A JSON-RPC method in PascalCase.
    MethodV1,
    /// A REST path that begins with `/v1/`.
    PathV03,
    /// Any other REST path.
    PathV1,
    /// The gRPC service `a2a.v1.A2AService`.
    ServiceV03,
    /// The gRPC service `lf.a2a.v1.A2AService`.
    ServiceV1,
}

impl Key {
    /// The version that the route belongs to.
    #[must_use]
    pub fn version(self) -> Version {
        match self {
            Self::MethodV03 | Self::MethodV01 | Self::PathV03 | Self::ServiceV03 => Version::V03,
            Self::MethodV1 | Self::PathV1 | Self::ServiceV1 => Version::V1,
        }
    }

    fn is_method(self) -> bool {
        matches!(self, Self::MethodV03 | Self::MethodV01 | Self::MethodV1)
    }

    fn is_service(self) -> bool {
        matches!(self, Self::ServiceV03 | Self::ServiceV1)
    }
}

/// The version that a request asks for in `A2A-Version`, as a header, metadata or query parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// It is silent.
    Nothing,
    /// For a version we speak.
    For(Version),
    /// For another, or for several at once.
    Other(String),
}

impl Asked {
    /// Reads all values of the header and of the query parameter; values that disagree are an error, never a choice.
    pub fn read<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut asked = Self::Nothing;
        for value in values
            .into_iter()
            .map(str::trim)
            .filter(|value| !value.is_empty())
        {
            let next = known(value).map_or_else(|| Self::Other(value.to_owned()), Self::For);
            asked = match asked {
                Self::Nothing => next,
                same if same == next => same,
                Self::For(version) => Self::Other(format!("{version}, {value}")),
                Self::Other(mut others) => {
                    others.push_str(", ");
                    others.push_str(value);
                    Self::Other(others)
                }
            };
        }
        asked
    }
}

/// Major and minor decide; a patch number is read and means nothing.
fn known(value: &str) -> Option<Version> {
    if value == Version::V1.as_str() {
        return Some(Version::V1);
    }
    let mut numbers = value.split('.');
    let (major, minor, patch) = (numbers.next()?, numbers.next()?, numbers.next());
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if numbers.next().is_some() || !patch.is_none_or(is_number) {
        return None;
    }
    match (major, minor) {
        ("0", "2" | "3") => Some(Version::V03),
        ("1", "0") => Some(Version::V1),
        _ => None,
    }
}

/// A request whose version cannot be served, and the version to say so in.
#[derive(Debug, PartialEq)]
pub struct Refusal {
    /// What to say.
    pub error: Error,
    /// In which version's form.
    pub form: Version,
}

/// Decides which version a request is. `strict` wants 1.0 callers to say so.
///
/// # Errors
/// The route and the version asked for do not go together.
pub fn decide(key: Key, asked: &Asked, strict: bool) -> Result<Version, Refusal> {
    let version = key.version();
    match asked {
        Asked::For(asked) if *asked == version => Ok(version),
        Asked::Nothing if !strict || key.is_service() || version == Version::V03 => Ok(version),
        // 1.0 has no methods with a slash, so to a 1.0 caller there is no such method.
        Asked::For(Version::V1) if key.is_method() => Err(Refusal {
            error: ErrorKind::MethodNotFound.into(),
            form: Version::V1,
        }),
        Asked::Nothing | Asked::For(_) | Asked::Other(_) => Err(not_supported(asked, version)),
    }
}

/// Says what to do about it: which header goes with what was called, or which versions there are.
fn not_supported(asked: &Asked, form: Version) -> Refusal {
    let supported = Version::ALL.map(Version::as_str).join(",");
    let (requested, why) = match asked {
        Asked::Nothing => (
            "",
            format!("what was called needs the header A2A-Version: {form}"),
        ),
        Asked::For(other) => (
            other.as_str(),
            format!("what was called belongs to {form}, and A2A-Version says {other}"),
        ),
        Asked::Other(other) => (
            other.as_str(),
            format!("A2A-Version must be one of {supported}"),
        ),
    };
    let message = format!("{}: {why}", ErrorKind::VersionNotSupported.message());
    // The words of a stranger go back only as far as they could be a version.
    let requested: String = requested
        .chars()
        .filter(|c| !c.is_control())
        .take(32)
        .collect();
    let error = Error::new(ErrorKind::VersionNotSupported)
        .with_message(message)
        .with("requested", requested)
        .with("supported", supported);
    Refusal { error, form }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ErrorKind::{MethodNotFound, VersionNotSupported};
    use Version::{V1, V03};

    type Cell = Result<Version, (ErrorKind, Version)>;

    /// 01 §2, cell by cell: absent, 0.3, 1.0, other, and absent when strict.
    #[test]
    fn the_version_matrix() {
        let no = |form| Err((VersionNotSupported, form));
        let table: [(Key, [Cell; 5]); 7] = [
            (
                Key::MethodV03,
                [
                    Ok(V03),
                    Ok(V03),
                    Err((MethodNotFound, V1)),
                    no(V03),
                    Ok(V03),
                ],
            ),
            (
                Key::MethodV01,
                [
                    Ok(V03),
                    Ok(V03),
                    Err((MethodNotFound, V1)),
                    no(V03),
                    Ok(V03),
                ],
            ),
            (Key::MethodV1, [Ok(V1), no(V1), Ok(V1), no(V1), no(V1)]),
            (Key::PathV03, [Ok(V03), Ok(V03), no(V03), no(V03), Ok(V03)]),
            (Key::PathV1, [Ok(V1), no(V1), Ok(V1), no(V1), no(V1)]),
            (
                Key::ServiceV03,
                [Ok(V03), Ok(V03), no(V03), no(V03), Ok(V03)],
            ),
            (Key::ServiceV1, [Ok(V1), no(V1), Ok(V1), no(V1), Ok(V1)]),
        ];
        for (key, [absent, v03, v1, other, strict]) in table {
            let cell = |asked: &str, strict| {
                decide(key, &Asked::read([asked]), strict)
                    .map_err(|refusal| (refusal.error.kind(), refusal.form))
            };
            for header in ["", "  "] {
                assert_eq!(cell(header, false), absent, "{key:?} absent");
                assert_eq!(cell(header, true), strict, "{key:?} strict");
            }
            for header in ["0.3", "0.3.0", "0.3.7", "0.2.5", "0.2", " 0.3 "] {
                assert_eq!(cell(header, false), v03, "{key:?} {header}");
            }
            for header in ["1.0", "1.0.0", "1.0.1"] {
                assert_eq!(cell(header, false), v1, "{key:?} {header}");
                assert_eq!(cell(header, true), v1, "{key:?} {header}");
            }
            for header in [
                "1.1", "2.0", "0.1", "1", "1.0.0.0", "1.x", "v1.0", "1.0-rc", "1.0.", "latest",
                "0.30",
            ] {
                assert_eq!(cell(header, false), other, "{key:?} {header}");
            }
        }
    }

    #[test]
    fn s84_values_that_disagree_are_never_chosen_from() {
        assert_eq!(Asked::read(["1.0", "1.0.1"]), Asked::For(V1));
        assert_eq!(
            Asked::read(["1.0", "", "0.3"]),
            Asked::Other("1.0, 0.3".to_owned())
        );
        assert_eq!(
            Asked::read(["0.3", "9.9"]),
            Asked::Other("0.3, 9.9".to_owned())
        );
        assert_eq!(Asked::read([]), Asked::Nothing);
    }

    #[test]
    fn a_refusal_says_what_is_served() {
        let refusal = decide(Key::MethodV1, &Asked::read(["2.0"]), false).unwrap_err();
        let details: Vec<_> = refusal.error.metadata().collect();
        assert_eq!(details, [("requested", "2.0"), ("supported", "1.0,0.3")]);
    }
}
