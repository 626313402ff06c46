//! Commands of the writer thread, executed inside a transaction.
//!
//! Every command validates before it writes. A refused command has changed nothing, so the other commands of its
//! group can still commit.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{Connection, params};

use super::TaskKey;
use super::prepared_statement::PreparedStatement;
use super::read::{self, KeyLookup};
use super::row::{seq_column, sql_limit, sql_position, state_column, time_column};
use super::writer::CommandResult;
use crate::model::{PushConfigId, Scope, Seq, TaskId, TaskState, Timestamp};
use crate::store::codec::state_number;
use crate::store::encoded::{EncodedBatch, EncodedConfig, EncodedTask};
use crate::store::{CreateResult, Error, Head, Holder, IdempotencyKey};

const INSERT_TASK: &str =
    "INSERT INTO task (id, scope, context, alias, position, state, has_ended, is_parked, status_time)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9) ON CONFLICT DO NOTHING";

const INSERT_BATCH: &str = "INSERT INTO batch (task, last_position, body) VALUES (?1, ?2, ?3)";

const UPDATE_COUNT: &str =
    "UPDATE task_count SET tasks = tasks + ?3 WHERE scope = ?1 AND state = ?2";

/// Deletes a task and its rows in other tables.
const DELETE_TASK: [&str; 5] = [
    "DELETE FROM batch WHERE task = ?1",
    "DELETE FROM snapshot WHERE task = ?1",
    "DELETE FROM webhook WHERE task = ?1",
    "DELETE FROM idempotency_key WHERE task = ?1",
    "DELETE FROM task WHERE number = ?1",
];

/// Maximum number of scopes, and of task rows, in the writer's cache. A full cache is cleared.
const MAX_CACHED_ROWS: usize = 4_096;

/// Rows that the writer has read or written, and the uncommitted changes of the current transaction.
///
/// The cached rows need no invalidation but a rollback, because the writer is the only one that writes.
#[derive(Debug, Default)]
struct TxCache {
    /// Row numbers of scopes.
    scopes: HashMap<Scope, i64>,
    /// Rows of unfinished tasks. Most batches are for a task that has just been appended to.
    rows: HashMap<TaskId, TaskRow>,
    /// Uncommitted changes of the counters in `task_count`, by scope and state.
    count_changes: BTreeMap<(i64, u8), i64>,
}

/// Row of the table `task`.
#[derive(Debug)]
struct TaskRow {
    number: i64,
    scope: i64,
    position: Seq,
    state: TaskState,
    status_time: Timestamp,
    parked: bool,
}

/// Transaction of the writer thread. One value serves all transactions, one after the other.
pub(super) struct Transaction<'a> {
    pub(super) connection: &'a Connection,
    cache: TxCache,
    insert_task_statement: PreparedStatement<'a>,
    insert_batch_statement: PreparedStatement<'a>,
    update_count_statement: PreparedStatement<'a>,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self {
            connection,
            cache: TxCache::default(),
            insert_task_statement: PreparedStatement::new(INSERT_TASK),
            insert_batch_statement: PreparedStatement::new(INSERT_BATCH),
            update_count_statement: PreparedStatement::new(UPDATE_COUNT),
        }
    }

    /// Writes the changed counters. Call it last before the commit.
    pub(super) fn before_commit(&mut self) -> rusqlite::Result<()> {
        for ((scope, state), change) in std::mem::take(&mut self.cache.count_changes) {
            if change != 0 {
                self.write_count(scope, state, change)?;
            }
        }
        Ok(())
    }

    /// Discards the changes and all cached rows. A scope number that the transaction gave out may be reused.
    pub(super) fn after_rollback(&mut self) {
        self.cache = TxCache::default();
    }

    /// Writes a row without changing it, to check whether writes succeed.
    pub(super) fn probe_write(&mut self) -> CommandResult<()> {
        self.connection
            .prepare_cached("UPDATE encryption_key SET fingerprint = fingerprint")?
            .execute(())?;
        Ok(Ok(()))
    }

    /// [`Store::create`](crate::store::Store::create)
    pub(super) fn create(&mut self, task: &EncodedTask) -> CommandResult<CreateResult> {
        let scope = self.ensure_scope(&task.scope)?;
        match self.find_key(scope, &task.scope, task.batch.key.as_ref())? {
            KeyLookup::SameBody(record) => return Ok(Ok(CreateResult::Replayed(record))),
            KeyLookup::OtherBody => return Ok(Err(Error::KeyReused)),
            KeyLookup::Unused => {}
        }
        let Some(number) = self.insert_task(scope, task)? else {
            return Ok(Err(Error::Conflict));
        };
        let position = self.insert_batch(number, scope, Seq(0), &task.batch)?;
        if let Some(config) = &task.config {
            self.insert_config(number, config, Seq(0))?;
        }
        self.adjust_count(scope, task.batch.state, 1);
        Ok(Ok(CreateResult::Created(Head {
            id: task.id.clone(),
            scope: task.scope.clone(),
            context_id: task.context_id.clone(),
            position,
            state: task.batch.state,
            status_time: task.batch.status_time,
            holder: Holder::None,
        })))
    }

    /// [`Store::append`](crate::store::Store::append)
    pub(super) fn append(
        &mut self,
        task: &TaskKey,
        at: Seq,
        batch: &EncodedBatch,
    ) -> CommandResult<Seq> {
        let Some(scope) = self.find_scope(&task.scope)? else {
            return Ok(Err(Error::Conflict));
        };
        match self.find_key(scope, &task.scope, batch.key.as_ref())? {
            KeyLookup::SameBody(_) => return Ok(Err(Error::AlreadyApplied)),
            KeyLookup::OtherBody => return Ok(Err(Error::KeyReused)),
            KeyLookup::Unused => {}
        }
        let cached = self.cache.rows.remove(&task.id);
        let row = match cached.filter(|row| row.scope == scope) {
            Some(row) => Some(row),
            None => self.load_row(task)?,
        };
        let Some(row) = row.filter(|row| row.position == at) else {
            return Ok(Err(Error::Conflict));
        };
        let position = self.insert_batch(row.number, row.scope, at, batch)?;
        self.update_head(&row, position, batch)?;
        self.cache_row(&task.id, row, position, batch);
        Ok(Ok(position))
    }

    /// [`Store::save_snapshot`](crate::store::Store::save_snapshot)
    pub(super) fn save_snapshot(
        &mut self,
        task: &TaskKey,
        at: Seq,
        body: &[u8],
    ) -> CommandResult<()> {
        if let Some(row) = self.load_row(task)? {
            let sql = "INSERT INTO snapshot (task, position, body) VALUES (?1, ?2, ?3) ON CONFLICT (task) DO UPDATE
                       SET position = excluded.position, body = excluded.body WHERE excluded.position >= position";
            self.connection.prepare_cached(sql)?.execute(params![
                row.number,
                sql_position(at),
                body
            ])?;
        }
        Ok(Ok(()))
    }

    /// [`Store::remove`](crate::store::Store::remove)
    pub(super) fn remove(&mut self, tasks: &[TaskKey]) -> CommandResult<()> {
        for task in tasks {
            if let Some(row) = self.load_row(task)? {
                self.delete_task(&task.id, &row)?;
            }
        }
        Ok(Ok(()))
    }

    /// [`Store::remove_keys`](crate::store::Store::remove_keys)
    pub(super) fn remove_keys(&mut self, before: Timestamp, limit: usize) -> CommandResult<usize> {
        let sql = "DELETE FROM idempotency_key WHERE number IN
                   (SELECT number FROM idempotency_key WHERE time < ?1 ORDER BY time LIMIT ?2)";
        let values = params![before.as_millis(), sql_limit(limit)];
        Ok(Ok(self.connection.prepare_cached(sql)?.execute(values)?))
    }

    /// [`Store::put_config`](crate::store::Store::put_config)
    pub(super) fn put_config(
        &mut self,
        task: &TaskKey,
        config: &EncodedConfig,
    ) -> CommandResult<()> {
        if let Some(row) = self.load_row(task)? {
            self.insert_config(row.number, config, row.position)?;
        }
        Ok(Ok(()))
    }

    /// [`Store::delete_config`](crate::store::Store::delete_config)
    pub(super) fn delete_config(
        &mut self,
        task: &TaskKey,
        config: &PushConfigId,
    ) -> CommandResult<()> {
        if let Some(row) = self.load_row(task)? {
            let sql = "DELETE FROM webhook WHERE task = ?1 AND id = ?2";
            self.connection
                .prepare_cached(sql)?
                .execute(params![row.number, config.as_str()])?;
        }
        Ok(Ok(()))
    }

    /// Looks a key up.
    fn find_key(
        &self,
        number: i64,
        scope: &Scope,
        key: Option<&IdempotencyKey>,
    ) -> rusqlite::Result<KeyLookup> {
        match key {
            Some(key) => read::find_key_in_scope(self.connection, number, scope, key),
            None => Ok(KeyLookup::Unused),
        }
    }

    /// Inserts a row into `task` and returns its number; `None` if the id or the alias is taken.
    fn insert_task(&mut self, scope: i64, task: &EncodedTask) -> rusqlite::Result<Option<i64>> {
        let values = params![
            task.id.as_str(),
            scope,
            task.context_id.as_str(),
            task.alias.as_ref().map(TaskId::as_str),
            sql_position(Seq(task.batch.count())),
            state_number(task.batch.state),
            task.batch.state.is_terminal(),
            task.batch.parked,
            task.batch.status_time.as_millis(),
        ];
        let inserted = self
            .insert_task_statement
            .execute(self.connection, values)?;
        Ok((inserted > 0).then(|| self.connection.last_insert_rowid()))
    }

    /// Inserts the rows and the key of a batch; returns the position of the last entry.
    fn insert_batch(
        &mut self,
        task: i64,
        scope: i64,
        at: Seq,
        batch: &EncodedBatch,
    ) -> rusqlite::Result<Seq> {
        let mut last = at;
        for row in &batch.rows {
            last.0 += row.count;
            self.insert_batch_statement
                .execute(self.connection, params![task, sql_position(last), row.body])?;
        }
        if let Some(key) = &batch.key {
            // Only an expired record of the key can exist.
            let sql = "INSERT INTO idempotency_key (scope, text, digest, task, turn, time) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
                       ON CONFLICT (scope, text) DO UPDATE
                       SET digest = excluded.digest, task = excluded.task, turn = excluded.turn, time = excluded.time";
            let turn = sql_position(Seq(batch.turn));
            let time = batch.time.as_millis();
            let values = params![scope, key.text, key.body, task, turn, time];
            self.connection.prepare_cached(sql)?.execute(values)?;
        }
        Ok(last)
    }

    /// Updates position, state and status time of a task.
    fn update_head(
        &mut self,
        row: &TaskRow,
        position: Seq,
        batch: &EncodedBatch,
    ) -> rusqlite::Result<()> {
        let is_same_status = row.state == batch.state
            && row.status_time == batch.status_time
            && row.parked == batch.parked;
        if is_same_status {
            // The position is in no index, so the chunks of a stream do not touch any.
            let sql = "UPDATE task SET position = ?2 WHERE number = ?1";
            self.connection
                .prepare_cached(sql)?
                .execute(params![row.number, sql_position(position)])?;
            return Ok(());
        }
        let sql =
            "UPDATE task SET position = ?2, state = ?3, has_ended = ?4, status_time = ?5, is_parked = ?6
             WHERE number = ?1";
        self.connection.prepare_cached(sql)?.execute(params![
            row.number,
            sql_position(position),
            state_number(batch.state),
            batch.state.is_terminal(),
            batch.status_time.as_millis(),
            batch.parked,
        ])?;
        self.adjust_count(row.scope, row.state, -1);
        self.adjust_count(row.scope, batch.state, 1);
        Ok(())
    }

    fn insert_config(
        &self,
        task: i64,
        config: &EncodedConfig,
        position: Seq,
    ) -> rusqlite::Result<()> {
        let sql = "INSERT INTO webhook (task, id, registration, position) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (task, id) DO UPDATE SET registration = excluded.registration,
                   generation = generation + 1, attempts = 0, next_attempt = 0, delivery_state = 0, failure_reason = ''";
        let id = config.id.as_ref().map_or("", PushConfigId::as_str);
        self.connection.prepare_cached(sql)?.execute(params![
            task,
            id,
            config.body,
            sql_position(position)
        ])?;
        Ok(())
    }

    fn delete_task(&mut self, id: &TaskId, row: &TaskRow) -> rusqlite::Result<()> {
        self.cache.rows.remove(id);
        for sql in DELETE_TASK {
            self.connection.prepare_cached(sql)?.execute([row.number])?;
        }
        self.adjust_count(row.scope, row.state, -1);
        Ok(())
    }

    fn load_row(&mut self, task: &TaskKey) -> rusqlite::Result<Option<TaskRow>> {
        let Some(scope) = self.find_scope(&task.scope)? else {
            return Ok(None);
        };
        let columns = "number, position, state, status_time, is_parked";
        read::find_task_row(self.connection, scope, &task.id, columns, |row| {
            Ok(TaskRow {
                number: row.get(0)?,
                scope,
                position: seq_column(row, 1)?,
                state: state_column(row, 2)?,
                status_time: time_column(row, 3)?,
                parked: row.get(4)?,
            })
        })
    }

    /// Notes a change of the number of tasks in a state.
    fn adjust_count(&mut self, scope: i64, state: TaskState, change: i64) {
        let key = (scope, state_number(state));
        *self.cache.count_changes.entry(key).or_default() += change;
    }

    fn write_count(&mut self, scope: i64, state: u8, change: i64) -> rusqlite::Result<()> {
        let updated = self
            .update_count_statement
            .execute(self.connection, params![scope, state, change])?;
        if updated == 0 {
            let sql = "INSERT INTO task_count (scope, state, tasks) VALUES (?1, ?2, ?3)";
            self.connection
                .prepare_cached(sql)?
                .execute(params![scope, state, change])?;
        }
        Ok(())
    }

    /// Returns the row number of a scope, and inserts the scope if it is new.
    fn ensure_scope(&mut self, scope: &Scope) -> rusqlite::Result<i64> {
        if let Some(number) = self.find_scope(scope)? {
            return Ok(number);
        }
        let sql = "INSERT INTO scope (agent, tenant, owner) VALUES (?1, ?2, ?3)";
        self.connection.prepare_cached(sql)?.execute(params![
            scope.agent,
            scope.tenant,
            scope.owner.name()
        ])?;
        let number = self.connection.last_insert_rowid();
        self.cache_scope(scope, number);
        Ok(number)
    }

    fn find_scope(&mut self, scope: &Scope) -> rusqlite::Result<Option<i64>> {
        if let Some(number) = self.cache.scopes.get(scope) {
            return Ok(Some(*number));
        }
        let number = read::scope_number(self.connection, scope)?;
        if let Some(number) = number {
            self.cache_scope(scope, number);
        }
        Ok(number)
    }

    /// Caches the row of a task after a batch, unless the task has ended.
    fn cache_row(&mut self, id: &TaskId, row: TaskRow, position: Seq, batch: &EncodedBatch) {
        if batch.state.is_terminal() {
            return;
        }
        if self.cache.rows.len() >= MAX_CACHED_ROWS {
            self.cache.rows.clear();
        }
        let row = TaskRow {
            position,
            state: batch.state,
            status_time: batch.status_time,
            parked: batch.parked,
            ..row
        };
        self.cache.rows.insert(id.clone(), row);
    }

    fn cache_scope(&mut self, scope: &Scope, number: i64) {
        if self.cache.scopes.len() >= MAX_CACHED_ROWS {
            self.cache.scopes.clear();
        }
        self.cache.scopes.insert(scope.clone(), number);
    }
}
