//! The calls that a model has asked for and that have no result yet.

use std::collections::HashMap;

use attache::Turn;
use attache::model::{Content, Message, TaskId};
use serde_json::{Map, Value};
use tokio::task::JoinSet;
use tracing::{Instrument, Span};

use super::ask::{Ask, consent, fits, result};
use super::delegate::{Came, Errand};
use super::kit::Kit;
use super::spans;
use super::steps::{Happened, Step};
use super::tool::{Given, Tool, Way};
use crate::lineage::{Budget, Cost, Leave};
use crate::model::Call;

/// A call without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) call: Call,
    pub(super) started: bool,
    pub(super) task: Option<TaskId>,
    /// For whom it was signed that the task is.
    pub(super) caller: Option<String>,
    /// How often something was sent to whoever works on it.
    pub(super) sent: usize,
}

/// What is to be done about an open call.
enum Next {
    Run,
    Errand(Errand),
    Ask(Ask),
    Result(Given),
}

/// The calls of the last step that have no result yet, and what the caller has said that no step has taken up.
pub(super) fn open(happened: &[Happened]) -> (Vec<Open>, Option<&Message>) {
    let mut open: Vec<Open> = Vec::new();
    let mut answer = None;
    for one in happened {
        match one {
            Happened::Heard(message) => answer = Some(message),
            Happened::Did(step) => {
                answer = None;
                match step {
                    Step::ToolCalls { calls, .. } => {
                        let calls = calls.iter().cloned();
                        open = calls
                            .map(|call| Open {
                                call,
                                started: false,
                                task: None,
                                caller: None,
                                sent: 0,
                            })
                            .collect();
                    }
                    Step::ToolStarted { id, .. } => {
                        open.iter_mut()
                            .filter(|open| open.call.id == *id)
                            .for_each(|open| open.started = true);
                    }
                    Step::Delegated { id, task, caller } => {
                        for known in open.iter_mut().filter(|open| open.call.id == *id) {
                            (known.task, known.caller) = (Some(task.clone()), caller.clone());
                            known.sent += 1;
                        }
                    }
                    Step::ToolResult { id, .. } => open.retain(|open| open.call.id != *id),
                    Step::Reasoning { .. } | Step::ToolProgress { .. } | Step::Spent { .. } => {}
                }
            }
        }
    }
    (open, answer)
}

/// Works on open calls, at the same time where they do not need the caller.
pub(super) struct Calls<'a> {
    pub(super) turn: &'a Turn,
    pub(super) kit: &'a Kit,
    pub(super) leave: Leave,
}

impl Calls<'_> {
    /// Gives results to all of them, or what the caller must be asked first.
    pub(super) async fn settle(
        &self,
        open: Vec<Open>,
        mut answer: Option<&Message>,
        happened: &mut Vec<Happened>,
    ) -> Option<Ask> {
        let mut asks = Vec::new();
        let mut running = JoinSet::new();
        let mut ids = HashMap::new();
        for (at, open) in open.into_iter().enumerate() {
            let Some(tool) = self.kit.tool(&open.call.name).cloned() else {
                let names: Vec<_> = self.kit.0.iter().map(|tool| tool.name.as_str()).collect();
                let why = format!(
                    "there is no tool of that name; there are: {}",
                    names.join(", ")
                );
                self.record(&open.call, Err(why), happened).await;
                continue;
            };
            let arguments = match arguments(&open.call) {
                Ok(arguments) => arguments,
                Err(why) => {
                    self.record(&open.call, Err(why), happened).await;
                    continue;
                }
            };
            match self.next(&tool, &open, &arguments, &mut answer) {
                Next::Result(given) => {
                    let given = tool.cleaned(given);
                    self.record(&open.call, given, happened).await;
                }
                Next::Ask(ask) => asks.push((at, ask)),
                Next::Run => {
                    self.start(&open.call, happened).await;
                    let (turn, call) = (self.turn.clone(), open.call);
                    let named = call.clone();
                    let span = spans::tool(&call);
                    let called = async move {
                        let given = tool.call(&turn, &call, &arguments).await;
                        spans::given(&Span::current(), &given);
                        (at, call, Ok(given), Cost::default())
                    };
                    let handle = running.spawn(called.instrument(span));
                    ids.insert(handle.id(), named);
                }
                Next::Errand(errand) => {
                    if matches!(errand, Errand::Begin(_)) {
                        self.start(&open.call, happened).await;
                    }
                    // Whoever works on it has asked so often, if it asks again.
                    let asked = open.sent + usize::from(!matches!(errand, Errand::Follow(_)));
                    let (turn, call, leave) = (self.turn.clone(), open.call, self.leave.clone());
                    let named = call.clone();
                    let span = spans::tool(&call);
                    let gone = async move {
                        let (came, cost) =
                            errand_of(&tool, &turn, &call, (errand, asked), leave).await;
                        if let Ok(given) = &came {
                            spans::given(&Span::current(), given);
                        }
                        (at, call, came, cost)
                    };
                    let handle = running.spawn(gone.instrument(span));
                    ids.insert(handle.id(), named);
                }
            }
        }
        while let Some(ended) = running.join_next().await {
            match ended {
                Ok((_, call, Ok(given), cost)) => {
                    self.spent(&call, cost, happened).await;
                    self.record(&call, given, happened).await;
                }
                // What it costs in all is known when it ends.
                Ok((at, _, Err(ask), _)) => asks.push((at, ask)),
                Err(error) => {
                    tracing::error!(%error, task = %self.turn.task_id(), "a tool panicked");
                    if let Some(call) = ids.remove(&error.id()) {
                        self.record(&call, Err("the tool failed".to_owned()), happened)
                            .await;
                    }
                }
            }
        }
        asks.sort_by_key(|(at, _)| *at);
        asks.into_iter().next().map(|(_, ask)| ask)
    }

    fn next(
        &self,
        tool: &Tool,
        open: &Open,
        arguments: &Map<String, Value>,
        answer: &mut Option<&Message>,
    ) -> Next {
        let call = &open.call;
        let caller = self.turn.caller().name();
        if !tool.settings.callers.is_empty()
            && !tool.settings.callers.iter().any(|name| name == caller)
        {
            // Our rights are not those of everybody who asks us.
            return Next::Result(Err(
                "refused: this tool may not be called for whoever asks".to_owned()
            ));
        }
        if let (Some(task), Way::Agent(_)) = (&open.task, &tool.way) {
            return Next::Errand(match answer.take() {
                Some(_) if self.turn.timed_out() => {
                    return Next::Result(Err("nobody answered in time".to_owned()));
                }
                Some(answer) => Errand::Answer(task.clone(), Box::new(answer.clone())),
                None => Errand::Follow(task.clone()),
            });
        }
        if open.started && !tool.settings.repeat {
            let why = "the call was cut off by a restart; whether it had an effect is not known";
            return Next::Result(Err(why.to_owned()));
        }
        let must_ask = tool.settings.approval && !open.started;
        if must_ask || matches!(tool.way, Way::Client) {
            let ask = || {
                if must_ask {
                    Ask::approval(call, tool.has_changed())
                } else {
                    Ask::tool(call)
                }
            };
            let Some(answer) = answer.take_if(|answer| fits(answer, &call.id)) else {
                return Next::Ask(ask());
            };
            if self.turn.timed_out() {
                return Next::Result(Err("nobody answered in time".to_owned()));
            }
            if !must_ask {
                return Next::Result(result(answer, &call.id));
            }
            if let Err(said) = consent(answer, &call.id) {
                return Next::Result(Err(format!("the user did not agree to this call: {said}")));
            }
        }
        match &tool.way {
            Way::Agent(_) => Next::Errand(Errand::Begin(task_of(arguments))),
            _ => Next::Run,
        }
    }

    async fn start(&self, call: &Call, happened: &mut Vec<Happened>) {
        let step = Step::ToolStarted {
            id: call.id.clone(),
            name: call.name.clone(),
        };
        step.tell(self.turn).await;
        happened.push(Happened::Did(step));
    }

    async fn spent(&self, call: &Call, cost: Cost, happened: &mut Vec<Happened>) {
        if cost != Cost::default() {
            let step = Step::Spent {
                id: call.id.clone(),
                cost,
            };
            step.tell(self.turn).await;
            happened.push(Happened::Did(step));
        }
    }

    async fn record(&self, call: &Call, given: Given, happened: &mut Vec<Happened>) {
        let failed = given.is_err();
        let result = given.unwrap_or_else(|why| format!("error: {why}"));
        let step = Step::ToolResult {
            id: call.id.clone(),
            name: call.name.clone(),
            result,
            failed,
        };
        step.tell(self.turn).await;
        happened.push(Happened::Did(step));
    }
}

async fn errand_of(
    tool: &Tool,
    turn: &Turn,
    call: &Call,
    (errand, asked): (Errand, usize),
    mut leave: Leave,
) -> (Result<Given, Ask>, Cost) {
    let without = |why: String| (Ok(tool.cleaned(Err(why))), Cost::default());
    let Way::Agent(delegate) = &tool.way else {
        return without("this tool is no agent".to_owned());
    };
    let limit = tool.settings.timeout;
    leave.left = leave.left.within(Budget {
        time: Some(limit),
        ..Budget::default()
    });
    let Ok(came) = tokio::time::timeout(limit, delegate.run(turn, &call.id, errand, &leave)).await
    else {
        delegate.was_late();
        return without(format!("the agent took longer than {limit:?}"));
    };
    match came {
        Ok((Came::Done(text), cost)) => (Ok(tool.cleaned(Ok(text))), cost),
        Ok((Came::Failed(why), cost)) => (Ok(tool.cleaned(Err(why))), cost),
        Ok((Came::Asks { task, .. }, cost)) if asked > tool.settings.max_questions => {
            let most = tool.settings.max_questions;
            if let Err(why) = delegate.cancel(&task, delegate.caller(turn)).await {
                tracing::debug!(task = %turn.task_id(), why, "the other agent did not cancel");
            }
            let why = format!(
                "the agent asks more than {most} questions (max_questions), and was stopped"
            );
            (Ok(tool.cleaned(Err(why))), cost)
        }
        Ok((
            Came::Asks {
                words, needs_auth, ..
            },
            cost,
        )) => {
            let words = super::fence::clean(&words, tool.settings.max_output);
            (Err(Ask::child(call, &words, needs_auth)), cost)
        }
        Err(why) => without(why),
    }
}

/// What another agent is told: the `message`, or all arguments if there is none.
fn task_of(arguments: &Map<String, Value>) -> String {
    let message = arguments
        .get("message")
        .and_then(Value::as_str)
        .filter(|_| arguments.len() == 1);
    message.map_or_else(
        || Value::Object(arguments.clone()).to_string(),
        str::to_owned,
    )
}

fn arguments(call: &Call) -> Result<Map<String, Value>, String> {
    if call.arguments.trim().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_str(&call.arguments)
        .map_err(|_| "the arguments of a call must be a JSON object".to_owned())
}

/// The data of a part of a kind of its own, by that kind.
pub(super) fn data_of_kind<'a>(
    message: &'a Message,
    kind: &str,
) -> impl Iterator<Item = Value> + 'a {
    let kind = Value::from(kind).to_string();
    message.parts.iter().filter_map(move |part| {
        let told = part.metadata().and_then(|metadata| metadata.get("kind"));
        match &part.content {
            Content::Data(data) if told.is_some_and(|told| told.get() == kind) => data.read().ok(),
            _ => None,
        }
    })
}
