//! The rules of a script, as the file has them, and what they may not ask for.

use attache::model::{AgentSkill, Base64, Message};
use serde::Deserialize;
use serde_json::Value;

use super::fault::Fault;
use super::said::Said;
use super::template::Template;

/// What one step may do at most, whatever the file says.
const MAX_CHUNKS: f64 = 10_000.0;
const MAX_STREAM_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
const MAX_SECONDS: f64 = 3600.0;
const MIN_EVERY: f64 = 0.1;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rules {
    #[serde(rename = "rule")]
    pub(super) rules: Vec<Rule>,
    #[serde(default, rename = "fault")]
    pub(super) faults: Vec<Fault>,
}

/// What is done about messages that begin with certain words.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
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
    pub(super) steps: Vec<Step>,
    /// What is said when the task is canceled.
    pub(super) canceled: Option<Template>,
}

/// One thing that a script does. The last eight end the turn.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Step {
    /// The task is working, with this message.
    Say(Template),
    /// An artifact of text, in one piece or in several.
    Write(Write),
    /// An artifact of text in many chunks of one size.
    Stream(Stream),
    /// An artifact of the parts that came in.
    Echo(Echo),
    File(File),
    Data(Data),
    /// Time passes.
    Wait(Wait),
    /// Credentials are needed; the script goes on at once.
    AuthElsewhere(Template),
    /// The script goes on with the answer.
    Ask(Template),
    /// The same, with a request that programs understand.
    Tool(Tool),
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
pub(super) struct Write {
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
pub(super) struct Stream {
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
pub(super) struct Echo {
    pub(super) name: String,
    /// Which parts; all of them if left out. Without any such part there is no artifact.
    pub(super) only: Option<Kind>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Kind {
    Text,
    File,
    Data,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    pub(super) name: String,
    pub(super) media_type: String,
    /// One of these three is what it holds.
    pub(super) text: Option<Template>,
    pub(super) base64: Option<Base64>,
    pub(super) url: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Data {
    pub(super) name: String,
    pub(super) value: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wait {
    pub(super) seconds: Number,
    /// Says something after each of these, in seconds.
    pub(super) every: Option<f64>,
    pub(super) say: Option<Template>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Tool {
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
    Given(Given),
}

#[derive(Debug, Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Given {
    word: usize,
    default: f64,
    max: f64,
}

impl Number {
    /// The number for this message. A word that is none counts as left out, one that is too large as the largest.
    pub(super) fn value(self, said: &Said<'_>) -> f64 {
        match self {
            Self::Fixed(number) => number,
            Self::Given(Given { word, default, max }) => {
                let given = said.word(word).and_then(|word| word.parse::<f64>().ok());
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
    pub(super) fn count(self, said: &Said<'_>) -> usize {
        self.value(said) as usize
    }

    fn most(self) -> f64 {
        match self {
            Self::Fixed(number) => number,
            Self::Given(Given { default, max, .. }) => max.max(default),
        }
    }
}

impl Rule {
    pub(super) fn words(&self) -> impl Iterator<Item = &str> {
        self.word.split_whitespace()
    }

    /// Whether the message is one for this rule: all that it says must fit.
    pub(super) fn fits(&self, message: &Message, text: &str) -> bool {
        let mut said = text.split_whitespace();
        let contains = |wanted: &String| text.to_lowercase().contains(&wanted.to_lowercase());
        self.words().all(|word| {
            said.next()
                .is_some_and(|said| said.eq_ignore_ascii_case(word))
        }) && self.contains.as_ref().is_none_or(contains)
            && self
                .message_id
                .as_ref()
                .is_none_or(|id| message.message_id.as_str() == id)
    }

    /// A line about it.
    pub(super) fn help(&self) -> Option<String> {
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
pub(super) fn check(rules: &[Rule]) -> Result<(), String> {
    for (at, rule) in rules.iter().enumerate() {
        let place = format!("rule {} (`{}`)", at + 1, rule.word);
        if rule.reply.is_some() != rule.steps.is_empty() {
            return Err(format!("{place} must have either reply or steps"));
        }
        for (step, number) in rule.steps.iter().zip(1..) {
            step.check()
                .map_err(|complaint| format!("{place}, step {number}: {complaint}"))?;
        }
    }
    Ok(())
}

impl Step {
    fn check(&self) -> Result<(), String> {
        match self {
            Self::Stream(stream) => {
                within("chunks", stream.chunks.most(), 0.0, MAX_CHUNKS)?;
                within("bytes", stream.bytes.most(), 0.0, MAX_STREAM_BYTES)?;
                within(
                    "chunks times bytes",
                    stream.chunks.most() * stream.bytes.most(),
                    0.0,
                    MAX_STREAM_BYTES,
                )?;
                within("seconds", stream.seconds, 0.0, MAX_SECONDS)
            }
            Self::Wait(wait) => {
                within("seconds", wait.seconds.most(), 0.0, MAX_SECONDS)?;
                within(
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

fn within(name: &str, number: f64, least: f64, most: f64) -> Result<(), String> {
    // Not the other way round: what is no number is in no range.
    if (least..=most).contains(&number) {
        return Ok(());
    }
    Err(format!(
        "{name} must lie between {least} and {most}, not {number}"
    ))
}
