//! File format of scripts, and its limits.

use std::fmt;

use attache::model::{AgentSkill, Base64, Message};
use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::Value;

use super::fault::Fault;
use super::template::Template;
use super::template_context::TemplateContext;

// Limits of one step.
const MAX_CHUNKS: f64 = 10_000.0;
const MAX_STREAM_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
const MAX_SECONDS: f64 = 3600.0;
const MIN_EVERY: f64 = 0.1;

/// A whole script file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptFile {
    #[serde(rename = "rule")]
    pub(super) rules: Vec<ScriptRule>,
    #[serde(default, rename = "fault")]
    pub(super) faults: Vec<Fault>,
}

/// Rule for messages that begin with certain words.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptRule {
    /// One or more words that the text begins with. Default: any text.
    #[serde(default)]
    word: String,
    /// Part of the text, case-insensitive. Default: any text.
    contains: Option<String>,
    /// Id of the message. Default: any id.
    message_id: Option<String>,
    /// Beginning of the id of the message. Default: any id.
    message_id_prefix: Option<String>,
    /// Name of the skill. Default: the words of the rule.
    name: Option<String>,
    /// Description of the skill and line of the help text.
    about: Option<String>,
    /// Arguments after the words, for the help text.
    #[serde(default)]
    args: String,
    /// Example message of the skill.
    example: Option<String>,
    /// Reply with a message instead of a task.
    pub(super) reply: Option<Template>,
    #[serde(default)]
    pub(super) steps: Vec<ScriptStep>,
    /// Status message when the task is canceled.
    pub(super) canceled: Option<Template>,
}

/// Step of a rule. The last eight end the turn.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum ScriptStep {
    /// Sends a status update with this message.
    Say(Template),
    /// Writes an artifact of text, in one chunk or in several.
    Write(WriteStep),
    /// Writes an artifact of text in many chunks of one size.
    Stream(StreamStep),
    /// Writes an artifact with the parts of the message.
    Echo(EchoStep),
    File(FileStep),
    Data(DataStep),
    /// Waits.
    Wait(WaitStep),
    /// Asks for credentials that arrive out of band; the script continues at once.
    AuthElsewhere(Template),
    /// Asks a question; the script continues with the answer.
    Ask(Template),
    /// Runs the steps of the first branch that matches the message, usually the answer to a question. Then the script
    /// continues behind it, as it does if no branch matches.
    Branch(Vec<ScriptBranch>),
    /// Asks for the result of a client's tool; the script continues with it.
    Tool(ToolStep),
    /// Asks for credentials; the script continues with the next message.
    Auth(Template),
    Complete(Template),
    Reject(Template),
    Fail(Template),
    /// Fails with a message for the log only.
    Error(Template),
    Panic(Template),
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteStep {
    pub(super) name: String,
    pub(super) text: OneOrMany,
}

/// Steps for one kind of answer.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ScriptBranch {
    /// One or more words that the text begins with. Default: any text.
    #[serde(default)]
    word: String,
    /// Part of the text, case-insensitive. Default: any text.
    contains: Option<String>,
    pub(super) steps: Vec<ScriptStep>,
}

impl ScriptBranch {
    pub(super) fn condition(&self) -> TextCondition {
        TextCondition {
            words: self.word.split_whitespace().map(str::to_owned).collect(),
            contains: self.contains.as_ref().map(|text| text.to_lowercase()),
        }
    }
}

/// Condition on the text of a message.
#[derive(Debug)]
pub(super) struct TextCondition {
    words: Vec<String>,
    /// In lower case.
    contains: Option<String>,
}

impl TextCondition {
    pub(super) fn matches(&self, text: &str) -> bool {
        let mut text_words = text.split_whitespace();
        self.words.iter().all(|word| {
            text_words
                .next()
                .is_some_and(|actual| actual.eq_ignore_ascii_case(word))
        }) && self
            .contains
            .as_ref()
            .is_none_or(|wanted| text.to_lowercase().contains(wanted))
    }
}

/// One text, or the texts of several chunks.
#[derive(Debug)]
pub(super) enum OneOrMany {
    One(Template),
    Many(Vec<Template>),
}

impl<'de> Deserialize<'de> for OneOrMany {
    /// Not derived as an untagged enum, whose error hides why a text is invalid.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextVisitor;

        impl<'de> Visitor<'de> for TextVisitor {
            type Value = OneOrMany;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<OneOrMany, E> {
                let template = Template::try_from(text.to_owned()).map_err(E::custom)?;
                Ok(OneOrMany::One(template))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<OneOrMany, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element::<String>()? {
                    texts.push(Template::try_from(text).map_err(A::Error::custom)?);
                }
                Ok(OneOrMany::Many(texts))
            }
        }

        deserializer.deserialize_any(TextVisitor)
    }
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StreamStep {
    pub(super) name: String,
    /// Text of a chunk, repeated to its size.
    pub(super) text: Template,
    pub(super) chunks: Number,
    pub(super) bytes: Number,
    /// Duration of the whole stream.
    #[serde(default)]
    pub(super) seconds: f64,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EchoStep {
    pub(super) name: String,
    /// Kind of parts to echo. Default: all. Without such a part there is no artifact.
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
    /// Content. Exactly one of `text`, `base64` and `url` must be set.
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
    /// Interval of the status updates, in seconds.
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

/// Fixed number, or a word of the message text.
#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(untagged)]
pub(super) enum Number {
    Fixed(f64),
    FromText(WordNumber),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WordNumber {
    word: usize,
    default: f64,
    max: f64,
}

impl Number {
    /// Returns the number for a message. An invalid word counts as missing, and `max` bounds the result.
    pub(super) fn value(self, context: &TemplateContext<'_>) -> f64 {
        match self {
            Self::Fixed(number) => number,
            Self::FromText(WordNumber { word, default, max }) => {
                let number = context.word(word).and_then(|word| word.parse::<f64>().ok());
                number
                    .filter(|number| *number >= 0.0)
                    .unwrap_or(default)
                    .min(max)
            }
        }
    }

    /// Returns the number, rounded down.
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
            Self::FromText(WordNumber { default, max, .. }) => max.max(default),
        }
    }
}

impl ScriptRule {
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.word.split_whitespace()
    }

    /// Returns whether all conditions of the rule match a message.
    pub(super) fn matches(&self, message: &Message, text: &str) -> bool {
        let mut text_words = text.split_whitespace();
        let contains = |wanted: &String| text.to_lowercase().contains(&wanted.to_lowercase());
        self.words().all(|word| {
            text_words
                .next()
                .is_some_and(|actual| actual.eq_ignore_ascii_case(word))
        }) && self.contains.as_ref().is_none_or(contains)
            && self
                .message_id
                .as_ref()
                .is_none_or(|id| message.message_id.as_str() == id)
            && self
                .message_id_prefix
                .as_ref()
                .is_none_or(|prefix| message.message_id.as_str().starts_with(prefix.as_str()))
    }

    /// Returns the line of the help text.
    pub(super) fn help_text(&self) -> Option<String> {
        let about = self.about.as_ref()?;
        let usage = [self.usage(), self.args.as_str()].join(" ");
        Some(format!("{}: {about}", usage.trim_end()))
    }

    /// Returns the words of the rule for the help text.
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

/// Checks the limits of all rules.
///
/// # Errors
/// Names the rule, the step and the limit.
pub(super) fn check(rules: &[ScriptRule]) -> Result<(), String> {
    for (at, rule) in rules.iter().enumerate() {
        let position = format!("rule {} (`{}`)", at + 1, rule.word);
        if rule.reply.is_some() != rule.steps.is_empty() {
            return Err(format!("{position} must have either reply or steps"));
        }
        check_steps(&rule.steps).map_err(|reason| format!("{position}, {reason}"))?;
    }
    Ok(())
}

fn check_steps(steps: &[ScriptStep]) -> Result<(), String> {
    for (step, number) in steps.iter().zip(1..) {
        let at_step = |reason: String| format!("step {number}: {reason}");
        step.check().map_err(at_step)?;
        if let ScriptStep::Branch(branches) = step {
            for (branch, number) in branches.iter().zip(1..) {
                let at_branch = |reason: String| at_step(format!("branch {number}, {reason}"));
                check_steps(&branch.steps).map_err(at_branch)?;
            }
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
                _ => Err("a file must have exactly one of text, base64 and url".to_owned()),
            },
            Self::Branch(branches) if branches.is_empty() => {
                Err("a branch step must have at least one branch".to_owned())
            }
            Self::Branch(_)
            | Self::Say(_)
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

fn check_range(name: &str, number: f64, min: f64, max: f64) -> Result<(), String> {
    // NaN is in no range.
    if (min..=max).contains(&number) {
        return Ok(());
    }
    Err(format!(
        "{name} must lie between {min} and {max}, not {number}"
    ))
}
