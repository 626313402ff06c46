//! OpenAI chat completions: requests are converted to A2A messages, task results to completions
//! (09, 0.19).

use serde::{Deserialize, Serialize};

use super::json::read_body;
use crate::model::{
    Artifact, Base64, Content, Error, ErrorKind, Json, Message, NO_CONTENT, Object, Part, Result,
    Role, SendMessageRequest, Task, TaskState, Violation,
};

/// Metadata key of a message: the preceding messages of the conversation.
pub const HISTORY_KEY: &str = "chatHistory";
/// Metadata key of a task: its token usage.
const USAGE_KEY: &str = "attache.usage";

/// Request body of a chat completion.
#[derive(Debug, Deserialize)]
pub struct ChatCompletionRequest {
    /// Name of the agent; absent selects the default.
    #[serde(default)]
    pub model: Option<String>,
    /// Whether to stream the answer.
    #[serde(default)]
    pub stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    messages: Vec<ChatCompletionMessage>,
    #[serde(default)]
    n: Option<u32>,
    #[serde(default)]
    metadata: Option<ChatMetadata>,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: bool,
}

/// A2A ids that continue a conversation or a task.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ChatMetadata {
    #[serde(alias = "context_id")]
    context_id: Option<String>,
    #[serde(alias = "task_id")]
    task_id: Option<String>,
}

#[derive(Debug, Deserialize)]
struct ChatCompletionMessage {
    role: String,
    #[serde(default)]
    content: Option<ChatContent>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum ChatContent {
    Text(String),
    Parts(Vec<ChatContentPart>),
}

#[derive(Debug, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ChatContentPart {
    Text { text: String },
    ImageUrl { image_url: ImageUrlRef },
}

#[derive(Debug, Deserialize)]
struct ImageUrlRef {
    url: String,
}

/// Preceding message, passed to the agent as metadata.
#[derive(Serialize)]
struct HistoryMessage<'a> {
    role: &'a str,
    text: String,
}

impl ChatCompletionRequest {
    /// Parses a request body.
    ///
    /// # Errors
    /// Invalid parameters; names the member.
    pub fn parse(body: &[u8]) -> Result<Self> {
        let request: Self = read_body(body)?;
        if request.n.is_some_and(|n| n != 1) {
            return Err(Error::invalid(
                "n",
                "must be 1: an agent returns one answer",
            ));
        }
        Ok(request)
    }

    /// Whether to append a chunk with the token usage to the stream.
    #[must_use]
    pub fn includes_usage(&self) -> bool {
        self.stream_options
            .as_ref()
            .is_some_and(|options| options.include_usage)
    }

    /// Converts the last message to an A2A request, with the preceding messages in its metadata.
    ///
    /// # Errors
    /// Invalid parameters: the last message is not from the user or has unsupported content.
    pub fn into_request(self) -> Result<SendMessageRequest> {
        let Some((last, history)) = self.messages.split_last() else {
            return Err(Error::invalid(
                "messages",
                "must contain at least one element",
            ));
        };
        if last.role != "user" {
            return Err(Error::invalid(
                "messages",
                "must end with a message from the user",
            ));
        }
        let parts = last
            .content
            .as_ref()
            .map(ChatContent::parts)
            .transpose()?
            .unwrap_or_default();
        let mut message = Message {
            parts,
            role: Role::User,
            ..Message::user("")
        };
        if !history.is_empty() {
            let history: Vec<_> = history
                .iter()
                .map(ChatCompletionMessage::to_history)
                .collect();
            let history = Json::from_serialize(&history).map_err(Error::internal)?;
            message.metadata = Some([(HISTORY_KEY, history)].into_iter().collect());
        }
        let ChatMetadata {
            context_id,
            task_id,
        } = self.metadata.unwrap_or_default();
        message.context_id = context_id.map(Into::into);
        message.task_id = task_id.map(Into::into);
        Ok(message.into())
    }
}

impl ChatCompletionMessage {
    fn to_history(&self) -> HistoryMessage<'_> {
        let text = match &self.content {
            Some(ChatContent::Text(text)) => text.clone(),
            Some(ChatContent::Parts(pieces)) => {
                let texts = pieces.iter().filter_map(|piece| match piece {
                    ChatContentPart::Text { text } => Some(text.as_str()),
                    ChatContentPart::ImageUrl { .. } => None,
                });
                texts.collect::<Vec<_>>().join("\n")
            }
            None => String::new(),
        };
        HistoryMessage {
            role: &self.role,
            text,
        }
    }
}

impl ChatContent {
    fn parts(&self) -> Result<Vec<Part>> {
        match self {
            Self::Text(text) => Ok(vec![Part::text(text.clone())]),
            Self::Parts(pieces) => pieces.iter().map(ChatContentPart::part).collect(),
        }
    }
}

impl ChatContentPart {
    fn part(&self) -> Result<Part> {
        match self {
            Self::Text { text } => Ok(Part::text(text.clone())),
            Self::ImageUrl {
                image_url: ImageUrlRef { url },
            } => match url.strip_prefix("data:") {
                Some(data) => part_from_data_url(data),
                None => Ok(Content::Url(url.as_str().into()).into()),
            },
        }
    }
}

/// Converts the part of a data URL after `data:`, such as `image/png;base64,…`.
fn part_from_data_url(data: &str) -> Result<Part> {
    let wrong = || Error::invalid("image_url.url", "must be a URL, or a data URL in base64");
    let (about, data) = data.split_once(',').ok_or_else(wrong)?;
    let media_type = about.strip_suffix(";base64").ok_or_else(wrong)?;
    let bytes = Base64::parse(data).map_err(|_| wrong())?;
    Ok(Part::from(Content::Raw(bytes)).with_media_type(media_type))
}

/// Returns the text of a task's result; a notice if it completed without any content.
#[must_use]
pub fn task_text(task: &Task) -> String {
    let result = task.result();
    if result.is_empty() && task.status.state == TaskState::Completed {
        return NO_CONTENT.to_owned();
    }
    let messages = result.messages.iter().map(|message| message_text(message));
    let texts = result.artifacts.iter().map(artifact_text);
    let texts = texts.chain(result.output.clone()).chain(messages);
    let texts = texts.filter(|text| !text.is_empty());
    texts.collect::<Vec<_>>().join("\n\n")
}

/// Returns the text of a message.
#[must_use]
pub fn message_text(message: &Message) -> String {
    parts_text(&message.parts)
}

/// Returns the text of an artifact or chunk.
#[must_use]
pub fn artifact_text(artifact: &Artifact) -> String {
    parts_text(&artifact.parts)
}

/// Returns parts as text: data as JSON, files as their URL or name.
#[must_use]
pub fn parts_text(parts: &[Part]) -> String {
    let texts = parts.iter().map(|part| match &part.content {
        Content::Text(text) => text.clone(),
        Content::Data(data) => data.get().to_owned(),
        Content::Url(url) => url.to_string(),
        Content::Raw(_) => format!("[file {}]", part.filename().unwrap_or("unnamed")),
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Token usage of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompletionUsage {
    #[serde(
        alias = "inputTokens",
        alias = "input_tokens",
        alias = "promptTokens",
        default
    )]
    prompt_tokens: u64,
    #[serde(
        alias = "outputTokens",
        alias = "output_tokens",
        alias = "completionTokens",
        default
    )]
    completion_tokens: u64,
    #[serde(alias = "totalTokens", default)]
    total_tokens: u64,
}

impl CompletionUsage {
    /// Reads the token usage from the metadata of a task.
    #[must_use]
    pub fn from_metadata(metadata: Option<&Object>) -> Option<Self> {
        let mut usage: Self = metadata?.get(USAGE_KEY)?.read().ok()?;
        usage.total_tokens = usage
            .total_tokens
            .max(usage.prompt_tokens.saturating_add(usage.completion_tokens));
        Some(usage)
    }
}

/// Writer of the responses to one request.
#[derive(Debug, Clone)]
pub struct CompletionWriter {
    /// Name of the agent.
    pub model: String,
    /// Time of the request, Unix seconds.
    pub created: i64,
    /// Id of the task; absent for a direct message.
    pub task: Option<String>,
    /// Id of the context.
    pub context: Option<String>,
}

/// Extension member with the A2A ids for a follow-up request.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct AttacheIds<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    task_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    context_id: Option<&'a str>,
}

#[derive(Serialize)]
struct ChatCompletion<'a> {
    id: String,
    object: &'static str,
    created: i64,
    model: &'a str,
    choices: Vec<CompletionChoice<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    usage: Option<CompletionUsage>,
    attache: AttacheIds<'a>,
}

#[derive(Serialize)]
struct CompletionChoice<'a> {
    index: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<ChoiceMessage<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delta: Option<ChoiceMessage<'a>>,
    finish_reason: Option<&'static str>,
}

#[derive(Serialize)]
struct ChoiceMessage<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    role: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    content: Option<&'a str>,
}

impl CompletionWriter {
    /// Writes a complete response.
    pub fn write_completion(&self, out: &mut Vec<u8>, text: &str, usage: Option<CompletionUsage>) {
        let message = Some(ChoiceMessage {
            role: Some("assistant"),
            content: Some(text),
        });
        let choice = CompletionChoice {
            index: 0,
            message,
            delta: None,
            finish_reason: Some("stop"),
        };
        super::write_json(
            out,
            &self.completion("chat.completion", vec![choice], usage),
        );
    }

    /// Writes a chunk of a streamed response. The first one contains the role.
    pub fn write_chunk(&self, out: &mut Vec<u8>, first: bool, text: &str) {
        let delta = Some(ChoiceMessage {
            role: first.then_some("assistant"),
            content: Some(text),
        });
        let choice = CompletionChoice {
            index: 0,
            message: None,
            delta,
            finish_reason: None,
        };
        super::write_json(
            out,
            &self.completion("chat.completion.chunk", vec![choice], None),
        );
    }

    /// Writes the last chunk, which contains the finish reason.
    pub fn write_finish(&self, out: &mut Vec<u8>) {
        let delta = Some(ChoiceMessage {
            role: None,
            content: None,
        });
        let choice = CompletionChoice {
            index: 0,
            message: None,
            delta,
            finish_reason: Some("stop"),
        };
        super::write_json(
            out,
            &self.completion("chat.completion.chunk", vec![choice], None),
        );
    }

    /// Writes the usage chunk, after the last one.
    pub fn write_usage(&self, out: &mut Vec<u8>, usage: CompletionUsage) {
        super::write_json(
            out,
            &self.completion("chat.completion.chunk", Vec::new(), Some(usage)),
        );
    }

    fn completion<'a>(
        &'a self,
        object: &'static str,
        choices: Vec<CompletionChoice<'a>>,
        usage: Option<CompletionUsage>,
    ) -> ChatCompletion<'a> {
        let ids = AttacheIds {
            task_id: self.task.as_deref(),
            context_id: self.context.as_deref(),
        };
        let id = format!("chatcmpl-{}", self.task.as_deref().unwrap_or("none"));
        ChatCompletion {
            id,
            object,
            created: self.created,
            model: &self.model,
            choices,
            usage,
            attache: ids,
        }
    }
}

/// Error object of the OpenAI API.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct OpenAiError<'a> {
    /// Message for the user.
    pub message: &'a str,
    /// Error type, such as `invalid_request_error`.
    #[serde(rename = "type")]
    pub kind: &'a str,
    /// Invalid parameter.
    pub param: Option<&'a str>,
    /// Error code, such as `model_not_found`.
    pub code: &'a str,
}

impl OpenAiError<'_> {
    /// Writes an error response.
    pub fn write(&self, out: &mut Vec<u8>) {
        #[derive(Serialize)]
        struct Body<'a> {
            error: OpenAiError<'a>,
        }
        super::write_json(out, &Body { error: *self });
    }
}

/// Writes an error response.
pub fn write_error(out: &mut Vec<u8>, error: &Error) {
    let (kind, code) = match error.kind() {
        ErrorKind::Unauthenticated => ("authentication_error", "invalid_api_key"),
        ErrorKind::PermissionDenied => ("permission_error", "permission_denied"),
        ErrorKind::RateLimited => ("rate_limit_error", "rate_limit_exceeded"),
        ErrorKind::TaskNotFound => ("invalid_request_error", "task_not_found"),
        ErrorKind::Unavailable | ErrorKind::Internal | ErrorKind::DeadlineExceeded => {
            ("server_error", "unavailable")
        }
        ErrorKind::Parse
        | ErrorKind::InvalidRequest
        | ErrorKind::PayloadTooLarge
        | ErrorKind::RequestTimeout
        | ErrorKind::MethodNotFound
        | ErrorKind::MethodNotAllowed
        | ErrorKind::InvalidParams
        | ErrorKind::TaskNotCancelable
        | ErrorKind::PushNotificationNotSupported
        | ErrorKind::UnsupportedOperation
        | ErrorKind::ContentTypeNotSupported
        | ErrorKind::UnsupportedMediaType
        | ErrorKind::InvalidAgentResponse
        | ErrorKind::ExtendedAgentCardNotConfigured
        | ErrorKind::ExtensionSupportRequired
        | ErrorKind::VersionNotSupported
        | ErrorKind::Canceled
        | ErrorKind::Other(_) => ("invalid_request_error", "invalid_request"),
    };
    let error = OpenAiError {
        message: error.message(),
        kind,
        param: error.violations().first().map(Violation::field),
        code,
    };
    error.write(out);
}

#[derive(Serialize)]
struct ModelList<'a> {
    object: &'static str,
    data: Vec<ModelEntry<'a>>,
}

#[derive(Serialize)]
struct ModelEntry<'a> {
    id: &'a str,
    object: &'static str,
    created: i64,
    owned_by: &'static str,
}

/// Writes the model list: one model per agent.
pub fn write_models<'a>(out: &mut Vec<u8>, names: impl IntoIterator<Item = &'a str>) {
    let model = |id| ModelEntry {
        id,
        object: "model",
        created: 0,
        owned_by: "attache",
    };
    super::write_json(
        out,
        &ModelList {
            object: "list",
            data: names.into_iter().map(model).collect(),
        },
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_usage_saturates() {
        let status = format!(
            r#"{{"{USAGE_KEY}": {{"inputTokens": {0}, "outputTokens": {0}}}}}"#,
            u64::MAX
        );
        let metadata: Object = serde_json::from_str(&status).unwrap();
        let usage = CompletionUsage::from_metadata(Some(&metadata)).unwrap();
        assert_eq!(usage.total_tokens, u64::MAX);
    }
}
