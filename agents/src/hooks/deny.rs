//! Hook that refuses messages by regular expressions.

use attache::model::{Error, ErrorKind, Request};
use attache::{HookContext, HookError, Interceptor, async_trait};

use super::PatternError;
use super::content::{rewrite_message, rewrite_object};
use super::patterns::Patterns;

/// Refuses messages whose text matches a regular expression.
#[derive(Debug, Clone)]
pub struct DenyHook {
    patterns: Patterns,
    kind: ErrorKind,
    message: String,
}

impl DenyHook {
    /// Creates a hook. Callers read `message`.
    ///
    /// # Errors
    /// An expression is invalid.
    pub fn new(
        patterns: &[String],
        kind: ErrorKind,
        message: impl Into<String>,
    ) -> Result<Self, PatternError> {
        Ok(Self {
            patterns: Patterns::new(patterns)?,
            kind,
            message: message.into(),
        })
    }
}

#[async_trait]
impl Interceptor for DenyHook {
    async fn before_call(
        &self,
        _: &HookContext<'_>,
        request: &mut Request,
    ) -> Result<(), HookError> {
        let (Request::SendMessage(send) | Request::SendStreamingMessage(send)) = request else {
            return Ok(());
        };
        let mut is_denied = false;
        let search = &mut |text: &str| {
            is_denied |= self.patterns.is_match(text);
            None
        };
        rewrite_message(&mut send.message, search);
        rewrite_object(&mut send.metadata, search);
        if is_denied {
            let error = Error::new(self.kind).with_message(self.message.clone());
            return Err(HookError::deny_with(error));
        }
        Ok(())
    }
}
