//! `attache send`: say something to an agent, and wait for what comes of it.

use attache::model::{
    Message, MessageId, Part, SendMessageConfiguration, SendMessageRequest, SendMessageResponse,
    StreamResponse,
};
use attache::{Error, ErrorKind};

use crate::args::Send;
use crate::failure::{Failure, Outcome};
use crate::follow::Follow;
use crate::output::Output;
use crate::parts::Ordered;
use crate::session::Session;
use crate::settings::Settings;
use crate::waiting;

pub(crate) async fn run(args: Send, parts: Ordered, settings: &Settings, out: &mut Output) -> Outcome {
    let parts = parts.read(&mut std::io::stdin().lock(), &mut |what| out.warn(&what))?;
    let message = message(args.message_id, parts, settings);
    let session = Session::open(settings, out).await?;
    out.sent(&message);
    match settings.detach {
        true => detached(&session, message, out).await,
        false => exchange(&session, message, out).await.map(|_| ()),
    }
}

/// Neither id is ever made up here, and a rejected one is never left out on a second try.
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

fn request(session: &Session<'_>, message: Message, return_immediately: bool) -> SendMessageRequest {
    let configuration =
        SendMessageConfiguration { return_immediately, ..SendMessageConfiguration::default() };
    SendMessageRequest {
        configuration: return_immediately.then_some(configuration),
        metadata: session.settings.metadata.clone(),
        ..SendMessageRequest::new(message)
    }
}

async fn detached(session: &Session<'_>, message: Message, out: &mut Output) -> Outcome {
    let sent = session.client.send_message(request(session, message.clone(), true)).await;
    let answer = sent.map_err(|error| refused(session, &message, &error))?;
    out.answer(&answer, next(session, &answer).as_deref())
}

/// Sends a message, waits until what comes of it is settled, and says what was asked for.
pub(super) async fn exchange(
    session: &Session<'_>,
    message: Message,
    out: &mut Output,
) -> Outcome<SendMessageResponse> {
    let continuing = message.task_id.is_some();
    let live = session.settings.stream;
    let mut follow = open(session, message, out).await?.continuing(continuing);
    let last = waiting::until_settled(&mut follow, session, live, out).await?;
    let answer = match (last, follow.task) {
        (Some(StreamResponse::Message(reply)), _) => SendMessageResponse::Message(reply),
        (_, Some(task)) if live => SendMessageResponse::Task(task),
        // The folded task has no history; the agent's own word is better where it can be had.
        (_, Some(task)) => SendMessageResponse::Task(session.task(&task.id, None).await.unwrap_or(task)),
        (_, None) => {
            return Err(Failure::protocol(ErrorKind::InvalidAgentResponse, "the agent said nothing"));
        }
    };
    if !live {
        out.answer(&answer, next(session, &answer).as_deref())?;
    }
    Ok(answer)
}

/// The command that goes on from an answer.
fn next(session: &Session<'_>, answer: &SendMessageResponse) -> Option<String> {
    match answer {
        SendMessageResponse::Task(task) => Some(session.resume.of(task)),
        SendMessageResponse::Message(message) => session.resume.of_reply(message),
    }
}

/// A stream brings the id at once; where there is none, an answer that does not wait does.
async fn open<'a, 's>(
    session: &'a Session<'s>,
    message: Message,
    out: &mut Output,
) -> Outcome<Follow<'a, 's>> {
    if session.streams() {
        let sent = session.client.send_streaming_message(request(session, message.clone(), false)).await;
        return match sent {
            Ok(events) => Ok(Follow::stream(session, events)),
            Err(error) => Err(refused(session, &message, &error)),
        };
    }
    if session.settings.stream {
        out.note("the agent does not stream: looking now and then instead");
    }
    let sent = session.client.send_message(request(session, message.clone(), true)).await;
    let answer = sent.map_err(|error| refused(session, &message, &error))?;
    Ok(Follow::answer(session, answer))
}

/// Says what to do next; a message that may have arrived is not sent a second time under another id.
fn refused(session: &Session<'_>, message: &Message, error: &Error) -> Failure {
    let failure = session.failure(error);
    let arrived = error.kind() == ErrorKind::Unavailable && !error.message().starts_with("cannot connect");
    if arrived {
        let again = crate::resume::again(&format!("--message-id {}", message.message_id));
        return Failure {
            hint: Some(format!("it may have arrived; the same message again: {again}")),
            ..failure
        };
    }
    match (&message.task_id, failure.exit) {
        (Some(id), 1) => {
            let look = session.resume.get(id.as_str());
            failure.hint(format!("look at the task with `{look}`, or see the wire with --debug"))
        }
        (None, 1) => failure.hint("see the wire with --debug"),
        _ => failure,
    }
}
