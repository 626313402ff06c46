//! Refusal or failure of a hook.

use std::fmt;

use crate::model::{Error, ErrorKind};

/// Refusal or failure of a hook. Any error converts to a failure by `?`.
pub struct HookError(pub(super) HookErrorKind);

pub(super) enum HookErrorKind {
    /// The hook refuses. The caller reads the error.
    Denied(Error),
    /// The hook did not decide. The cause goes to the log only.
    Failed(Box<dyn std::error::Error + Send + Sync>),
}

impl HookError {
    /// Refuses with "permission denied" and this message for the caller.
    pub fn deny(message: impl Into<String>) -> Self {
        Self::deny_with(Error::new(ErrorKind::PermissionDenied).with_message(message.into()))
    }

    /// Refuses with an error for the caller.
    #[must_use]
    pub fn deny_with(error: Error) -> Self {
        Self(HookErrorKind::Denied(error))
    }

    /// Whether the hook refused, instead of failing.
    #[must_use]
    pub fn is_denial(&self) -> bool {
        matches!(self.0, HookErrorKind::Denied(_))
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for HookError {
    fn from(cause: E) -> Self {
        Self(HookErrorKind::Failed(cause.into()))
    }
}

impl fmt::Debug for HookError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            HookErrorKind::Denied(error) => f.debug_tuple("Denied").field(error).finish(),
            HookErrorKind::Failed(cause) => f.debug_tuple("Failed").field(cause).finish(),
        }
    }
}
