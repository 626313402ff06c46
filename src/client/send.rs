//! A message, sent with patience: whatever the peer does, the answer comes, or a reason why not.

use ::http::HeaderName;
use uuid::Uuid;

use super::Client;
use super::headers::parse_header;
use super::retry::{is_transient, was_not_executed};
use super::task_fold::TaskFold;
use super::task_stream::TaskStream;
use crate::model::{Error, Result, SendMessageRequest, SendMessageResponse};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

impl Client {
    /// Sends a message and waits until its task has ended, or waits for us: by a stream where the card says that there
    /// are, else by an answer that comes at the end; if it comes before, the task is followed. A request that asks to
    /// return at once gets the first answer.
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
    /// As [`TaskStream::next`]. A task that failed is an answer.
    pub async fn send(
        &self,
        request: impl Into<SendMessageRequest>,
    ) -> Result<SendMessageResponse> {
        let request = request.into();
        let at_once = request.returns_immediately();
        let stream = TaskStream::new(
            self.with_idempotency_key()?,
            TaskFold::default(),
            Some(request),
        );
        if at_once {
            let mut stream = stream.without_stream();
            stream.next().await.transpose()?;
            return stream.response();
        }
        match self.supports_streaming() {
            Some(true) => stream.open_now().await?.finish().await,
            _ => stream.without_stream().finish().await,
        }
    }

    /// Sends a message and tells what happens, event by event, to the end; see [`TaskStream`]. Where the card says
    /// that the agent does not stream, or the agent does, its task is looked at from time to time.
    ///
    /// # Errors
    /// As [`TaskStream::next`]; a refusal may come here, or as the first item.
    pub async fn stream(&self, request: impl Into<SendMessageRequest>) -> Result<TaskStream> {
        let mut request = request.into();
        let supports_streaming = self.supports_streaming().unwrap_or(true);
        if !supports_streaming {
            // The first thing to tell is the task, as soon as there is one.
            request
                .configuration
                .get_or_insert_default()
                .return_immediately = true;
        }
        let mut stream = TaskStream::new(
            self.with_idempotency_key()?,
            TaskFold::default(),
            Some(request),
        );
        stream.tells_early = true;
        if supports_streaming {
            stream.open_now().await
        } else {
            Ok(stream.without_stream())
        }
    }

    /// What the card says about streams; a client without a card does not know.
    pub(super) fn supports_streaming(&self) -> Option<bool> {
        if self.is_chat_peer {
            return Some(false);
        }
        self.card()
            .map(|card| card.capabilities.streaming == Some(true))
    }

    /// With a key by which a peer knows a message that comes again.
    fn with_idempotency_key(&self) -> Result<Self> {
        let mut client = self.clone();
        if !client.headers.contains_key(IDEMPOTENCY_KEY) {
            let (name, key) = parse_header(IDEMPOTENCY_KEY.as_str(), &Uuid::new_v4().to_string())?;
            client.headers.insert(name, key);
        }
        Ok(client)
    }

    /// Whether a message may be sent again after this: it surely did not arrive, or the peer knows it by its key.
    pub(super) fn can_resend(&self, error: &Error) -> bool {
        was_not_executed(error)
            || (self.settings.retries.idempotency_keys_supported && is_transient(error))
    }
}
