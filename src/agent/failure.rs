//! Failure of an agent: a kind for the caller, and a cause for the log.

use std::any::Any;
use std::fmt;

/// Failure of an agent. Callers see [`kind`](Self::kind); [`cause`](Self::cause) goes to the log only.
///
/// Converted from any error by `?`.
pub struct Failure {
    kind: &'static str,
    cause: Box<dyn std::error::Error + Send + Sync>,
}

impl Failure {
    /// Creates a failure that is not an error of the agent itself.
    pub(crate) fn new(
        kind: &'static str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            kind,
            cause: cause.into(),
        }
    }

    /// Type name of the error, without its path. Visible to the caller.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.kind
    }

    /// The error itself. Only for the log.
    #[must_use]
    pub fn cause(&self) -> &(dyn std::error::Error + Send + Sync + 'static) {
        &*self.cause
    }

    pub(super) fn from_panic(payload: Box<dyn Any + Send>) -> Self {
        let text = payload
            .downcast::<&'static str>()
            .map(|text| (*text).to_owned());
        let text = text.or_else(|payload| payload.downcast::<String>().map(|text| *text));
        Self {
            kind: "panic",
            cause: text
                .unwrap_or_else(|_| "panic payload is not a string".to_owned())
                .into(),
        }
    }
}

impl<E: Into<Box<dyn std::error::Error + Send + Sync>>> From<E> for Failure {
    fn from(cause: E) -> Self {
        Self {
            kind: short_type_name(std::any::type_name::<E>()),
            cause: cause.into(),
        }
    }
}

/// Returns the last segment of a type path, so that callers do not learn which libraries are in use.
fn short_type_name(type_name: &'static str) -> &'static str {
    let path = type_name.split('<').next().unwrap_or_default();
    match path.rsplit("::").next().unwrap_or_default() {
        "Box" | "String" | "&str" | "" => "Error",
        name => name,
    }
}

impl fmt::Display for Failure {
    /// Writes the text for the caller.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Agent execution failed ({})", self.kind)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Failure")
            .field("kind", &self.kind)
            .field("cause", &self.cause)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller_text<E: Into<Failure>>(error: E) -> String {
        error.into().to_string()
    }

    #[test]
    fn callers_read_the_kind_and_never_the_cause() {
        let io = || std::io::Error::other("/etc/secret");
        assert_eq!(caller_text(io()), "Agent execution failed (Error)");
        assert_eq!(
            caller_text("x".parse::<u8>().unwrap_err()),
            "Agent execution failed (ParseIntError)"
        );
        assert_eq!(caller_text("password"), "Agent execution failed (Error)");
        assert_eq!(
            caller_text(Box::<dyn std::error::Error + Send + Sync>::from(io())),
            caller_text("password")
        );
        assert!(
            Failure::from(io())
                .cause()
                .to_string()
                .contains("/etc/secret")
        );
    }
}
