//! Messages for failures of the remote agent. They do not disclose its address or its implementation to callers.

use attache::model::ErrorKind;
use attache::{Error, Outcome};

use super::card_pin::CardMismatch;

/// Returns the outcome of a turn whose call to the remote agent failed.
pub(super) fn error_outcome(error: &Error) -> Outcome {
    let kind = error.kind();
    if std::error::Error::source(error).is_some_and(|cause| cause.is::<CardMismatch>()) {
        return Outcome::failed("the card of the remote agent does not match the pinned one");
    }
    match kind {
        ErrorKind::Unavailable => Outcome::failed("the remote agent is not available"),
        ErrorKind::RateLimited => Outcome::failed("the remote agent is overloaded"),
        ErrorKind::DeadlineExceeded | ErrorKind::RequestTimeout => {
            Outcome::failed("the remote agent did not answer in time")
        }
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => {
            Outcome::failed("the remote agent refuses our credentials")
        }
        ErrorKind::InvalidParams
        | ErrorKind::PayloadTooLarge
        | ErrorKind::ContentTypeNotSupported
        | ErrorKind::ExtensionSupportRequired
        | ErrorKind::UnsupportedOperation => {
            Outcome::rejected(format!("the remote agent refuses: {}", kind.message()))
        }
        ErrorKind::TaskNotFound => Outcome::failed("the remote agent no longer has the task"),
        ErrorKind::InvalidAgentResponse => {
            Outcome::failed("the remote agent sent an invalid response")
        }
        ErrorKind::Parse
        | ErrorKind::InvalidRequest
        | ErrorKind::MethodNotFound
        | ErrorKind::MethodNotAllowed
        | ErrorKind::Internal
        | ErrorKind::TaskNotCancelable
        | ErrorKind::PushNotificationNotSupported
        | ErrorKind::UnsupportedMediaType
        | ErrorKind::ExtendedAgentCardNotConfigured
        | ErrorKind::VersionNotSupported
        | ErrorKind::Canceled
        | ErrorKind::Other(_) => {
            Outcome::failed(format!("the remote agent failed: {}", kind.message()))
        }
    }
}
