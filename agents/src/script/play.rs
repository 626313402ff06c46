//! Plays the steps of a rule.

use std::time::Duration;

use attache::model::{Artifact, Content, Json, Message, Part};
use attache::{Failure, Outcome, Question, Turn};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::rules::{Data, Echo, File, Kind, OneOrMany, Rule, Step, Stream, Tool, Wait, Write};
use super::said::Said;
use super::template::Template;
use super::{PLACE, Place};

/// A turn, and what its caller said.
pub(super) struct Scene<'a> {
    pub(super) turn: &'a Turn,
    pub(super) said: Said<'a>,
}

impl Scene<'_> {
    /// Plays a rule from a place on, to the first step that ends the turn.
    pub(super) async fn play(&self, rule: &Rule, from: Place) -> Result<Outcome, Failure> {
        for (at, step) in rule.steps.iter().enumerate().skip(from.step) {
            let next = Place {
                step: at + 1,
                ..from
            };
            if let Some(outcome) = self.step(step, next).await? {
                return Ok(outcome);
            }
        }
        Ok(Outcome::Completed)
    }

    async fn step(&self, step: &Step, next: Place) -> Result<Option<Outcome>, Failure> {
        match step {
            Step::Say(text) => self.turn.say(self.fill(text)).await,
            Step::Write(write) => self.write(write).await,
            Step::Stream(stream) => self.stream(stream).await,
            Step::Echo(echo) => self.echo(echo).await,
            Step::File(file) => self.file(file).await,
            Step::Data(Data { name, value }) => {
                self.turn
                    .artifact(Artifact::new(name, Part::data(value.clone())))
                    .await;
            }
            Step::Wait(wait) => self.wait(wait).await,
            Step::AuthElsewhere(text) => self.turn.auth_required(self.fill(text)).await,
            Step::Ask(text) => {
                let message = marked(Message::agent(self.fill(text)), next);
                return Ok(Some(Outcome::InputRequired(Question {
                    message,
                    request: None,
                })));
            }
            Step::Tool(tool) => return Ok(Some(Outcome::InputRequired(self.tool(tool, next)))),
            Step::Auth(text) => {
                return Ok(Some(Outcome::AuthRequired(marked(
                    Message::agent(self.fill(text)),
                    next,
                ))));
            }
            Step::Complete(text) => {
                return Ok(Some(Outcome::CompletedWith(Message::agent(
                    self.fill(text),
                ))));
            }
            Step::Reject(text) => return Ok(Some(Outcome::rejected(self.fill(text)))),
            Step::Fail(text) => return Ok(Some(Outcome::failed(self.fill(text)))),
            Step::Error(text) => return Err(Scripted(self.fill(text)).into()),
            Step::Panic(text) => panic!("{}", self.fill(text)),
        }
        Ok(None)
    }

    fn fill(&self, text: &Template) -> String {
        text.fill(&self.said)
    }

    async fn write(&self, Write { name, text }: &Write) {
        match text {
            OneOrMany::One(text) => self.turn.write(name, self.fill(text)).await,
            OneOrMany::Many(pieces) => {
                let mut writer = self.turn.writer(name);
                for piece in pieces {
                    writer.write(self.fill(piece)).await;
                }
                writer.finish().await;
            }
        }
    }

    async fn stream(&self, stream: &Stream) {
        let (chunks, bytes) = (
            stream.chunks.count(&self.said),
            stream.bytes.count(&self.said),
        );
        let begun = Instant::now();
        let mut writer = self.turn.writer(&stream.name);
        for count in 1..=chunks {
            let text = stream.text.fill(&self.said.at(count, chunks));
            writer.write(sized(&text, bytes)).await;
            sleep_until(begun + share(stream.seconds, count, chunks)).await;
        }
        writer.finish().await;
    }

    async fn echo(&self, Echo { name, only }: &Echo) {
        let wanted = |part: &&Part| only.is_none_or(|kind| kind == kind_of(part));
        let parts: Vec<_> = self
            .said
            .message()
            .parts
            .iter()
            .filter(wanted)
            .cloned()
            .collect();
        if !parts.is_empty() {
            self.turn
                .artifact(Artifact {
                    name: Some(name.clone()),
                    parts,
                    ..Artifact::default()
                })
                .await;
        }
    }

    async fn file(&self, file: &File) {
        let part = match (&file.base64, &file.url, &file.text) {
            (Some(bytes), ..) => Part::from(Content::Raw(bytes.clone())),
            (_, Some(url), _) => Part::url(url.as_str()),
            (.., text) => Part::file(
                text.as_ref()
                    .map(|text| self.fill(text))
                    .unwrap_or_default(),
                "",
            ),
        };
        let part = part
            .with_media_type(&file.media_type)
            .with_filename(&file.name);
        self.turn.artifact(Artifact::new(&file.name, part)).await;
    }

    async fn wait(&self, wait: &Wait) {
        let total = seconds(wait.seconds.value(&self.said));
        let every = wait.every.map_or(total, seconds);
        let begun = Instant::now();
        loop {
            let left = total.saturating_sub(begun.elapsed());
            sleep(left.min(every)).await;
            if begun.elapsed() >= total {
                return;
            }
            if let Some(text) = &wait.say {
                let said = self.said.at(begun.elapsed().as_secs(), total.as_secs());
                self.turn.say(text.fill(&said)).await;
            }
        }
    }

    /// A question that a tool of the client can answer: as a part, and as the request that goes with it.
    fn tool(&self, tool: &Tool, next: Place) -> Question {
        let prompt = self.fill(&tool.prompt);
        let message = Message::agent(prompt.as_str());
        // The answer names the request; an id that is new anyway will do.
        let id = message.message_id.to_string();
        let used = json!({"toolUseId": id, "name": tool.name, "input": tool.input});
        let kind = [("kind", Json::from("tool-use"))].into_iter().collect();
        let message = marked(message.part(Part::data(used).with_metadata(kind)), next);
        let request = json!({"kind": "input-request", "prompt": prompt, "sensitive": tool.sensitive, "requestId": id});
        Question {
            message,
            request: Some(request.into()),
        }
    }
}

/// A fault that a script asked for.
#[derive(Debug)]
struct Scripted(String);

impl std::fmt::Display for Scripted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Scripted {}

/// A message that remembers where the script goes on.
fn marked(mut message: Message, next: Place) -> Message {
    let place = json!({"rule": next.rule, "step": next.step});
    message
        .metadata
        .get_or_insert_default()
        .insert(PLACE, place);
    message
}

fn kind_of(part: &Part) -> Kind {
    match part.content {
        Content::Text(_) => Kind::Text,
        Content::Raw(_) | Content::Url(_) => Kind::File,
        Content::Data(_) => Kind::Data,
    }
}

/// The text again and again until it has so many bytes, or the most of them that hold whole characters.
fn sized(text: &str, bytes: usize) -> String {
    let text = if text.is_empty() { "." } else { text };
    let mut sized = text.repeat(bytes.div_ceil(text.len()));
    sized.truncate(sized.floor_char_boundary(bytes));
    sized
}

/// How much of the time has passed when `count` of `all` are done.
fn share(all_seconds: f64, count: usize, all: usize) -> Duration {
    #[expect(
        clippy::cast_precision_loss,
        reason = "the numbers of chunks are small"
    )]
    seconds(all_seconds * count as f64 / all as f64)
}

/// A time that was checked when the script was read; what is no time at all counts as none.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
