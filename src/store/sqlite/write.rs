//! What is done within the writer's transactions.
//!
//! Every command looks before it writes: one that is refused has changed nothing, so its neighbours may be committed.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{CachedStatement, Connection, Params, params};

use super::error::DatabaseError;
use super::head_cache::{HeadCache, HeadChange};
use super::id_index::{self, IdIndex, IndexEntry};
use super::read::{self, state_column};
use super::secret_box::SecretBox;
use super::sorted_pages::{LARGE_LEVEL, SMALL_LEVEL};
use super::writer::CommandResult;
use crate::model::{ContextId, PushConfigId, Scope, Seq, TaskId, TaskState, Timestamp};
use crate::store::codec::{self, state_number};
use crate::store::{
    Batch, CreateResult, Error, Head, IdempotencyKey, IdempotencyRecord, NewTask, PushRegistration,
    Result,
};

/// A larger batch takes several rows, so that a part of it can be read without all of it.
const EVENTS_PER_ROW: usize = 256;

/// SQLite takes a billion.
const BYTES_PER_ROW: usize = 900_000_000;

const INSERT_TASK: &str =
    "INSERT INTO task (id, scope, context, context_hash, alias, position, state, ended, status_time, parked, number)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (scope, alias) WHERE alias IS NOT NULL DO NOTHING";

/// Removes a task with all that belongs to it.
const DELETE_TASK: [&str; 5] = [
    "DELETE FROM batch WHERE task = ?1",
    "DELETE FROM snapshot WHERE task = ?1",
    "DELETE FROM config WHERE task = ?1",
    "DELETE FROM key WHERE task = ?1",
    "DELETE FROM task WHERE number = ?1",
];

/// How many scopes the writer remembers the numbers of, and how many tasks that are being worked on.
const MAX_CACHED_ROWS: usize = 4_096;

/// A batch, encoded by whoever asks rather than by the one thread that writes.
pub(super) struct EncodedBatch {
    rows: Vec<(u64, Vec<u8>)>,
    state: TaskState,
    status_time: Timestamp,
    parked: bool,
    key: Option<IdempotencyKey>,
    turn: u64,
}

impl EncodedBatch {
    pub(super) fn new(batch: &Batch) -> Result<Self> {
        let row = |events: &[_]| {
            Ok((
                events.len() as u64,
                check_row_size(codec::encode_events(batch.time, events))?,
            ))
        };
        let rows = batch
            .events
            .chunks(EVENTS_PER_ROW)
            .map(row)
            .collect::<Result<_>>()?;
        let (state, status_time, key) = (batch.state, batch.status_time, batch.key.clone());
        Ok(Self {
            rows,
            state,
            status_time,
            parked: batch.parked,
            key,
            turn: batch.turn,
        })
    }
}

/// A task to be opened, encoded.
pub(super) struct EncodedTask {
    id: TaskId,
    scope: Scope,
    context_id: ContextId,
    alias: Option<TaskId>,
    config: Option<EncodedConfig>,
    batch: EncodedBatch,
}

impl EncodedTask {
    pub(super) fn new(task: &NewTask, secret_box: &SecretBox) -> Result<Self> {
        let config = task
            .config
            .as_ref()
            .map(|config| EncodedConfig::new(config, secret_box))
            .transpose()?;
        let (id, scope, context_id) =
            (task.id.clone(), task.scope.clone(), task.context_id.clone());
        Ok(Self {
            id,
            scope,
            context_id,
            alias: task.alias.clone(),
            config,
            batch: EncodedBatch::new(&task.batch)?,
        })
    }
}

/// A webhook, encoded.
pub(super) struct EncodedConfig {
    id: Option<PushConfigId>,
    body: Vec<u8>,
}

impl EncodedConfig {
    pub(super) fn new(registration: &PushRegistration, secret_box: &SecretBox) -> Result<Self> {
        let body = check_row_size(secret_box.encrypt(codec::encode_registration(registration)))?;
        Ok(Self {
            id: registration.config.id.clone(),
            body,
        })
    }
}

/// Refuses what SQLite would: that must not fail a commit that others share.
pub(super) fn check_row_size(body: Vec<u8>) -> Result<Vec<u8>> {
    if body.len() <= BYTES_PER_ROW {
        Ok(body)
    } else {
        Err(DatabaseError::too_large(body.len()))
    }
}

/// What the writer knows without asking; as good when it is empty.
#[derive(Debug, Default)]
struct TxCache {
    scopes: HashMap<Scope, i64>,
    /// Tasks that were added to and have not ended: most often the next batch is for one of them.
    rows: HashMap<TaskId, TaskRow>,
    /// By how much the number of tasks in a scope and state has changed in this transaction.
    tally_changes: BTreeMap<(i64, u8), i64>,
    /// Names of what this transaction has added, and of what it has removed.
    added: Vec<IndexEntry>,
    removed: Vec<IndexEntry>,
    /// What it does to tasks that were there before, in order.
    changes: Vec<HeadChange>,
}

/// What one transaction after the other is made with.
pub(super) struct Transaction<'a> {
    pub(super) connection: &'a Connection,
    id_index: &'a IdIndex,
    cache: TxCache,
    insert_task_statement: PreparedStatement<'a>,
    insert_batch_statement: PreparedStatement<'a>,
    update_tally_statement: PreparedStatement<'a>,
}

/// The scope number that stands for all of them.
pub(super) const ALL_SCOPES: i64 = 0;

/// A task as the writer knows it.
#[derive(Debug)]
struct TaskRow {
    number: i64,
    scope: i64,
    position: Seq,
    state: TaskState,
    status_time: Timestamp,
    parked: bool,
}

impl<'a> Transaction<'a> {
    pub(super) fn new(connection: &'a Connection, id_index: &'a IdIndex) -> Self {
        Self {
            connection,
            id_index,
            cache: TxCache::default(),
            insert_task_statement: PreparedStatement::new(INSERT_TASK),
            insert_batch_statement: PreparedStatement::new(
                "INSERT INTO batch (task, last, body) VALUES (?1, ?2, ?3)",
            ),
            update_tally_statement: PreparedStatement::new(
                "UPDATE tally SET tasks = tasks + ?3 WHERE scope = ?1 AND state = ?2",
            ),
        }
    }

    /// After a commit.
    pub(super) fn after_commit(&mut self, head_cache: &HeadCache) {
        head_cache.apply_commit(self.cache.changes.drain(..));
        self.cache.added.clear();
        self.id_index.forget(self.cache.removed.drain(..));
    }

    /// After a transaction that came to nothing: scopes may have numbers that were given out in vain.
    pub(super) fn after_rollback(&mut self, head_cache: &HeadCache) {
        head_cache.apply_rollback(self.cache.changes.drain(..));
        self.id_index.forget(self.cache.added.drain(..));
        self.cache = TxCache::default();
    }

    /// Writes what is there once more.
    pub(super) fn probe(&mut self) -> CommandResult<()> {
        self.connection
            .prepare_cached("UPDATE named SET task = task")?
            .execute(())?;
        Ok(Ok(()))
    }

    pub(super) fn create(&mut self, task: &EncodedTask) -> CommandResult<CreateResult> {
        let scope = self.ensure_scope(&task.scope)?;
        match self.find_key(scope, &task.scope, task.batch.key.as_ref())? {
            Some(Ok(record)) => return Ok(Ok(CreateResult::Replayed(record))),
            Some(Err(error)) => return Ok(Err(error)),
            None => {}
        }
        let Some(number) = self.insert_task(scope, task)? else {
            return Ok(Err(Error::Conflict));
        };
        let position = self.insert_batch(number, scope, Seq(0), &task.batch)?;
        if let Some(config) = &task.config {
            self.insert_config(number, config, Seq(0))?;
        }
        self.adjust_count(scope, task.batch.state, 1);
        let (state, status_time) = (task.batch.state, task.batch.status_time);
        let (id, scope, context_id) =
            (task.id.clone(), task.scope.clone(), task.context_id.clone());
        Ok(Ok(CreateResult::Created(Head {
            id,
            scope,
            context_id,
            position,
            state,
            status_time,
        })))
    }

    pub(super) fn append(
        &mut self,
        scope: &Scope,
        id: &TaskId,
        at: Seq,
        batch: &EncodedBatch,
    ) -> CommandResult<Seq> {
        let Some(number) = self.find_scope(scope)? else {
            return Ok(Err(Error::Conflict));
        };
        match self.find_key(number, scope, batch.key.as_ref())? {
            Some(Ok(_)) => return Ok(Err(Error::AlreadyApplied)),
            Some(Err(error)) => return Ok(Err(error)),
            None => {}
        }
        let cached = self.cache.rows.remove(id).filter(|row| row.scope == number);
        let row = if cached.is_some() {
            cached
        } else {
            self.load_row(scope, id)?
        };
        let Some(row) = row.filter(|row| row.position == at) else {
            return Ok(Err(Error::Conflict));
        };
        let position = self.insert_batch(row.number, row.scope, at, batch)?;
        self.update_head(&row, position, batch)?;
        self.cache_row(id, row, position, batch);
        let to = Some((position, batch.state, batch.status_time));
        self.cache.changes.push(HeadChange { id: id.clone(), to });
        Ok(Ok(position))
    }

    pub(super) fn save_snapshot(
        &mut self,
        scope: &Scope,
        id: &TaskId,
        at: Seq,
        body: &[u8],
    ) -> CommandResult<()> {
        if let Some(row) = self.load_row(scope, id)? {
            let sql = "INSERT INTO snapshot (task, position, body) VALUES (?1, ?2, ?3) ON CONFLICT (task) DO UPDATE
                       SET position = excluded.position, body = excluded.body WHERE excluded.position >= position";
            self.connection.prepare_cached(sql)?.execute(params![
                row.number,
                sql_integer(at),
                body
            ])?;
        }
        Ok(Ok(()))
    }

    pub(super) fn remove(&mut self, tasks: &[(Scope, TaskId)]) -> CommandResult<()> {
        for (scope, id) in tasks {
            if let Some(row) = self.load_row(scope, id)? {
                self.cache.rows.remove(id);
                self.cache
                    .removed
                    .push((id_index::hash_task_id(id), row.number));
                let keys = self.key_entries(row.number)?;
                self.cache.removed.extend(keys);
                for sql in DELETE_TASK {
                    self.connection.prepare_cached(sql)?.execute([row.number])?;
                }
                self.adjust_count(row.scope, row.state, -1);
                self.cache.changes.push(HeadChange {
                    id: id.clone(),
                    to: None,
                });
            }
        }
        Ok(Ok(()))
    }

    pub(super) fn put_config(
        &mut self,
        scope: &Scope,
        id: &TaskId,
        config: &EncodedConfig,
    ) -> CommandResult<()> {
        if let Some(row) = self.load_row(scope, id)? {
            self.insert_config(row.number, config, row.position)?;
        }
        Ok(Ok(()))
    }

    pub(super) fn delete_config(
        &mut self,
        scope: &Scope,
        id: &TaskId,
        config: &PushConfigId,
    ) -> CommandResult<()> {
        if let Some(row) = self.load_row(scope, id)? {
            let sql = "DELETE FROM config WHERE task = ?1 AND id = ?2";
            self.connection
                .prepare_cached(sql)?
                .execute(params![row.number, config.as_str()])?;
        }
        Ok(Ok(()))
    }

    /// Writes down what was counted. The last thing before the commit.
    pub(super) fn before_commit(&mut self) -> rusqlite::Result<()> {
        for ((scope, state), by) in std::mem::take(&mut self.cache.tally_changes) {
            if by != 0
                && self
                    .update_tally_statement
                    .execute(self.connection, params![scope, state, by])?
                    == 0
            {
                let sql = "INSERT INTO tally (scope, state, tasks) VALUES (?1, ?2, ?3)";
                self.connection
                    .prepare_cached(sql)?
                    .execute(params![scope, state, by])?;
            }
        }
        let moved = self
            .id_index
            .flush_step(self.connection, self.cache.added.len())?;
        self.cache.removed.sort_unstable();
        SMALL_LEVEL.remove(self.connection, &self.cache.removed)?;
        LARGE_LEVEL.remove(self.connection, &self.cache.removed)?;
        self.cache.removed.extend(moved);
        Ok(())
    }

    /// Whether the scope has seen a key: with the same body what it stands for, with another the refusal.
    fn find_key(
        &self,
        number: i64,
        scope: &Scope,
        key: Option<&IdempotencyKey>,
    ) -> rusqlite::Result<Option<Result<IdempotencyRecord>>> {
        let Some(key) = key else { return Ok(None) };
        if self
            .id_index
            .is_new(self.connection, id_index::hash_key(number, &key.text))?
        {
            return Ok(None);
        }
        read::find_key_in_scope(self.connection, self.id_index, number, scope, key)
    }

    /// Whether anybody has a task of this id.
    fn is_id_taken(&self, hash: i64, id: &TaskId) -> rusqlite::Result<bool> {
        if self.id_index.is_new(self.connection, hash)? {
            return Ok(false);
        }
        let mut statement = self
            .connection
            .prepare_cached("SELECT 1 FROM task WHERE number = ?1 AND id = ?2")?;
        let found = self.id_index.find(self.connection, hash, |number| {
            Ok(statement
                .exists(params![number, id.as_str()])?
                .then_some(()))
        });
        Ok(found?.is_some())
    }

    /// The names of a task's keys.
    fn key_entries(&self, task: i64) -> rusqlite::Result<Vec<IndexEntry>> {
        let sql = "SELECT number, scope, text FROM key WHERE task = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let keys = statement.query_map([task], |row| {
            Ok((
                id_index::hash_key(row.get(1)?, row.get_ref(2)?.as_str()?),
                -row.get::<_, i64>(0)?,
            ))
        })?;
        keys.collect()
    }

    fn add_to_index(&mut self, entry: IndexEntry) {
        self.cache.added.push(entry);
        self.id_index.add(entry);
    }

    /// `None` when the id or the alias is taken.
    fn insert_task(&mut self, scope: i64, task: &EncodedTask) -> rusqlite::Result<Option<i64>> {
        let hash = id_index::hash_task_id(&task.id);
        if self.is_id_taken(hash, &task.id)? {
            return Ok(None);
        }
        let position = task.batch.rows.iter().map(|(count, _)| count).sum();
        let number = self.id_index.next_task();
        let values = params![
            task.id.as_str(),
            scope,
            task.context_id.as_str(),
            read::context_hash(&task.context_id),
            task.alias.as_ref().map(TaskId::as_str),
            sql_integer(Seq(position)),
            state_number(task.batch.state),
            task.batch.state.is_terminal(),
            task.batch.status_time.as_millis(),
            task.batch.parked,
            number,
        ];
        if self
            .insert_task_statement
            .execute(self.connection, values)?
            == 0
        {
            return Ok(None);
        }
        self.add_to_index((hash, number));
        Ok(Some(number))
    }

    /// Adds the rows and the key of a batch; returns the new position.
    fn insert_batch(
        &mut self,
        task: i64,
        scope: i64,
        at: Seq,
        batch: &EncodedBatch,
    ) -> rusqlite::Result<Seq> {
        let mut last = at;
        for (count, body) in &batch.rows {
            last.0 += count;
            self.insert_batch_statement
                .execute(self.connection, params![task, sql_integer(last), body])?;
        }
        if let Some(key) = &batch.key {
            let sql = "INSERT INTO key (number, scope, text, body, task, turn) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let (number, turn) = (self.id_index.next_key(), sql_integer(Seq(batch.turn)));
            let values = params![number, scope, key.text, key.body, task, turn];
            self.connection.prepare_cached(sql)?.execute(values)?;
            self.add_to_index((id_index::hash_key(scope, &key.text), -number));
        }
        Ok(last)
    }

    fn update_head(
        &mut self,
        row: &TaskRow,
        position: Seq,
        batch: &EncodedBatch,
    ) -> rusqlite::Result<()> {
        if (row.state, row.status_time, row.parked)
            == (batch.state, batch.status_time, batch.parked)
        {
            // No index knows the position, so that the many chunks of a stream touch none.
            let sql = "UPDATE task SET position = ?2 WHERE number = ?1";
            self.connection
                .prepare_cached(sql)?
                .execute(params![row.number, sql_integer(position)])?;
            return Ok(());
        }
        let sql =
            "UPDATE task SET position = ?2, state = ?3, ended = ?4, status_time = ?5, parked = ?6
                   WHERE number = ?1";
        self.connection.prepare_cached(sql)?.execute(params![
            row.number,
            sql_integer(position),
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
        let sql = "INSERT INTO config (task, id, body, sealed, position) VALUES (?1, ?2, ?3, 1, ?4)
                   ON CONFLICT (task, id) DO UPDATE SET body = excluded.body, generation = generation + 1,
                   attempts = 0, due = 0, standing = 0, reason = ''";
        let id = config.id.as_ref().map_or("", PushConfigId::as_str);
        self.connection.prepare_cached(sql)?.execute(params![
            task,
            id,
            config.body,
            sql_integer(position)
        ])?;
        Ok(())
    }

    fn load_row(&mut self, scope: &Scope, id: &TaskId) -> rusqlite::Result<Option<TaskRow>> {
        let Some(scope) = self.find_scope(scope)? else {
            return Ok(None);
        };
        let columns = "number, position, state, status_time, parked";
        read::find_task_row(self.connection, self.id_index, scope, id, columns, |row| {
            Ok(TaskRow {
                number: row.get(0)?,
                scope,
                position: read::seq_column(row, 1)?,
                state: state_column(row, 2)?,
                status_time: read::time_column(row, 3)?,
                parked: row.get(4)?,
            })
        })
    }

    fn adjust_count(&mut self, scope: i64, state: TaskState, by: i64) {
        for scope in [scope, ALL_SCOPES] {
            *self
                .cache
                .tally_changes
                .entry((scope, state_number(state)))
                .or_default() += by;
        }
    }

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
        Ok(self.cache_scope(scope, self.connection.last_insert_rowid()))
    }

    fn find_scope(&mut self, scope: &Scope) -> rusqlite::Result<Option<i64>> {
        if let Some(number) = self.cache.scopes.get(scope) {
            return Ok(Some(*number));
        }
        let number = read::scope_number(self.connection, scope)?;
        Ok(number.map(|number| self.cache_scope(scope, number)))
    }

    fn cache_row(&mut self, id: &TaskId, row: TaskRow, position: Seq, batch: &EncodedBatch) {
        if batch.state.is_terminal() {
            return;
        }
        if self.cache.rows.len() >= MAX_CACHED_ROWS {
            self.cache.rows.clear();
        }
        let (state, status_time, parked) = (batch.state, batch.status_time, batch.parked);
        self.cache.rows.insert(
            id.clone(),
            TaskRow {
                position,
                state,
                status_time,
                parked,
                ..row
            },
        );
    }

    fn cache_scope(&mut self, scope: &Scope, number: i64) -> i64 {
        if self.cache.scopes.len() >= MAX_CACHED_ROWS {
            self.cache.scopes.clear();
        }
        self.cache.scopes.insert(scope.clone(), number);
        number
    }
}

/// A statement that nearly every transaction has: prepared when it is first used, and at hand from then on.
pub(super) struct PreparedStatement<'a> {
    sql: &'static str,
    statement: Option<CachedStatement<'a>>,
}

impl<'a> PreparedStatement<'a> {
    pub(super) fn new(sql: &'static str) -> Self {
        Self {
            sql,
            statement: None,
        }
    }

    /// How many rows it has changed.
    pub(super) fn execute(
        &mut self,
        connection: &'a Connection,
        values: impl Params,
    ) -> rusqlite::Result<usize> {
        let statement = match &mut self.statement {
            Some(statement) => statement,
            none => none.insert(connection.prepare_cached(self.sql)?),
        };
        let changed = statement.execute(values);
        // It has copies of the values, and some are large.
        statement.clear_bindings();
        changed
    }
}

/// No log is longer than SQLite counts.
pub(super) fn sql_integer(seq: Seq) -> i64 {
    i64::try_from(seq.0).unwrap_or(i64::MAX)
}
