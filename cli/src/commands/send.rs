//! `attache send`: say something to an agent, and wait for what comes of it.

use attache::model::{
    Message, MessageId, Part, SendMessageConfiguration, SendMessageRequest, SendMessageResponse,
    StreamResponse,
};
use attache::{Client, ErrorKind};

use crate::args::Send;
use crate::failure::{Failure, Outcome};
use crate::follow::Follow;
use crate::output::Output;
use crate::parts::Ordered;
use crate::session::Session;
use crate::settings::Settings;
use crate::waiting;

/// Where a message names the skill that it is for.
const SKILL: &str = "skillId";

pub(crate) async fn run(
    args: Send,
    parts: Ordered,
    settings: &Settings,
    out: &mut Output,
) -> Outcome {
    let parts = parts.read(&mut std::io::stdin().lock(), &mut |what| out.warn(&what))?;
    let mut message = message(args.message_id, parts, settings);
    if let Some(skill) = args.skill {
        message
            .metadata
            .get_or_insert_default()
            .insert(SKILL, skill.as_str());
    }
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

async fn detached(session: &Session<'_>, message: Message, out: &mut Output) -> Outcome {
    let sent = keyed(session, &message)
        .send_message(request(session, message.clone(), true))
        .await;
    let answer = match sent {
        Ok(answer) => answer,
        Err(error) => return Err(session.refused_by_task(&message, &error).await),
    };
    out.answer(&answer, next(session, &answer).as_deref())
}

/// Sends a message, waits until what comes of it is settled, and says what was asked for.
pub(super) async fn exchange(
    session: &Session<'_>,
    message: Message,
    out: &mut Output,
) -> Outcome<SendMessageResponse> {
    let live = session.settings.stream;
    let mut follow = open(session, message, out).await?;
    let last = waiting::until_settled(&mut follow, session, live, out).await?;
    let answer = match (last, follow.so_far().cloned()) {
        (Some(StreamResponse::Message(reply)), _) => SendMessageResponse::Message(reply),
        (_, Some(task)) if live => SendMessageResponse::Task(task),
        // The folded task has no history; the agent's own word is better where it can be had.
        (_, Some(task)) => {
            SendMessageResponse::Task(session.task(&task.id, None).await.unwrap_or(task))
        }
        (_, None) => {
            return Err(Failure::protocol(
                ErrorKind::InvalidAgentResponse,
                "the agent said nothing",
            ));
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
    if session.settings.stream && !session.streams() {
        out.note("the agent does not stream: looking now and then instead");
    }
    let client = keyed(session, &message);
    match client
        .stream(request(session, message.clone(), false))
        .await
    {
        Ok(stream) => Ok(Follow::sent(session, stream, message)),
        Err(error) => Err(session.refused_by_task(&message, &error).await),
    }
}

/// A message that is typed again under its id is the same message, for agents that know such keys.
fn keyed(session: &Session<'_>, message: &Message) -> Client {
    let client = session.client.clone();
    // An id that no header can carry is no key; the client makes one up.
    client
        .clone()
        .with_header("idempotency-key", message.message_id.as_str())
        .unwrap_or(client)
}
