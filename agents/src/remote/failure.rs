//! What went wrong with another agent, in words that our callers may read: where it is and how it is built is not theirs.

use attache::model::ErrorKind;
use attache::{Error, Outcome};

use super::card_pin::CardMismatch;

pub(super) fn error_outcome(error: &Error) -> Outcome {
    let kind = error.kind();
    if std::error::Error::source(error).is_some_and(|cause| cause.is::<CardMismatch>()) {
        return Outcome::failed("the agent behind is not the one that was agreed to");
    }
    match kind {
        ErrorKind::Unavailable => Outcome::failed("the agent behind is not available"),
        ErrorKind::RateLimited => Outcome::failed("the agent behind has too much to do"),
        ErrorKind::DeadlineExceeded | ErrorKind::RequestTimeout => {
            Outcome::failed("the agent behind did not answer in time")
        }
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => {
            Outcome::failed("the agent behind does not let us in")
        }
        ErrorKind::InvalidParams
        | ErrorKind::PayloadTooLarge
        | ErrorKind::ContentTypeNotSupported
        | ErrorKind::ExtensionSupportRequired
        | ErrorKind::UnsupportedOperation => {
            Outcome::rejected(format!("the agent behind refuses: {}", kind.message()))
        }
        ErrorKind::TaskNotFound => {
            Outcome::failed("the agent behind does not know its task any more")
        }
        ErrorKind::InvalidAgentResponse => Outcome::failed("the agent behind makes no sense"),
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
            Outcome::failed(format!("the agent behind failed: {}", kind.message()))
        }
    }
}
