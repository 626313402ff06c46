//! `attache send`: sends a message, and waits for the result.

use attache::model::{
    Message, MessageId, Part, SendMessageConfiguration, SendMessageRequest, SendMessageResponse,
};
use attache::{Client, ErrorKind};

use super::task_wait::outcome_code;
use crate::args::SendArgs;
use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::parts::PartArgs;
use crate::progress;
use crate::session::Session;
use crate::settings::Settings;
use crate::task_follower::TaskFollower;

/// Metadata key of the skill that a message is for.
const SKILL_METADATA_KEY: &str = "skillId";

pub(crate) async fn run(
    args: SendArgs,
    parts: PartArgs,
    settings: &Settings,
    out: &mut Output,
) -> CliResult<u8> {
    let parts = parts.read(&mut std::io::stdin().lock(), &mut |what| out.warn(&what))?;
    let mut message = message(args.message_id, parts, settings);
    if let Some(skill) = args.skill {
        message
            .metadata
            .get_or_insert_default()
            .insert(SKILL_METADATA_KEY, skill.as_str());
    }
    let session = Session::open(settings, out).await?;
    out.print_sent(&message);
    let answer = if settings.detach {
        send_detached(&session, message, out).await?
    } else {
        send_and_wait(&session, message, out).await?
    };
    Ok(match answer {
        SendMessageResponse::Task(task) if args.exit_status => outcome_code(task.status.state),
        SendMessageResponse::Task(_) | SendMessageResponse::Message(_) => 0,
    })
}

/// Builds the message. Task and context id come from the user only: they are never invented, and never dropped on a retry.
fn message(id: Option<String>, parts: Vec<Part>, settings: &Settings) -> Message {
    Message {
        message_id: id.map_or_else(MessageId::random, MessageId::from),
        role: attache::model::Role::User,
        parts,
        task_id: settings.task_id.as_deref().map(Into::into),
        context_id: settings.context_id.as_deref().map(Into::into),
        ..Message::default()
    }
}

fn request(
    session: &Session<'_>,
    message: Message,
    return_immediately: bool,
) -> SendMessageRequest {
    let configuration = SendMessageConfiguration {
        return_immediately,
        ..SendMessageConfiguration::default()
    };
    SendMessageRequest {
        configuration: return_immediately.then_some(configuration),
        metadata: session.settings.metadata.clone(),
        ..SendMessageRequest::new(message)
    }
}

async fn send_detached(
    session: &Session<'_>,
    message: Message,
    out: &mut Output,
) -> CliResult<SendMessageResponse> {
    let sent = with_idempotency_key(session, &message)
        .send_message(request(session, message.clone(), true))
        .await;
    let answer = match sent {
        Ok(answer) => answer,
        Err(error) => return Err(session.explain_refusal(&message, &error).await),
    };
    out.print_response(&answer, resume_command(session, &answer).as_deref())?;
    Ok(answer)
}

/// Sends a message, follows its task until it ends or is interrupted, and prints the result.
pub(super) async fn send_and_wait(
    session: &Session<'_>,
    message: Message,
    out: &mut Output,
) -> CliResult<SendMessageResponse> {
    let live = session.settings.stream || out.is_pretty();
    let mut follow = open_stream(session, message, out).await?;
    progress::follow_until_settled(&mut follow, session, live, out).await?;
    let answer = match (follow.task().cloned(), follow.message()) {
        (Some(task), _) if live => SendMessageResponse::Task(task),
        // The folded task has no history, so the agent's copy is preferred.
        (Some(task), _) => SendMessageResponse::Task(match session.task(&task.id, None).await {
            Ok(copy) => follow.with_received(copy),
            Err(_) => task,
        }),
        (None, Some(reply)) => SendMessageResponse::Message(reply),
        (None, None) => {
            return Err(CliError::protocol(
                ErrorKind::InvalidAgentResponse,
                "the stream of the agent was empty",
            ));
        }
    };
    let resume = resume_command(session, &answer);
    match &answer {
        SendMessageResponse::Message(reply) if live && out.prints_answer_only() => {
            out.finish_reply(reply, resume.as_deref())?;
        }
        _ if live => {}
        _ => out.print_response(&answer, resume.as_deref())?,
    }
    Ok(answer)
}

/// The command that continues from a response.
fn resume_command(session: &Session<'_>, answer: &SendMessageResponse) -> Option<String> {
    match answer {
        SendMessageResponse::Task(task) => Some(session.resume.for_task(task)),
        SendMessageResponse::Message(message) => session.resume.for_reply(message),
    }
}

/// Opens the event stream of a message. Its first event has the ids. Without streaming the client polls.
pub(super) async fn open_stream<'a, 's>(
    session: &'a Session<'s>,
    message: Message,
    out: &mut Output,
) -> CliResult<TaskFollower<'a, 's>> {
    if session.settings.stream && !session.supports_streaming() {
        out.note("the agent does not support streaming: polling instead");
    }
    let client = with_idempotency_key(session, &message);
    match client
        .stream(request(session, message.clone(), false))
        .await
    {
        Ok(stream) => Ok(TaskFollower::for_message(session, stream, message)),
        Err(error) => Err(session.explain_refusal(&message, &error).await),
    }
}

/// A client that sends the message id as idempotency key, so that a retry with `--message-id` is not executed twice.
fn with_idempotency_key(session: &Session<'_>, message: &Message) -> Client {
    let client = session.client.clone();
    // An id that is not a valid header value is not used: the client generates a key.
    client
        .clone()
        .with_header("idempotency-key", message.message_id.as_str())
        .unwrap_or(client)
}
