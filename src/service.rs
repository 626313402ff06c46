//! The operations of the protocol, whatever carries them: validate, look within the caller's scope, call the engine.

mod answers;
mod budget;
mod cursor;
mod directory;
mod modes;
mod offer;
mod places;
mod push;
mod stream;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::agent::Failure;
use crate::engine::{Accepted, Engine, Opening, Worker};
use crate::model::{
    Call, CancelTaskRequest, Error, ErrorKind, GetTaskRequest, Json, Limits, ListTasksRequest,
    ListTasksResponse, Message, PushConfigId, Request, Response, Result, SendMessageRequest,
    SendMessageResponse, Seq, SubscribeToTaskRequest, Task, TaskId,
};
use crate::push::Pushes;
use crate::store::{self, Head, Key, Registered};

pub(crate) use budget::Budget;
pub(crate) use directory::{Asking, Directory, Resident};
pub(crate) use modes::Enforced;
pub(crate) use offer::Offer;
pub(crate) use places::{Most, Places};
pub(crate) use stream::{Item, Stream};

/// What a binding calls.
pub(crate) struct Service {
    engine: Engine,
    /// Who answers; `None`: nobody takes messages any more.
    worker: Option<Arc<Worker>>,
    offer: Offer,
    limits: Limits,
    places: Arc<Places>,
    pushes: Pushes,
    budget: Budget,
    /// How long a stream stays with a task that waits for somebody outside.
    patience: Option<Duration>,
    /// How long a call waits for the end of a turn.
    max_wait: Option<Duration>,
}

/// What an operation gives.
pub(crate) enum Answer {
    /// All at once.
    One(Response),
    /// As it happens.
    Stream(Stream),
}

impl Service {
    pub(crate) fn new(
        engine: Engine,
        worker: Option<Arc<Worker>>,
        offer: Offer,
        limits: Limits,
        (places, pushes): (Arc<Places>, Pushes),
        (patience, max_wait): (Option<Duration>, Option<Duration>),
    ) -> Self {
        Self { engine, worker, offer, limits, places, pushes, budget: Budget::default(), patience, max_wait }
    }

    /// Lets callers have so many tasks.
    pub(crate) fn with_budget(self, budget: Budget) -> Self {
        Self { budget, ..self }
    }

    /// The same for an agent that is to go: its tasks can be read and canceled, and nothing new begins.
    pub(crate) fn leaving(&self) -> Self {
        Self {
            engine: self.engine.clone(),
            worker: None,
            offer: self.offer.clone(),
            limits: self.limits.clone(),
            places: self.places.clone(),
            pushes: self.pushes.clone(),
            ..*self
        }
    }

    /// Who answers here.
    pub(crate) fn worker(&self) -> Option<&Arc<Worker>> {
        self.worker.as_ref()
    }

    /// Those of the extensions asked for that the agent knows.
    pub(crate) fn activate<'a>(&self, asked: impl IntoIterator<Item = &'a str>) -> Vec<String> {
        self.offer.activate(asked)
    }

    /// Whether tasks can be found now.
    pub(crate) async fn check(&self) -> Result<()> {
        self.engine.check().await.map_err(|error| match error {
            error @ crate::engine::Error::Unwritable(_) => error.into(),
            error => Error::from(error).with_message("the store does not answer"),
        })
    }

    /// Any operation: what is wrong with the request itself comes first, then what the agent does not offer.
    pub(crate) async fn call(&self, call: &Call, mut request: Request) -> Result<Answer> {
        request.validate(&self.limits)?;
        request.drop_reserved();
        self.offer.check(request.operation(), call)?;
        self.offer.check_modes(&request)?;
        let response = match request {
            Request::SendMessage(request) => Response::SendMessage(self.send_message(call, request).await?),
            Request::SendStreamingMessage(request) => {
                return Ok(Answer::Stream(self.send_streaming_message(call, request).await?));
            }
            Request::GetTask(request) => Response::Task(self.get_task(call, request).await?),
            Request::ListTasks(request) => Response::ListTasks(self.list_tasks(call, request).await?),
            Request::CancelTask(request) => Response::Task(self.cancel_task(call, request).await?),
            Request::SubscribeToTask(request) => {
                return Ok(Answer::Stream(self.subscribe_to_task(call, request).await?));
            }
            Request::CreatePushConfig(config) => {
                Response::PushConfig(self.create_push_config(call, config).await?)
            }
            Request::GetPushConfig(request) => {
                Response::PushConfig(self.get_push_config(call, request).await?)
            }
            Request::ListPushConfigs(request) => {
                Response::ListPushConfigs(self.list_push_configs(call, request).await?)
            }
            Request::DeletePushConfig(request) => {
                self.delete_push_config(call, request).await?;
                Response::Empty
            }
            Request::GetExtendedAgentCard(_) => Response::AgentCard(self.offer.extended_card(call.version)?),
        };
        Ok(Answer::One(response))
    }

    /// Sends a message, to a new task or to one that is there; waits for the answer unless asked not to.
    async fn send_message(&self, call: &Call, request: SendMessageRequest) -> Result<SendMessageResponse> {
        let (history_length, at_once) =
            (self.limits.history(request.history_length()), request.returns_immediately());
        let accepted = match self.accept(call, request, |_| Ok(())).await? {
            Sent::Reply(message) => return Ok(SendMessageResponse::Message(message)),
            Sent::Opened(accepted, ()) | Sent::Continued(accepted, ()) => accepted,
        };
        if !self.engine.keeps_tasks() {
            return Ok(SendMessageResponse::Message(self.told(accepted).await?));
        }
        let id = accepted.head.id.clone();
        let mut task = match at_once {
            true => accepted.into_task().0,
            // Whoever has waited in vain must be able to ask for the task again.
            false => self.settled(accepted).await.map_err(|error| of_task(error, &id))?,
        };
        task.limit_history(history_length);
        Ok(SendMessageResponse::Task(task))
    }

    /// What a turn came to, as a message; its task is dropped.
    async fn told(&self, accepted: Accepted) -> Result<Message> {
        let mut message = self.engine.concluded(accepted).await?.into_message();
        message.message_id = self.engine.fresh_id().into();
        Ok(message)
    }

    /// The task at the end of the turn, or as it is when the caller has waited long enough.
    async fn settled(&self, accepted: Accepted) -> Result<Task> {
        let Some(max_wait) = self.max_wait else { return Ok(self.engine.settled(accepted).await?) };
        let head = accepted.head.clone();
        match tokio::time::timeout(max_wait, self.engine.settled(accepted)).await {
            Ok(settled) => Ok(settled?),
            Err(_) => {
                let head =
                    self.engine.find(&head.scope, &head.id).await?.ok_or_else(|| not_found(&head.id))?;
                Ok(Arc::unwrap_or_clone(self.engine.task(&head).await?.0))
            }
        }
    }

    /// Sends a message, and streams what comes of it.
    async fn send_streaming_message(&self, call: &Call, request: SendMessageRequest) -> Result<Stream> {
        let history_length = self.limits.history(request.history_length());
        // Before anything is written: whoever finds no place has sent nothing.
        let place = self.places.take(call.caller())?;
        let sent = self.accept(call, request, |head| match head {
            Some(head) => place.at(&head.id),
            None => Ok(place),
        });
        match sent.await? {
            Sent::Reply(message) => Ok(Stream::message(message)),
            Sent::Opened(accepted, place) => {
                let place = place.at(&accepted.head.id)?;
                Ok(Stream::opened(&self.engine, &accepted, history_length, place))
            }
            Sent::Continued(accepted, place) => {
                Ok(Stream::continued(&self.engine, accepted, history_length, place))
            }
        }
    }

    /// Streams what happens to a task that is there: from where it stands, or from where the caller was cut off.
    async fn subscribe_to_task(&self, call: &Call, request: SubscribeToTaskRequest) -> Result<Stream> {
        let head = self.find(call, &request.id).await?;
        let place = self.places.take(call.caller())?.at(&head.id)?;
        // 01 §6: what can be refused before a stream begins is.
        self.engine.check_recording(&head)?;
        let within_reach = |seen: &Seq| {
            seen.0 > 0
                && *seen <= head.position
                && head.position.0 - seen.0 <= self.limits.max_replayed_entries
        };
        if let Some(seen) = call.last_seen.filter(within_reach) {
            let follow = self.engine.follow(&head, seen);
            if !head.state.is_terminal() || self.has_news(&head, seen).await? {
                return Ok(Stream::resumed(&head, follow, self.patience, place));
            }
        }
        let (task, at) = self.engine.task(&head).await?;
        if task.status.state.is_terminal() {
            return Err(Error::new(ErrorKind::UnsupportedOperation)
                .with_message("the task has ended; there is nothing to subscribe to")
                .with("taskId", head.id.as_str())
                .with("state", task.status.state.as_str()));
        }
        let task = shown(&task, self.limits.history(None), true);
        Ok(Stream::subscribed(&self.engine, &head, (task, at), self.patience, place))
    }

    /// Whether something that callers are told of came after a position of a task that has ended. All of it is in the
    /// store; whoever wrote it may be about to say so, and is waited for.
    async fn has_news(&self, head: &Head, mut seen: Seq) -> Result<bool> {
        let mut follow = self.engine.follow(head, seen);
        while seen < head.position {
            let entries = follow.next().await?;
            if entries.iter().any(stream::is_visible) {
                return Ok(true);
            }
            seen = entries.last().map_or(head.position, |entry| entry.seq);
        }
        Ok(false)
    }

    /// Takes a message in. `prepare` is called before anything is written, with the task that is continued.
    async fn accept<T>(
        &self,
        call: &Call,
        mut request: SendMessageRequest,
        prepare: impl FnOnce(Option<&Head>) -> Result<T>,
    ) -> Result<Sent<T>> {
        if self.worker.is_none() {
            // As if it were gone already.
            return Err(ErrorKind::TaskNotFound.into());
        }
        let key = self.key(call, &request)?;
        let config = self.inline_config(call, &mut request, key.as_ref()).await?;
        if let Some(head) = self.continued(call, &request).await? {
            let prepared = prepare(Some(&head))?;
            let config = match &config {
                // What was sent before has registered its webhook, and may have lost it since.
                Some(_) if self.again(call, key.as_ref()).await?.is_some() => None,
                _ => config,
            };
            return Ok(Sent::Continued(
                self.resume(call.clone(), head, request.message, key, config).await?,
                prepared,
            ));
        }
        let prepared = prepare(None)?;
        if let Some(accepted) = self.again(call, key.as_ref()).await? {
            return Ok(Sent::Opened(accepted, prepared));
        }
        let failure = match self.reply(&request.message, call).await? {
            Ok(Some(reply)) => return Ok(Sent::Reply(reply)),
            Ok(None) => None,
            // 06 §3: an agent that fails fails a task, and where there is none one is made.
            Err(failure) => Some(failure),
        };
        self.budget.check(&self.engine, &call.scope).await?;
        let SendMessageRequest { message, alias, .. } = request;
        let webhook = config.as_ref().and_then(|config| config.config.id.clone());
        let opened = self.engine.start(call.clone(), Opening { message, key, alias, config, failure }).await;
        let accepted = opened.map_err(|error| refused(error, call.idempotency_key.is_some()))?;
        if let Some(webhook) = webhook {
            self.pushes.registered(&accepted.head, &webhook);
        }
        Ok(Sent::Opened(accepted, prepared))
    }

    /// The webhook that came with the message.
    async fn inline_config(
        &self,
        call: &Call,
        request: &mut SendMessageRequest,
        key: Option<&Key>,
    ) -> Result<Option<Registered>> {
        let configuration = request.configuration.as_mut();
        let Some(mut config) = configuration.and_then(|inner| inner.task_push_notification_config.take())
        else {
            return Ok(None);
        };
        if !self.offer.has_push() {
            // 04 §3.7: a webhook that nobody would call is an error, not a silence.
            return Err(ErrorKind::PushNotificationNotSupported.into());
        }
        let field = "configuration.taskPushNotificationConfig.url";
        let task = request.message.task_id.clone().unwrap_or_default();
        if let Some(key) = key {
            config.name(&task, call.version, || of_key(key));
        }
        Ok(Some(self.registered(call, config, &task, field).await?))
    }

    /// Reads a task.
    async fn get_task(&self, call: &Call, request: GetTaskRequest) -> Result<Task> {
        let head = self.find(call, &request.id).await?;
        let (task, _) = self.engine.task(&head).await?;
        Ok(shown(&task, self.limits.history(request.history_length), true))
    }

    /// Lists the caller's tasks, newest status first.
    async fn list_tasks(&self, call: &Call, request: ListTasksRequest) -> Result<ListTasksResponse> {
        if !self.engine.keeps_tasks() {
            return Ok(ListTasksResponse { page_size: request.page_size(), ..ListTasksResponse::default() });
        }
        let scope = &call.scope;
        let mut query = cursor::query(&request)?;
        let history_length = self.limits.history(request.history_length);
        let size = query.limit;
        // One more than asked for tells whether there is another page.
        query.limit += 1;
        let page = self.engine.list(scope, &query).await?;
        let (mut tasks, mut weight, mut last) = (Vec::with_capacity(size), 0, None);
        for head in page.tasks.iter().take(size) {
            let (task, _) = match self.engine.task(head).await {
                Ok(task) => task,
                // One that was removed since is simply not there.
                Err(crate::engine::Error::Gone) => {
                    last = Some(head);
                    continue;
                }
                Err(error) => return Err(error.into()),
            };
            let task = shown(&task, history_length, request.include_artifacts == Some(true));
            weight += task.weight();
            if weight > self.limits.max_page_bytes && !tasks.is_empty() {
                break;
            }
            tasks.push(task);
            last = Some(head);
        }
        let more = last.is_some_and(|last| page.tasks.last().is_some_and(|end| end.id != last.id));
        let next_page_token =
            last.filter(|_| more).map_or_else(String::new, |last| cursor::write(&request, last));
        let total_size = i32::try_from(page.total).unwrap_or(i32::MAX);
        Ok(ListTasksResponse { tasks, next_page_token, page_size: request.page_size(), total_size })
    }

    /// Asks for a task to be canceled.
    async fn cancel_task(&self, call: &Call, request: CancelTaskRequest) -> Result<Task> {
        let head = self.find(call, &request.id).await?;
        self.engine.cancel(&head, request.metadata).await.map_err(|error| match error {
            crate::engine::Error::Ended(_) => {
                Error::new(ErrorKind::TaskNotCancelable).with("taskId", request.id.as_str())
            }
            error => error.into(),
        })
    }

    async fn find(&self, call: &Call, id: &TaskId) -> Result<Head> {
        if !self.engine.keeps_tasks() {
            return Err(not_found(id));
        }
        self.engine.find(&call.scope, id).await?.ok_or_else(|| not_found(id))
    }

    /// The task that a message continues: the one it names or, for a client of the first days, the one it chose a
    /// name for before.
    async fn continued(&self, call: &Call, request: &SendMessageRequest) -> Result<Option<Head>> {
        match (&request.message.task_id, &request.alias) {
            (Some(id), _) => Ok(Some(self.find(call, id).await?)),
            (None, Some(alias)) => Ok(self.engine.find(&call.scope, alias).await?),
            (None, None) => self.answered(call, &request.message).await,
        }
    }

    async fn resume(
        &self,
        call: Call,
        head: Head,
        message: Message,
        key: Option<Key>,
        config: Option<Registered>,
    ) -> Result<Accepted> {
        if message.context_id.as_ref().is_some_and(|context_id| *context_id != head.context_id) {
            return Err(Error::invalid("message.contextId", "does not match the context of the task"));
        }
        if let Some(config) = config.filter(|_| !head.state.is_terminal()) {
            self.register(&head, &config).await?;
        }
        let named = call.idempotency_key.is_some();
        let resumed = self.engine.resume(call, &head, message, key).await;
        resumed.map_err(|error| refused(error, named).with("taskId", head.id.as_str()))
    }

    /// What the same message became when it was sent before.
    async fn again(&self, call: &Call, key: Option<&Key>) -> Result<Option<Accepted>> {
        let Some(key) = key else { return Ok(None) };
        let again = self.engine.again(&call.scope, key).await;
        again.map_err(|error| refused(error, call.idempotency_key.is_some()))
    }

    /// What makes the message the same message when it is sent again: the key that came with it or, where that is
    /// wanted, its own id. 04 §3.4.
    fn key(&self, call: &Call, request: &SendMessageRequest) -> Result<Option<Key>> {
        match &call.idempotency_key {
            Some(text) => named_key(text, request).map(Some),
            None if self.engine.knows_messages() => message_key(request).map(Some),
            None => Ok(None),
        }
    }

    /// A plain answer, if the agent thinks that one is enough, or how it failed to say.
    async fn reply(&self, message: &Message, call: &Call) -> Result<Result<Option<Message>, Failure>> {
        let context_id = || message.context_id.clone().unwrap_or_else(|| self.engine.context_id());
        let Some(worker) = &self.worker else { return Ok(Ok(None)) };
        let mut reply = match worker.agent.reply(message, call).await {
            Ok(Some(reply)) => reply,
            other => return Ok(other),
        };
        // 04 §3.8: a plain answer says something, and belongs to no task.
        if reply.parts.is_empty() || reply.task_id.is_some() {
            tracing::warn!(kind = "invalid-agent-response", "agent failed");
            return Err(ErrorKind::InvalidAgentResponse.into());
        }
        reply.context_id.get_or_insert_with(context_id);
        Ok(Ok(Some(reply)))
    }
}

/// What became of a message.
enum Sent<T> {
    /// A plain answer was enough.
    Reply(Message),
    /// It opened a task.
    Opened(Accepted, T),
    /// It went to a task that was there.
    Continued(Accepted, T),
}

/// As much of a task as was asked for; others may hold it too, so the rest is not even copied.
fn shown(task: &Task, history_length: Option<i32>, artifacts: bool) -> Task {
    let length = history_length.and_then(|length| usize::try_from(length).ok()).unwrap_or(usize::MAX);
    Task {
        id: task.id.clone(),
        context_id: task.context_id.clone(),
        status: task.status.clone(),
        artifacts: if artifacts { task.artifacts.clone() } else { Vec::new() },
        history: task.history[task.history.len().saturating_sub(length)..].to_vec(),
        metadata: task.metadata.clone(),
    }
}

/// A key that the caller chose: it stands for all that was sent, the name of the task included.
fn named_key(text: &str, request: &SendMessageRequest) -> Result<Key> {
    if text.is_empty() || text.len() > 256 || text.chars().any(char::is_control) {
        return Err(Error::invalid("Idempotency-Key", "must be 1 to 256 bytes without control characters"));
    }
    let body = match &request.alias {
        // In the first days messages had no ids; the one this has was made up as it came in.
        Some(alias) => {
            let message = Message { message_id: "".into(), ..request.message.clone() };
            let rest =
                Json::of(&SendMessageRequest { message, ..request.clone() }).map_err(Error::internal)?;
            format!("{alias}\n{}", rest.get())
        }
        None => Json::of(request).map_err(Error::internal)?.get().to_owned(),
    };
    Ok(Key { text: text.to_owned(), body: Sha256::digest(body).into() })
}

/// The message's own id as its key. It begins as no key that a caller chooses can, so the two never meet.
fn message_key(request: &SendMessageRequest) -> Result<Key> {
    let body = Json::of(&request.message).map_err(Error::internal)?;
    let text = format!("\u{1}{}", request.message.message_id);
    Ok(Key { text, body: Sha256::digest(body.get()).into() })
}

/// The id of a webhook that came with a message of this key: whoever sends that again names the same webhook, also where the two
/// race, or the first was lost on its way to the log.
fn of_key(key: &Key) -> PushConfigId {
    let digest = Sha256::new().chain_update(key.text.as_bytes()).chain_update(key.body).finalize();
    let id = digest.iter().take(16).fold(String::new(), |id, byte| format!("{id}{byte:02x}"));
    PushConfigId::from(id)
}

/// What a caller is told; one who chose no key has used an id twice.
fn refused(error: crate::engine::Error, named: bool) -> Error {
    match error {
        crate::engine::Error::Store(store::Error::KeyReused) if !named => {
            Error::invalid("message.messageId", "was used before with another message")
        }
        error => error.into(),
    }
}

/// Names the task in what its caller is told, also where there is nothing but words.
fn of_task(error: Error, id: &TaskId) -> Error {
    let message = format!("{} (task {id})", error.message());
    error.with_message(message).with("taskId", id.as_str())
}

fn not_found(id: &TaskId) -> Error {
    Error::new(ErrorKind::TaskNotFound).with("taskId", id.as_str())
}
