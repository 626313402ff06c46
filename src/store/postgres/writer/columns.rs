//! Commands of a group as columns: one array per parameter.

use super::super::row::sql_number;
use super::super::session::Parameter;
use super::super::write_command::{AppendWrite, Command};
use crate::model::{PushConfigId, Seq, TaskId};
use crate::store::WriterRole;
use crate::store::codec::state_number;
use crate::store::encoded::{EncodedBatch, EncodedTask};

/// Columns that creates and appends share.
#[derive(Default)]
struct BatchColumns<'a> {
    lasts: Vec<i64>,
    states: Vec<i16>,
    status_times: Vec<i64>,
    ended: Vec<bool>,
    parked: Vec<bool>,
    keys: Vec<Option<&'a [u8]>>,
    digests: Vec<Option<&'a [u8]>>,
    turns: Vec<i64>,
    created: Vec<i64>,
    oldest: Vec<Option<i64>>,
}

impl<'a> BatchColumns<'a> {
    fn push(&mut self, at: Seq, batch: &'a EncodedBatch) {
        let key = batch.key.as_ref();
        self.lasts
            .push(sql_number(at.0.saturating_add(batch.count())));
        self.states.push(i16::from(state_number(batch.state)));
        self.status_times.push(batch.status_time.as_millis());
        self.ended.push(batch.state.is_terminal());
        self.parked.push(batch.parked);
        self.keys.push(key.map(|key| key.text.as_bytes()));
        self.digests.push(key.map(|key| &key.body[..]));
        self.turns.push(sql_number(batch.turn));
        self.created.push(batch.time.as_millis());
        self.oldest
            .push(key.map(|key| key.oldest_valid.as_millis()));
    }
}

/// Log rows; `K` identifies the task.
struct LogColumns<'a, K> {
    tasks: Vec<K>,
    ats: Vec<i64>,
    lasts: Vec<i64>,
    bodies: Vec<&'a [u8]>,
}

impl<'a, K: Copy> LogColumns<'a, K> {
    fn new() -> Self {
        Self {
            tasks: Vec::new(),
            ats: Vec::new(),
            lasts: Vec::new(),
            bodies: Vec::new(),
        }
    }

    fn push(&mut self, task: K, at: Seq, batch: &'a EncodedBatch) {
        let mut position = at.0;
        for row in &batch.rows {
            self.tasks.push(task);
            self.ats.push(sql_number(position));
            position = position.saturating_add(row.count);
            self.lasts.push(sql_number(position));
            self.bodies.push(&row.body);
        }
    }
}

/// Append with the number of its task.
pub(super) struct NumberedAppend {
    pub(super) command: Command,
    pub(super) task: i64,
    pub(super) scope: i64,
}

/// Parameters of `append.sql`.
pub(super) struct AppendColumns<'a> {
    replica: i64,
    shard: i64,
    tasks: Vec<i64>,
    ats: Vec<i64>,
    is_remote: Vec<bool>,
    batches: BatchColumns<'a>,
    log: LogColumns<'a, i64>,
}

impl<'a> AppendColumns<'a> {
    pub(super) fn new(replica: i64, shard: i64) -> Self {
        Self {
            replica,
            shard,
            tasks: Vec::new(),
            ats: Vec::new(),
            is_remote: Vec::new(),
            batches: BatchColumns::default(),
            log: LogColumns::new(),
        }
    }

    pub(super) fn push(&mut self, task: i64, append: &'a AppendWrite) {
        self.tasks.push(task);
        self.ats.push(sql_number(append.at.0));
        self.is_remote.push(append.role == WriterRole::Remote);
        self.batches.push(append.at, &append.batch);
        self.log.push(task, append.at, &append.batch);
    }

    pub(super) fn parameters(&self) -> [Parameter<'_>; 19] {
        let batches = &self.batches;
        [
            &self.replica,
            &self.shard,
            &self.tasks,
            &self.ats,
            &batches.lasts,
            &batches.states,
            &batches.status_times,
            &batches.ended,
            &batches.parked,
            &self.is_remote,
            &batches.keys,
            &batches.digests,
            &batches.turns,
            &batches.created,
            &batches.oldest,
            &self.log.tasks,
            &self.log.ats,
            &self.log.lasts,
            &self.log.bodies,
        ]
    }
}

/// Create with the number of its scope.
pub(super) struct NumberedCreate {
    pub(super) command: Command,
    pub(super) scope: i64,
}

/// Parameters of `create.sql`.
pub(super) struct CreateColumns<'a> {
    replica: i64,
    shard: i64,
    ids: Vec<&'a str>,
    scopes: Vec<i64>,
    contexts: Vec<&'a [u8]>,
    aliases: Vec<Option<&'a [u8]>>,
    webhooks: Vec<Option<&'a [u8]>>,
    webhook_bodies: Vec<Option<&'a [u8]>>,
    batches: BatchColumns<'a>,
    log: LogColumns<'a, &'a str>,
}

impl<'a> CreateColumns<'a> {
    pub(super) fn new(replica: i64, shard: i64) -> Self {
        Self {
            replica,
            shard,
            ids: Vec::new(),
            scopes: Vec::new(),
            contexts: Vec::new(),
            aliases: Vec::new(),
            webhooks: Vec::new(),
            webhook_bodies: Vec::new(),
            batches: BatchColumns::default(),
            log: LogColumns::new(),
        }
    }

    pub(super) fn push(&mut self, scope: i64, task: &'a EncodedTask) {
        let config = task.config.as_ref();
        self.ids.push(task.id.as_str());
        self.scopes.push(scope);
        self.contexts.push(task.context_id.as_str().as_bytes());
        self.aliases.push(
            task.alias
                .as_ref()
                .map(|alias| TaskId::as_str(alias).as_bytes()),
        );
        self.webhooks
            .push(config.map(|config| webhook_id(config.id.as_ref())));
        self.webhook_bodies
            .push(config.map(|config| &config.body[..]));
        self.batches.push(Seq(0), &task.batch);
        self.log.push(task.id.as_str(), Seq(0), &task.batch);
    }

    pub(super) fn parameters(&self) -> [Parameter<'_>; 22] {
        let batches = &self.batches;
        [
            &self.replica,
            &self.shard,
            &self.ids,
            &self.scopes,
            &self.contexts,
            &self.aliases,
            &batches.lasts,
            &batches.states,
            &batches.status_times,
            &batches.ended,
            &batches.parked,
            &batches.keys,
            &batches.digests,
            &batches.turns,
            &batches.created,
            &batches.oldest,
            &self.webhooks,
            &self.webhook_bodies,
            &self.log.tasks,
            &self.log.ats,
            &self.log.lasts,
            &self.log.bodies,
        ]
    }
}

/// Returns the column `id` of a webhook.
pub(super) fn webhook_id(id: Option<&PushConfigId>) -> &[u8] {
    id.map_or(b"", |id| id.as_str().as_bytes())
}
