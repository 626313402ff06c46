//! Execution of the steps of a rule.

use std::ops::ControlFlow::{self, Break, Continue};
use std::time::Duration;

use attache::model::{Artifact, Content, Json, Message, Part};
use attache::{Failure, Outcome, Question, Turn};
use serde_json::json;
use tokio::time::{Instant, sleep, sleep_until};

use super::program::{Instruction, next_position};
use super::rules::{
    DataStep, EchoStep, FileStep, OneOrMany, PartKind, ScriptStep, StreamStep, ToolStep, WaitStep,
    WriteStep,
};
use super::template::Template;
use super::template_context::TemplateContext;
use super::{POSITION_KEY, ScriptPosition};

/// Executes the steps of a rule for one turn.
pub(super) struct ScriptPlayer<'a> {
    pub(super) turn: &'a Turn,
    pub(super) context: TemplateContext<'a>,
}

impl ScriptPlayer<'_> {
    /// Runs the program of a rule from a position to the first step that ends the turn. Jumps lead forward, so that every
    /// program ends.
    pub(super) async fn run(
        &self,
        program: &[Instruction],
        from: ScriptPosition,
    ) -> Result<Outcome, Failure> {
        let text = self.context.message().text();
        let mut at = from.step;
        while let Some(instruction) = program.get(at) {
            let next = ScriptPosition {
                step: next_position(instruction, &text).unwrap_or(at + 1),
                ..from
            };
            if let Instruction::Step(step) = instruction
                && let Break(outcome) = self.run_step(step, next).await?
            {
                return Ok(outcome);
            }
            at = next.step;
        }
        Ok(Outcome::Completed)
    }

    /// Runs one step. Breaks with the outcome of the turn if the step ends it.
    async fn run_step(
        &self,
        step: &ScriptStep,
        next: ScriptPosition,
    ) -> Result<ControlFlow<Outcome>, Failure> {
        match step {
            ScriptStep::Say(text) => self.turn.say(self.fill(text)).await,
            ScriptStep::Write(write) => self.write(write).await,
            ScriptStep::Stream(stream) => self.stream(stream).await,
            ScriptStep::Echo(echo) => self.echo(echo).await,
            ScriptStep::File(file) => self.file(file).await,
            ScriptStep::Data(data) => self.data(data).await,
            ScriptStep::Wait(wait) => self.wait(wait).await,
            ScriptStep::AuthElsewhere(text) => self.turn.require_auth(self.fill(text)).await,
            // Programs have branch instructions instead.
            ScriptStep::Branch(_) => {}
            ScriptStep::Ask(text) => {
                return Ok(Break(Outcome::InputRequired(Question {
                    message: with_position(Message::agent(self.fill(text)), next),
                    request: None,
                })));
            }
            ScriptStep::Tool(tool) => {
                return Ok(Break(Outcome::InputRequired(self.tool(tool, next))));
            }
            ScriptStep::Auth(text) => {
                let message = with_position(Message::agent(self.fill(text)), next);
                return Ok(Break(Outcome::AuthRequired(message)));
            }
            ScriptStep::Complete(text) => {
                let message = Message::agent(self.fill(text));
                return Ok(Break(Outcome::CompletedWith(message)));
            }
            ScriptStep::Reject(text) => return Ok(Break(Outcome::rejected(self.fill(text)))),
            ScriptStep::Fail(text) => return Ok(Break(Outcome::failed(self.fill(text)))),
            ScriptStep::Error(text) => return Err(ScriptedError(self.fill(text)).into()),
            ScriptStep::Panic(text) => panic!("{}", self.fill(text)),
        }
        Ok(Continue(()))
    }

    async fn data(&self, data: &DataStep) {
        let part = Part::data(data.value.clone());
        self.turn
            .add_artifact(Artifact::new(&data.name, part))
            .await;
    }

    fn fill(&self, text: &Template) -> String {
        text.fill(&self.context)
    }

    async fn write(&self, WriteStep { name, text }: &WriteStep) {
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

    async fn stream(&self, stream: &StreamStep) {
        let chunks = stream.chunks.count(&self.context);
        let bytes = stream.bytes.count(&self.context);
        let started_at = Instant::now();
        let mut writer = self.turn.writer(&stream.name);
        for count in 1..=chunks {
            let text = stream.text.fill(&self.context.with_progress(count, chunks));
            writer.write(repeat_to_size(&text, bytes)).await;
            sleep_until(started_at + elapsed_share(stream.seconds, count, chunks)).await;
        }
        writer.finish().await;
    }

    async fn echo(&self, EchoStep { name, only }: &EchoStep) {
        let wanted = |part: &&Part| only.is_none_or(|kind| kind == kind_of(part));
        let parts: Vec<_> = self
            .context
            .message()
            .parts
            .iter()
            .filter(wanted)
            .cloned()
            .collect();
        if !parts.is_empty() {
            self.turn
                .add_artifact(Artifact {
                    name: Some(name.clone()),
                    parts,
                    ..Artifact::default()
                })
                .await;
        }
    }

    async fn file(&self, file: &FileStep) {
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
        self.turn
            .add_artifact(Artifact::new(&file.name, part))
            .await;
    }

    async fn wait(&self, wait: &WaitStep) {
        let total = seconds(wait.seconds.value(&self.context));
        let every = wait.every.map_or(total, seconds);
        let started_at = Instant::now();
        loop {
            let remaining = total.saturating_sub(started_at.elapsed());
            sleep(remaining.min(every)).await;
            if started_at.elapsed() >= total {
                return;
            }
            if let Some(text) = &wait.say {
                let context = self
                    .context
                    .with_progress(started_at.elapsed().as_secs(), total.as_secs());
                self.turn.say(text.fill(&context)).await;
            }
        }
    }

    /// Returns a question that a tool of the client answers, as a data part and as an input request.
    fn tool(&self, tool: &ToolStep, next: ScriptPosition) -> Question {
        let prompt = self.fill(&tool.prompt);
        let message = Message::agent(prompt.as_str());
        // The answer must name the request, and the message id is unique already.
        let id = message.message_id.to_string();
        let used = json!({"toolUseId": id, "name": tool.name, "input": tool.input});
        let kind = [("kind", Json::from("tool-use"))].into_iter().collect();
        let message = with_position(message.part(Part::data(used).with_metadata(kind)), next);
        let request = json!({"kind": "input-request", "prompt": prompt, "sensitive": tool.sensitive, "requestId": id});
        Question {
            message,
            request: Some(request.into()),
        }
    }
}

/// Failure requested by an `error` step. The message is for the log.
#[derive(Debug)]
struct ScriptedError(String);

impl std::fmt::Display for ScriptedError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ScriptedError {}

/// Stores the position to continue at in the metadata of a message.
fn with_position(mut message: Message, next: ScriptPosition) -> Message {
    let position = json!({"rule": next.rule, "step": next.step});
    message
        .metadata
        .get_or_insert_default()
        .insert(POSITION_KEY, position);
    message
}

fn kind_of(part: &Part) -> PartKind {
    match part.content {
        Content::Text(_) => PartKind::Text,
        Content::Raw(_) | Content::Url(_) => PartKind::File,
        Content::Data(_) => PartKind::Data,
    }
}

/// Repeats a text up to a size in bytes, and truncates it at a character boundary.
fn repeat_to_size(text: &str, bytes: usize) -> String {
    let text = if text.is_empty() { "." } else { text };
    let mut sized = text.repeat(bytes.div_ceil(text.len()));
    sized.truncate(sized.floor_char_boundary(bytes));
    sized
}

/// Returns the time after which chunk `count` of `all` is due.
fn elapsed_share(all_seconds: f64, count: usize, all: usize) -> Duration {
    #[expect(
        clippy::cast_precision_loss,
        reason = "the numbers of chunks are small"
    )]
    seconds(all_seconds * count as f64 / all as f64)
}

/// Converts a number that was checked when the script was parsed; an invalid one is 0.
fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
