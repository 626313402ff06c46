//! Reads on a pool of connections.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio_postgres::Row;

use super::error::{DatabaseError, Failure};
use super::row::{
    column, count_column, head_from_row, registration_from_column, scoped_head_from_row,
    seq_column, sql_limit, sql_number, sql_text, time_column, webhook_from_row,
};
use super::session::{Connector, Parameter, Purpose, SessionSlot};
use super::statement::{self, ListFilters, Sql};
use crate::model::{Caller, Entry, PushConfigId, Scope, Seq, TaskId, Timestamp};
use crate::store::codec::{self, CodecError};
use crate::store::log_row::LogRow;
use crate::store::secret_box::SecretBox;
use crate::store::task::EntryPage;
use crate::store::{
    Error, Head, IdempotencyKey, IdempotencyRecord, PushRegistration, ReadLimit, ReplicaInfo,
    Result, Snapshot, TaskCounts, TaskPage, TaskQuery, Webhook, WebhookFilter,
};

type QueryResult<T> = std::result::Result<T, DatabaseError>;

/// Maximum number of log rows, and about the maximum number of their bytes, in one answer of the server.
const ROWS_PER_READ: i64 = 256;
const BYTES_PER_READ: usize = 4 << 20;

/// Number of heads in one answer of the server.
const HEADS_PER_READ: i64 = 1_000;

/// Reads of one replica.
pub(super) struct Readers {
    slots: Vec<SessionSlot>,
    next: AtomicUsize,
    secrets: Arc<SecretBox>,
}

/// Scope as the parameters of a statement.
struct ScopeColumns<'a> {
    agent: &'a str,
    tenant: &'a str,
    owner: &'a [u8],
}

impl<'a> ScopeColumns<'a> {
    /// Returns `None` if no such scope can be stored.
    fn new(scope: &'a Scope) -> Option<Self> {
        Some(Self {
            agent: sql_text(&scope.agent)?,
            tenant: sql_text(&scope.tenant)?,
            owner: scope.owner.name().as_bytes(),
        })
    }
}

impl Readers {
    pub(super) fn new(connector: &Arc<Connector>, secrets: Arc<SecretBox>) -> Self {
        let readers = connector.options().readers.max(1);
        let slots = (0..readers)
            .map(|_| SessionSlot::new(Arc::clone(connector), Purpose::Reader))
            .collect();
        Self {
            slots,
            next: AtomicUsize::new(0),
            secrets,
        }
    }

    pub(super) async fn close(&self) {
        for slot in &self.slots {
            slot.close().await;
        }
    }

    /// Runs a statement on the next connection. If the connection is lost, runs it once more on a fresh one.
    pub(super) async fn query(
        &self,
        sql: &Sql,
        parameters: &[Parameter<'_>],
    ) -> QueryResult<Vec<Row>> {
        let slot = &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len()];
        let session = slot.get().await?;
        match session.query(sql, parameters).await {
            Err(error) if error.failure == Failure::Lost => {
                tracing::debug!(%error, "repeating a read");
                slot.get().await?.query(sql, parameters).await
            }
            answered => answered,
        }
    }

    /// Reads the entries after `after`, up to the limit.
    pub(super) async fn entries(
        &self,
        task: &Head,
        after: Seq,
        limit: ReadLimit,
    ) -> Result<Vec<Entry>> {
        let mut page = EntryPage::new(limit);
        let Some(scope) = ScopeColumns::new(&task.scope) else {
            return Ok(Vec::new());
        };
        let Some(id) = sql_text(task.id.as_str()) else {
            return Ok(Vec::new());
        };
        let bytes = sql_limit(limit.bytes.min(BYTES_PER_READ));
        let mut last = None;
        while !page.is_full() {
            let position = sql_number(last.unwrap_or(after).0);
            let parameters: [Parameter<'_>; 7] = [
                &scope.agent,
                &scope.tenant,
                &scope.owner,
                &id,
                &position,
                &ROWS_PER_READ,
                &bytes,
            ];
            let rows = self.query(&statement::READ, &parameters).await?;
            if rows.is_empty() {
                break;
            }
            for row in rows {
                let row = decode_log_row(&row, 1)?;
                row.check_order(after, last)
                    .map_err(DatabaseError::damaged)?;
                last = Some(row.last());
                page.extend(row.into_entries().skip_while(|entry| entry.seq <= after));
            }
        }
        Ok(page.into_entries())
    }

    /// [`Store::read_many`](crate::store::Store::read_many)
    pub(super) async fn read_many(
        &self,
        tasks: &[Head],
        max_bytes: usize,
    ) -> Result<Vec<Vec<Entry>>> {
        let mut logs = vec![Vec::new(); tasks.len()];
        let columns = HeadColumns::new(tasks);
        let parameters = columns.parameters();
        let bytes = sql_limit(max_bytes);
        let parameters = [&parameters[..], &[&bytes as Parameter<'_>]].concat();
        let mut last = vec![Seq(0); tasks.len()];
        for row in self.query(&statement::READ_MANY, &parameters).await? {
            let index = ordinal(&row, tasks.len())?;
            let decoded = decode_log_row(&row, 2)?;
            decoded
                .check_order(Seq(0), Some(last[index]))
                .map_err(DatabaseError::damaged)?;
            last[index] = decoded.last();
            logs[index].extend(decoded.into_entries());
        }
        Ok(logs)
    }

    /// [`Store::positions`](crate::store::Store::positions)
    pub(super) async fn positions(&self, tasks: &[Head]) -> Result<Vec<Option<Seq>>> {
        let mut positions = vec![None; tasks.len()];
        let columns = HeadColumns::new(tasks);
        for row in self
            .query(&statement::POSITIONS, &columns.parameters())
            .await?
        {
            positions[ordinal(&row, tasks.len())?] = Some(seq_column(&row, 1)?);
        }
        Ok(positions)
    }

    /// [`Store::find`](crate::store::Store::find)
    pub(super) async fn find(
        &self,
        scope: &Scope,
        task: &TaskId,
        replica: i64,
    ) -> Result<Option<Head>> {
        let Some(columns) = ScopeColumns::new(scope) else {
            return Ok(None);
        };
        let id = sql_text(task.as_str());
        let alias = task.as_str().as_bytes();
        let parameters: [Parameter<'_>; 5] =
            [&columns.agent, &columns.tenant, &columns.owner, &id, &alias];
        let rows = self.query(&statement::FIND, &parameters).await?;
        let head = rows
            .first()
            .map(|row| head_from_row(row, scope.clone(), replica));
        Ok(head.transpose()?)
    }

    /// [`Store::find_by_key`](crate::store::Store::find_by_key)
    pub(super) async fn find_by_key(
        &self,
        scope: &Scope,
        key: &IdempotencyKey,
        replica: i64,
    ) -> Result<Option<IdempotencyRecord>> {
        let Some(columns) = ScopeColumns::new(scope) else {
            return Ok(None);
        };
        let text = key.text.as_bytes();
        let oldest = key.oldest_valid.as_millis();
        let parameters: [Parameter<'_>; 5] = [
            &columns.agent,
            &columns.tenant,
            &columns.owner,
            &text,
            &oldest,
        ];
        let rows = self.query(&statement::FIND_BY_KEY, &parameters).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        if column::<&[u8]>(row, 6)? != key.body {
            return Err(Error::KeyReused);
        }
        Ok(Some(IdempotencyRecord {
            head: head_from_row(row, scope.clone(), replica)?,
            turn: count_column(row, 7)?,
        }))
    }

    /// [`Store::list`](crate::store::Store::list)
    pub(super) async fn list(
        &self,
        scope: &Scope,
        query: &TaskQuery,
        replica: i64,
    ) -> Result<TaskPage> {
        let Some(columns) = ScopeColumns::new(scope) else {
            return Ok(TaskPage::default());
        };
        let filters = ListFilters {
            has_context: query.context_id.is_some(),
            has_state: query.state.is_some(),
            has_since: query.since.is_some(),
            has_cursor: query.after.is_some(),
        };
        let limit = sql_limit(query.limit);
        let context = query.context_id.as_ref().map(|id| id.as_str().as_bytes());
        let state = query
            .state
            .map(|state| i16::from(codec::state_number(state)));
        let since = query.since.map(|since| since.as_millis());
        let cursor = query.after.as_ref();
        let cursor_time = cursor.map(|(time, _)| time.as_millis());
        // A cursor is a task of an earlier page. One that contains NUL is none: the list ends.
        let cursor_id = match cursor.map(|(_, id)| sql_text(id.as_str())) {
            Some(None) => return Ok(TaskPage::default()),
            Some(Some(id)) => Some(id),
            None => None,
        };
        let mut parameters: Vec<Parameter<'_>> =
            vec![&columns.agent, &columns.tenant, &columns.owner, &limit];
        parameters.extend(context.as_ref().map(|value| value as Parameter<'_>));
        parameters.extend(state.as_ref().map(|value| value as Parameter<'_>));
        parameters.extend(since.as_ref().map(|value| value as Parameter<'_>));
        parameters.extend(cursor_time.as_ref().map(|value| value as Parameter<'_>));
        parameters.extend(cursor_id.as_ref().map(|value| value as Parameter<'_>));
        let rows = self.query(filters.statement(), &parameters).await?;
        let mut page = TaskPage::default();
        for row in &rows {
            page.total = count_column(row, 6)?;
            // The row of an empty page has the total only.
            if column::<Option<&str>>(row, 0)?.is_some() {
                page.tasks.push(head_from_row(row, scope.clone(), replica)?);
            }
        }
        Ok(page)
    }

    /// Lists heads with a statement whose parameters are an id to start after and a limit.
    pub(super) async fn list_by_id(
        &self,
        sql: &Sql,
        after: Option<&TaskId>,
        limit: usize,
        replica: i64,
    ) -> Result<Vec<Head>> {
        // The part before a NUL sorts before the id: no task is skipped, and the engine skips known ones.
        let after = after.map_or("", |id| id.as_str().split('\0').next().unwrap_or_default());
        let rows = self.query(sql, &[&after, &sql_limit(limit)]).await?;
        scoped_heads(&rows, replica)
    }

    /// [`Store::list_parked`](crate::store::Store::list_parked)
    pub(super) async fn list_parked(
        &self,
        scope: &Scope,
        limit: usize,
        replica: i64,
    ) -> Result<Vec<Head>> {
        let Some(columns) = ScopeColumns::new(scope) else {
            return Ok(Vec::new());
        };
        let limit = sql_limit(limit);
        let parameters: [Parameter<'_>; 4] =
            [&columns.agent, &columns.tenant, &columns.owner, &limit];
        let rows = self.query(&statement::LIST_PARKED, &parameters).await?;
        let heads = rows
            .iter()
            .map(|row| head_from_row(row, scope.clone(), replica));
        Ok(heads.collect::<QueryResult<_>>()?)
    }

    /// [`Store::list_ended`](crate::store::Store::list_ended)
    pub(super) async fn list_ended(
        &self,
        before: Timestamp,
        limit: usize,
        replica: i64,
    ) -> Result<Vec<Head>> {
        let parameters: [Parameter<'_>; 2] = [&before.as_millis(), &sql_limit(limit)];
        let rows = self.query(&statement::LIST_ENDED, &parameters).await?;
        scoped_heads(&rows, replica)
    }

    /// [`Store::list_held`](crate::store::Store::list_held)
    pub(super) async fn list_held(
        &self,
        known: &HashSet<TaskId>,
        replica: i64,
    ) -> Result<Vec<Head>> {
        let mut heads = Vec::new();
        let mut after = 0_i64;
        loop {
            let parameters: [Parameter<'_>; 3] = [&replica, &after, &HEADS_PER_READ];
            let rows = self.query(&statement::LIST_HELD, &parameters).await?;
            for row in &rows {
                let head = scoped_head_from_row(row, replica)?;
                if !known.contains(&head.id) {
                    heads.push(head);
                }
            }
            match rows.last() {
                Some(row) => after = column(row, 9)?,
                None => return Ok(heads),
            }
        }
    }

    /// [`Store::latest_time`](crate::store::Store::latest_time)
    pub(super) async fn latest_time(&self) -> Result<Option<Timestamp>> {
        let rows = self.query(&statement::LATEST_TIME, &[]).await?;
        let millis = rows.first().map(|row| column::<Option<i64>>(row, 0));
        Ok(millis
            .transpose()?
            .flatten()
            .and_then(Timestamp::from_millis))
    }

    /// [`Store::count_ended`](crate::store::Store::count_ended)
    pub(super) async fn count_ended(&self) -> Result<u64> {
        let rows = self.query(&statement::COUNT_ENDED, &[]).await?;
        first_count(&rows, 0)
    }

    /// [`Store::count_tasks`](crate::store::Store::count_tasks)
    pub(super) async fn count_tasks(&self, agent: &str, tenant: &str) -> Result<TaskCounts> {
        let (Some(agent), Some(tenant)) = (sql_text(agent), sql_text(tenant)) else {
            return Ok(TaskCounts::default());
        };
        let rows = self
            .query(&statement::COUNT_TASKS, &[&agent, &tenant])
            .await?;
        let open = first_count(&rows, 0)?;
        let total = open + first_count(&rows, 1)?;
        Ok(TaskCounts { open, total })
    }

    /// [`Store::load_snapshot`](crate::store::Store::load_snapshot)
    pub(super) async fn load_snapshot(
        &self,
        task: &Head,
        max_bytes: usize,
    ) -> Result<Option<(Seq, Snapshot)>> {
        let (Some(scope), Some(id)) = (ScopeColumns::new(&task.scope), sql_text(task.id.as_str()))
        else {
            return Ok(None);
        };
        let max_bytes = sql_limit(max_bytes);
        let parameters: [Parameter<'_>; 5] =
            [&scope.agent, &scope.tenant, &scope.owner, &id, &max_bytes];
        let rows = self.query(&statement::LOAD_SNAPSHOT, &parameters).await?;
        let Some(row) = rows.first() else {
            return Ok(None);
        };
        let position = seq_column(row, 0)?;
        // A snapshot of an older format cannot be decoded. It is a cache.
        let body = codec::verify_checksum(column(row, 1)?);
        let snapshot = body.and_then(codec::decode_snapshot).ok();
        Ok(snapshot.map(|snapshot| (position, snapshot)))
    }

    /// [`Store::list_configs`](crate::store::Store::list_configs)
    pub(super) async fn list_configs(&self, task: &Head) -> Result<Vec<PushRegistration>> {
        let (Some(scope), Some(id)) = (ScopeColumns::new(&task.scope), sql_text(task.id.as_str()))
        else {
            return Ok(Vec::new());
        };
        let parameters: [Parameter<'_>; 4] = [&scope.agent, &scope.tenant, &scope.owner, &id];
        let rows = self.query(&statement::LIST_CONFIGS, &parameters).await?;
        let configs = rows
            .iter()
            .map(|row| registration_from_column(row, 0, &self.secrets));
        Ok(configs.collect::<QueryResult<_>>()?)
    }

    /// [`Store::find_webhook`](crate::store::Store::find_webhook)
    pub(super) async fn find_webhook(
        &self,
        task: &Head,
        config: &PushConfigId,
        replica: i64,
    ) -> Result<Option<Webhook>> {
        let (Some(scope), Some(id)) = (ScopeColumns::new(&task.scope), sql_text(task.id.as_str()))
        else {
            return Ok(None);
        };
        let config = config.as_str().as_bytes();
        let parameters: [Parameter<'_>; 5] =
            [&scope.agent, &scope.tenant, &scope.owner, &id, &config];
        let rows = self.query(&statement::FIND_WEBHOOK, &parameters).await?;
        let found = rows
            .first()
            .map(|row| webhook_from_row(row, replica, &self.secrets));
        Ok(found.transpose()?)
    }

    /// [`Store::list_webhooks`](crate::store::Store::list_webhooks)
    pub(super) async fn list_webhooks(
        &self,
        filter: WebhookFilter,
        after: Option<u64>,
        limit: usize,
        replica: i64,
    ) -> Result<Vec<Webhook>> {
        let sql = match filter {
            WebhookFilter::Active => &statement::LIST_ACTIVE_WEBHOOKS,
            WebhookFilter::Failed => &statement::LIST_FAILED_WEBHOOKS,
        };
        let after = sql_number(after.unwrap_or(0));
        let rows = self.query(sql, &[&after, &sql_limit(limit)]).await?;
        let webhooks = rows
            .iter()
            .map(|row| webhook_from_row(row, replica, &self.secrets));
        Ok(webhooks.collect::<QueryResult<_>>()?)
    }

    /// [`Store::list_replicas`](crate::store::Store::list_replicas)
    pub(super) async fn list_replicas(&self, replica: i64) -> Result<Vec<ReplicaInfo>> {
        let rows = self.query(&statement::LIST_REPLICAS, &[]).await?;
        let replicas = rows.iter().map(|row| replica_from_row(row, replica));
        Ok(replicas.collect::<QueryResult<_>>()?)
    }

    /// [`Store::count_open_webhooks`](crate::store::Store::count_open_webhooks)
    pub(super) async fn count_open_webhooks(&self, caller: &Caller) -> Result<u64> {
        let owner = caller.name().as_bytes();
        let rows = self
            .query(&statement::COUNT_OPEN_WEBHOOKS, &[&owner])
            .await?;
        first_count(&rows, 0)
    }
}

fn replica_from_row(row: &Row, replica: i64) -> QueryResult<ReplicaInfo> {
    let removed: Option<i64> = column(row, 6)?;
    let format_level: i16 = column(row, 3)?;
    Ok(ReplicaInfo {
        id: count_column(row, 0)?,
        name: column(row, 1)?,
        program_version: column(row, 2)?,
        format_level: u8::try_from(format_level).unwrap_or(u8::MAX),
        joined: time_column(row, 4)?,
        heartbeat: count_column(row, 5)?,
        removed: removed.and_then(Timestamp::from_millis),
        tasks: count_column(row, 7)?,
        webhooks: count_column(row, 8)?,
        is_local: column::<i64>(row, 0)? == replica,
    })
}

/// Decodes the columns `last` and `body`; `last` is the column at `index`.
fn decode_log_row(row: &Row, index: usize) -> QueryResult<LogRow> {
    let last = seq_column(row, index)?;
    Ok(LogRow::decode(last, column(row, index + 1)?)?)
}

fn scoped_heads(rows: &[Row], replica: i64) -> Result<Vec<Head>> {
    let heads = rows.iter().map(|row| scoped_head_from_row(row, replica));
    Ok(heads.collect::<QueryResult<_>>()?)
}

fn first_count(rows: &[Row], index: usize) -> Result<u64> {
    let count = rows.first().map(|row| count_column(row, index));
    Ok(count.transpose()?.unwrap_or_default())
}

/// Reads the first column, an index from 1 to `length`.
pub(super) fn ordinal(row: &Row, length: usize) -> QueryResult<usize> {
    let ordinal = usize::try_from(column::<i64>(row, 0)?).ok();
    let index = ordinal.and_then(|ordinal| ordinal.checked_sub(1));
    index
        .filter(|index| *index < length)
        .ok_or_else(|| DatabaseError::damaged(CodecError("index out of range")))
}

/// Scopes and ids of tasks as columns. A value that contains NUL is NULL, which equals nothing.
struct HeadColumns<'a> {
    agents: Vec<Option<&'a str>>,
    tenants: Vec<Option<&'a str>>,
    owners: Vec<&'a [u8]>,
    ids: Vec<Option<&'a str>>,
}

impl<'a> HeadColumns<'a> {
    fn new(heads: &'a [Head]) -> Self {
        Self {
            agents: heads
                .iter()
                .map(|head| sql_text(&head.scope.agent))
                .collect(),
            tenants: heads
                .iter()
                .map(|head| sql_text(&head.scope.tenant))
                .collect(),
            owners: heads
                .iter()
                .map(|head| head.scope.owner.name().as_bytes())
                .collect(),
            ids: heads
                .iter()
                .map(|head| sql_text(head.id.as_str()))
                .collect(),
        }
    }

    fn parameters(&self) -> [Parameter<'_>; 4] {
        [&self.agents, &self.tenants, &self.owners, &self.ids]
    }
}
