//! Fallback for peers without A2A: one message becomes one request to `/v1/chat/completions`. Enabled by
//! [`ClientSettings::chat_completions`](super::ClientSettings::chat_completions).

use ::http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};

use super::Client;
use super::http::{ClientRequest, HeadTimeout};
use super::rest::join_path;
use crate::model::{
    Error, ErrorKind, Message, Request, Response, Result, SendMessageRequest, SendMessageResponse,
};
use crate::wire::errors::read_rest_error;

/// Name of this protocol in [`Client::interface`].
pub(super) const BINDING: &str = "chat/completions";
const PATH: &str = "/v1/chat/completions";
const JSON: &str = "application/json";

#[derive(Serialize)]
struct CompletionRequest<'a> {
    model: &'a str,
    messages: [CompletionRequestMessage<'a>; 1],
}

#[derive(Serialize)]
struct CompletionRequestMessage<'a> {
    role: &'static str,
    content: &'a str,
}

#[derive(Deserialize)]
struct CompletionResponse {
    choices: Vec<PeerCompletionChoice>,
}

#[derive(Deserialize)]
struct PeerCompletionChoice {
    message: CompletionMessage,
}

#[derive(Deserialize)]
struct CompletionMessage {
    content: String,
}

pub(super) async fn call(client: &Client, model: &str, request: &Request) -> Result<Response> {
    match request {
        Request::SendMessage(request) => complete(client, model, request).await,
        _ => Err(unsupported()),
    }
}

pub(super) fn unsupported() -> Error {
    Error::new(ErrorKind::UnsupportedOperation).with_message(
        "operation not supported: the peer offers chat completions only, without tasks",
    )
}

async fn complete(client: &Client, model: &str, request: &SendMessageRequest) -> Result<Response> {
    let text = request.message.text();
    if text.is_empty() {
        return Err(Error::invalid(
            "message.parts",
            "must contain text: the peer offers chat completions only",
        ));
    }
    let mut body = Vec::new();
    let messages = [CompletionRequestMessage {
        role: "user",
        content: &text,
    }];
    crate::wire::write_json(&mut body, &CompletionRequest { model, messages });
    let http_request = ClientRequest {
        method: Method::POST,
        url: join_path(&client.endpoint.url, PATH)?,
        accept: JSON,
        body: Some((JSON, body)),
        after: None,
        extra_headers: HeaderMap::new(),
        head_timeout: HeadTimeout::Unbounded,
    };
    let failure = |status, body: &[u8]| read_rest_error(status, &String::from_utf8_lossy(body));
    let body = client.exchange(http_request).await?.read(failure).await?;
    let completed: Option<CompletionResponse> = serde_json::from_slice(&body).ok();
    let choice = completed.and_then(|completed| completed.choices.into_iter().next());
    let Some(PeerCompletionChoice {
        message: CompletionMessage { content },
    }) = choice
    else {
        return Err(super::invalid_response("not a chat completion"));
    };
    let context_id = request.message.context_id.clone();
    let message = Message {
        context_id,
        ..Message::agent(content)
    };
    Ok(Response::SendMessage(SendMessageResponse::Message(message)))
}
