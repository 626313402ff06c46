//! A fault in an agent: what the caller reads, and apart from it what only the log may know.

use std::any::Any;
use std::fmt;

/// A fault in the agent. The caller reads [`Failure::kind`], the cause goes to the log alone.
///
/// Made from any error by `?`.
pub struct Failure {
    kind: &'static str,
    cause: Box<dyn std::error::Error + Send + Sync>,
}

impl Failure {
    /// A fault that is no error of the agent's own.
    pub(crate) fn new(
        kind: &'static str,
        cause: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self {
            kind,
            cause: cause.into(),
        }
    }

    /// The name of the error's type, which the caller may know.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.kind
    }

    /// What happened, for the log alone.
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
            cause: text.unwrap_or_else(|_| "not a text".to_owned()).into(),
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

/// The last name of a type's path: callers are not told which libraries are used.
fn short_type_name(type_name: &'static str) -> &'static str {
    let path = type_name.split('<').next().unwrap_or_default();
    match path.rsplit("::").next().unwrap_or_default() {
        "Box" | "String" | "&str" | "" => "Error",
        name => name,
    }
}

impl fmt::Display for Failure {
    /// What the caller reads.
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

    fn fails<E: Into<Failure>>(error: E) -> String {
        error.into().to_string()
    }

    #[test]
    fn callers_read_the_kind_and_never_the_cause() {
        let io = || std::io::Error::other("/etc/secret");
        assert_eq!(fails(io()), "Agent execution failed (Error)");
        assert_eq!(
            fails("x".parse::<u8>().unwrap_err()),
            "Agent execution failed (ParseIntError)"
        );
        assert_eq!(fails("password"), "Agent execution failed (Error)");
        assert_eq!(
            fails(Box::<dyn std::error::Error + Send + Sync>::from(io())),
            fails("password")
        );
        assert!(
            Failure::from(io())
                .cause()
                .to_string()
                .contains("/etc/secret")
        );
    }
}
