//! Messages: to a new task, or to one that is there; answered at once, at the end, or as it happens.

use std::sync::Arc;

use super::idempotency::{key_reuse_error, push_config_id_for_key};
use super::{Service, ServiceResponse, TaskEventStream, not_found};
use crate::agent::Failure;
use crate::engine::{AcceptedMessage, InitialMessage};
use crate::model::{
    Call, Error, ErrorKind, Message, PushConfig, Result, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, Task, TaskId,
};
use crate::store::{Head, IdempotencyKey, PushRegistration};

/// What became of a message.
enum SendOutcome<T> {
    /// A plain answer was enough.
    Reply(Message),
    /// It opened a task.
    Opened(Box<AcceptedMessage>, T),
    /// It went to a task that was there.
    Continued(Box<AcceptedMessage>, T),
}

impl Service {
    /// Sends a message, to a new task or to one that is there; waits for the answer unless asked not to.
    pub(super) async fn send_message(
        &self,
        call: &Call,
        request: Box<SendMessageRequest>,
    ) -> Result<ServiceResponse> {
        let (history_length, return_immediately) = (
            self.limits.clamp_history_length(request.history_length()),
            request.returns_immediately(),
        );
        let accepted = match self.accept(call, request, false, |_| Ok(())).await? {
            SendOutcome::Reply(message) => return Ok(SendMessageResponse::Message(message).into()),
            SendOutcome::Opened(accepted, ()) | SendOutcome::Continued(accepted, ()) => accepted,
        };
        if !self.engine.keeps_tasks() {
            return Ok(SendMessageResponse::Message(
                Box::pin(self.await_ephemeral_reply(accepted)).await?,
            )
            .into());
        }
        let id = accepted.head.id.clone();
        let mut task = match return_immediately {
            true => accepted.into_task().0,
            // Whoever has waited in vain must be able to ask for the task again.
            false => self
                .wait_for_turn(accepted)
                .await
                .map_err(|error| with_task_id(error, &id))?,
        };
        task.limit_history(history_length);
        Ok(SendMessageResponse::Task(task).into())
    }

    /// What a turn came to, as a message; its task is dropped.
    async fn await_ephemeral_reply(&self, accepted: Box<AcceptedMessage>) -> Result<Message> {
        let mut message = self
            .engine
            .await_turn_end_and_delete(accepted)
            .await?
            .into_message();
        message.message_id = self.engine.new_id().into();
        Ok(message)
    }

    /// The task at the end of the turn, or as it is when the caller has waited long enough.
    async fn wait_for_turn(&self, accepted: Box<AcceptedMessage>) -> Result<Task> {
        if accepted.has_turn_result() {
            return Ok(accepted.into_turn_result()?);
        }
        // Apart: most turns are over by now.
        Box::pin(self.wait_with_timeout(accepted)).await
    }

    async fn wait_with_timeout(&self, accepted: Box<AcceptedMessage>) -> Result<Task> {
        let Some(max_blocking_wait) = self.max_blocking_wait else {
            return Ok(self.engine.await_turn_result(accepted).await?);
        };
        let head = accepted.head.clone();
        match tokio::time::timeout(max_blocking_wait, self.engine.await_turn_result(accepted)).await
        {
            Ok(settled) => Ok(settled?),
            Err(_) => {
                let head = self
                    .engine
                    .find(&head.scope, &head.id)
                    .await?
                    .ok_or_else(|| not_found(&head.id))?;
                Ok(Arc::unwrap_or_clone(self.engine.task(&head).await?.0))
            }
        }
    }

    /// Sends a message, and streams what comes of it.
    pub(super) async fn send_streaming_message(
        &self,
        call: &Call,
        request: Box<SendMessageRequest>,
    ) -> Result<ServiceResponse> {
        let history_length = self.limits.clamp_history_length(request.history_length());
        // Before anything is written: whoever finds no place has sent nothing.
        let permit = self.stream_limiter.acquire(call.caller())?;
        let sent = self.accept(call, request, true, |head| match head {
            Some(head) => permit.for_task(&head.id),
            None => Ok(permit),
        });
        let stream = match sent.await? {
            SendOutcome::Reply(message) => TaskEventStream::from_message(message),
            SendOutcome::Opened(accepted, permit) => {
                let permit = permit.for_task(&accepted.head.id)?;
                TaskEventStream::for_new_task(&self.engine, accepted, history_length, permit)
            }
            SendOutcome::Continued(accepted, permit) => {
                TaskEventStream::for_continued_task(&self.engine, accepted, history_length, permit)
            }
        };
        Ok(stream.into())
    }

    /// Takes a message in, for somebody who follows what comes of it or not. `prepare` is called before anything is written,
    /// with the task that is continued.
    async fn accept<T>(
        &self,
        call: &Call,
        mut request: Box<SendMessageRequest>,
        is_followed: bool,
        prepare: impl FnOnce(Option<&Head>) -> Result<T>,
    ) -> Result<SendOutcome<T>> {
        if self.agent.is_none() {
            // As if it were gone already.
            return Err(ErrorKind::TaskNotFound.into());
        }
        let key = self.idempotency_key(call, &request)?;
        // Apart, what most messages do not need: every call would keep room for it.
        let continued = match opens_new_task(&request) {
            true => None,
            false => Box::pin(self.find_continued_task(call, &request)).await?,
        };
        let hook =
            |inner: &mut SendMessageConfiguration| inner.task_push_notification_config.take();
        let config = match request.configuration.as_mut().and_then(hook) {
            Some(hook) => {
                let config = self.inline_push_config(call, hook, key.as_ref(), continued.as_ref());
                Some(Box::new(Box::pin(config).await?))
            }
            None => None,
        };
        if let Some(head) = continued {
            let prepared = prepare(Some(&head))?;
            let config = match &config {
                // What was sent before has registered its webhook, and may have lost it since.
                Some(_)
                    if Box::pin(self.find_replay(call, key.as_ref()))
                        .await?
                        .is_some() =>
                {
                    None
                }
                _ => config,
            };
            return Ok(SendOutcome::Continued(
                Box::pin(self.resume_task(call.clone(), head, request.message, key, config))
                    .await?,
                prepared,
            ));
        }
        let prepared = prepare(None)?;
        if key.is_some()
            && let Some(accepted) = Box::pin(self.find_replay(call, key.as_ref())).await?
        {
            return Ok(SendOutcome::Opened(accepted, prepared));
        }
        let failure = match self.direct_reply(&request.message, call).await? {
            Ok(Some(reply)) => return Ok(SendOutcome::Reply(reply)),
            Ok(None) => None,
            // 06 §3: an agent that fails fails a task, and where there is none one is made.
            Err(failure) => Some(failure),
        };
        if self.quota.is_limited() {
            Box::pin(self.quota.check(&self.engine, &call.scope)).await?;
        }
        let SendMessageRequest { message, alias, .. } = *request;
        let message = Arc::new(message);
        let webhook = config.as_ref().and_then(|config| config.config.id.clone());
        let opened = self
            .engine
            .start(
                call.clone(),
                InitialMessage {
                    message,
                    key,
                    alias,
                    config,
                    failure,
                    is_followed,
                },
            )
            .await;
        let accepted =
            opened.map_err(|error| key_reuse_error(error, call.idempotency_key.is_some()))?;
        if let Some(webhook) = webhook {
            self.push.start_delivery(&accepted.head, &webhook);
        }
        Ok(SendOutcome::Opened(accepted, prepared))
    }

    /// The webhook that came with the message. It is of the task, by whatever name the caller knows that.
    async fn inline_push_config(
        &self,
        call: &Call,
        mut config: PushConfig,
        key: Option<&IdempotencyKey>,
        task: Option<&Head>,
    ) -> Result<PushRegistration> {
        if !self.capabilities.has_push() {
            // 04 §3.7: a webhook that nobody would call is an error, not a silence.
            return Err(ErrorKind::PushNotificationNotSupported.into());
        }
        let field = "configuration.taskPushNotificationConfig.url";
        let task = task.map(|head| head.id.clone()).unwrap_or_default();
        if let Some(key) = key {
            config.assign_id(&task, call.version, || push_config_id_for_key(key));
        }
        self.prepare_push_config(call, config, &task, field).await
    }

    /// The task that a message continues: the one it names or, for a client of the first days, the one it chose a
    /// name for before.
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

    async fn resume_task(
        &self,
        call: Call,
        head: Head,
        message: Message,
        key: Option<IdempotencyKey>,
        config: Option<Box<PushRegistration>>,
    ) -> Result<Box<AcceptedMessage>> {
        if message
            .context_id
            .as_ref()
            .is_some_and(|context_id| *context_id != head.context_id)
        {
            return Err(Error::invalid(
                "message.contextId",
                "does not match the context of the task",
            ));
        }
        // Before the message, so that nothing of what comes of it is missed.
        let registered = match config.filter(|_| !head.state.is_terminal()) {
            Some(config) => Some((self.save_push_config(&head, &config).await?, config)),
            None => None,
        };
        let named = call.idempotency_key.is_some();
        let resumed = self.engine.resume(call, &head, message, key).await;
        if let (Err(error), Some((replaced, config))) = (&resumed, registered)
            && error.is_refusal()
        {
            self.revert_push_config(&head, &config, replaced).await?;
        }
        resumed
            .map_err(|error| key_reuse_error(error, named).with_detail("taskId", head.id.as_str()))
    }

    /// A plain answer, if the agent thinks that one is enough, or how it failed to say.
    async fn direct_reply(
        &self,
        message: &Message,
        call: &Call,
    ) -> Result<Result<Option<Message>, Failure>> {
        let context_id = || {
            message
                .context_id
                .clone()
                .unwrap_or_else(|| self.engine.new_context_id())
        };
        let Some(agent) = &self.agent else {
            return Ok(Ok(None));
        };
        let mut reply = match agent.agent.reply(message, call).await {
            Ok(Some(reply)) => reply,
            other => return Ok(other),
        };
        // 04 §3.8: a plain answer says something, and belongs to no task.
        if reply.parts.is_empty() || reply.task_id.is_some() {
            tracing::warn!(agent = %call.scope.agent, kind = "invalid-agent-response", "agent failed");
            return Err(ErrorKind::InvalidAgentResponse.into());
        }
        reply.context_id.get_or_insert_with(context_id);
        Ok(Ok(Some(reply)))
    }
}

/// Whether a message opens a task, whatever tasks there are: it names none, and answers none.
fn opens_new_task(request: &SendMessageRequest) -> bool {
    let SendMessageRequest { message, alias, .. } = request;
    message.task_id.is_none() && alias.is_none() && message.reference_task_ids.is_empty()
}

/// Names the task in what its caller is told, also where there is nothing but words.
fn with_task_id(error: Error, id: &TaskId) -> Error {
    let message = format!("{} (task {id})", error.message());
    error
        .with_message(message)
        .with_detail("taskId", id.as_str())
}
