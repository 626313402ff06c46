//! MCP servers: their tools for models, and an agent whose skills they are.

mod arguments;
mod asked;
mod catalog;
#[cfg(unix)]
mod child;
mod door;
mod given;
mod link;
mod settings;
mod wish;

use std::fmt;

use attache::model::{AgentSkill, Artifact, Message, Part, Role};
use attache::{Agent, Failure, Outcome, Turn};
use rmcp::model::{CallToolResult, ErrorCode};
use serde_json::{Map, Value, json};

use crate::llm::clean;
use crate::router::SKILL;
use arguments::Wrong;
pub(crate) use asked::{CallFailed, Heard, Progress};
pub(crate) use catalog::{Catalog, Listed, Standing};
pub(crate) use given::read;
pub(crate) use link::Link;
pub use settings::{McpServerSettings, McpSettings};
use wish::Wish;

/// How much is passed on of what a tool says about how it goes, or why it failed.
const MAX_WORDS: usize = 4 << 10;

/// Offers the tools of an MCP server as skills, without a model.
///
/// A skill is called by a data part, `{"skill": "add", "arguments": {"a": 1}}`, or by a text: its name, then its
/// arguments as JSON, or nothing. What the tool gives is a result of the skill's name; what it says about how it goes
/// are status updates.
///
/// ```
/// use attache_agents::{Mcp, McpServerSettings, McpSettings};
/// let server = McpServerSettings { command: vec!["mcp-server-time".to_owned()], ..Default::default() };
/// let agent = Mcp::new(McpSettings { server, ..McpSettings::default() })?;
/// # Ok::<(), attache_agents::BadMcp>(())
/// ```
#[derive(Debug)]
pub struct Mcp {
    link: Link,
    settings: McpSettings,
}

/// Settings that no such agent can have. Says which, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadMcp {
    /// The key at fault.
    pub key: &'static str,
    why: String,
}

impl Mcp {
    /// An agent before a server, which need not be there yet.
    ///
    /// # Errors
    /// The server has not exactly one of a command and a url, or a header of it cannot be sent.
    pub fn new(settings: McpSettings) -> Result<Self, BadMcp> {
        let link =
            Link::new(settings.server.clone()).map_err(|why| BadMcp { key: "server", why })?;
        Ok(Self { link, settings })
    }

    /// What the server can do, for the card. Connects it.
    ///
    /// # Errors
    /// Why the server is not there, in words.
    pub async fn skills(&self) -> Result<Vec<AgentSkill>, String> {
        let catalog = self.link.catalog().await.map_err(|absent| absent.words)?;
        Ok(catalog.tools.iter().map(|tool| skill(tool)).collect())
    }

    /// Why a message may not call this skill, as far as that depends on what it names: whoever says who may use a skill has read
    /// that and nothing else.
    fn misnamed(&self, message: &Message, skill: &str) -> Option<String> {
        let named = message
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.get(SKILL));
        match named.map(|named| named.read::<String>()) {
            Some(Ok(named)) if named == skill => None,
            None if !self.settings.named_skills => None,
            _ => Some(format!(
                "name the skill that is called in metadata.{SKILL} too: {}",
                clean(skill, 128)
            )),
        }
    }

    /// Calls a tool; once more if the server has not heard of it.
    async fn call(&self, turn: &Turn, tool: &Listed, arguments: Map<String, Value>) -> Outcome {
        let called = match self.call_once(turn, tool, arguments.clone()).await {
            Err(CallFailed::Unheard) => self.call_once(turn, tool, arguments).await,
            called => called,
        };
        called.unwrap_or_else(|failed| match failed {
            CallFailed::Refused(error) if error.code == ErrorCode::INVALID_PARAMS => {
                Outcome::rejected(CallFailed::Refused(error).words())
            }
            failed => Outcome::failed(failed.words()),
        })
    }

    async fn call_once(
        &self,
        turn: &Turn,
        tool: &Listed,
        arguments: Map<String, Value>,
    ) -> Result<Outcome, CallFailed> {
        let trace = turn.trace();
        let mut asked = match self
            .link
            .ask(tool, arguments, self.settings.timeout, trace.as_ref())
            .await
        {
            Ok(asked) => asked,
            Err(absent) => return Ok(Outcome::failed(absent.words)),
        };
        loop {
            match asked.next().await {
                Heard::Progress(progress) => turn.say_message(told(&tool.name, progress)).await,
                Heard::Result(result) => return Ok(self.ended(turn, tool, *result).await),
                Heard::Failed(failed) => return Err(failed),
            }
        }
    }

    async fn ended(&self, turn: &Turn, tool: &Listed, result: CallToolResult) -> Outcome {
        let has_failed = result.is_error == Some(true);
        let mut parts = given::parts(result);
        if has_failed {
            let words: Vec<_> = parts.iter().filter_map(Part::as_text).collect();
            let words = clean(&words.join("\n"), MAX_WORDS);
            return Outcome::failed(if words.is_empty() {
                "the tool failed".to_owned()
            } else {
                words
            });
        }
        if parts.is_empty() {
            parts.push(Part::text(""));
        }
        turn.artifact(Artifact {
            name: Some(tool.name.clone()),
            parts,
            ..Artifact::default()
        })
        .await;
        Outcome::Completed
    }
}

impl Agent for Mcp {
    async fn run(&self, turn: Turn) -> Result<Outcome, Failure> {
        let catalog = match self.link.catalog().await {
            Ok(catalog) => catalog,
            Err(absent) => return Ok(Outcome::failed(absent.words)),
        };
        let wish = match Wish::of(turn.message()) {
            Ok(wish) => wish,
            Err(why) => {
                return Ok(Outcome::rejected(format!(
                    "{why}; there are: {}",
                    names(&catalog)
                )));
            }
        };
        if let Some(why) = self.misnamed(turn.message(), &wish.skill) {
            return Ok(Outcome::rejected(why));
        }
        let Some(tool) = catalog.tool(&wish.skill) else {
            let skill = clean(&wish.skill, 128);
            return Ok(Outcome::rejected(format!(
                "there is no skill `{skill}`; there are: {}",
                names(&catalog)
            )));
        };
        match tool.standing {
            Standing::Same => {}
            Standing::Gone => return Ok(Outcome::failed(gone(&tool.name))),
            Standing::Changed => {
                let why =
                    "says something else of itself than when it was agreed to, and is not called";
                return Ok(Outcome::failed(format!("the tool `{}` {why}", tool.name)));
            }
        }
        if let Err(wrong) = arguments::check(&wish.arguments, &tool.schema) {
            return Ok(Outcome::Rejected(misfit(&wrong)));
        }
        Ok(self.call(&turn, tool, wish.arguments).await)
    }

    /// What a tool does to the world cannot be done twice.
    fn durable_start(&self) -> bool {
        true
    }
}

/// Why a tool that there was cannot be called.
pub(crate) fn gone(tool: &str) -> String {
    format!("the tool `{tool}` is gone: its MCP server does not offer it any more")
}

fn names(catalog: &Catalog) -> String {
    let there = catalog
        .tools
        .iter()
        .filter(|tool| tool.standing == Standing::Same);
    there
        .map(|tool| tool.name.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

fn skill(tool: &Listed) -> AgentSkill {
    let required = tool
        .schema
        .get("required")
        .and_then(Value::as_array)
        .into_iter()
        .flatten();
    let kind = |name: &str| {
        tool.schema
            .get("properties")?
            .get(name)?
            .get("type")?
            .as_str()
    };
    let example = required
        .filter_map(Value::as_str)
        .map(|name| (name.to_owned(), json!(kind(name).unwrap_or("value"))));
    let example: Map<_, _> = example.collect();
    let example = match example.is_empty() {
        true => tool.name.clone(),
        false => format!("{} {}", tool.name, Value::Object(example)),
    };
    AgentSkill::new(&tool.name, &tool.name, &tool.description)
        .tag("mcp")
        .example(example)
}

fn told(tool: &str, progress: Progress) -> Message {
    let Progress {
        so_far,
        total,
        words,
    } = progress;
    let data = json!({"type": "tool-progress", "name": tool, "progress": so_far, "total": total});
    let words = words.map(|words| Part::text(clean(&words, MAX_WORDS)));
    Message {
        role: Role::Agent,
        parts: words.into_iter().chain([Part::data(data)]).collect(),
        ..Message::default()
    }
}

fn misfit(wrong: &Wrong) -> Message {
    let Wrong { field, why } = wrong;
    let data = json!({"type": "invalid-arguments", "field": field, "reason": why});
    Message::agent(format!("`{field}` {why}")).part(Part::data(data))
}

impl fmt::Display for BadMcp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

impl std::error::Error for BadMcp {}
