//! Hooks on the events of a task.

use super::Runner;
use crate::hooks::{EventOrigin, EventPipeline};
use crate::model::Event;

impl Runner {
    /// Returns the event hooks of the current agent, for one turn; `None` if there are none.
    pub(in crate::engine) fn event_hooks(&self) -> Option<Box<EventPipeline>> {
        self.agent.hooks.event_pipeline(|| EventOrigin {
            scope: self.scope.clone(),
            client: self.turns.client,
            task_id: Some(self.id.clone()),
            context_id: Some(self.log.task.context_id.clone()),
        })
    }

    /// Stages events of the engine that end a task outside of a turn, after the hooks have seen them.
    pub(super) async fn stage_own(&mut self, mut events: Vec<Event>) {
        if let Some(mut hooks) = self.event_hooks() {
            // Boxed: future size.
            Box::pin(hooks.apply_to_engine_events(&mut events)).await;
        }
        self.stage(events);
    }
}
