//! The rules of a script, as the file has them, and what they may not ask for.

use attache::model::{AgentSkill, Base64, Message};
use serde::Deserialize;
use serde_json::Value;

use super::fault::Fault;
use super::template::Template;
use super::template_context::TemplateContext;

/// What one step may do at most, whatever the file says.
const MAX_CHUNKS: f64 = 10_000.0;
const MAX_STREAM_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
const MAX_SECONDS: f64 = 3600.0;
const MIN_EVERY: f64 = 0.1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptFile {
    #[serde(rename = "rule")]
    pub(super) rules: Vec<ScriptRule>,
    #[serde(default, rename = "fault")]
    pub(super) faults: Vec<Fault>,
}

/// What is done about messages that begin with certain words.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptRule {
    /// The word or words that the text begins with; any text if left out.
    #[serde(default)]
    word: String,
    /// What the text has in it, in any case; anything if left out.
    contains: Option<String>,
    /// The id of the message; any if left out.
    message_id: Option<String>,
    /// What it is called, for people; its words if left out.
    name: Option<String>,
    /// What it does, for people.
    about: Option<String>,
    /// What may follow the words, for people.
    #[serde(default)]
    args: String,
    /// What one might say.
    example: Option<String>,
    /// Answers with a plain message, and makes no task.
    pub(super) reply: Option<Template>,
    #[serde(default)]
    pub(super) steps: Vec<ScriptStep>,
    /// What is said when the task is canceled.
    pub(super) canceled: Option<Template>,
}

/// One thing that a script does. The last eight end the turn.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScriptStep {
    /// The task is working, with this message.
    Say(Template),
    /// An artifact of text, in one piece or in several.
    Write(WriteStep),
    /// An artifact of text in many chunks of one size.
    Stream(StreamStep),
    /// An artifact of the parts that came in.
    Echo(EchoStep),
    File(FileStep),
    Data(DataStep),
    /// Time passes.
    Wait(WaitStep),
    /// Credentials are needed; the script goes on at once.
    AuthElsewhere(Template),
    /// The script goes on with the answer.
    Ask(Template),
    /// The same, with a request that programs understand.
    Tool(ToolStep),
    /// Credentials are needed; the script goes on with the next message.
    Auth(Template),
    Complete(Template),
    Reject(Template),
    Fail(Template),
    /// A fault: the words are for the log.
    Error(Template),
    Panic(Template),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteStep {
    pub(super) name: String,
    pub(super) text: OneOrMany,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
pub(super) enum OneOrMany {
    One(Template),
    Many(Vec<Template>),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamStep {
    pub(super) name: String,
    /// What each chunk says, again and again until it is long enough.
    pub(super) text: Template,
    pub(super) chunks: Number,
    pub(super) bytes: Number,
    /// How long all of it takes.
    #[serde(default)]
    pub(super) seconds: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EchoStep {
    pub(super) name: String,
    /// Which parts; all of them if left out. Without any such part there is no artifact.
    pub(super) only: Option<PartKind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum PartKind {
    Text,
    File,
    Data,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileStep {
    pub(super) name: String,
    pub(super) media_type: String,
    /// One of these three is what it holds.
    pub(super) text: Option<Template>,
    pub(super) base64: Option<Base64>,
    pub(super) url: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct DataStep {
    pub(super) name: String,
    pub(super) value: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WaitStep {
    pub(super) seconds: Number,
    /// Says something after each of these, in seconds.
    pub(super) every: Option<f64>,
    pub(super) say: Option<Template>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ToolStep {
    pub(super) prompt: Template,
    pub(super) name: String,
    #[serde(default)]
    pub(super) input: Value,
    #[serde(default)]
    pub(super) sensitive: bool,
}

/// A number, or the word of the text that holds it.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub(super) enum Number {
    Fixed(f64),
    WordNumber(WordNumber),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WordNumber {
    word: usize,
    default: f64,
    max: f64,
}

impl Number {
    /// The number for this message. A word that is none counts as left out, one that is too large as the largest.
    pub(super) fn value(self, context: &TemplateContext<'_>) -> f64 {
        match self {
            Self::Fixed(number) => number,
            Self::WordNumber(WordNumber { word, default, max }) => {
                let given = context.word(word).and_then(|word| word.parse::<f64>().ok());
                given
                    .filter(|number| *number >= 0.0)
                    .unwrap_or(default)
                    .min(max)
            }
        }
    }

    /// How many; parts of one do not count.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to lie between 0 and MAX_STREAM_BYTES"
    )]
    pub(super) fn count(self, context: &TemplateContext<'_>) -> usize {
        self.value(context) as usize
    }

    fn max_value(self) -> f64 {
        match self {
            Self::Fixed(number) => number,
            Self::WordNumber(WordNumber { default, max, .. }) => max.max(default),
        }
    }
}

impl ScriptRule {
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.word.split_whitespace()
    }

    /// Whether the message is one for this rule: all that it says must fit.
    pub(super) fn matches(&self, message: &Message, text: &str) -> bool {
        let mut context = text.split_whitespace();
        let contains = |wanted: &String| text.to_lowercase().contains(&wanted.to_lowercase());
        self.words().all(|word| {
            context
                .next()
                .is_some_and(|context| context.eq_ignore_ascii_case(word))
        }) && self.contains.as_ref().is_none_or(contains)
            && self
                .message_id
                .as_ref()
                .is_none_or(|id| message.message_id.as_str() == id)
    }

    /// A line about it.
    pub(super) fn help_text(&self) -> Option<String> {
        let about = self.about.as_ref()?;
        let usage = [self.usage(), self.args.as_str()].join(" ");
        Some(format!("{}: {about}", usage.trim_end()))
    }

    /// What one says to have it.
    fn usage(&self) -> &str {
        if self.word.is_empty() {
            "anything else"
        } else {
            &self.word
        }
    }

    pub(super) fn skill(&self) -> Option<AgentSkill> {
        let name = self.name.as_deref().unwrap_or(self.usage());
        let skill =
            AgentSkill::new(name.replace(' ', "-"), name, self.about.as_ref()?).tag("script");
        Some(match &self.example {
            Some(example) => skill.example(example),
            None => skill,
        })
    }
}

/// Checks what the shape of the file cannot say.
pub(super) fn check(rules: &[ScriptRule]) -> Result<(), String> {
    for (at, rule) in rules.iter().enumerate() {
        let position = format!("rule {} (`{}`)", at + 1, rule.word);
        if rule.reply.is_some() != rule.steps.is_empty() {
            return Err(format!("{position} must have either reply or steps"));
        }
        for (step, number) in rule.steps.iter().zip(1..) {
            step.check()
                .map_err(|complaint| format!("{position}, step {number}: {complaint}"))?;
        }
    }
    Ok(())
}

impl ScriptStep {
    fn check(&self) -> Result<(), String> {
        match self {
            Self::Stream(stream) => {
                check_range("chunks", stream.chunks.max_value(), 0.0, MAX_CHUNKS)?;
                check_range("bytes", stream.bytes.max_value(), 0.0, MAX_STREAM_BYTES)?;
                check_range(
                    "chunks times bytes",
                    stream.chunks.max_value() * stream.bytes.max_value(),
                    0.0,
                    MAX_STREAM_BYTES,
                )?;
                check_range("seconds", stream.seconds, 0.0, MAX_SECONDS)
            }
            Self::Wait(wait) => {
                check_range("seconds", wait.seconds.max_value(), 0.0, MAX_SECONDS)?;
                check_range(
                    "every",
                    wait.every.unwrap_or(MIN_EVERY),
                    MIN_EVERY,
                    MAX_SECONDS,
                )
            }
            Self::File(file) => match (&file.text, &file.base64, &file.url) {
                (Some(_), None, None) | (None, Some(_), None) | (None, None, Some(_)) => Ok(()),
                _ => Err("a file has one of text, base64 and url".to_owned()),
            },
            Self::Say(_)
            | Self::Write(_)
            | Self::Echo(_)
            | Self::Data(_)
            | Self::AuthElsewhere(_) => Ok(()),
            Self::Ask(_) | Self::Tool(_) | Self::Auth(_) | Self::Complete(_) | Self::Reject(_) => {
                Ok(())
            }
            Self::Fail(_) | Self::Error(_) | Self::Panic(_) => Ok(()),
        }
    }
}

fn check_range(name: &str, number: f64, least: f64, max_value: f64) -> Result<(), String> {
    // Not the other way round: what is no number is in no range.
    if (least..=max_value).contains(&number) {
        return Ok(());
    }
    Err(format!(
        "{name} must lie between {least} and {max_value}, not {number}"
    ))
}
