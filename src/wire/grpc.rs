//! gRPC codec: paths, messages, frames, and errors as statuses.

mod client;
mod field_count;
mod frame;
mod server;

use base64::Engine as _;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use percent_encoding::percent_decode;
use prost::Message;
use tonic::{Code, Status};
use tonic_types::{BadRequest, ErrorDetail, ErrorInfo, RetryInfo, StatusExt, pb};

use super::errors::{DOMAIN, PeerErrorDetails, V03Terms, error_name, grpc_code, reason};
use super::negotiation::RouteVersion;
use crate::model::{Error, ErrorKind, Operation, Version, Violation};

pub use client::{read_event, read_response, write_request};
pub use frame::{FrameDecoder, FrameError, write_frame};
pub use server::{read_grpc, write_event_header, write_grpc, write_grpc_event, write_grpc_task};

macro_rules! rpcs {
    ($v1:literal) => {
        (concat!("/lf.a2a.v1.A2AService/", $v1), None)
    };
    ($v1:literal, $v03:literal) => {
        (
            concat!("/lf.a2a.v1.A2AService/", $v1),
            Some(concat!("/a2a.v1.A2AService/", $v03)),
        )
    };
}

/// Returns the path of an operation; `None` if the version has no such RPC.
#[must_use]
pub fn path(operation: Operation, version: Version) -> Option<&'static str> {
    let (v1, v03) = match operation {
        Operation::SendMessage => rpcs!("SendMessage", "SendMessage"),
        Operation::SendStreamingMessage => rpcs!("SendStreamingMessage", "SendStreamingMessage"),
        Operation::GetTask => rpcs!("GetTask", "GetTask"),
        // The Go SDK also has it in its 0.3; no other implementation does.
        Operation::ListTasks => rpcs!("ListTasks"),
        Operation::CancelTask => rpcs!("CancelTask", "CancelTask"),
        Operation::SubscribeToTask => rpcs!("SubscribeToTask", "TaskSubscription"),
        Operation::CreatePushConfig => {
            rpcs!(
                "CreateTaskPushNotificationConfig",
                "CreateTaskPushNotificationConfig"
            )
        }
        Operation::GetPushConfig => rpcs!(
            "GetTaskPushNotificationConfig",
            "GetTaskPushNotificationConfig"
        ),
        Operation::ListPushConfigs => {
            rpcs!(
                "ListTaskPushNotificationConfigs",
                "ListTaskPushNotificationConfig"
            )
        }
        Operation::DeletePushConfig => {
            rpcs!(
                "DeleteTaskPushNotificationConfig",
                "DeleteTaskPushNotificationConfig"
            )
        }
        Operation::GetExtendedAgentCard => rpcs!("GetExtendedAgentCard", "GetAgentCard"),
    };
    match version {
        Version::V1 => Some(v1),
        Version::V03 => v03,
    }
}

/// Returns the operation and version of a path.
#[must_use]
pub fn operation(path: &str) -> Option<(Operation, Version)> {
    let all = Operation::ALL
        .into_iter()
        .flat_map(|one| Version::ALL.map(|version| (one, version)));
    all.into_iter()
        .find(|(one, version)| self::path(*one, *version) == Some(path))
}

/// Returns the version that the gRPC service implies.
#[must_use]
pub fn route_version(version: Version) -> RouteVersion {
    match version {
        Version::V1 => RouteVersion::ServiceV1,
        Version::V03 => RouteVersion::ServiceV03,
    }
}

/// Whether an RPC on an ended task returns the task instead of an error (05 §3).
#[must_use]
pub fn returns_ended_task(operation: Operation, version: Version) -> bool {
    operation == Operation::SubscribeToTask && version == Version::V03
}

/// Whether an RPC that failed returns the public card: `GetAgentCard` of 0.3 is for both cards.
#[must_use]
pub fn returns_public_card(error: &Error, operation: Operation, version: Version) -> bool {
    operation == Operation::GetExtendedAgentCard
        && version == Version::V03
        && error.kind() == ErrorKind::ExtendedAgentCardNotConfigured
}

/// Converts an error to a gRPC status with typed details. 0.3 puts the error name before the message.
#[must_use]
pub fn to_status(error: &Error, version: Version) -> Status {
    let code = Code::from_i32(grpc_code(error.kind(), version) as i32);
    let (message, terms) = match version {
        Version::V1 => (error.message().to_owned(), None),
        Version::V03 => {
            let name = error_name(error.kind(), Version::V03);
            let terms = V03Terms::Proto;
            (format!("{name}: {}", terms.message(error)), Some(terms))
        }
    };
    let details = details(error, code, &message, terms);
    Status::with_details(code, message, details.into())
}

/// `google.rpc.ErrorInfo` with an ordered map, so that equal errors encode to equal bytes.
#[derive(Clone, PartialEq, Message)]
struct OrderedErrorInfo {
    #[prost(string, tag = "1")]
    reason: String,
    #[prost(string, tag = "2")]
    domain: String,
    #[prost(btree_map = "string, string", tag = "3")]
    metadata: std::collections::BTreeMap<String, String>,
}

/// Encodes `google.rpc.Status` with the reason, the invalid fields, and the retry delay.
fn details(error: &Error, code: Code, message: &str, terms: Option<V03Terms>) -> Vec<u8> {
    let info = OrderedErrorInfo {
        reason: reason(error.kind()).to_owned(),
        domain: DOMAIN.to_owned(),
        metadata: error
            .metadata()
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect(),
    };
    let mut details = vec![any(ErrorInfo::TYPE_URL, &info)];
    if !error.violations().is_empty() {
        let bad_request = bad_request(error.violations(), terms);
        details.push(any(BadRequest::TYPE_URL, &bad_request));
    }
    if let Some(after) = error.retry_after() {
        let retry_delay = prost_types::Duration::try_from(after).ok();
        details.push(any(RetryInfo::TYPE_URL, &pb::RetryInfo { retry_delay }));
    }
    pb::Status {
        code: code.into(),
        message: message.to_owned(),
        details,
    }
    .encode_to_vec()
}

/// `terms` are the names of the caller, if they are not those of 1.0.
fn bad_request(violations: &[Violation], terms: Option<V03Terms>) -> pb::BadRequest {
    let translate = |text: &str| match terms {
        Some(terms) => terms.translate(text).into_owned(),
        None => text.to_owned(),
    };
    let violations = violations
        .iter()
        .map(|violation| pb::bad_request::FieldViolation {
            field: translate(violation.field()),
            description: translate(violation.description()),
            ..Default::default()
        });
    pb::BadRequest {
        field_violations: violations.collect(),
    }
}

fn any(type_url: &str, message: &impl Message) -> prost_types::Any {
    prost_types::Any {
        type_url: type_url.to_owned(),
        value: message.encode_to_vec(),
    }
}

/// Base64 decoder that accepts missing padding.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &base64::alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Reads the gRPC status from headers or trailers; `header` returns a value by name. Returns `None`
/// if there is no status. Invalid messages and details are ignored; no input panics.
#[must_use]
pub fn read_status<'a>(header: impl Fn(&str) -> Option<&'a [u8]>) -> Option<Status> {
    let code = Code::from_bytes(header("grpc-status")?);
    let message = header("grpc-message").map(|text| percent_decode(text).decode_utf8_lossy());
    let details = header("grpc-status-details-bin").and_then(|text| BASE64.decode(text).ok());
    Some(Status::with_details(
        code,
        message.unwrap_or_default(),
        details.unwrap_or_default().into(),
    ))
}

/// Converts the HTTP status of a response that is not gRPC, for example from a proxy.
#[must_use]
pub fn read_http_status(status: u16) -> Error {
    let kind = match status {
        401 => ErrorKind::Unauthenticated,
        403 => ErrorKind::PermissionDenied,
        404 | 405 => ErrorKind::MethodNotFound,
        429 => ErrorKind::RateLimited,
        502..=504 => ErrorKind::Unavailable,
        _ => ErrorKind::InvalidAgentResponse,
    };
    match kind {
        ErrorKind::InvalidAgentResponse => Error::new(kind).with_message(format!(
            "Invalid agent response: not gRPC, HTTP status {status}"
        )),
        _ => kind.into(),
    }
}

/// Converts a gRPC status of any peer to an error. The kind comes from the reason, else from a 0.3
/// error name before the message, else from the code.
#[must_use]
pub fn from_status(status: &Status) -> Error {
    let (details, retry_after) = read_details(status);
    let (kind, text) = match (details.kind(), split_error_name(status.message())) {
        (Some(kind), Some((named, text))) if reason(named) == reason(kind) => (kind, text),
        (Some(kind), _) => (kind, status.message()),
        (None, Some((kind, text))) => (kind, text),
        (None, None) => (kind_from_grpc_code(status.code()), status.message()),
    };
    let error = details.into_error(kind, Some(text.into()));
    match retry_after {
        Some(after) => error.with_retry_after(after),
        None => error,
    }
}

fn read_details(status: &Status) -> (PeerErrorDetails, Option<std::time::Duration>) {
    let mut details = PeerErrorDetails::default();
    let mut retry_after = None;
    for detail in status.get_error_details_vec() {
        match detail {
            // Proxies may add reasons in their own domain.
            ErrorDetail::ErrorInfo(info) if info.domain == DOMAIN => {
                details.reason = Some(info.reason);
                details.metadata = info.metadata.into_iter().collect();
            }
            ErrorDetail::BadRequest(bad) => {
                let violations = bad.field_violations.into_iter();
                details
                    .violations
                    .extend(violations.map(|v| Violation::new(v.field, v.description)));
            }
            ErrorDetail::RetryInfo(info) => retry_after = info.retry_delay,
            _ => {}
        }
    }
    (details, retry_after)
}

/// Splits a 0.3 status message into error name and text.
fn split_error_name(message: &str) -> Option<(ErrorKind, &str)> {
    let (name_text, text) = message.split_once(": ")?;
    let kind = match name_text {
        // Name that this server uses for custom error codes.
        "ServerError" => ErrorKind::Internal,
        // Servers that support both versions may use the names of 1.0.
        _ => ErrorKind::ALL.into_iter().find(|kind| {
            [Version::V03, Version::V1]
                .map(|version| error_name(*kind, version))
                .contains(&name_text)
        })?,
    };
    Some((kind, text))
}

/// Converts a status code without details. It comes from the gRPC layer or from a server without
/// typed errors.
fn kind_from_grpc_code(code: Code) -> ErrorKind {
    match code {
        Code::InvalidArgument | Code::OutOfRange | Code::AlreadyExists => ErrorKind::InvalidParams,
        Code::NotFound => ErrorKind::TaskNotFound,
        Code::Unimplemented => ErrorKind::MethodNotFound,
        Code::FailedPrecondition => ErrorKind::UnsupportedOperation,
        Code::Unauthenticated => ErrorKind::Unauthenticated,
        Code::PermissionDenied => ErrorKind::PermissionDenied,
        Code::ResourceExhausted => ErrorKind::RateLimited,
        Code::Unavailable => ErrorKind::Unavailable,
        Code::Cancelled => ErrorKind::Canceled,
        Code::DeadlineExceeded => ErrorKind::DeadlineExceeded,
        Code::Ok | Code::Unknown | Code::Aborted | Code::Internal | Code::DataLoss => {
            ErrorKind::Internal
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn paths_and_operations_map_both_ways() {
        for one in Operation::ALL {
            for version in Version::ALL {
                match path(one, version) {
                    Some(path) => assert_eq!(operation(path), Some((one, version)), "{path}"),
                    None => assert_eq!((one, version), (Operation::ListTasks, Version::V03)),
                }
            }
        }
        for unknown in [
            "",
            "/",
            "/a2a.v1.A2AService/ListTasks",
            "/lf.a2a.v1.A2AService/sendMessage",
        ] {
            assert_eq!(operation(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn v1_error_round_trips() {
        let error = Error::invalid("message.parts", "must contain at least one element")
            .with_detail("taskId", "t")
            .with_detail("contextId", "c")
            .with_violation(Violation::new(
                "message.role",
                "must be ROLE_USER or ROLE_AGENT",
            ))
            .with_retry_after(Duration::from_millis(1500));
        let status = to_status(&error, Version::V1);
        assert_eq!(status.code(), Code::InvalidArgument);
        assert_eq!(from_status(&status), error);
        let types: Vec<_> = pb::Status::decode(status.details()).unwrap().details;
        assert_eq!(
            types.iter().map(|any| &*any.type_url).collect::<Vec<_>>(),
            [
                ErrorInfo::TYPE_URL,
                BadRequest::TYPE_URL,
                RetryInfo::TYPE_URL
            ]
        );
        for kind in ErrorKind::ALL {
            let back = from_status(&to_status(&kind.into(), Version::V1));
            assert_eq!(reason(back.kind()), reason(kind));
            assert_eq!(back.message(), kind.message());
        }
    }

    #[test]
    fn v03_status_has_the_error_name_and_details() {
        let error = Error::new(ErrorKind::TaskNotFound).with_detail("taskId", "t");
        let status = to_status(&error, Version::V03);
        assert_eq!(
            (status.code(), status.message()),
            (Code::NotFound, "TaskNotFoundError: Task not found")
        );
        assert_eq!(from_status(&status), error);
        let error = Error::invalid("taskPushNotificationConfig.url", "must not be empty");
        let status = to_status(&error, Version::V03);
        let read = from_status(&status);
        assert_eq!(read.violations()[0].field(), "pushNotification.url");
        assert!(!status.message().contains("taskPushNotificationConfig"));
        for kind in ErrorKind::ALL {
            let back = from_status(&to_status(&kind.into(), Version::V03));
            assert_eq!(
                error_name(back.kind(), Version::V03),
                error_name(kind, Version::V03)
            );
            assert!(!back.message().contains("Error: "), "{}", back.message());
        }
    }

    #[test]
    fn status_without_details_is_read_by_its_code() {
        for (code, text, kind, message) in [
            (
                Code::Unimplemented,
                "",
                ErrorKind::MethodNotFound,
                "Method not found",
            ),
            (
                Code::NotFound,
                "no such task: t",
                ErrorKind::TaskNotFound,
                "no such task: t",
            ),
            (
                Code::Unknown,
                "Boom: bang",
                ErrorKind::Internal,
                "Boom: bang",
            ),
            (
                Code::Unimplemented,
                "TaskNotCancelableError: x",
                ErrorKind::TaskNotCancelable,
                "x",
            ),
            (
                Code::Unknown,
                "ExtendedAgentCardNotConfiguredError: x",
                ErrorKind::ExtendedAgentCardNotConfigured,
                "x",
            ),
        ] {
            let error = from_status(&Status::new(code, text));
            assert_eq!((error.kind(), error.message()), (kind, message), "{text}");
        }
    }

    #[test]
    fn status_headers_with_any_content_are_read() {
        let read = |headers: &[(&str, &str)]| {
            let header = |name: &str| {
                headers
                    .iter()
                    .find(|(one, _)| *one == name)
                    .map(|(_, it)| it.as_bytes())
            };
            read_status(header).map(|status| from_status(&status))
        };
        let error = Error::new(ErrorKind::TaskNotFound)
            .with_message("no t\u{e2}che")
            .with_detail("taskId", "t");
        let details = BASE64.encode(to_status(&error, Version::V1).details());
        for details in [&*details, details.trim_end_matches('=')] {
            let headers = [
                ("grpc-status", "5"),
                ("grpc-message", "no t%C3%A2che"),
                ("grpc-status-details-bin", details),
            ];
            assert_eq!(read(&headers).as_ref(), Some(&error));
        }
        assert_eq!(read(&[]), None);
        let odd = [
            ("grpc-status", "5"),
            ("grpc-message", "a%ffb%"),
            ("grpc-status-details-bin", "!!"),
        ];
        let read = read(&odd).unwrap();
        assert_eq!(
            (read.kind(), read.message()),
            (ErrorKind::TaskNotFound, "a\u{fffd}b%")
        );
    }

    #[test]
    fn response_that_is_not_grpc_is_read_by_its_http_status() {
        for (status, kind) in [
            (200, ErrorKind::InvalidAgentResponse),
            (302, ErrorKind::InvalidAgentResponse),
            (401, ErrorKind::Unauthenticated),
            (404, ErrorKind::MethodNotFound),
            (503, ErrorKind::Unavailable),
        ] {
            assert_eq!(read_http_status(status).kind(), kind, "{status}");
        }
    }

    #[test]
    fn foreign_reasons_and_invalid_details_are_ignored() {
        let info = OrderedErrorInfo {
            reason: "TASK_NOT_FOUND".to_owned(),
            ..Default::default()
        };
        let foreign = pb::Status {
            details: vec![any(ErrorInfo::TYPE_URL, &info)],
            ..Default::default()
        };
        let status = Status::with_details(Code::Unavailable, "x", foreign.encode_to_vec().into());
        assert_eq!(from_status(&status).kind(), ErrorKind::Unavailable);
        let status = Status::with_details(Code::Unavailable, "x", b"\xff\xff".to_vec().into());
        assert_eq!(from_status(&status).kind(), ErrorKind::Unavailable);
    }
}
