//! Version negotiation: determines the protocol version of a request from its route and the
//! `A2A-Version` header (01 §2).

use crate::model::{Error, ErrorKind, Version};

/// Version that a route implies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RouteVersion {
    /// JSON-RPC method with a slash in its name.
    MethodV03,
    /// JSON-RPC method of 0.1.
    MethodV01,
    /// JSON-RPC method in PascalCase.
    MethodV1,
    /// REST path that starts with `/v1/`.
    PathV03,
    /// Any other REST path.
    PathV1,
    /// gRPC service `a2a.v1.A2AService`.
    ServiceV03,
    /// gRPC service `lf.a2a.v1.A2AService`.
    ServiceV1,
}

impl RouteVersion {
    /// Returns the implied version.
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

/// Version requested by `A2A-Version`, as a header, gRPC metadata or query parameter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestedVersion {
    /// No version requested.
    Absent,
    /// Supported version.
    Known(Version),
    /// Unsupported version, or several different ones.
    Unsupported(String),
}

impl RequestedVersion {
    /// Parses all values of the header and the query parameter. Different values are an error; none
    /// is preferred (S84).
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

/// Parses `major.minor`; a patch number is ignored.
fn parse_version(value: &str) -> Option<Version> {
    if value == Version::V1.as_str() {
        return Some(Version::V1);
    }
    let mut numbers = value.split('.');
    let major = numbers.next()?;
    let minor = numbers.next()?;
    let patch = numbers.next();
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

/// Failed negotiation.
#[derive(Debug, PartialEq)]
pub struct NegotiationError {
    /// Error for the client.
    pub error: Error,
    /// Version in which to write the error.
    pub reply_version: Version,
}

/// Determines the version of a request. With `strict`, 1.0 routes require the header.
///
/// # Errors
/// The route and the requested version do not match.
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
        // 1.0 has no methods with a slash, so for a 1.0 client the method does not exist.
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

/// Creates the error, which names the expected header or the supported versions.
fn version_not_supported(requested: &RequestedVersion, reply_version: Version) -> NegotiationError {
    let supported = Version::ALL.map(Version::as_str).join(",");
    let (requested, reason) = match requested {
        RequestedVersion::Absent => (
            "",
            format!("this route requires the header A2A-Version: {reply_version}"),
        ),
        RequestedVersion::Known(other) => (
            other.as_str(),
            format!("this route belongs to version {reply_version}, but A2A-Version is {other}"),
        ),
        RequestedVersion::Unsupported(other) => (
            other.as_str(),
            format!("A2A-Version must be one of {supported}"),
        ),
    };
    let message = format!("{}: {reason}", ErrorKind::VersionNotSupported.message());
    // Client input is echoed only up to the length of a plausible version.
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

    /// The table of 01 §2: header absent, 0.3, 1.0, other, and absent in strict mode.
    #[test]
    fn version_table() {
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
    fn s84_conflicting_versions_are_rejected() {
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
    fn error_names_the_supported_versions() {
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
