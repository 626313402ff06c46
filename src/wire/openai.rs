//! Chat completions as OpenAI's API has them, for clients that know nothing else: what they ask, and what they are told.

use serde::{Deserialize, Serialize};

use super::json::read_body;
use crate::model::{
    Artifact, Base64, Content, Error, ErrorKind, Json, Message, Object, Part, Result, Role,
    SendMessageRequest, Task, Violation,
};

/// Under this name the metadata of a message have what was said before it.
pub const HISTORY_KEY: &str = "chatHistory";
/// Under this name the metadata of a task have what it used.
const USAGE_KEY: &str = "attache.usage";

/// A question, as it comes.
#[derive(Debug, Deserialize)]
pub struct ChatCompletionRequest {
    /// Whom it is for: the name of an agent. Nobody in particular if left out.
    #[serde(default)]
    pub model: Option<String>,
    /// Whether the answer is to come in pieces.
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

/// Which conversation, and which task, a question belongs to.
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

/// What was said before, for agents that want to know.
#[derive(Serialize)]
struct HistoryMessage<'a> {
    role: &'a str,
    text: String,
}

impl ChatCompletionRequest {
    /// Reads a question.
    ///
    /// # Errors
    /// Invalid parameters: which, and why.
    pub fn parse(body: &[u8]) -> Result<Self> {
        let request: Self = read_body(body)?;
        if request.n.is_some_and(|n| n != 1) {
            return Err(Error::invalid("n", "must be 1: an agent has one answer"));
        }
        Ok(request)
    }

    /// Whether what was used is told behind the last piece.
    #[must_use]
    pub fn includes_usage(&self) -> bool {
        self.stream_options
            .as_ref()
            .is_some_and(|options| options.include_usage)
    }

    /// The last message as one to an agent, with those before it in its metadata.
    ///
    /// # Errors
    /// Invalid parameters: there is none of the user at the end, or it has nothing that an agent could read.
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
                "must end with a message of the user",
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

/// `image/png;base64,…`
fn part_from_data_url(data: &str) -> Result<Part> {
    let wrong = || Error::invalid("image_url.url", "must be a url, or data in base64");
    let (about, data) = data.split_once(',').ok_or_else(wrong)?;
    let media_type = about.strip_suffix(";base64").ok_or_else(wrong)?;
    let bytes = Base64::parse(data).map_err(|_| wrong())?;
    Ok(Part::from(Content::Raw(bytes)).with_media_type(media_type))
}

/// Everything that a task has to say, as one text: its results, and what its status says.
#[must_use]
pub fn task_text(task: &Task) -> String {
    let results = task.artifacts.iter().map(artifact_text);
    let status = task
        .status
        .message
        .iter()
        .map(|message| parts_text(&message.parts));
    results
        .chain(status)
        .filter(|text| !text.is_empty())
        .collect::<Vec<_>>()
        .join("\n\n")
}

/// The text of a result, or of a piece of one.
#[must_use]
pub fn artifact_text(artifact: &Artifact) -> String {
    parts_text(&artifact.parts)
}

/// Parts as text: data as JSON, files by where they are or what they are called.
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

/// What a task used, if it says so.
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
    /// What the metadata of a task say.
    #[must_use]
    pub fn from_metadata(metadata: Option<&Object>) -> Option<Self> {
        let mut usage: Self = metadata?.get(USAGE_KEY)?.read().ok()?;
        usage.total_tokens = usage
            .total_tokens
            .max(usage.prompt_tokens.saturating_add(usage.completion_tokens));
        Some(usage)
    }
}

/// What stands in every answer to one question.
#[derive(Debug, Clone)]
pub struct CompletionWriter {
    /// The name of the agent.
    pub model: String,
    /// When the question came, in seconds.
    pub created: i64,
    /// The task that works on it; none if it was answered without one.
    pub task: Option<String>,
    /// The conversation.
    pub context: Option<String>,
}

/// What only we say: how to go on.
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
    /// Writes the whole answer.
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

    /// Writes a piece of the answer; the first says who speaks.
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

    /// Writes that no more pieces come.
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

    /// Writes what was used, behind the end.
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

#[derive(Serialize)]
struct OpenAiErrorBody<'a> {
    error: OpenAiError<'a>,
}

#[derive(Serialize)]
struct OpenAiError<'a> {
    message: &'a str,
    r#type: &'a str,
    param: Option<&'a str>,
    code: Option<&'a str>,
}

/// Writes an error of ours.
pub fn write_error(out: &mut Vec<u8>, error: &Error) {
    let (kind, code) = match error.kind() {
        ErrorKind::Unauthenticated => ("authentication_error", "invalid_api_key"),
        ErrorKind::PermissionDenied => ("permission_error", "permission_denied"),
        ErrorKind::RateLimited => ("rate_limit_error", "rate_limit_exceeded"),
        ErrorKind::TaskNotFound => ("invalid_request_error", "task_not_found"),
        ErrorKind::Unavailable | ErrorKind::Internal | ErrorKind::DeadlineExceeded => {
            ("server_error", "unavailable")
        }
        _ => ("invalid_request_error", "invalid_request"),
    };
    let param = error.violations().first().map(Violation::field);
    write_failure(out, error.message(), (kind, param, code));
}

/// Writes any error: its type, the parameter at fault, and a code.
pub fn write_failure(
    out: &mut Vec<u8>,
    message: &str,
    (kind, param, code): (&str, Option<&str>, &str),
) {
    super::write_json(
        out,
        &OpenAiErrorBody {
            error: OpenAiError {
                message,
                r#type: kind,
                param,
                code: Some(code),
            },
        },
    );
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

/// Writes the list of agents that can be asked.
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
    fn what_somebody_says_they_used_may_be_anything() {
        let status = format!(
            r#"{{"{USAGE_KEY}": {{"inputTokens": {0}, "outputTokens": {0}}}}}"#,
            u64::MAX
        );
        let metadata: Object = serde_json::from_str(&status).unwrap();
        let usage = CompletionUsage::from_metadata(Some(&metadata)).unwrap();
        assert_eq!(usage.total_tokens, u64::MAX);
    }
}
