//! Conformance checks of a running agent: one check per rule of the protocol, over each interface of its card.

mod access;
mod errors;
mod interrupted_tasks;
mod lists;
mod operations;
mod push;
mod raw;
mod running_tasks;
mod streaming;

use std::pin::Pin;
use std::time::Duration;

use attache::model::{
    Message, SendMessageConfiguration, SendMessageRequest, SendMessageResponse, Task, TaskId,
    Version,
};
use attache::{Error, ErrorKind};
use serde::Serialize;

use crate::session::Session;

/// Time limit of one check. Agents may be slow.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);
/// A task id that no agent has assigned.
const UNKNOWN_TASK_ID: &str = "00000000-0000-4000-8000-00000000beef";

/// Result of one check.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// Name: the chapter of `docs/protocol/` and the rule.
    pub(crate) check: &'static str,
    /// The rule in a sentence.
    pub(crate) rule: &'static str,
    /// Binding of the check.
    pub(crate) binding: String,
    pub(crate) outcome: CheckOutcome,
    /// Reason of a failure or a skip.
    pub(crate) detail: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CheckOutcome {
    Pass,
    Fail,
    Skip,
}

/// Reason why a check did not pass.
enum NotPassed {
    /// The agent breaks the rule.
    Violation(String),
    /// The rule does not apply, or cannot be checked.
    Skipped(String),
}

type CheckResult<T = ()> = Result<T, NotPassed>;
type CheckFuture<'a> = Pin<Box<dyn Future<Output = CheckResult> + 'a>>;

/// A check of one rule.
struct ConformanceCheck {
    name: &'static str,
    rule: &'static str,
    run: for<'a> fn(&'a AgentUnderTest<'a>) -> CheckFuture<'a>,
}

/// All checks, in the order of the protocol.
const CHECKS: &[&[ConformanceCheck]] = &[
    operations::CHECKS,
    lists::CHECKS,
    running_tasks::CHECKS,
    interrupted_tasks::CHECKS,
    access::CHECKS,
    streaming::CHECKS,
    push::CHECKS,
    errors::CHECKS,
];

/// The agent over one interface, with the response to a plain message.
struct AgentUnderTest<'a> {
    session: &'a Session<'a>,
    /// Response to a plain message.
    first: Result<SendMessageResponse, Error>,
    /// Webhook URL to register.
    webhook: &'a str,
    /// Message that keeps the agent busy (`--slow`).
    slow: Option<&'a str>,
    /// Message that makes the agent ask for input (`--ask`).
    ask: Option<&'a str>,
}

/// Inputs of the user that enable more checks.
pub(crate) struct CheckInputs<'a> {
    pub(crate) webhook: &'a str,
    pub(crate) slow: Option<&'a str>,
    pub(crate) ask: Option<&'a str>,
}

/// Runs all checks over one interface, and reports each finding.
pub(crate) async fn run_checks(
    session: &Session<'_>,
    known: &CheckInputs<'_>,
    report: &mut dyn FnMut(&Finding),
) -> Vec<Finding> {
    let sent = SendMessageRequest::new(Message::user("hello"));
    let first = with_timeout(session.client.send_message(sent)).await;
    let CheckInputs { webhook, slow, ask } = *known;
    let agent = AgentUnderTest {
        session,
        first,
        webhook,
        slow,
        ask,
    };
    let mut findings = Vec::new();
    for list in CHECKS {
        for check in *list {
            let result = tokio::time::timeout(CHECK_TIMEOUT, (check.run)(&agent)).await;
            let (outcome, detail) = match result {
                Ok(Ok(())) => (CheckOutcome::Pass, None),
                Ok(Err(NotPassed::Violation(detail))) => (CheckOutcome::Fail, Some(detail)),
                Ok(Err(NotPassed::Skipped(detail))) => (CheckOutcome::Skip, Some(detail)),
                Err(_) => (CheckOutcome::Fail, Some("no answer within 60s".to_owned())),
            };
            let binding = session.binding.as_str().to_owned();
            let finding = Finding {
                check: check.name,
                rule: check.rule,
                binding,
                outcome,
                detail,
            };
            report(&finding);
            findings.push(finding);
        }
    }
    findings
}

impl AgentUnderTest<'_> {
    fn is_v1(&self) -> bool {
        self.session.version == Version::V1
    }

    /// The response to the plain message.
    fn first_response(&self) -> CheckResult<&SendMessageResponse> {
        self.first
            .as_ref()
            .map_err(|error| violation(format!("a plain message: {}", error.message())))
    }

    /// The task of the plain message.
    fn first_task(&self) -> CheckResult<&Task> {
        match &self.first {
            Ok(SendMessageResponse::Task(task)) => Ok(task),
            Ok(SendMessageResponse::Message(_)) => {
                Err(skip("the agent answers with messages, not with tasks"))
            }
            Err(_) => Err(skip("a plain message was not answered")),
        }
    }

    /// The task of the plain message, if it has ended.
    fn ended_task(&self) -> CheckResult<&Task> {
        let task = self.first_task()?;
        if task.status.state.is_terminal() {
            return Ok(task);
        }
        Err(skip(format!(
            "the task of a plain message has not ended, its state is {}",
            task.status.state
        )))
    }

    /// Sends a modified plain message.
    async fn send(&self, change: impl FnOnce(&mut Message)) -> Result<SendMessageResponse, Error> {
        let mut message = Message::user("hello again");
        change(&mut message);
        with_timeout(
            self.session
                .client
                .send_message(SendMessageRequest::new(message)),
        )
        .await
    }
}

/// A request with `returnImmediately`.
fn without_waiting(message: Message) -> SendMessageRequest {
    let configuration = SendMessageConfiguration {
        return_immediately: true,
        ..SendMessageConfiguration::default()
    };
    SendMessageRequest {
        configuration: Some(configuration),
        ..SendMessageRequest::new(message)
    }
}

fn unknown_task_id() -> TaskId {
    UNKNOWN_TASK_ID.into()
}

async fn with_timeout<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let answer = tokio::time::timeout(CHECK_TIMEOUT, call).await;
    answer.unwrap_or_else(|_| Err(ErrorKind::DeadlineExceeded.into()))
}

fn violation(detail: impl Into<String>) -> NotPassed {
    NotPassed::Violation(detail.into())
}

fn skip(reason: impl Into<String>) -> NotPassed {
    NotPassed::Skipped(reason.into())
}

/// Returns the response; an error is a violation.
fn expect_ok<T>(answer: Result<T, Error>) -> CheckResult<T> {
    answer.map_err(|error| violation(error.message().to_owned()))
}

/// Checks a condition; if it is false, the rule is violated.
fn ensure(condition: bool, why: impl FnOnce() -> String) -> CheckResult {
    if condition {
        Ok(())
    } else {
        Err(violation(why()))
    }
}

/// Checks that a call failed with one of these errors.
fn expect_error<T>(answer: Result<T, Error>, with: &[ErrorKind]) -> CheckResult {
    match answer {
        Err(error) if with.contains(&error.kind()) => Ok(()),
        Err(error) => Err(violation(format!(
            "refused with {:?}: {}",
            error.kind(),
            error.message()
        ))),
        Ok(_) => Err(violation("not refused")),
    }
}
