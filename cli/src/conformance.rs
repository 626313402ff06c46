//! Does an agent keep the rules of the protocol? One check per rule, on every interface that its card offers.

mod access;
mod errors;
mod lists;
mod operations;
mod push;
mod raw;
mod streaming;
mod waiting;
mod working;

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
const NOBODY: &str = "00000000-0000-4000-8000-00000000beef";

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
    pub(crate) outcome: Outcome,
    /// Why it is not a pass.
    pub(crate) detail: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum Outcome {
    Pass,
    Fail,
    Skip,
}

/// Why a check ends without a pass.
enum Stop {
    /// The rule is broken.
    Broken(String),
    /// The rule does not apply, or could not be tried.
    Moot(String),
}

type Ruling<T = ()> = Result<T, Stop>;
type Running<'a> = Pin<Box<dyn Future<Output = Ruling> + 'a>>;

/// A rule, and how it is looked into.
struct Check {
    name: &'static str,
    rule: &'static str,
    run: for<'a> fn(&'a Agent<'a>) -> Running<'a>,
}

/// All of them, in the order of the protocol.
const CHECKS: &[&[Check]] = &[
    operations::CHECKS,
    lists::CHECKS,
    working::CHECKS,
    waiting::CHECKS,
    access::CHECKS,
    streaming::CHECKS,
    push::CHECKS,
    errors::CHECKS,
];

/// The agent over one interface.
struct Agent<'a> {
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
pub(crate) struct Known<'a> {
    pub(crate) webhook: &'a str,
    pub(crate) slow: Option<&'a str>,
    pub(crate) ask: Option<&'a str>,
}

/// Looks into every rule over this interface; tells each finding as it is made.
pub(crate) async fn look_into(
    session: &Session<'_>,
    known: &Known<'_>,
    tell: &mut dyn FnMut(&Finding),
) -> Vec<Finding> {
    let sent = SendMessageRequest::new(Message::user("hello"));
    let first = within(session.client.send_message(sent)).await;
    let Known { webhook, slow, ask } = *known;
    let agent = Agent {
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
                Ok(Ok(())) => (Outcome::Pass, None),
                Ok(Err(Stop::Broken(why))) => (Outcome::Fail, Some(why)),
                Ok(Err(Stop::Moot(why))) => (Outcome::Skip, Some(why)),
                Err(_) => (Outcome::Fail, Some("no answer came within 60s".to_owned())),
            };
            let binding = session.binding.as_str().to_owned();
            let finding = Finding {
                check: check.name,
                rule: check.rule,
                binding,
                outcome,
                detail,
            };
            tell(&finding);
            findings.push(finding);
        }
    }
    findings
}

impl Agent<'_> {
    fn is_new(&self) -> bool {
        self.session.version == Version::V1
    }

    /// What came of the first message.
    fn answer(&self) -> Ruling<&SendMessageResponse> {
        self.first
            .as_ref()
            .map_err(|error| broken(format!("a plain message: {}", error.message())))
    }

    /// The task of the first message.
    fn task(&self) -> Ruling<&Task> {
        match &self.first {
            Ok(SendMessageResponse::Task(task)) => Ok(task),
            Ok(SendMessageResponse::Message(_)) => {
                Err(moot("the agent answers with messages, not with tasks"))
            }
            Err(_) => Err(moot("a plain message was not answered")),
        }
    }

    /// The same, if it has ended.
    fn ended(&self) -> Ruling<&Task> {
        let task = self.task()?;
        match task.status.state.is_terminal() {
            true => Ok(task),
            false => Err(moot(format!(
                "the task of a plain message has not ended, it is {}",
                task.status.state
            ))),
        }
    }

    /// Sends a message that is made from a plain one.
    async fn send(&self, change: impl FnOnce(&mut Message)) -> Result<SendMessageResponse, Error> {
        let mut message = Message::user("hello again");
        change(&mut message);
        within(
            self.session
                .client
                .send_message(SendMessageRequest::new(message)),
        )
        .await
    }
}

/// A request that does not wait.
fn at_once(message: Message) -> SendMessageRequest {
    let configuration = SendMessageConfiguration {
        return_immediately: true,
        ..SendMessageConfiguration::default()
    };
    SendMessageRequest {
        configuration: Some(configuration),
        ..SendMessageRequest::new(message)
    }
}

fn nobody() -> TaskId {
    NOBODY.into()
}

async fn within<T>(call: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
    let answer = tokio::time::timeout(CHECK_TIMEOUT, call).await;
    answer.unwrap_or_else(|_| Err(ErrorKind::DeadlineExceeded.into()))
}

fn broken(why: impl Into<String>) -> Stop {
    Stop::Broken(why.into())
}

fn moot(why: impl Into<String>) -> Stop {
    Stop::Moot(why.into())
}

/// What was answered, if it was.
fn fine<T>(answer: Result<T, Error>) -> Ruling<T> {
    answer.map_err(|error| broken(error.message().to_owned()))
}

/// The rule holds, or this is why not.
fn holds(holds: bool, why: impl FnOnce() -> String) -> Ruling {
    if holds { Ok(()) } else { Err(broken(why())) }
}

/// It was refused, with one of these.
fn refused<T>(answer: Result<T, Error>, with: &[ErrorKind]) -> Ruling {
    match answer {
        Err(error) if with.contains(&error.kind()) => Ok(()),
        Err(error) => Err(broken(format!(
            "refused with {:?}: {}",
            error.kind(),
            error.message()
        ))),
        Ok(_) => Err(broken("not refused")),
    }
}
