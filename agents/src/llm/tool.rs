//! What a model may call.

use std::sync::Arc;

use attache::Http as Door;
use attache::Turn;
use attache::model::{Artifact, Part, Secret};
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderName, HeaderValue, Request, Uri};
use serde_json::{Map, Value, json};
use tokio::time::timeout;

use super::delegate::Delegate;
use super::fence::clean;
use super::settings::ToolSettings;
use super::steps::Step;
#[cfg(unix)]
use crate::command::{Command, CommandSettings, Words};
use crate::mcp::{CallFailed, Heard, Link, Listed, Standing, read};
use crate::model::Call;
use crate::onward;

/// How much is passed on of what a tool says about how it goes.
const MAX_PROGRESS: usize = 1 << 10;

/// A tool, ready to be called.
#[derive(Debug)]
pub(super) struct Tool {
    pub(super) name: String,
    pub(super) settings: ToolSettings,
    pub(super) way: Way,
}

/// How a tool is called.
#[derive(Debug)]
pub(super) enum Way {
    #[cfg(unix)]
    Command(Box<Command>),
    Http(Box<Place>),
    Agent(Box<Delegate>),
    Client,
    Mcp(Distant),
}

/// A tool of an MCP server.
#[derive(Debug)]
pub(super) struct Distant {
    pub(super) link: Arc<Link>,
    pub(super) listed: Arc<Listed>,
}

/// Where the arguments of calls are posted to.
#[derive(Debug)]
pub(super) struct Place {
    url: Uri,
    headers: Vec<(HeaderName, HeaderValue)>,
    door: Door,
}

/// What a call gave: a result, or why there is none, in words for the model.
pub(super) type Given = Result<String, String>;

impl Tool {
    /// What is wrong with a tool, whatever it is.
    pub(super) fn check(name: &str, settings: &ToolSettings) -> Result<(), String> {
        let good = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
        if name.is_empty() || name.len() > 64 || !name.chars().all(good) {
            return Err("the name of a tool has letters, digits, - and _, at most 64".to_owned());
        }
        let ways = [
            !settings.command.is_empty(),
            settings.http.is_some(),
            settings.agent.is_some(),
            settings.client,
            settings.mcp.is_some(),
        ];
        if ways.into_iter().filter(|way| *way).count() != 1 {
            return Err(format!(
                "tool `{name}` must have exactly one of command, http, agent, client and mcp"
            ));
        }
        if settings.client && settings.approval {
            return Err(format!(
                "tool `{name}` is the caller's own, and needs no approval"
            ));
        }
        Ok(())
    }

    /// One that is no MCP server's, and was checked.
    pub(super) fn new(name: &str, settings: ToolSettings) -> Result<Self, String> {
        let way = way(&settings).map_err(|why| format!("tool `{name}`: {why}"))?;
        Ok(Self {
            name: name.to_owned(),
            settings,
            way,
        })
    }

    /// The tool as the model is told of it.
    pub(super) fn offer(&self) -> Value {
        let message = json!({"type": "object", "properties": {"message": {"type": "string"}}, "required": ["message"]});
        let parameters = match (&self.way, self.settings.parameters.is_empty()) {
            (_, false) => Value::Object(self.settings.parameters.clone()),
            (Way::Agent(_), true) => message,
            (_, true) => json!({"type": "object", "properties": {}}),
        };
        let function = json!({"name": self.name, "description": self.settings.description, "parameters": parameters});
        json!({"type": "function", "function": function})
    }

    /// Calls it. Anything but an agent and the caller, who have ways of their own.
    pub(super) async fn call(
        &self,
        turn: &Turn,
        call: &Call,
        arguments: &Map<String, Value>,
    ) -> Given {
        let body = Value::Object(arguments.clone()).to_string();
        let called = async {
            match &self.way {
                #[cfg(unix)]
                Way::Command(command) => command.call(turn, body).await,
                Way::Http(place) => self.post(turn, call, body, place).await,
                Way::Mcp(distant) => self.ask(turn, call, arguments, distant).await,
                Way::Agent(_) | Way::Client => {
                    Err("this tool cannot be called like that".to_owned())
                }
            }
        };
        match timeout(self.settings.timeout, called).await {
            Ok(given) => self.cleaned(given),
            Err(_) => Err(format!(
                "the tool took longer than {:?}",
                self.settings.timeout
            )),
        }
    }

    /// Whether its server does not offer it any more.
    pub(super) fn is_gone(&self) -> bool {
        matches!(&self.way, Way::Mcp(distant) if distant.listed.standing == Standing::Gone)
    }

    /// Whether its server says something else of it than at first.
    pub(super) fn has_changed(&self) -> bool {
        matches!(&self.way, Way::Mcp(distant) if distant.listed.standing == Standing::Changed)
    }

    pub(super) fn cleaned(&self, given: Given) -> Given {
        let clean = |text: String| clean(&text, self.settings.max_output);
        given.map(clean).map_err(clean)
    }

    /// Asks an MCP server; once more if it has not heard of it, or went away and that does no harm.
    async fn ask(
        &self,
        turn: &Turn,
        call: &Call,
        arguments: &Map<String, Value>,
        distant: &Distant,
    ) -> Given {
        match self.ask_once(turn, call, arguments, distant).await {
            Err(CallFailed::Unheard) => self.ask_once(turn, call, arguments, distant).await,
            Err(CallFailed::Cut) if self.settings.repeat => {
                self.ask_once(turn, call, arguments, distant).await
            }
            asked => asked,
        }
        .unwrap_or_else(|failed| Err(failed.words()))
    }

    async fn ask_once(
        &self,
        turn: &Turn,
        call: &Call,
        arguments: &Map<String, Value>,
        Distant { link, listed }: &Distant,
    ) -> Result<Given, CallFailed> {
        let trace = turn.trace();
        let asked = link
            .ask(
                listed,
                arguments.clone(),
                self.settings.timeout,
                trace.as_ref(),
            )
            .await;
        let mut asked = match asked {
            Ok(asked) => asked,
            Err(absent) => return Ok(Err(absent.words)),
        };
        loop {
            match asked.next().await {
                Heard::Progress(progress) => {
                    let (id, name) = (call.id.clone(), call.name.clone());
                    let text = clean(&progress.words.unwrap_or_default(), MAX_PROGRESS);
                    let (progress, total) = (progress.so_far, progress.total);
                    Step::ToolProgress {
                        id,
                        name,
                        progress,
                        total,
                        text,
                    }
                    .tell(turn)
                    .await;
                }
                Heard::Result(result) => {
                    let has_failed = result.is_error == Some(true);
                    let (text, files) = read(*result);
                    hand_over(turn, call, files).await;
                    return Ok(if has_failed { Err(text) } else { Ok(text) });
                }
                Heard::Failed(failed) => return Err(failed),
            }
        }
    }

    async fn post(&self, turn: &Turn, call: &Call, body: String, place: &Place) -> Given {
        let request = Request::post(place.url.clone())
            .header(CONTENT_TYPE, "application/json")
            .header("user-agent", concat!("attache/", env!("CARGO_PKG_VERSION")))
            .header("idempotency-key", format!("{}:{}", turn.task_id(), call.id));
        let mut request = onward::request(request, turn, self.settings.forward_caller);
        for (name, value) in &place.headers {
            request = request.header(name, value);
        }
        let request = request
            .body(Bytes::from(body))
            .map_err(|_| "the call cannot be sent".to_owned())?;
        let answer = place
            .door
            .send(request)
            .await
            .map_err(|_| "the tool cannot be reached".to_owned())?;
        let status = answer.status();
        // Beyond the limit it would be cut off anyway; this much more is read so that the cut is seen.
        let most = self.settings.max_output.saturating_mul(4).max(4 << 10);
        let body = answer
            .read(most)
            .await
            .map_err(|_| "the tool broke off, or said too much".to_owned())?;
        let text = String::from_utf8_lossy(&body).into_owned();
        if status.is_success() {
            Ok(text)
        } else {
            Err(format!("the tool failed: {status}\n{text}"))
        }
    }
}

/// Files are nothing that a model reads: the caller has them as results.
async fn hand_over(turn: &Turn, call: &Call, files: Vec<Part>) {
    for (at, file) in files.into_iter().enumerate() {
        let name = file.filename().unwrap_or(&call.name).to_owned();
        turn.artifact(Artifact::new(name, file).with_id(format!("{}-{at}", call.id)))
            .await;
    }
}

fn way(settings: &ToolSettings) -> Result<Way, String> {
    if settings.client {
        return Ok(Way::Client);
    }
    if let Some(url) = &settings.agent {
        let delegate = Delegate::new(url, &settings.headers, settings.forward_caller);
        return delegate.map(|delegate| Way::Agent(Box::new(delegate)));
    }
    if let Some(url) = &settings.http {
        let wrong = || "http must begin with http:// or https:// and name a host".to_owned();
        let url: Uri = url.parse().map_err(|_| wrong())?;
        Door::check(&url).map_err(|_| wrong())?;
        let headers = settings
            .headers
            .iter()
            .map(header)
            .collect::<Result<_, _>>()?;
        return Ok(Way::Http(Box::new(Place {
            url,
            headers,
            door: Door::new(),
        })));
    }
    command(settings)
}

#[cfg(unix)]
fn command(settings: &ToolSettings) -> Result<Way, String> {
    let command = CommandSettings {
        command: Words::List(settings.command.clone()),
        timeout: Some(settings.timeout),
        max_output: settings.max_output.saturating_mul(4).max(4 << 10),
        ..CommandSettings::default()
    };
    Command::from_settings(command)
        .map(|command| Way::Command(Box::new(command)))
        .map_err(|why| why.to_string())
}

#[cfg(not(unix))]
fn command(_: &ToolSettings) -> Result<Way, String> {
    Err("commands need a Unix system".to_owned())
}

fn header((name, value): (&String, &Secret)) -> Result<(HeaderName, HeaderValue), String> {
    let sent = HeaderName::try_from(name.as_str())
        .ok()
        .zip(HeaderValue::try_from(value.expose()).ok());
    let (name, mut value) = sent.ok_or_else(|| format!("`{name}` cannot be sent as a header"))?;
    value.set_sensitive(true);
    Ok((name, value))
}
