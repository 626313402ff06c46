//! [`Client::send`], [`Client::stream`] and [`Client::follow`]: send a message with retries and follow its task, whatever
//! the peer supports.

use ::http::HeaderName;
use uuid::Uuid;

use super::Client;
use super::headers::parse_header;
use super::retry::{is_transient, was_not_executed};
use super::task_stream::TaskStream;
use crate::model::{Error, Result, SendMessageRequest, SendMessageResponse, Seq, TaskId};

/// Header with a key by which a peer recognizes a message that is sent again.
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl Client {
    /// Sends a message and waits until its task has ended or waits for the caller.
    ///
    /// Uses a stream if the card declares streaming, else a blocking `SendMessage`; if that returns earlier, the task
    /// is followed. A request with `returnImmediately` gets the first response.
    ///
    /// ```no_run
    /// # use attache::Client;
    /// # use attache::model::Message;
    /// # async fn hello() -> attache::Result<()> {
    /// let client = Client::discover("http://127.0.0.1:8080").await?;
    /// println!("{}", client.send(Message::user("hello")).await?.text());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`TaskStream::next`]. A failed task is not an error.
    pub async fn send(
        &self,
        request: impl Into<SendMessageRequest>,
    ) -> Result<SendMessageResponse> {
        let request = request.into();
        let returns_immediately = request.returns_immediately();
        let stream = TaskStream::for_message(self.with_idempotency_key()?, request);
        if returns_immediately {
            let mut stream = stream.without_stream();
            stream.next().await.transpose()?;
            return stream.response();
        }
        if self.supports_streaming() == Some(true) {
            stream.open_now().await?.finish().await
        } else {
            stream.without_stream().finish().await
        }
    }

    /// Sends a message and returns the events of its task; see [`TaskStream`]. If the peer does not stream, according to
    /// its card or its response, the task is polled.
    ///
    /// # Errors
    /// As [`TaskStream::next`]. A refusal may be returned here or as the first item of the stream.
    pub async fn stream(&self, request: impl Into<SendMessageRequest>) -> Result<TaskStream> {
        let stream = TaskStream::for_message(self.with_idempotency_key()?, request.into());
        if self.supports_streaming().unwrap_or(true) {
            stream.with_early_task().open_now().await
        } else {
            Ok(stream.with_early_task().without_stream())
        }
    }

    /// Follows a task until it has ended, from behind a position that an earlier stream returned, or from its current
    /// state. If the peer does not stream, or the task has ended, the task is polled.
    #[must_use]
    pub fn follow(&self, id: impl Into<TaskId>, after: Option<Seq>) -> TaskStream {
        let stream = TaskStream::for_task(self.clone(), id.into(), after);
        if self.supports_streaming() == Some(false) {
            stream.with_polling()
        } else {
            stream
        }
    }

    /// Whether the card declares streaming; `None` without a card.
    pub(super) fn supports_streaming(&self) -> Option<bool> {
        // KAOS cards declare streaming for their chat completions.
        if self.is_chat_peer || self.endpoint.is_kaos {
            return Some(false);
        }
        self.card()
            .map(|card| card.capabilities.streaming == Some(true))
    }

    /// Returns a client that sends an `Idempotency-Key`, so that the peer recognizes a message that is sent again.
    fn with_idempotency_key(&self) -> Result<Self> {
        let mut client = self.clone();
        if !client.headers.contains_key(IDEMPOTENCY_KEY) {
            let (name, key) = parse_header(IDEMPOTENCY_KEY.as_str(), &Uuid::new_v4().to_string())?;
            client.headers.insert(name, key);
        }
        Ok(client)
    }

    /// Whether a message may be sent again after this error: it was certainly not executed, or its key prevents a second
    /// execution.
    pub(super) fn can_resend(&self, error: &Error) -> bool {
        was_not_executed(error)
            || (self.settings.retries.idempotency_keys_supported && is_transient(error))
    }
}
