//! Messages: to a new task, or to one that is there; answered at once, at the end, or as it happens.

use std::sync::Arc;

use super::again::{of_key, refused};
use super::{Answer, Service, Stream, not_found};
use crate::agent::Failure;
use crate::engine::{Accepted, Opening};
use crate::model::{
    Call, Error, ErrorKind, Message, PushConfig, Result, SendMessageConfiguration,
    SendMessageRequest, SendMessageResponse, Task, TaskId,
};
use crate::store::{Head, Key, Registered};

/// What became of a message.
enum Sent<T> {
    /// A plain answer was enough.
    Reply(Message),
    /// It opened a task.
    Opened(Box<Accepted>, T),
    /// It went to a task that was there.
    Continued(Box<Accepted>, T),
}

impl Service {
    /// Sends a message, to a new task or to one that is there; waits for the answer unless asked not to.
    pub(super) async fn send_message(
        &self,
        call: &Call,
        request: Box<SendMessageRequest>,
    ) -> Result<Answer> {
        let (history_length, at_once) = (
            self.limits.history(request.history_length()),
            request.returns_immediately(),
        );
        let accepted = match self.accept(call, request, false, |_| Ok(())).await? {
            Sent::Reply(message) => return Ok(SendMessageResponse::Message(message).into()),
            Sent::Opened(accepted, ()) | Sent::Continued(accepted, ()) => accepted,
        };
        if !self.engine.keeps_tasks() {
            return Ok(SendMessageResponse::Message(Box::pin(self.told(accepted)).await?).into());
        }
        let id = accepted.head.id.clone();
        let mut task = match at_once {
            true => accepted.into_task().0,
            // Whoever has waited in vain must be able to ask for the task again.
            false => self
                .settled(accepted)
                .await
                .map_err(|error| of_task(error, &id))?,
        };
        task.limit_history(history_length);
        Ok(SendMessageResponse::Task(task).into())
    }

    /// What a turn came to, as a message; its task is dropped.
    async fn told(&self, accepted: Box<Accepted>) -> Result<Message> {
        let mut message = self.engine.concluded(accepted).await?.into_message();
        message.message_id = self.engine.fresh_id().into();
        Ok(message)
    }

    /// The task at the end of the turn, or as it is when the caller has waited long enough.
    async fn settled(&self, accepted: Box<Accepted>) -> Result<Task> {
        if accepted.has_settled() {
            return Ok(accepted.into_settled()?);
        }
        // Apart: most turns are over by now.
        Box::pin(self.settles(accepted)).await
    }

    async fn settles(&self, accepted: Box<Accepted>) -> Result<Task> {
        let Some(max_wait) = self.max_wait else {
            return Ok(self.engine.settled(accepted).await?);
        };
        let head = accepted.head.clone();
        match tokio::time::timeout(max_wait, self.engine.settled(accepted)).await {
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
    ) -> Result<Answer> {
        let history_length = self.limits.history(request.history_length());
        // Before anything is written: whoever finds no place has sent nothing.
        let place = self.places.take(call.caller())?;
        let sent = self.accept(call, request, true, |head| match head {
            Some(head) => place.at(&head.id),
            None => Ok(place),
        });
        let stream = match sent.await? {
            Sent::Reply(message) => Stream::message(message),
            Sent::Opened(accepted, place) => {
                let place = place.at(&accepted.head.id)?;
                Stream::opened(&self.engine, accepted, history_length, place)
            }
            Sent::Continued(accepted, place) => {
                Stream::continued(&self.engine, accepted, history_length, place)
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
        followed: bool,
        prepare: impl FnOnce(Option<&Head>) -> Result<T>,
    ) -> Result<Sent<T>> {
        if self.worker.is_none() {
            // As if it were gone already.
            return Err(ErrorKind::TaskNotFound.into());
        }
        let key = self.key(call, &request)?;
        // Apart, what most messages do not need: every call would keep room for it.
        let continued = match is_new(&request) {
            true => None,
            false => Box::pin(self.continued(call, &request)).await?,
        };
        let hook =
            |inner: &mut SendMessageConfiguration| inner.task_push_notification_config.take();
        let config = match request.configuration.as_mut().and_then(hook) {
            Some(hook) => {
                let config = self.inline_config(call, hook, key.as_ref(), continued.as_ref());
                Some(Box::new(Box::pin(config).await?))
            }
            None => None,
        };
        if let Some(head) = continued {
            let prepared = prepare(Some(&head))?;
            let config = match &config {
                // What was sent before has registered its webhook, and may have lost it since.
                Some(_) if Box::pin(self.again(call, key.as_ref())).await?.is_some() => None,
                _ => config,
            };
            return Ok(Sent::Continued(
                Box::pin(self.resume(call.clone(), head, request.message, key, config)).await?,
                prepared,
            ));
        }
        let prepared = prepare(None)?;
        if key.is_some()
            && let Some(accepted) = Box::pin(self.again(call, key.as_ref())).await?
        {
            return Ok(Sent::Opened(accepted, prepared));
        }
        let failure = match self.reply(&request.message, call).await? {
            Ok(Some(reply)) => return Ok(Sent::Reply(reply)),
            Ok(None) => None,
            // 06 §3: an agent that fails fails a task, and where there is none one is made.
            Err(failure) => Some(failure),
        };
        if self.budget.is_limited() {
            Box::pin(self.budget.check(&self.engine, &call.scope)).await?;
        }
        let SendMessageRequest { message, alias, .. } = *request;
        let message = Arc::new(message);
        let webhook = config.as_ref().and_then(|config| config.config.id.clone());
        let opened = self
            .engine
            .start(
                call.clone(),
                Opening {
                    message,
                    key,
                    alias,
                    config,
                    failure,
                    followed,
                },
            )
            .await;
        let accepted = opened.map_err(|error| refused(error, call.idempotency_key.is_some()))?;
        if let Some(webhook) = webhook {
            self.pushes.registered(&accepted.head, &webhook);
        }
        Ok(Sent::Opened(accepted, prepared))
    }

    /// The webhook that came with the message. It is of the task, by whatever name the caller knows that.
    async fn inline_config(
        &self,
        call: &Call,
        mut config: PushConfig,
        key: Option<&Key>,
        task: Option<&Head>,
    ) -> Result<Registered> {
        if !self.offer.has_push() {
            // 04 §3.7: a webhook that nobody would call is an error, not a silence.
            return Err(ErrorKind::PushNotificationNotSupported.into());
        }
        let field = "configuration.taskPushNotificationConfig.url";
        let task = task.map(|head| head.id.clone()).unwrap_or_default();
        if let Some(key) = key {
            config.name(&task, call.version, || of_key(key));
        }
        self.registered(call, config, &task, field).await
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
        config: Option<Box<Registered>>,
    ) -> Result<Box<Accepted>> {
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
            Some(config) => Some((self.register(&head, &config).await?, config)),
            None => None,
        };
        let named = call.idempotency_key.is_some();
        let resumed = self.engine.resume(call, &head, message, key).await;
        if let (Err(error), Some((replaced, config))) = (&resumed, registered)
            && error.is_refusal()
        {
            self.unregister(&head, &config, replaced).await?;
        }
        resumed.map_err(|error| refused(error, named).with("taskId", head.id.as_str()))
    }

    /// A plain answer, if the agent thinks that one is enough, or how it failed to say.
    async fn reply(
        &self,
        message: &Message,
        call: &Call,
    ) -> Result<Result<Option<Message>, Failure>> {
        let context_id = || {
            message
                .context_id
                .clone()
                .unwrap_or_else(|| self.engine.context_id())
        };
        let Some(worker) = &self.worker else {
            return Ok(Ok(None));
        };
        let mut reply = match worker.agent.reply(message, call).await {
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
fn is_new(request: &SendMessageRequest) -> bool {
    let SendMessageRequest { message, alias, .. } = request;
    message.task_id.is_none() && alias.is_none() && message.reference_task_ids.is_empty()
}

/// Names the task in what its caller is told, also where there is nothing but words.
fn of_task(error: Error, id: &TaskId) -> Error {
    let message = format!("{} (task {id})", error.message());
    error.with_message(message).with("taskId", id.as_str())
}
