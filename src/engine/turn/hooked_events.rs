//! Hooks on the events of a turn, before they are staged.

use std::pin::pin;

use tokio::time::Instant;

use super::driver::TurnDriver;
use super::normalizer::{Normalized, add_input_requests, check_final_events, fill_missing_ids};
use super::{AgentFault, TurnEnd};
use crate::engine::runner::Runner;
use crate::hooks::{Denial, EventPipeline};
use crate::model::Event;

impl TurnDriver<'_> {
    /// Runs the hooks on the collected events while the agent continues. A denial ends the turn. If a command arrives,
    /// the remaining events wait: a task with a slow hook must be cancelable.
    pub(super) async fn run_hooks(&mut self, runner: &Runner) {
        let Some(mut hooks) = self.hooks.take() else {
            return;
        };
        let mut events = std::mem::take(&mut self.events);
        for event in &mut events {
            fill_missing_ids(runner, event);
        }
        let applied = {
            let mut apply = pin!(hooks.apply_until(&mut events, || runner.has_commands()));
            self.await_with_agent(apply.as_mut()).await
        };
        if let Ok(count) = applied {
            self.unhooked = events.split_off(count);
        }
        self.events = events;
        self.hooks = Some(hooks);
        if let (Err(denial), None | Some(TurnEnd::Returned(_))) = (applied, &self.ending) {
            self.ending = Some(TurnEnd::AgentFault(denial.into()));
        }
    }

    /// Stages the last events and the end of the turn, after the hooks have seen them.
    pub(super) async fn stage_end_with_hooks(
        &mut self,
        runner: &mut Runner,
        mut hooks: Box<EventPipeline>,
    ) {
        let denied = match &self.ending {
            // Events after a denied one are not recorded.
            Some(TurnEnd::AgentFault(AgentFault::Denied(_))) => {
                self.events.clear();
                None
            }
            Some(_) | None => self.apply_to_last_events(runner, &mut hooks).await.err(),
        };
        let Normalized { bytes, fault } = self.normalizer.normalize(runner, &mut self.events, true);
        let ending = self.take_ending(denied.map(AgentFault::from).or(fault));
        let mut end = self.final_events(runner, &mut hooks, ending).await;
        add_input_requests(&mut end);
        let end_bytes: usize = end.iter().map(Event::memory_size).sum();
        self.events.append(&mut end);
        runner.stage_sized(&mut self.events, bytes + end_bytes);
    }

    /// Runs the hooks on the last events, and adds the events that hooks have held back. After a cancel, drops the events
    /// that the hooks do not reach in time: its caller waits.
    async fn apply_to_last_events(
        &mut self,
        runner: &Runner,
        hooks: &mut EventPipeline,
    ) -> Result<(), Denial> {
        for event in &mut self.events {
            fill_missing_ids(runner, event);
        }
        match self.cancellation.as_ref().map(|cancel| cancel.hooks_end) {
            Some(end) => {
                let is_late = || end.is_some_and(|end| end <= Instant::now());
                let count = hooks.apply_until(&mut self.events, is_late).await?;
                self.events.truncate(count);
            }
            None => hooks.apply_all(&mut self.events).await?,
        }
        self.events.extend(hooks.finish().await?);
        Ok(())
    }

    /// Returns the events that end the turn. If a hook denies the status of the agent, the task fails instead.
    async fn final_events(
        &mut self,
        runner: &Runner,
        hooks: &mut EventPipeline,
        ending: TurnEnd,
    ) -> Vec<Event> {
        let is_from_agent = matches!(ending, TurnEnd::Returned(Ok(_)));
        let mut events = Vec::new();
        self.normalizer.push_ending(&mut events, runner, ending);
        if is_from_agent {
            let fault = match hooks.apply_all(&mut events).await {
                Ok(()) => check_final_events(runner, &mut events),
                Err(denial) => Err(denial.into()),
            };
            let Err(fault) = fault else {
                return events;
            };
            let ending = TurnEnd::AgentFault(fault);
            events.clear();
            self.normalizer.push_ending(&mut events, runner, ending);
        }
        hooks.apply_to_engine_events(&mut events).await;
        events
    }
}

impl From<Denial> for AgentFault {
    fn from(denial: Denial) -> Self {
        Self::Denied(denial.error.message().to_owned())
    }
}
