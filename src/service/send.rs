//! `SendMessage` and `SendStreamingMessage`: open a task, continue one, or return the agent's direct reply.

use std::sync::Arc;

use super::idempotency::{key_reuse_error, push_config_id_for_key};
use super::tasks::not_found;
use super::{Service, ServiceResponse, TaskEventStream};
use crate::agent::Failure;
use crate::engine::{AcceptedMessage, InitialMessage};
use crate::model::{
    Call, Error, ErrorKind, Message, PushConfig, Response, Result, SendMessageRequest,
    SendMessageResponse, Task, TaskId,
};
use crate::store::{Head, IdempotencyKey, PushRegistration};

/// Result of accepting a message. `T` is the value that `prepare` returned.
enum SendOutcome<T> {
    /// The agent replied without a task.
    Reply(Message),
    Opened(Box<AcceptedMessage>, T),
    Continued(Box<AcceptedMessage>, T),
}

/// Result of a message that names no existing task.
enum NewTaskOutcome {
    Reply(Message),
    Opened(Box<AcceptedMessage>),
}

/// Result of asking the agent for a direct reply.
enum DirectReply {
    Message(Message),
    /// The message needs a task.
    OpenTask,
    Failed(Failure),
}

/// A message with its idempotency key and the webhook that came with it.
struct SendParams {
    request: Box<SendMessageRequest>,
    key: Option<IdempotencyKey>,
    webhook: Option<Box<PushRegistration>>,
}

impl Service {
    /// `SendMessage`. Waits for the end of the turn unless `returnImmediately` is set.
    pub(super) async fn send_message(
        &self,
        call: &Call,
        request: Box<SendMessageRequest>,
        key: Option<Box<IdempotencyKey>>,
    ) -> Result<ServiceResponse> {
        let limits = &self.options.limits;
        let history_length = limits.clamp_history_length(request.history_length());
        let returns_immediately = request.returns_immediately();
        let accepted = match self.accept(call, request, key, false, |_| Ok(())).await? {
            SendOutcome::Reply(message) => return Ok(SendMessageResponse::Message(message).into()),
            SendOutcome::Opened(accepted, ()) | SendOutcome::Continued(accepted, ()) => accepted,
        };
        if !self.engine.keeps_tasks() {
            let reply = Box::pin(self.await_ephemeral_reply(accepted)).await?;
            return Ok(SendMessageResponse::Message(reply).into());
        }
        let task = if returns_immediately {
            accepted.into_task().0
        } else {
            let id = accepted.head.id.clone();
            // The id lets the client poll the task after a timeout or a failure.
            self.wait_for_turn(accepted)
                .await
                .map_err(|error| with_task_id(error, &id))?
        };
        let (task, reservation) = self.count_task(call, task, history_length).await;
        let response = Box::new(Response::SendMessage(SendMessageResponse::Task(task)));
        Ok(ServiceResponse::Single(response, reservation))
    }

    /// Waits for the end of the turn, deletes the task and returns its result as a message.
    async fn await_ephemeral_reply(&self, accepted: Box<AcceptedMessage>) -> Result<Message> {
        let task = self.engine.await_turn_end_and_delete(accepted).await?;
        let mut message = task.into_message();
        message.message_id = self.engine.new_id().into();
        Ok(message)
    }

    /// Returns the task at the end of the turn, or its current state after `max_blocking_wait`.
    async fn wait_for_turn(&self, accepted: Box<AcceptedMessage>) -> Result<Task> {
        if accepted.has_turn_result() {
            return Ok(accepted.into_turn_result()?);
        }
        // Boxed: future size.
        Box::pin(self.wait_with_timeout(accepted)).await
    }

    async fn wait_with_timeout(&self, accepted: Box<AcceptedMessage>) -> Result<Task> {
        let Some(max_wait) = self.options.max_blocking_wait else {
            return Ok(self.engine.await_turn_result(accepted).await?);
        };
        let head = accepted.head.clone();
        match tokio::time::timeout(max_wait, self.engine.await_turn_result(accepted)).await {
            Ok(task) => Ok(task?),
            Err(_) => {
                let found = self.engine.find(&head.scope, &head.id).await?;
                let head = found.ok_or_else(|| not_found(&head.id))?;
                Ok(Arc::unwrap_or_clone(self.engine.task(&head).await?.0))
            }
        }
    }

    /// `SendStreamingMessage`.
    pub(super) async fn send_streaming_message(
        &self,
        call: &Call,
        request: Box<SendMessageRequest>,
        key: Option<Box<IdempotencyKey>>,
    ) -> Result<ServiceResponse> {
        let options = &self.options;
        let history_length = options
            .limits
            .clamp_history_length(request.history_length());
        // Acquired before the message is written: a refused stream must not start a turn.
        let permit = options.stream_limiter.acquire(call.caller_key())?;
        let accepting = self.accept(call, request, key, true, |continued| match continued {
            Some(head) => permit.for_task(&head.id),
            None => Ok(permit),
        });
        let stream = match accepting.await? {
            SendOutcome::Reply(message) => TaskEventStream::from_message(message),
            SendOutcome::Opened(accepted, permit) => {
                let permit = permit.for_task(&accepted.head.id)?;
                TaskEventStream::for_new_task(&self.engine, accepted, history_length, permit)
            }
            SendOutcome::Continued(accepted, permit) => {
                TaskEventStream::for_continued_task(&self.engine, accepted, history_length, permit)
            }
        };
        Ok(self.count_stream(stream).into())
    }

    /// Accepts a message: appends it to a new or existing task, or returns the agent's direct reply.
    ///
    /// `prepare` runs before anything is written; its argument is the task that the message continues.
    async fn accept<T>(
        &self,
        call: &Call,
        mut request: Box<SendMessageRequest>,
        key: Option<Box<IdempotencyKey>>,
        is_followed: bool,
        prepare: impl FnOnce(Option<&Head>) -> Result<T>,
    ) -> Result<SendOutcome<T>> {
        if self.agent.is_none() {
            // A draining agent responds as a removed one does.
            return Err(ErrorKind::TaskNotFound.into());
        }
        let key = match key {
            Some(key) => Some(*key),
            None => self.idempotency_key(call, &request)?,
        };
        let continued = if opens_new_task(&request) {
            None
        } else {
            // Boxed: future size.
            Box::pin(self.find_continued_task(call, &request)).await?
        };
        let webhook = match take_push_config(&mut request) {
            Some(config) => {
                let task = continued.as_ref();
                let webhook = self.inline_push_config(call, config, key.as_ref(), task);
                // Boxed: future size.
                Some(Box::new(Box::pin(webhook).await?))
            }
            None => None,
        };
        let prepared = prepare(continued.as_ref())?;
        request.record_dialect();
        let params = SendParams {
            request,
            key,
            webhook,
        };
        if let Some(head) = continued {
            // Boxed: future size.
            let accepted = Box::pin(self.continue_task(call, head, params)).await?;
            return Ok(SendOutcome::Continued(accepted, prepared));
        }
        Ok(match self.open_task(call, params, is_followed).await? {
            NewTaskOutcome::Reply(message) => SendOutcome::Reply(message),
            NewTaskOutcome::Opened(accepted) => SendOutcome::Opened(accepted, prepared),
        })
    }

    /// Opens a task, unless the message is a replay or the agent replies directly.
    async fn open_task(
        &self,
        call: &Call,
        params: SendParams,
        is_followed: bool,
    ) -> Result<NewTaskOutcome> {
        let SendParams {
            request,
            key,
            webhook,
        } = params;
        if key.is_some()
            && let Some(accepted) = Box::pin(self.find_replay(call, key.as_ref())).await?
        {
            return Ok(NewTaskOutcome::Opened(accepted));
        }
        let failure = match self.direct_reply(&request.message, call).await? {
            DirectReply::Message(message) => return Ok(NewTaskOutcome::Reply(message)),
            DirectReply::OpenTask => None,
            // 06 §3: an agent failure is reported as a failed task.
            DirectReply::Failed(failure) => Some(failure),
        };
        if self.options.quota.applies_to(call.caller()) {
            // Boxed: future size.
            Box::pin(self.options.quota.check(&self.engine, &call.scope)).await?;
        }
        let config_id = webhook
            .as_ref()
            .and_then(|webhook| webhook.config.id.clone());
        let SendMessageRequest { message, alias, .. } = *request;
        let initial = InitialMessage {
            message: Arc::new(message),
            key,
            alias,
            config: webhook,
            failure,
            is_followed,
        };
        let opened = self.engine.start(call.clone(), initial).await;
        let accepted =
            opened.map_err(|error| key_reuse_error(error, call.idempotency_key.is_some()))?;
        if let Some(config_id) = config_id {
            self.push.start_delivery(&accepted.head, &config_id);
        }
        Ok(NewTaskOutcome::Opened(accepted))
    }

    /// Prepares the push configuration of `configuration.taskPushNotificationConfig`.
    ///
    /// With an idempotency key the configuration id is derived from the key, so that a retry names the same webhook.
    async fn inline_push_config(
        &self,
        call: &Call,
        mut config: PushConfig,
        key: Option<&IdempotencyKey>,
        task: Option<&Head>,
    ) -> Result<PushRegistration> {
        if !self.options.capabilities.has_push() {
            // 04 §3.7: refused, not silently ignored.
            return Err(ErrorKind::PushNotificationNotSupported.into());
        }
        let field = "configuration.taskPushNotificationConfig.url";
        let task = task.map(|head| head.id.clone()).unwrap_or_default();
        if let Some(key) = key {
            config.assign_id(&task, call.version, || push_config_id_for_key(key));
        }
        self.prepare_push_config(call, config, &task, field).await
    }

    /// Finds the task that a message continues: by task id, by the alias of a 0.1 client, or by a tool result.
    async fn find_continued_task(
        &self,
        call: &Call,
        request: &SendMessageRequest,
    ) -> Result<Option<Head>> {
        match (&request.message.task_id, &request.alias) {
            (Some(id), _) => Ok(Some(self.find(call, id).await?)),
            (None, Some(alias)) => Ok(self.engine.find(&call.scope, alias).await?),
            (None, None) => self.task_awaiting_result(call, &request.message).await,
        }
    }

    /// Appends a message to an existing task. The webhook of a replayed message is not registered again.
    async fn continue_task(
        &self,
        call: &Call,
        head: Head,
        params: SendParams,
    ) -> Result<Box<AcceptedMessage>> {
        let SendParams {
            request,
            key,
            webhook,
        } = params;
        let webhook = match webhook {
            // The client may have deleted the webhook since the first attempt.
            Some(_) if self.find_replay(call, key.as_ref()).await?.is_some() => None,
            webhook => webhook,
        };
        let message = request.message;
        if message
            .context_id
            .as_ref()
            .is_some_and(|id| *id != head.context_id)
        {
            let problem = "does not match the context of the task";
            return Err(Error::invalid("message.contextId", problem));
        }
        // Registered before the message is appended, so that the webhook misses no event.
        let registered = match webhook.filter(|_| !head.state.is_terminal()) {
            Some(webhook) => Some((self.save_push_config(&head, &webhook).await?, webhook)),
            None => None,
        };
        let is_explicit = call.idempotency_key.is_some();
        let resumed = self
            .engine
            .continue_task(call.clone(), &head, message, key)
            .await;
        if let (Err(error), Some((replaced, webhook))) = (&resumed, registered)
            && error.is_refusal()
        {
            self.revert_push_config(&head, &webhook, replaced).await?;
        }
        resumed.map_err(|error| {
            key_reuse_error(error, is_explicit).with_detail("taskId", head.id.as_str())
        })
    }

    /// Asks the agent for a direct reply and validates it.
    ///
    /// # Errors
    /// Invalid agent response: the reply has no parts, or names a task (04 §3.8).
    async fn direct_reply(&self, message: &Message, call: &Call) -> Result<DirectReply> {
        let Some(agent) = &self.agent else {
            return Ok(DirectReply::OpenTask);
        };
        let mut reply = match agent.agent.reply(message, call).await {
            Ok(Some(reply)) => reply,
            Ok(None) => return Ok(DirectReply::OpenTask),
            Err(failure) => return Ok(DirectReply::Failed(failure)),
        };
        if reply.parts.is_empty() || reply.task_id.is_some() {
            tracing::warn!(agent = %call.scope.agent, kind = "invalid-agent-response", "agent failed");
            return Err(ErrorKind::InvalidAgentResponse.into());
        }
        let context_id = || {
            let requested = message.context_id.clone();
            requested.unwrap_or_else(|| self.engine.new_context_id())
        };
        reply.context_id.get_or_insert_with(context_id);
        // Boxed: future size.
        let filtered = Box::pin(self.options.hooks.filter_reply(call, reply));
        Ok(DirectReply::Message(filtered.await?))
    }
}

fn take_push_config(request: &mut SendMessageRequest) -> Option<PushConfig> {
    let configuration = request.configuration.as_mut()?;
    configuration.task_push_notification_config.take()
}

/// Whether a message opens a task without a lookup: it names no task, no alias and no referenced task.
fn opens_new_task(request: &SendMessageRequest) -> bool {
    let SendMessageRequest { message, alias, .. } = request;
    message.task_id.is_none() && alias.is_none() && message.reference_task_ids.is_empty()
}

/// Adds the task id to an error, in the message too: some bindings transmit only the message.
fn with_task_id(error: Error, id: &TaskId) -> Error {
    let message = format!("{} (task {id})", error.message());
    error
        .with_message(message)
        .with_detail("taskId", id.as_str())
}
