//! Does an agent keep the rules of the protocol? One check per rule, on every interface that its card offers.

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

/// So long one check may take; agents may think before they answer.
const CHECK_TIMEOUT: Duration = Duration::from_secs(60);
/// An id that no agent has given out.
const UNKNOWN_TASK_ID: &str = "00000000-0000-4000-8000-00000000beef";

/// What came of one check.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    /// Where the rule stands, and its name.
    pub(crate) check: &'static str,
    /// The rule in a sentence.
    pub(crate) rule: &'static str,
    /// The binding that it was checked over.
    pub(crate) binding: String,
    pub(crate) outcome: CheckOutcome,
    /// Why it is not a pass.
    pub(crate) detail: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum CheckOutcome {
    Pass,
    Fail,
    Skip,
}

/// Why a check ends without a pass.
enum NotPassed {
    /// The rule is broken.
    Violation(String),
    /// The rule does not apply, or could not be tried.
    Skipped(String),
}

type CheckResult<T = ()> = Result<T, NotPassed>;
type CheckFuture<'a> = Pin<Box<dyn Future<Output = CheckResult> + 'a>>;

/// A rule, and how it is looked into.
struct ConformanceCheck {
    name: &'static str,
    rule: &'static str,
    run: for<'a> fn(&'a AgentUnderTest<'a>) -> CheckFuture<'a>,
}

/// All of them, in the order of the protocol.
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

/// The agent over one interface.
struct AgentUnderTest<'a> {
    session: &'a Session<'a>,
    /// What came of a plain message.
    first: Result<SendMessageResponse, Error>,
    /// Where a webhook may be said to be.
    webhook: &'a str,
    /// A message that keeps the agent busy.
    slow: Option<&'a str>,
    /// A message that makes it ask.
    ask: Option<&'a str>,
}

/// What the user says about an agent, so that more of it can be seen.
pub(crate) struct CheckInputs<'a> {
    pub(crate) webhook: &'a str,
    pub(crate) slow: Option<&'a str>,
    pub(crate) ask: Option<&'a str>,
}

/// Looks into every rule over this interface; tells each finding as it is made.
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
            let ran = tokio::time::timeout(CHECK_TIMEOUT, (check.run)(&agent)).await;
            let (outcome, detail) = match ran {
                Ok(Ok(())) => (CheckOutcome::Pass, None),
                Ok(Err(NotPassed::Violation(why))) => (CheckOutcome::Fail, Some(why)),
                Ok(Err(NotPassed::Skipped(why))) => (CheckOutcome::Skip, Some(why)),
                Err(_) => (
                    CheckOutcome::Fail,
                    Some("no answer came within 60s".to_owned()),
                ),
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

    /// What came of the first message.
    fn first_response(&self) -> CheckResult<&SendMessageResponse> {
        self.first
            .as_ref()
            .map_err(|error| violation(format!("a plain message: {}", error.message())))
    }

    /// The task of the first message.
    fn first_task(&self) -> CheckResult<&Task> {
        match &self.first {
            Ok(SendMessageResponse::Task(task)) => Ok(task),
            Ok(SendMessageResponse::Message(_)) => {
                Err(skip("the agent answers with messages, not with tasks"))
            }
            Err(_) => Err(skip("a plain message was not answered")),
        }
    }

    /// The same, if it has ended.
    fn ended_task(&self) -> CheckResult<&Task> {
        let task = self.first_task()?;
        match task.status.state.is_terminal() {
            true => Ok(task),
            false => Err(skip(format!(
                "the task of a plain message has not ended, it is {}",
                task.status.state
            ))),
        }
    }

    /// Sends a message that is made from a plain one.
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

/// A request that does not wait.
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

fn violation(why: impl Into<String>) -> NotPassed {
    NotPassed::Violation(why.into())
}

fn skip(why: impl Into<String>) -> NotPassed {
    NotPassed::Skipped(why.into())
}

/// What was answered, if it was.
fn expect_ok<T>(answer: Result<T, Error>) -> CheckResult<T> {
    answer.map_err(|error| violation(error.message().to_owned()))
}

/// The rule holds, or this is why not.
fn ensure(condition: bool, why: impl FnOnce() -> String) -> CheckResult {
    if condition {
        Ok(())
    } else {
        Err(violation(why()))
    }
}

/// It was refused, with one of these.
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
