//! Server hooks: interceptors of calls, responses and events, for guardrails, redaction and audit.
//!
//! A [`Hook`] is an [`Interceptor`] with its name, filters, timeout and failure policy. A [`HookChain`] holds the hooks
//! of one agent. `Service::call` runs the chain before and after every operation; the engine runs an [`EventPipeline`]
//! on every event before it is appended to the log.

mod chain;
mod context;
mod error;
mod event_pipeline;
mod hook;

use async_trait::async_trait;

use crate::model::{Request, Response, StreamResponse};

pub(crate) use chain::HookChain;
pub use context::HookContext;
pub use error::HookError;
pub(crate) use event_pipeline::{Denial, EventOrigin, EventPipeline};
pub use hook::{FailurePolicy, Hook, HookPhase};

/// Interceptor of calls, responses and events. Every method allows by default.
///
/// A hook allows by `Ok`, changes its argument in place, and denies with [`HookError::deny`]. Any other error, a panic
/// and a timeout are failures; the [`FailurePolicy`] of the hook decides about them.
///
/// ```
/// use attache::model::Request;
/// use attache::{Hook, HookContext, HookError, Interceptor};
///
/// struct NoPasswords;
///
/// #[attache::async_trait]
/// impl Interceptor for NoPasswords {
///     async fn before_call(&self, _: &HookContext<'_>, request: &mut Request) -> Result<(), HookError> {
///         match request {
///             Request::SendMessage(send) | Request::SendStreamingMessage(send)
///                 if send.message.text().contains("password") => Err(HookError::deny("do not send passwords")),
///             _ => Ok(()),
///         }
///     }
/// }
///
/// let hook = Hook::new("no-passwords", NoPasswords);
/// ```
#[async_trait]
pub trait Interceptor: Send + Sync + 'static {
    /// Runs before an operation, after authentication, access rules and validation. Hooks run in the order of their
    /// declaration.
    ///
    /// After a denial nothing is written. A changed message is stored and processed in place of the original one. The
    /// tenant, the caller and the kind of the request are fixed: changes of them have no effect.
    async fn before_call(
        &self,
        context: &HookContext<'_>,
        request: &mut Request,
    ) -> Result<(), HookError> {
        let _ = context;
        let _ = request;
        Ok(())
    }

    /// Runs after a successful operation, before its response is encoded. Hooks run in reverse order.
    ///
    /// A change affects this response only, not the stored task. A denial replaces the response by an error; effects of
    /// the operation stay. A stream has no response: its events have passed [`on_event`](Self::on_event).
    async fn after_call(
        &self,
        context: &HookContext<'_>,
        response: &mut Response,
    ) -> Result<(), HookError> {
        let _ = context;
        let _ = response;
        Ok(())
    }

    /// Runs on every status, artifact and direct reply of an agent, before it is stored or sent. Hooks run in the order
    /// of their declaration, and the events of a task one at a time.
    ///
    /// All readers see the changed event. A denial fails the task. State, ids and chunk flags are fixed: changes of them
    /// have no effect. A denial of the final event of a canceled or interrupted task has no effect either.
    async fn on_event(
        &self,
        context: &HookContext<'_>,
        event: &mut StreamResponse,
    ) -> Result<(), HookError> {
        let _ = context;
        let _ = event;
        Ok(())
    }

    /// Returns the state of this hook for one turn, which then receives its events instead of
    /// [`on_event`](Self::on_event). The default is `None`: events are independent of each other.
    fn turn_filter(&self, context: &HookContext<'_>) -> Option<Box<dyn TurnFilter>> {
        let _ = context;
        None
    }
}

/// State of a hook for the events of one turn, for example text of an artifact that is held back until its next chunk.
pub trait TurnFilter: Send {
    /// Changes an event in place. Text that it removes may be added to a later event.
    ///
    /// # Errors
    /// A denial or a failure, as for [`Interceptor::on_event`].
    fn filter(&mut self, event: &mut StreamResponse) -> Result<(), HookError>;

    /// Adds text that was held back to an event that passes unchanged after a failure, so that no text is lost. Called if
    /// the hook fails open.
    fn release(&mut self, event: &mut StreamResponse) {
        let _ = event;
    }

    /// Returns further events at the end of the turn, before its final status. Called once.
    fn finish(&mut self) -> Vec<StreamResponse>;
}
