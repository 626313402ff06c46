//! An interceptor with its name, filters, timeout and failure policy.

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};
use tracing::{Instrument, Span};

use super::error::HookErrorKind;
use super::event_pipeline::Denial;
use super::{HookContext, HookError, Interceptor};
use crate::model::{Error, ErrorKind, Operation};
use crate::telemetry::{metrics, trace};

/// Default time that a hook has for one call or event.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(5);

/// Delay before a retry that the error of a failed hook suggests.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Result of an interceptor.
pub(super) type HookFuture<'a> = Pin<Box<dyn Future<Output = Result<(), HookError>> + Send + 'a>>;

/// Occasion on which a hook runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum HookPhase {
    /// Before an operation.
    Call,
    /// After an operation, before its response is sent.
    Response,
    /// Before an event is stored.
    Event,
}

impl HookPhase {
    /// All phases.
    pub const ALL: [Self; 3] = [Self::Call, Self::Response, Self::Event];

    /// Name in configuration files and metrics.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Call => "call",
            Self::Response => "response",
            Self::Event => "event",
        }
    }
}

/// Decision in place of a hook that fails or exceeds its timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum FailurePolicy {
    /// Fail closed: the call is denied, or the task fails.
    #[default]
    Deny,
    /// Fail open: the call or event passes unchanged.
    Allow,
}

/// An [`Interceptor`] with its name, filters, timeout and failure policy.
///
/// ```
/// # use attache::{Hook, HookPhase, Interceptor};
/// # use std::time::Duration;
/// # fn example(audit: impl Interceptor) -> Hook {
/// Hook::new("audit", audit)
///     .phases([HookPhase::Event])
///     .agents(["billing"])
///     .timeout(Duration::from_secs(1))
/// # }
/// ```
#[derive(Clone)]
pub struct Hook {
    pub(super) name: Arc<str>,
    pub(super) interceptor: Arc<dyn Interceptor>,
    phases: Vec<HookPhase>,
    operations: Vec<Operation>,
    agents: Vec<String>,
    timeout: Duration,
    on_failure: FailurePolicy,
    is_traced: bool,
}

/// Result of a hook that did not deny.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum HookResult {
    Applied,
    /// The hook failed, and its policy allows. Its changes are void.
    FailedOpen,
    /// The hook exceeded its timeout, and its policy allows. Its changes are void.
    TimedOutOpen,
}

impl HookResult {
    /// Whether the hook failed, so that the original must be restored.
    pub(super) fn is_failure(self) -> bool {
        match self {
            Self::Applied => false,
            Self::FailedOpen | Self::TimedOutOpen => true,
        }
    }
}

/// Decision of an interceptor, or the reason why it made none.
enum Decision {
    Allowed,
    Denied(Error),
    Failed(String),
    TimedOut,
}

impl Decision {
    /// Value of the label `outcome` in metrics.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Allowed => "allowed",
            Self::Denied(_) => "denied",
            Self::Failed(_) => "failed",
            Self::TimedOut => "timed_out",
        }
    }
}

impl Hook {
    /// Creates a hook for all phases, operations and agents. It fails closed, and has 5 s for each call or event.
    pub fn new(name: impl AsRef<str>, interceptor: impl Interceptor) -> Self {
        Self {
            name: name.as_ref().into(),
            interceptor: Arc::new(interceptor),
            phases: HookPhase::ALL.to_vec(),
            operations: Vec::new(),
            agents: Vec::new(),
            timeout: DEFAULT_TIMEOUT,
            on_failure: FailurePolicy::Deny,
            is_traced: false,
        }
    }

    /// Limits the hook to these phases.
    #[must_use]
    pub fn phases(mut self, phases: impl IntoIterator<Item = HookPhase>) -> Self {
        self.phases = phases.into_iter().collect();
        self
    }

    /// Limits calls and responses to these operations. Events are not filtered.
    #[must_use]
    pub fn operations(mut self, operations: impl IntoIterator<Item = Operation>) -> Self {
        self.operations = operations.into_iter().collect();
        self
    }

    /// Limits the hook to the agents with these names.
    #[must_use]
    pub fn agents(mut self, names: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.agents = names.into_iter().map(Into::into).collect();
        self
    }

    /// Sets the time that the hook has for one call or event. After it, the failure policy decides.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = timeout;
        self
    }

    /// Sets the decision in place of a failed hook.
    #[must_use]
    pub fn on_failure(mut self, policy: FailurePolicy) -> Self {
        self.on_failure = policy;
        self
    }

    /// Records one span per run, for hooks that call another process.
    #[must_use]
    pub fn traced(mut self) -> Self {
        self.is_traced = true;
        self
    }

    /// Returns the name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Names of the agents that the hook is limited to; empty for all.
    pub(crate) fn agent_names(&self) -> &[String] {
        &self.agents
    }

    pub(super) fn applies_to_agent(&self, agent: &str) -> bool {
        self.agents.is_empty() || self.agents.iter().any(|name| name == agent)
    }

    pub(super) fn intercepts_events(&self) -> bool {
        self.phases.contains(&HookPhase::Event)
    }

    pub(super) fn intercepts(&self, phase: HookPhase, operation: Operation) -> bool {
        let covers_operation = self.operations.is_empty() || self.operations.contains(&operation);
        self.phases.contains(&phase) && covers_operation
    }

    /// Whether a failure passes the call or event unchanged, so that the caller must keep the original.
    pub(super) fn fails_open(&self) -> bool {
        self.on_failure == FailurePolicy::Allow
    }

    /// Runs the interceptor within the timeout, catches its panics and applies the failure policy.
    ///
    /// # Errors
    /// The hook denies, or has failed and fails closed.
    pub(super) async fn run(
        &self,
        phase: HookPhase,
        context: &HookContext<'_>,
        intercept: HookFuture<'_>,
    ) -> Result<HookResult, Denial> {
        let span = if self.is_traced {
            trace::hook_span(&self.name, phase.as_str(), context.task_id())
        } else {
            Span::none()
        };
        let started = Instant::now();
        // Unwind safe: after a panic the request or event is restored or dropped.
        let caught = AssertUnwindSafe(intercept).catch_unwind();
        let decision = match timeout(self.timeout, caught.instrument(span)).await {
            Ok(Ok(Ok(()))) => Decision::Allowed,
            Ok(Ok(Err(HookError(HookErrorKind::Denied(error))))) => Decision::Denied(error),
            Ok(Ok(Err(HookError(HookErrorKind::Failed(cause))))) => {
                Decision::Failed(cause.to_string())
            }
            Ok(Err(panic)) => Decision::Failed(panic_text(&*panic)),
            Err(_) => Decision::TimedOut,
        };
        metrics::record_hook(&self.name, phase.as_str(), decision.as_str(), started);
        match decision {
            Decision::Allowed => Ok(HookResult::Applied),
            Decision::Denied(error) => Err(self.denial(phase, context, error)),
            Decision::Failed(cause) => {
                self.apply_policy(phase, context, &cause)?;
                Ok(HookResult::FailedOpen)
            }
            Decision::TimedOut => {
                let cause = format!("no decision within {:?} (timeout)", self.timeout);
                self.apply_policy(phase, context, &cause)?;
                Ok(HookResult::TimedOutOpen)
            }
        }
    }

    /// Logs a refusal, without its message: a hook may quote the content.
    fn denial(&self, phase: HookPhase, context: &HookContext<'_>, error: Error) -> Denial {
        tracing::info!(
            hook = &*self.name,
            phase = phase.as_str(),
            agent = context.agent(),
            caller = context.caller().name(),
            task = context.task_id().map(tracing::field::display),
            kind = ?error.kind(),
            "hook denied"
        );
        Denial { error }
    }

    fn apply_policy(
        &self,
        phase: HookPhase,
        context: &HookContext<'_>,
        cause: &str,
    ) -> Result<(), Denial> {
        tracing::warn!(
            hook = &*self.name,
            phase = phase.as_str(),
            agent = context.agent(),
            task = context.task_id().map(tracing::field::display),
            cause,
            fails_open = self.fails_open(),
            "hook failed"
        );
        match self.on_failure {
            FailurePolicy::Allow => Ok(()),
            FailurePolicy::Deny => Err(Denial {
                error: Error::new(ErrorKind::Unavailable)
                    .with_message("a hook of this server failed")
                    .with_retry_after(RETRY_AFTER),
            }),
        }
    }
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hook")
            .field("name", &self.name)
            .field("phases", &self.phases)
            .finish_non_exhaustive()
    }
}

fn panic_text(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&'static str>().copied();
    let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    format!("panic: {}", text.unwrap_or("payload is not a string"))
}
