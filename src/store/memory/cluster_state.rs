//! Membership of the replicas that share a memory store, and the holders of tasks and webhooks.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::model::TaskId;
use crate::store::Batch;

/// How long a removed replica stays in the table, so that all others see that tasks may need a takeover.
const REMOVED_ROW_AGE: Duration = Duration::from_secs(60);

/// Table of members, and holders of tasks and webhooks.
#[derive(Debug, Default)]
pub(super) struct ClusterState {
    pub(super) replicas: BTreeMap<u64, ReplicaRecord>,
    last_replica: u64,
    /// Holders of tasks with work left.
    pub(super) holders: BTreeMap<TaskId, u64>,
    /// Holders of active webhooks, by webhook number.
    pub(super) webhook_holders: BTreeMap<u64, u64>,
    /// Times at which jobs are due.
    pub(super) jobs: HashMap<&'static str, Instant>,
}

/// Row of a replica in the table of members.
#[derive(Debug, Default)]
pub(super) struct ReplicaRecord {
    pub(super) heartbeat: u64,
    agents: Vec<Arc<str>>,
    /// Time of the join.
    pub(super) joined: Option<Instant>,
    /// Time of the eviction or departure. `None`: live.
    pub(super) removed: Option<Instant>,
}

impl ClusterState {
    pub(super) fn is_live(&self, replica: u64) -> bool {
        let record = self.replicas.get(&replica);
        record.is_some_and(|record| record.removed.is_none())
    }

    pub(super) fn live_count(&self) -> usize {
        let records = self.replicas.values();
        records.filter(|record| record.removed.is_none()).count()
    }

    pub(super) fn holder(&self, task: &TaskId) -> Option<u64> {
        self.holders.get(task).copied()
    }

    pub(super) fn beat(&mut self, replica: u64) {
        if let Some(record) = self.replicas.get_mut(&replica) {
            record.heartbeat += 1;
        }
    }

    pub(super) fn set_agents(&mut self, replica: u64, agents: &[Arc<str>]) {
        if let Some(record) = self.replicas.get_mut(&replica) {
            record.agents = agents.to_vec();
        }
    }

    /// Removes a replica from the members. Its tasks and webhooks can be taken over.
    pub(super) fn remove(&mut self, replica: u64) {
        if let Some(record) = self.replicas.get_mut(&replica) {
            record.removed.get_or_insert_with(Instant::now);
        }
    }

    /// Clears the holders that name a replica.
    pub(super) fn release(&mut self, replica: u64) {
        self.holders.retain(|_, holder| *holder != replica);
        self.webhook_holders.retain(|_, holder| *holder != replica);
    }

    /// Adds a member, and returns its id.
    pub(super) fn join(&mut self, agents: &[Arc<str>]) -> u64 {
        self.last_replica += 1;
        let record = ReplicaRecord {
            agents: agents.to_vec(),
            joined: Some(Instant::now()),
            ..ReplicaRecord::default()
        };
        self.replicas.insert(self.last_replica, record);
        self.last_replica
    }

    /// Forgets replicas that were removed one minute ago and hold nothing.
    pub(super) fn forget_removed(&mut self) {
        let holders = self.holders.values().chain(self.webhook_holders.values());
        let holders: BTreeSet<u64> = holders.copied().collect();
        let is_recent = |removed: Instant| removed.elapsed() < REMOVED_ROW_AGE;
        self.replicas
            .retain(|id, record| record.removed.is_none_or(is_recent) || holders.contains(id));
    }

    /// Returns the counters of the other live replicas.
    pub(super) fn counters(&self, replica: u64) -> Vec<(i64, i64)> {
        let others = self.replicas.iter();
        others
            .filter(|(id, record)| **id != replica && record.removed.is_none())
            .map(|(id, record)| (id.cast_signed(), record.heartbeat.cast_signed()))
            .collect()
    }

    /// Sets or clears the holder of a task after a commit of its holder.
    pub(super) fn hold_after(&mut self, task: &TaskId, batch: &Batch, replica: u64) {
        if batch.state.is_terminal() || batch.parked {
            self.holders.remove(task);
        } else {
            self.holders.insert(task.clone(), replica);
        }
    }

    /// Returns whether no live replica holds the task.
    pub(super) fn is_orphan(&self, task: &TaskId) -> bool {
        let holder = self.holders.get(task);
        holder.is_none_or(|holder| !self.is_live(*holder))
    }

    /// Returns whether a replica takes over tasks of this agent.
    pub(super) fn serves(&self, agent: &str, agents: &[Arc<str>]) -> bool {
        let is_served = |agents: &[Arc<str>]| agents.iter().any(|served| **served == *agent);
        let mut live = self
            .replicas
            .values()
            .filter(|record| record.removed.is_none());
        is_served(agents) || !live.any(|record| is_served(&record.agents))
    }
}
