//! What is done within the writer's transactions.
//!
//! Every command looks before it writes: one that is refused has changed nothing, so its neighbours may be committed.

use std::collections::{BTreeMap, HashMap};

use rusqlite::{CachedStatement, Connection, Params, params};

use super::blocks::{ALL, RECENT};
use super::error::Trouble;
use super::heads::{Change, Heads};
use super::names::{self, Name, Names};
use super::read::{self, state_in};
use super::seal::Seal;
use super::writer::Done;
use crate::model::{ContextId, PushConfigId, Scope, Seq, TaskId, TaskState, Timestamp};
use crate::store::codec::{self, state_number};
use crate::store::{Batch, Error, Head, Key, NewTask, Opened, Registered, Result, Seen};

/// A larger batch takes several rows, so that a part of it can be read without all of it.
const EVENTS_PER_ROW: usize = 256;

/// SQLite takes a billion.
const BYTES_PER_ROW: usize = 900_000_000;

const NEW_TASK: &str =
    "INSERT INTO task (id, scope, context, context_hash, alias, position, state, ended, status_time, parked, number)
     VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11) ON CONFLICT (scope, alias) WHERE alias IS NOT NULL DO NOTHING";

/// Removes a task with all that belongs to it.
const ALL_OF_A_TASK: [&str; 5] = [
    "DELETE FROM batch WHERE task = ?1",
    "DELETE FROM snapshot WHERE task = ?1",
    "DELETE FROM config WHERE task = ?1",
    "DELETE FROM key WHERE task = ?1",
    "DELETE FROM task WHERE number = ?1",
];

/// How many scopes the writer remembers the numbers of, and how many tasks that are being worked on.
const REMEMBERED: usize = 4_096;

/// A batch, encoded by whoever asks rather than by the one thread that writes.
pub(super) struct Addition {
    rows: Vec<(u64, Vec<u8>)>,
    state: TaskState,
    status_time: Timestamp,
    parked: bool,
    key: Option<Key>,
    turn: u64,
}

impl Addition {
    pub(super) fn new(batch: &Batch) -> Result<Self> {
        let row = |events: &[_]| {
            Ok((
                events.len() as u64,
                checked(codec::write_events(batch.time, events))?,
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
pub(super) struct Creation {
    id: TaskId,
    scope: Scope,
    context_id: ContextId,
    alias: Option<TaskId>,
    config: Option<Config>,
    batch: Addition,
}

impl Creation {
    pub(super) fn new(task: &NewTask, seal: &Seal) -> Result<Self> {
        let config = task
            .config
            .as_ref()
            .map(|config| Config::new(config, seal))
            .transpose()?;
        let (id, scope, context_id) =
            (task.id.clone(), task.scope.clone(), task.context_id.clone());
        Ok(Self {
            id,
            scope,
            context_id,
            alias: task.alias.clone(),
            config,
            batch: Addition::new(&task.batch)?,
        })
    }
}

/// A webhook, encoded.
pub(super) struct Config {
    id: Option<PushConfigId>,
    body: Vec<u8>,
}

impl Config {
    pub(super) fn new(registered: &Registered, seal: &Seal) -> Result<Self> {
        let body = checked(seal.seal(codec::write_config(registered)))?;
        Ok(Self {
            id: registered.config.id.clone(),
            body,
        })
    }
}

/// Refuses what SQLite would: that must not fail a commit that others share.
pub(super) fn checked(body: Vec<u8>) -> Result<Vec<u8>> {
    if body.len() <= BYTES_PER_ROW {
        Ok(body)
    } else {
        Err(Trouble::too_large(body.len()))
    }
}

/// What the writer knows without asking; as good when it is empty.
#[derive(Debug, Default)]
struct Memo {
    scopes: HashMap<Scope, i64>,
    /// Tasks that were added to and have not ended: most often the next batch is for one of them.
    rows: HashMap<TaskId, Row>,
    /// By how much the number of tasks in a scope and state has changed in this transaction.
    tally: BTreeMap<(i64, u8), i64>,
    /// Names of what this transaction has added, and of what it has removed.
    added: Vec<Name>,
    removed: Vec<Name>,
    /// What it does to tasks that were there before, in order.
    changes: Vec<Change>,
}

/// What one transaction after the other is made with.
pub(super) struct Work<'a> {
    pub(super) connection: &'a Connection,
    names: &'a Names,
    memo: Memo,
    new_task: Kept<'a>,
    new_batch: Kept<'a>,
    tally: Kept<'a>,
}

/// The scope number that stands for all of them.
pub(super) const ALL_SCOPES: i64 = 0;

/// A task as the writer knows it.
#[derive(Debug)]
struct Row {
    number: i64,
    scope: i64,
    position: Seq,
    state: TaskState,
    status_time: Timestamp,
    parked: bool,
}

impl<'a> Work<'a> {
    pub(super) fn new(connection: &'a Connection, names: &'a Names) -> Self {
        Self {
            connection,
            names,
            memo: Memo::default(),
            new_task: Kept::new(NEW_TASK),
            new_batch: Kept::new("INSERT INTO batch (task, last, body) VALUES (?1, ?2, ?3)"),
            tally: Kept::new("UPDATE tally SET tasks = tasks + ?3 WHERE scope = ?1 AND state = ?2"),
        }
    }

    /// After a commit.
    pub(super) fn committed(&mut self, heads: &Heads) {
        heads.committed(self.memo.changes.drain(..));
        self.memo.added.clear();
        self.names.drop(self.memo.removed.drain(..));
    }

    /// After a transaction that came to nothing: scopes may have numbers that were given out in vain.
    pub(super) fn rolled_back(&mut self, heads: &Heads) {
        heads.failed(self.memo.changes.drain(..));
        self.names.drop(self.memo.added.drain(..));
        self.memo = Memo::default();
    }

    /// Writes what is there once more.
    pub(super) fn probe(&mut self) -> Done<()> {
        self.connection
            .prepare_cached("UPDATE named SET task = task")?
            .execute(())?;
        Ok(Ok(()))
    }

    pub(super) fn create(&mut self, task: &Creation) -> Done<Opened> {
        let scope = self.scope_number(&task.scope)?;
        match self.seen(scope, &task.scope, task.batch.key.as_ref())? {
            Some(Ok(seen)) => return Ok(Ok(Opened::Again(seen))),
            Some(Err(error)) => return Ok(Err(error)),
            None => {}
        }
        let Some(number) = self.insert_task(scope, task)? else {
            return Ok(Err(Error::Conflict));
        };
        let position = self.add(number, scope, Seq(0), &task.batch)?;
        if let Some(config) = &task.config {
            self.insert_config(number, config, Seq(0))?;
        }
        self.count(scope, task.batch.state, 1);
        let (state, status_time) = (task.batch.state, task.batch.status_time);
        let (id, scope, context_id) =
            (task.id.clone(), task.scope.clone(), task.context_id.clone());
        Ok(Ok(Opened::New(Head {
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
        batch: &Addition,
    ) -> Done<Seq> {
        let Some(number) = self.known_scope(scope)? else {
            return Ok(Err(Error::Conflict));
        };
        match self.seen(number, scope, batch.key.as_ref())? {
            Some(Ok(_)) => return Ok(Err(Error::Repeated)),
            Some(Err(error)) => return Ok(Err(error)),
            None => {}
        }
        let known = self.memo.rows.remove(id).filter(|row| row.scope == number);
        let row = if known.is_some() {
            known
        } else {
            self.row(scope, id)?
        };
        let Some(row) = row.filter(|row| row.position == at) else {
            return Ok(Err(Error::Conflict));
        };
        let position = self.add(row.number, row.scope, at, batch)?;
        self.move_head(&row, position, batch)?;
        self.remember_row(id, row, position, batch);
        let to = Some((position, batch.state, batch.status_time));
        self.memo.changes.push(Change { id: id.clone(), to });
        Ok(Ok(position))
    }

    pub(super) fn keep(&mut self, scope: &Scope, id: &TaskId, at: Seq, body: &[u8]) -> Done<()> {
        if let Some(row) = self.row(scope, id)? {
            let sql = "INSERT INTO snapshot (task, position, body) VALUES (?1, ?2, ?3) ON CONFLICT (task) DO UPDATE
                       SET position = excluded.position, body = excluded.body WHERE excluded.position >= position";
            self.connection
                .prepare_cached(sql)?
                .execute(params![row.number, signed(at), body])?;
        }
        Ok(Ok(()))
    }

    pub(super) fn remove(&mut self, tasks: &[(Scope, TaskId)]) -> Done<()> {
        for (scope, id) in tasks {
            if let Some(row) = self.row(scope, id)? {
                self.memo.rows.remove(id);
                self.memo.removed.push((names::of_task(id), row.number));
                let keys = self.keys_of(row.number)?;
                self.memo.removed.extend(keys);
                for sql in ALL_OF_A_TASK {
                    self.connection.prepare_cached(sql)?.execute([row.number])?;
                }
                self.count(row.scope, row.state, -1);
                self.memo.changes.push(Change {
                    id: id.clone(),
                    to: None,
                });
            }
        }
        Ok(Ok(()))
    }

    pub(super) fn put_config(&mut self, scope: &Scope, id: &TaskId, config: &Config) -> Done<()> {
        if let Some(row) = self.row(scope, id)? {
            self.insert_config(row.number, config, row.position)?;
        }
        Ok(Ok(()))
    }

    pub(super) fn delete_config(
        &mut self,
        scope: &Scope,
        id: &TaskId,
        config: &PushConfigId,
    ) -> Done<()> {
        if let Some(row) = self.row(scope, id)? {
            let sql = "DELETE FROM config WHERE task = ?1 AND id = ?2";
            self.connection
                .prepare_cached(sql)?
                .execute(params![row.number, config.as_str()])?;
        }
        Ok(Ok(()))
    }

    /// Writes down what was counted. The last thing before the commit.
    pub(super) fn finish(&mut self) -> rusqlite::Result<()> {
        for ((scope, state), by) in std::mem::take(&mut self.memo.tally) {
            if by != 0
                && self
                    .tally
                    .execute(self.connection, params![scope, state, by])?
                    == 0
            {
                let sql = "INSERT INTO tally (scope, state, tasks) VALUES (?1, ?2, ?3)";
                self.connection
                    .prepare_cached(sql)?
                    .execute(params![scope, state, by])?;
            }
        }
        let moved = self.names.settle(self.connection, self.memo.added.len())?;
        self.memo.removed.sort_unstable();
        RECENT.remove(self.connection, &self.memo.removed)?;
        ALL.remove(self.connection, &self.memo.removed)?;
        self.memo.removed.extend(moved);
        Ok(())
    }

    /// Whether the scope has seen a key: with the same body what it stands for, with another the refusal.
    fn seen(
        &self,
        number: i64,
        scope: &Scope,
        key: Option<&Key>,
    ) -> rusqlite::Result<Option<Result<Seen>>> {
        let Some(key) = key else { return Ok(None) };
        if self
            .names
            .is_new(self.connection, names::of_key(number, &key.text))?
        {
            return Ok(None);
        }
        read::seen_in(self.connection, self.names, number, scope, key)
    }

    /// Whether anybody has a task of this id.
    fn is_taken(&self, hash: i64, id: &TaskId) -> rusqlite::Result<bool> {
        if self.names.is_new(self.connection, hash)? {
            return Ok(false);
        }
        let mut statement = self
            .connection
            .prepare_cached("SELECT 1 FROM task WHERE number = ?1 AND id = ?2")?;
        let found = self.names.find(self.connection, hash, |number| {
            Ok(statement
                .exists(params![number, id.as_str()])?
                .then_some(()))
        });
        Ok(found?.is_some())
    }

    /// The names of a task's keys.
    fn keys_of(&self, task: i64) -> rusqlite::Result<Vec<Name>> {
        let sql = "SELECT number, scope, text FROM key WHERE task = ?1";
        let mut statement = self.connection.prepare_cached(sql)?;
        let keys = statement.query_map([task], |row| {
            Ok((
                names::of_key(row.get(1)?, row.get_ref(2)?.as_str()?),
                -row.get::<_, i64>(0)?,
            ))
        })?;
        keys.collect()
    }

    fn name(&mut self, name: Name) {
        self.memo.added.push(name);
        self.names.add(name);
    }

    /// `None` when the id or the alias is taken.
    fn insert_task(&mut self, scope: i64, task: &Creation) -> rusqlite::Result<Option<i64>> {
        let hash = names::of_task(&task.id);
        if self.is_taken(hash, &task.id)? {
            return Ok(None);
        }
        let position = task.batch.rows.iter().map(|(count, _)| count).sum();
        let number = self.names.next_task();
        let values = params![
            task.id.as_str(),
            scope,
            task.context_id.as_str(),
            read::context_hash(&task.context_id),
            task.alias.as_ref().map(TaskId::as_str),
            signed(Seq(position)),
            state_number(task.batch.state),
            task.batch.state.is_terminal(),
            task.batch.status_time.as_millis(),
            task.batch.parked,
            number,
        ];
        if self.new_task.execute(self.connection, values)? == 0 {
            return Ok(None);
        }
        self.name((hash, number));
        Ok(Some(number))
    }

    /// Adds the rows and the key of a batch; returns the new position.
    fn add(&mut self, task: i64, scope: i64, at: Seq, batch: &Addition) -> rusqlite::Result<Seq> {
        let mut last = at;
        for (count, body) in &batch.rows {
            last.0 += count;
            self.new_batch
                .execute(self.connection, params![task, signed(last), body])?;
        }
        if let Some(key) = &batch.key {
            let sql = "INSERT INTO key (number, scope, text, body, task, turn) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
            let (number, turn) = (self.names.next_key(), signed(Seq(batch.turn)));
            let values = params![number, scope, key.text, key.body, task, turn];
            self.connection.prepare_cached(sql)?.execute(values)?;
            self.name((names::of_key(scope, &key.text), -number));
        }
        Ok(last)
    }

    fn move_head(&mut self, row: &Row, position: Seq, batch: &Addition) -> rusqlite::Result<()> {
        if (row.state, row.status_time, row.parked)
            == (batch.state, batch.status_time, batch.parked)
        {
            // No index knows the position, so that the many chunks of a stream touch none.
            let sql = "UPDATE task SET position = ?2 WHERE number = ?1";
            self.connection
                .prepare_cached(sql)?
                .execute(params![row.number, signed(position)])?;
            return Ok(());
        }
        let sql =
            "UPDATE task SET position = ?2, state = ?3, ended = ?4, status_time = ?5, parked = ?6
                   WHERE number = ?1";
        self.connection.prepare_cached(sql)?.execute(params![
            row.number,
            signed(position),
            state_number(batch.state),
            batch.state.is_terminal(),
            batch.status_time.as_millis(),
            batch.parked,
        ])?;
        self.count(row.scope, row.state, -1);
        self.count(row.scope, batch.state, 1);
        Ok(())
    }

    fn insert_config(&self, task: i64, config: &Config, position: Seq) -> rusqlite::Result<()> {
        let sql = "INSERT INTO config (task, id, body, sealed, position) VALUES (?1, ?2, ?3, 1, ?4)
                   ON CONFLICT (task, id) DO UPDATE SET body = excluded.body, generation = generation + 1,
                   attempts = 0, due = 0, standing = 0, reason = ''";
        let id = config.id.as_ref().map_or("", PushConfigId::as_str);
        self.connection.prepare_cached(sql)?.execute(params![
            task,
            id,
            config.body,
            signed(position)
        ])?;
        Ok(())
    }

    fn row(&mut self, scope: &Scope, id: &TaskId) -> rusqlite::Result<Option<Row>> {
        let Some(scope) = self.known_scope(scope)? else {
            return Ok(None);
        };
        let columns = "number, position, state, status_time, parked";
        read::named(self.connection, self.names, scope, id, columns, |row| {
            Ok(Row {
                number: row.get(0)?,
                scope,
                position: read::seq(row, 1)?,
                state: state_in(row, 2)?,
                status_time: read::time(row, 3)?,
                parked: row.get(4)?,
            })
        })
    }

    fn count(&mut self, scope: i64, state: TaskState, by: i64) {
        for scope in [scope, ALL_SCOPES] {
            *self
                .memo
                .tally
                .entry((scope, state_number(state)))
                .or_default() += by;
        }
    }

    fn scope_number(&mut self, scope: &Scope) -> rusqlite::Result<i64> {
        if let Some(number) = self.known_scope(scope)? {
            return Ok(number);
        }
        let sql = "INSERT INTO scope (agent, tenant, owner) VALUES (?1, ?2, ?3)";
        self.connection.prepare_cached(sql)?.execute(params![
            scope.agent,
            scope.tenant,
            scope.owner.name()
        ])?;
        Ok(self.remember(scope, self.connection.last_insert_rowid()))
    }

    fn known_scope(&mut self, scope: &Scope) -> rusqlite::Result<Option<i64>> {
        if let Some(number) = self.memo.scopes.get(scope) {
            return Ok(Some(*number));
        }
        let number = read::scope_number(self.connection, scope)?;
        Ok(number.map(|number| self.remember(scope, number)))
    }

    fn remember_row(&mut self, id: &TaskId, row: Row, position: Seq, batch: &Addition) {
        if batch.state.is_terminal() {
            return;
        }
        if self.memo.rows.len() >= REMEMBERED {
            self.memo.rows.clear();
        }
        let (state, status_time, parked) = (batch.state, batch.status_time, batch.parked);
        self.memo.rows.insert(
            id.clone(),
            Row {
                position,
                state,
                status_time,
                parked,
                ..row
            },
        );
    }

    fn remember(&mut self, scope: &Scope, number: i64) -> i64 {
        if self.memo.scopes.len() >= REMEMBERED {
            self.memo.scopes.clear();
        }
        self.memo.scopes.insert(scope.clone(), number);
        number
    }
}

/// A statement that nearly every transaction has: prepared when it is first used, and at hand from then on.
pub(super) struct Kept<'a> {
    sql: &'static str,
    statement: Option<CachedStatement<'a>>,
}

impl<'a> Kept<'a> {
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
pub(super) fn signed(seq: Seq) -> i64 {
    i64::try_from(seq.0).unwrap_or(i64::MAX)
}
