//! Which version a request is: one rule, one table.

use crate::model::{Error, ErrorKind, Version};

/// What the route itself says about the version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteVersion {
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

impl RouteVersion {
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
pub enum RequestedVersion {
    /// It is silent.
    Absent,
    /// For a version we speak.
    Known(Version),
    /// For another, or for several at once.
    Unsupported(String),
}

impl RequestedVersion {
    /// Reads all values of the header and of the query parameter; values that disagree are an error, never a choice.
    pub fn parse<'a>(values: impl IntoIterator<Item = &'a str>) -> Self {
        let mut requested = Self::Absent;
        for value in values
            .into_iter()
            .map(str::trim)
            .filter(|value| !value.is_empty())
        {
            let next = parse_version(value)
                .map_or_else(|| Self::Unsupported(value.to_owned()), Self::Known);
            requested = match requested {
                Self::Absent => next,
                same if same == next => same,
                Self::Known(version) => Self::Unsupported(format!("{version}, {value}")),
                Self::Unsupported(mut others) => {
                    others.push_str(", ");
                    others.push_str(value);
                    Self::Unsupported(others)
                }
            };
        }
        requested
    }
}

/// Major and minor decide; a patch number is read and means nothing.
fn parse_version(value: &str) -> Option<Version> {
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
pub struct NegotiationError {
    /// What to say.
    pub error: Error,
    /// In which version's form.
    pub reply_version: Version,
}

/// Decides which version a request is. `strict` wants 1.0 callers to say so.
///
/// # Errors
/// The route and the version asked for do not go together.
pub fn negotiate(
    route_version: RouteVersion,
    requested: &RequestedVersion,
    strict: bool,
) -> Result<Version, NegotiationError> {
    let version = route_version.version();
    match requested {
        RequestedVersion::Known(requested) if *requested == version => Ok(version),
        RequestedVersion::Absent
            if !strict || route_version.is_service() || version == Version::V03 =>
        {
            Ok(version)
        }
        // 1.0 has no methods with a slash, so to a 1.0 caller there is no such method.
        RequestedVersion::Known(Version::V1) if route_version.is_method() => {
            Err(NegotiationError {
                error: ErrorKind::MethodNotFound.into(),
                reply_version: Version::V1,
            })
        }
        RequestedVersion::Absent
        | RequestedVersion::Known(_)
        | RequestedVersion::Unsupported(_) => Err(version_not_supported(requested, version)),
    }
}

/// Says what to do about it: which header goes with what was called, or which versions there are.
fn version_not_supported(requested: &RequestedVersion, reply_version: Version) -> NegotiationError {
    let supported = Version::ALL.map(Version::as_str).join(",");
    let (requested, reason) = match requested {
        RequestedVersion::Absent => (
            "",
            format!("what was called needs the header A2A-Version: {reply_version}"),
        ),
        RequestedVersion::Known(other) => (
            other.as_str(),
            format!("what was called belongs to {reply_version}, and A2A-Version says {other}"),
        ),
        RequestedVersion::Unsupported(other) => (
            other.as_str(),
            format!("A2A-Version must be one of {supported}"),
        ),
    };
    let message = format!("{}: {reason}", ErrorKind::VersionNotSupported.message());
    // The words of a stranger go back only as far as they could be a version.
    let requested: String = requested
        .chars()
        .filter(|c| !c.is_control())
        .take(32)
        .collect();
    let error = Error::new(ErrorKind::VersionNotSupported)
        .with_message(message)
        .with_detail("requested", requested)
        .with_detail("supported", supported);
    NegotiationError {
        error,
        reply_version,
    }
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
        let no = |reply_version| Err((VersionNotSupported, reply_version));
        let table: [(RouteVersion, [Cell; 5]); 7] = [
            (
                RouteVersion::MethodV03,
                [
                    Ok(V03),
                    Ok(V03),
                    Err((MethodNotFound, V1)),
                    no(V03),
                    Ok(V03),
                ],
            ),
            (
                RouteVersion::MethodV01,
                [
                    Ok(V03),
                    Ok(V03),
                    Err((MethodNotFound, V1)),
                    no(V03),
                    Ok(V03),
                ],
            ),
            (
                RouteVersion::MethodV1,
                [Ok(V1), no(V1), Ok(V1), no(V1), no(V1)],
            ),
            (
                RouteVersion::PathV03,
                [Ok(V03), Ok(V03), no(V03), no(V03), Ok(V03)],
            ),
            (
                RouteVersion::PathV1,
                [Ok(V1), no(V1), Ok(V1), no(V1), no(V1)],
            ),
            (
                RouteVersion::ServiceV03,
                [Ok(V03), Ok(V03), no(V03), no(V03), Ok(V03)],
            ),
            (
                RouteVersion::ServiceV1,
                [Ok(V1), no(V1), Ok(V1), no(V1), Ok(V1)],
            ),
        ];
        for (route_version, [absent, v03, v1, other, strict]) in table {
            let cell = |requested: &str, strict| {
                negotiate(route_version, &RequestedVersion::parse([requested]), strict)
                    .map_err(|refusal| (refusal.error.kind(), refusal.reply_version))
            };
            for header in ["", "  "] {
                assert_eq!(cell(header, false), absent, "{route_version:?} absent");
                assert_eq!(cell(header, true), strict, "{route_version:?} strict");
            }
            for header in ["0.3", "0.3.0", "0.3.7", "0.2.5", "0.2", " 0.3 "] {
                assert_eq!(cell(header, false), v03, "{route_version:?} {header}");
            }
            for header in ["1.0", "1.0.0", "1.0.1"] {
                assert_eq!(cell(header, false), v1, "{route_version:?} {header}");
                assert_eq!(cell(header, true), v1, "{route_version:?} {header}");
            }
            for header in [
                "1.1", "2.0", "0.1", "1", "1.0.0.0", "1.x", "v1.0", "1.0-rc", "1.0.", "latest",
                "0.30",
            ] {
                assert_eq!(cell(header, false), other, "{route_version:?} {header}");
            }
        }
    }

    #[test]
    fn s84_values_that_disagree_are_never_chosen_from() {
        assert_eq!(
            RequestedVersion::parse(["1.0", "1.0.1"]),
            RequestedVersion::Known(V1)
        );
        assert_eq!(
            RequestedVersion::parse(["1.0", "", "0.3"]),
            RequestedVersion::Unsupported("1.0, 0.3".to_owned())
        );
        assert_eq!(
            RequestedVersion::parse(["0.3", "9.9"]),
            RequestedVersion::Unsupported("0.3, 9.9".to_owned())
        );
        assert_eq!(RequestedVersion::parse([]), RequestedVersion::Absent);
    }

    #[test]
    fn a_refusal_says_what_is_served() {
        let refusal = negotiate(
            RouteVersion::MethodV1,
            &RequestedVersion::parse(["2.0"]),
            false,
        )
        .unwrap_err();
        let details: Vec<_> = refusal.error.metadata().collect();
        assert_eq!(details, [("requested", "2.0"), ("supported", "1.0,0.3")]);
    }
}
