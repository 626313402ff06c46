//! `attache chat` on a terminal: line editing, commands, questions and approvals.

use attache::model::{
    CancelTaskRequest, INPUT_REQUEST, Message, Part, SendMessageResponse, Task, TaskId,
};

use super::editor::{Input, LineEditor, Prompt};
use super::slash_command::{HELP, SlashCommand};
use super::turn::{self, TurnEnd};
use crate::args::CommonFlags;
use crate::error::CliResult;
use crate::output::Output;
use crate::parts::file_part;
use crate::session::Session;
use crate::settings::{Settings, flags};

const MESSAGE_PROMPT: &str = "› ";
const ANSWER_PROMPT: &str = "answer › ";
const APPROVAL_PROMPT: &str = "approve? [y/n] › ";

/// Next step after a conversation with one agent and one set of flags.
enum NextStep {
    Quit,
    /// Connect again, with these flags.
    Reconnect(CommonFlags),
}

/// A question of the agent.
struct Question {
    task: TaskId,
    wants_approval: bool,
    is_sensitive: bool,
}

/// State of the chat between turns.
struct Conversation {
    context: Option<String>,
    /// The task that waits for the user.
    question: Option<Question>,
    last_task: Option<TaskId>,
    attachments: Vec<Part>,
}

/// Runs the chat until the user ends it.
pub(super) async fn run(mut common: CommonFlags, out: &mut Output) -> CliResult {
    let mut editor: Option<LineEditor> = None;
    let mut conversation: Option<Conversation> = None;
    let mut requested = common.clone();
    loop {
        let settings = Settings::load(&requested)?;
        let session = match Session::open(&settings, out).await {
            Ok(session) => session,
            Err(error) if conversation.is_none() => return Err(error),
            Err(error) => {
                out.print_error(&error);
                requested = common.clone();
                continue;
            }
        };
        let is_new_agent = common.value(&flags::AGENT_CARD) != requested.value(&flags::AGENT_CARD);
        if conversation.is_none() || is_new_agent {
            greet(&session, out);
        }
        if is_new_agent {
            // A context belongs to its agent.
            conversation = None;
        }
        common = requested;
        let conversation = conversation.get_or_insert_with(|| Conversation::new(&settings));
        // Started after the first connection: an error must not change the terminal.
        let editor = match &mut editor {
            Some(editor) => editor,
            none => none.insert(LineEditor::start()?),
        };
        match converse(&session, &common, conversation, editor, out).await? {
            NextStep::Quit => return Ok(()),
            NextStep::Reconnect(next) => requested = next,
        }
    }
}

fn greet(session: &Session<'_>, out: &mut Output) {
    let url = &session.client.interface().url;
    out.note(&format!("{} · {url}", session.card.name));
    out.note("/help lists the commands, Ctrl-C cancels a running turn, Ctrl-D ends the chat");
}

async fn converse(
    session: &Session<'_>,
    common: &CommonFlags,
    conversation: &mut Conversation,
    editor: &mut LineEditor,
    out: &mut Output,
) -> CliResult<NextStep> {
    loop {
        let line = match editor.read(&conversation.prompt()).await? {
            Input::Line(line) => line,
            Input::Interrupted => {
                out.note("Ctrl-D or /quit ends the chat");
                continue;
            }
            Input::End => return Ok(NextStep::Quit),
        };
        if line.trim().is_empty() && conversation.attachments.is_empty() {
            continue;
        }
        let Some(command) = SlashCommand::parse(&line) else {
            conversation.take_turn(&line, session, out).await?;
            continue;
        };
        match command {
            SlashCommand::Quit => return Ok(NextStep::Quit),
            SlashCommand::Agent(Some(reference)) => {
                let mut next = common.clone();
                next.replace(&flags::AGENT_CARD, Some(reference.to_owned()));
                return Ok(NextStep::Reconnect(next));
            }
            SlashCommand::Debug => {
                let is_on = !session.settings.debug;
                let mut next = common.clone();
                next.replace(&flags::DEBUG, Some(is_on.to_string()));
                out.note(if is_on { "debug: on" } else { "debug: off" });
                return Ok(NextStep::Reconnect(next));
            }
            SlashCommand::Help => out.print_line(HELP)?,
            SlashCommand::Agent(None) => {
                greet(session, out);
                out.note(&session.card.description);
            }
            SlashCommand::File(path) => conversation.attach(path, out),
            SlashCommand::Task(id) => conversation.show_task(id, session, out).await?,
            SlashCommand::Cancel(id) => conversation.cancel(id, session, out).await?,
            SlashCommand::Unknown(problem) => out.note(problem),
        }
    }
}

impl Conversation {
    fn new(settings: &Settings) -> Self {
        let task = settings.task_id.as_deref().map(TaskId::from);
        Self {
            context: settings.context_id.clone(),
            question: task.clone().map(|task| Question {
                task,
                wants_approval: false,
                is_sensitive: false,
            }),
            last_task: task,
            attachments: Vec::new(),
        }
    }

    fn prompt(&self) -> Prompt {
        let text = match &self.question {
            Some(question) if question.wants_approval => APPROVAL_PROMPT,
            Some(_) => ANSWER_PROMPT,
            None => MESSAGE_PROMPT,
        };
        Prompt {
            text,
            is_sensitive: self.question.as_ref().is_some_and(|one| one.is_sensitive),
        }
    }

    /// Sends a message with the attached files. An error ends the turn, not the chat.
    async fn take_turn(
        &mut self,
        line: &str,
        session: &Session<'_>,
        out: &mut Output,
    ) -> CliResult {
        let message = self.message(line);
        match turn::run(session, message, out).await {
            Ok(TurnEnd::Answer(SendMessageResponse::Task(task))) => self.remember(&task),
            Ok(TurnEnd::Answer(SendMessageResponse::Message(reply))) => {
                self.context = reply
                    .context_id
                    .map(|id| id.to_string())
                    .or(self.context.take());
                self.question = None;
            }
            Ok(TurnEnd::Left(id)) => {
                self.last_task = id.or(self.last_task.take());
                self.question = None;
            }
            Err(error) if error.is_broken_pipe() => return Err(error),
            Err(error) => {
                out.print_error(&error);
                self.refresh_question(session, out).await;
            }
        }
        Ok(())
    }

    fn message(&mut self, line: &str) -> Message {
        let text = match (line.trim(), &self.question) {
            ("y" | "Y", Some(question)) if question.wants_approval => "yes",
            ("n" | "N", Some(question)) if question.wants_approval => "no",
            _ if line.starts_with("//") => &line[1..],
            _ => line,
        };
        let mut message = Message::user(text);
        if text.trim().is_empty() {
            message.parts.clear();
        }
        message.parts.append(&mut self.attachments);
        message.context_id = self.context.as_deref().map(Into::into);
        message.task_id = self.question.as_ref().map(|question| question.task.clone());
        message
    }

    /// Keeps the ids of a task for the next message.
    fn remember(&mut self, task: &Task) {
        let context = Some(task.context_id.to_string()).filter(|id| !id.is_empty());
        self.context = context.or(self.context.take());
        self.last_task = Some(task.id.clone());
        self.question = Question::of(task);
    }

    /// After a refused answer: drops the question if its task no longer waits.
    async fn refresh_question(&mut self, session: &Session<'_>, out: &mut Output) {
        let Some(question) = &self.question else {
            return;
        };
        match session.task(&question.task, Some(0)).await {
            Ok(task) => self.question = Question::of(&task),
            Err(_) => self.question = None,
        }
        if self.question.is_none() {
            out.note("the next message starts a new task");
        }
    }

    fn attach(&mut self, path: &str, out: &mut Output) {
        match file_part(path, None, &mut |warning| out.warn(&warning)) {
            Ok(part) => {
                self.attachments.push(part);
                let count = self.attachments.len();
                out.note(&format!("attached {path}; {count} in the next message"));
            }
            Err(error) => out.note(&error.message),
        }
    }

    /// The task with this id, else the last one.
    fn task_or_last(&self, id: Option<&str>, out: &mut Output) -> Option<TaskId> {
        let id = id.map(TaskId::from).or_else(|| self.last_task.clone());
        if id.is_none() {
            out.note("there is no task yet");
        }
        id
    }

    async fn show_task(
        &mut self,
        id: Option<&str>,
        session: &Session<'_>,
        out: &mut Output,
    ) -> CliResult {
        let Some(id) = self.task_or_last(id, out) else {
            return Ok(());
        };
        out.reset();
        match session.task(&id, None).await {
            Ok(task) => {
                out.print_task(&task, None)?;
                self.remember(&task);
            }
            Err(error) => out.print_error(&error),
        }
        Ok(())
    }

    async fn cancel(
        &mut self,
        id: Option<&str>,
        session: &Session<'_>,
        out: &mut Output,
    ) -> CliResult {
        let Some(id) = self.task_or_last(id, out) else {
            return Ok(());
        };
        let request = CancelTaskRequest {
            id,
            ..CancelTaskRequest::default()
        };
        out.reset();
        match session.call(session.client.cancel_task(request)).await {
            Ok(task) => {
                self.remember(&task);
                out.print_task(&task, None)?;
            }
            Err(error) => out.print_error(&error),
        }
        Ok(())
    }
}

impl Question {
    /// The question of a task that waits for the user.
    fn of(task: &Task) -> Option<Self> {
        if !task.status.state.is_interrupted() {
            return None;
        }
        let message = task.status.message.as_ref();
        let metadata = message.and_then(|message| message.metadata.as_ref());
        let request = metadata.and_then(|metadata| metadata.get(INPUT_REQUEST));
        let request: serde_json::Value = request
            .and_then(|request| request.read().ok())
            .unwrap_or_default();
        Some(Self {
            task: task.id.clone(),
            wants_approval: request["wants"] == "approval",
            is_sensitive: request["sensitive"] == true,
        })
    }
}
