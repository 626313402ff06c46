//! Hooks on the events of one turn, before they are stored.

use std::sync::Arc;

use super::hook::HookResult;
use super::{Hook, HookContext, HookError, HookPhase, TurnFilter};
use crate::model::{
    ArtifactId, ClientAddress, ContextId, Error, Event, MessageId, Scope, StreamResponse,
    TaskArtifactUpdateEvent, TaskId, TaskState, TaskStatusUpdateEvent,
};

/// Refusal of a hook, with the error for the caller.
pub(crate) struct Denial {
    pub(crate) error: Error,
}

/// Task whose events a pipeline receives.
pub(crate) struct EventOrigin {
    pub(crate) scope: Scope,
    /// Address of the client that started the turn, if it is known.
    pub(crate) client: Option<ClientAddress>,
    /// `None` for a direct reply.
    pub(crate) task_id: Option<TaskId>,
    pub(crate) context_id: Option<ContextId>,
}

/// Event hooks of one turn, with their states.
pub(crate) struct EventPipeline {
    agent: Arc<str>,
    origin: EventOrigin,
    stages: Vec<Stage>,
}

/// One hook of a pipeline.
struct Stage {
    hook: Hook,
    filter: StageFilter,
    /// Whether the hook exceeded its timeout in the current batch and fails open. It is skipped until the next one, so
    /// that a hook which hangs delays a batch by one timeout.
    is_paused: bool,
}

/// State of a hook for the turn.
enum StageFilter {
    /// No event has arrived yet.
    NotCreated,
    /// The hook has no state.
    Stateless,
    PerTurn(Box<dyn TurnFilter>),
}

/// Members of an event that a hook cannot change.
enum EventIdentity {
    Message(MessageId),
    Status {
        state: TaskState,
        message_id: Option<MessageId>,
    },
    Artifact {
        id: ArtifactId,
        append: bool,
        last_chunk: bool,
    },
    Task,
}

impl EventPipeline {
    pub(super) fn new(agent: &Arc<str>, hooks: &[Hook], origin: EventOrigin) -> Self {
        let own = hooks.iter().filter(|hook| hook.intercepts_events());
        let stages = own.map(|hook| Stage {
            filter: StageFilter::NotCreated,
            hook: hook.clone(),
            is_paused: false,
        });
        let stages = stages.collect();
        Self {
            agent: agent.clone(),
            origin,
            stages,
        }
    }

    /// Runs the hooks on a batch of log events. Internal events pass unchanged.
    ///
    /// # Errors
    /// A hook denies an event, or has failed and fails closed. The event and all after it were removed.
    pub(crate) async fn apply_all(&mut self, events: &mut Vec<Event>) -> Result<(), Denial> {
        self.apply_until(events, || false).await?;
        Ok(())
    }

    /// Runs the hooks on a batch of log events, at least on the first one, until `is_interrupted`. Returns the number of
    /// events that have passed.
    ///
    /// # Errors
    /// As for [`apply_all`](Self::apply_all).
    pub(crate) async fn apply_until(
        &mut self,
        events: &mut Vec<Event>,
        is_interrupted: impl Fn() -> bool,
    ) -> Result<usize, Denial> {
        self.resume_stages();
        for index in 0..events.len() {
            if index > 0 && is_interrupted() {
                return Ok(index);
            }
            let event = std::mem::replace(&mut events[index], Event::TurnEnded);
            match self.apply_event(event).await {
                Ok(event) => events[index] = event,
                Err(denial) => {
                    events.truncate(index);
                    return Err(denial);
                }
            }
        }
        Ok(events.len())
    }

    /// Runs the hooks on events of the engine, such as the end of a canceled task. A denial has no effect on them: they
    /// contain no text of an agent, and the task must end.
    pub(crate) async fn apply_to_engine_events(&mut self, events: &mut [Event]) {
        self.resume_stages();
        for event in events {
            if let Ok(changed) = self.apply_event(event.clone()).await {
                *event = changed;
            }
        }
    }

    /// Returns the events that hooks have held back. Called at the end of the turn, before its final status.
    ///
    /// # Errors
    /// As for [`apply_all`](Self::apply_all).
    pub(crate) async fn finish(&mut self) -> Result<Vec<Event>, Denial> {
        let mut held_back = Vec::new();
        for index in 0..self.stages.len() {
            let context = event_context(&self.agent, &self.origin);
            let events = self.stages[index].finish(&context).await?;
            for mut event in events {
                self.set_ids(&mut event);
                let event = self.apply_from(index + 1, event).await?;
                held_back.extend(log_event(event));
            }
        }
        Ok(held_back)
    }

    /// Runs all hooks on one event.
    ///
    /// # Errors
    /// As for [`apply_all`](Self::apply_all).
    pub(super) async fn apply(&mut self, event: StreamResponse) -> Result<StreamResponse, Denial> {
        self.apply_from(0, event).await
    }

    async fn apply_event(&mut self, event: Event) -> Result<Event, Denial> {
        let (update, state) = match self.update(event) {
            Ok(update) => update,
            Err(internal) => return Ok(*internal),
        };
        let applied = log_event(self.apply_from(0, update).await?);
        // An update is a status or an artifact, and hooks cannot change its kind.
        let mut event = applied.unwrap_or(Event::TurnEnded);
        if let (Event::Status { status, .. }, Some(state)) = (&mut event, state) {
            status.state = state;
        }
        Ok(event)
    }

    /// Runs the hooks from an index on.
    async fn apply_from(
        &mut self,
        first: usize,
        mut event: StreamResponse,
    ) -> Result<StreamResponse, Denial> {
        let context = event_context(&self.agent, &self.origin);
        for stage in &mut self.stages[first..] {
            if !stage.is_paused {
                stage.apply(&context, &mut event).await?;
            }
        }
        Ok(event)
    }

    /// Sets the task and context of an event that a hook has created.
    fn set_ids(&self, event: &mut StreamResponse) {
        let task_id = self.origin.task_id.clone().unwrap_or_default();
        let context_id = self.origin.context_id.clone().unwrap_or_default();
        match event {
            StreamResponse::StatusUpdate(update) => {
                update.task_id = task_id;
                update.context_id = context_id;
            }
            StreamResponse::ArtifactUpdate(update) => {
                update.task_id = task_id;
                update.context_id = context_id;
            }
            StreamResponse::Task(_) | StreamResponse::Message(_) => {}
        }
    }

    fn resume_stages(&mut self) {
        for stage in &mut self.stages {
            stage.is_paused = false;
        }
    }

    /// Converts a log event to the form that readers see, and returns the state of a status. A status that only adds
    /// metadata has no state yet; hooks see it as `working`.
    fn update(&self, event: Event) -> Result<(StreamResponse, Option<TaskState>), Box<Event>> {
        let task_id = self.origin.task_id.clone().unwrap_or_default();
        let context_id = self.origin.context_id.clone().unwrap_or_default();
        match event {
            Event::Status {
                mut status,
                metadata,
            } => {
                let state = status.state;
                if state == TaskState::Unspecified {
                    status.state = TaskState::Working;
                }
                let update = TaskStatusUpdateEvent {
                    task_id,
                    context_id,
                    status,
                    metadata,
                };
                Ok((StreamResponse::StatusUpdate(update), Some(state)))
            }
            Event::Artifact {
                artifact,
                append,
                last_chunk,
                metadata,
            } => {
                let update = TaskArtifactUpdateEvent {
                    task_id,
                    context_id,
                    artifact,
                    append,
                    last_chunk,
                    metadata,
                };
                Ok((StreamResponse::ArtifactUpdate(update), None))
            }
            internal @ (Event::Created { .. }
            | Event::Message(_)
            | Event::TraceContext(_)
            | Event::CallMetadata(_)
            | Event::TurnStarted
            | Event::CancelRequested { .. }
            | Event::Ignored { .. }
            | Event::TurnEnded) => Err(Box::new(internal)),
        }
    }
}

impl Stage {
    /// Runs the hook on an event. After a failure that its policy allows, the event is unchanged.
    async fn apply(
        &mut self,
        context: &HookContext<'_>,
        event: &mut StreamResponse,
    ) -> Result<(), Denial> {
        let Self {
            hook,
            filter,
            is_paused,
        } = self;
        let original = hook.fails_open().then(|| event.clone());
        let identity = EventIdentity::from_event(event);
        let intercept = Box::pin(async {
            if let StageFilter::NotCreated = filter {
                *filter = StageFilter::new(hook, context);
            }
            match filter {
                StageFilter::PerTurn(filter) => filter.filter(event)?,
                StageFilter::NotCreated | StageFilter::Stateless => {
                    hook.interceptor.on_event(context, event).await?;
                }
            }
            identity.restore(event)
        });
        let result = hook.run(HookPhase::Event, context, intercept).await?;
        if let (true, Some(original)) = (result.is_failure(), original) {
            *event = original;
            *is_paused = result == HookResult::TimedOutOpen;
            self.release(context, event).await?;
        }
        Ok(())
    }

    /// Adds the text that the hook holds back to an event that passes unchanged.
    async fn release(
        &mut self,
        context: &HookContext<'_>,
        event: &mut StreamResponse,
    ) -> Result<(), Denial> {
        let StageFilter::PerTurn(filter) = &mut self.filter else {
            return Ok(());
        };
        let mut released = event.clone();
        let release = Box::pin(async {
            filter.release(&mut released);
            Ok(())
        });
        if self.hook.run(HookPhase::Event, context, release).await? == HookResult::Applied {
            *event = released;
        }
        Ok(())
    }

    /// Returns the events that the hook has held back.
    async fn finish(&mut self, context: &HookContext<'_>) -> Result<Vec<StreamResponse>, Denial> {
        let StageFilter::PerTurn(filter) = &mut self.filter else {
            return Ok(Vec::new());
        };
        let mut events = Vec::new();
        let finish = Box::pin(async {
            events = filter.finish();
            Ok(())
        });
        self.hook.run(HookPhase::Event, context, finish).await?;
        Ok(events)
    }
}

impl StageFilter {
    fn new(hook: &Hook, context: &HookContext<'_>) -> Self {
        match hook.interceptor.turn_filter(context) {
            Some(filter) => Self::PerTurn(filter),
            None => Self::Stateless,
        }
    }
}

impl EventIdentity {
    fn from_event(event: &StreamResponse) -> Self {
        match event {
            StreamResponse::Task(_) => Self::Task,
            StreamResponse::Message(message) => Self::Message(message.message_id.clone()),
            StreamResponse::StatusUpdate(update) => Self::Status {
                state: update.status.state,
                message_id: update
                    .status
                    .message
                    .as_ref()
                    .map(|message| message.message_id.clone()),
            },
            StreamResponse::ArtifactUpdate(update) => Self::Artifact {
                id: update.artifact.artifact_id.clone(),
                append: update.append,
                last_chunk: update.last_chunk,
            },
        }
    }

    /// Sets the fixed members of a changed event.
    ///
    /// # Errors
    /// The hook has replaced the event by one of another kind.
    fn restore(self, event: &mut StreamResponse) -> Result<(), HookError> {
        match (self, event) {
            (Self::Task, StreamResponse::Task(_)) => Ok(()),
            (Self::Message(id), StreamResponse::Message(message)) => {
                message.message_id = id;
                Ok(())
            }
            (Self::Status { state, message_id }, StreamResponse::StatusUpdate(update)) => {
                update.status.state = state;
                if let (Some(message), Some(id)) = (&mut update.status.message, message_id)
                    && message.message_id != id
                {
                    Arc::make_mut(message).message_id = id;
                }
                Ok(())
            }
            (
                Self::Artifact {
                    id,
                    append,
                    last_chunk,
                },
                StreamResponse::ArtifactUpdate(update),
            ) => {
                update.artifact.artifact_id = id;
                update.append = append;
                update.last_chunk = last_chunk;
                Ok(())
            }
            (Self::Task | Self::Message(_) | Self::Status { .. } | Self::Artifact { .. }, _) => {
                Err("the hook changed the kind of an event".into())
            }
        }
    }
}

fn event_context<'a>(agent: &'a str, origin: &'a EventOrigin) -> HookContext<'a> {
    HookContext {
        agent,
        scope: &origin.scope,
        client: origin.client,
        operation: None,
        task_id: origin.task_id.clone(),
        context_id: origin.context_id.clone(),
    }
}

/// Converts an update to its log event; `None` for a task or a message, which are no log events.
fn log_event(update: StreamResponse) -> Option<Event> {
    match update {
        StreamResponse::StatusUpdate(update) => Some(Event::Status {
            status: update.status,
            metadata: update.metadata,
        }),
        StreamResponse::ArtifactUpdate(update) => Some(Event::Artifact {
            artifact: update.artifact,
            append: update.append,
            last_chunk: update.last_chunk,
            metadata: update.metadata,
        }),
        StreamResponse::Task(_) | StreamResponse::Message(_) => None,
    }
}
