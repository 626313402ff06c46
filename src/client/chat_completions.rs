//! Fallback for peers without A2A, or whose A2A fails: one message becomes one request to `/v1/chat/completions`. Enabled
//! by [`ClientSettings::chat_completions`](super::ClientSettings::chat_completions).

use ::http::{HeaderMap, Method};
use serde::{Deserialize, Serialize};

use super::Client;
use super::endpoint::Endpoint;
use super::http::{ClientRequest, HeadTimeout};
use super::interface_url::base_url;
use super::rest::join_path;
use crate::model::{
    Binding, Error, ErrorKind, Message, Request, Response, Result, SendMessageRequest,
    SendMessageResponse,
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

impl Client {
    /// Returns a client of the chat completions of this peer, if they may answer a request that failed with `error`: a
    /// first message that the peer did not accept, or failed to process.
    pub(super) fn chat_fallback(&self, request: &Request, error: &Error) -> Option<Self> {
        let (Request::SendMessage(message) | Request::SendStreamingMessage(message)) = request
        else {
            return None;
        };
        // Chat completions have no tasks to continue.
        let starts_task = message.message.task_id.is_none();
        let is_enabled = self.settings.chat_completions.is_some() && !self.is_chat_peer;
        if !is_enabled || !starts_task || !is_failure_of_a2a(error) {
            return None;
        }
        let base = base_url(self.card_url.as_ref().unwrap_or(&self.endpoint.url));
        Some(Self {
            endpoint: Endpoint::new(&base, Binding::HttpJson, self.endpoint.version).ok()?,
            is_chat_peer: true,
            ..self.clone()
        })
    }
}

/// Whether the peer lacks the method or failed: status 404, 405 or 5xx, or -32601 or -32603.
fn is_failure_of_a2a(error: &Error) -> bool {
    let is_failure = matches!(
        error.kind(),
        ErrorKind::MethodNotFound
            | ErrorKind::MethodNotAllowed
            | ErrorKind::Internal
            | ErrorKind::UnsupportedOperation
            | ErrorKind::InvalidAgentResponse
    );
    let is_5xx = matches!(
        error.kind(),
        ErrorKind::Unavailable | ErrorKind::DeadlineExceeded
    );
    // With a source, the last two are errors of this client.
    is_failure || (is_5xx && std::error::Error::source(error).is_none())
}

pub(super) async fn call(client: &Client, model: &str, request: &Request) -> Result<Response> {
    match request {
        Request::SendMessage(request) | Request::SendStreamingMessage(request) => {
            complete(client, model, request).await
        }
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
