//! What is read.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};

use super::error::corrupt_row;
use super::id_index::{self, IdIndex};
use super::secret_box::SecretBox;
use super::write::ALL_SCOPES;
use crate::model::{Caller, ContextId, Entry, Scope, Seq, TaskId, TaskState, Timestamp};
use crate::store::codec::{self, CodecError, state_from_number, state_number};
use crate::store::{
    Error, Head, IdempotencyKey, IdempotencyRecord, PushRegistration, Result, Snapshot, TaskCounts,
    TaskPage, TaskQuery,
};

/// The columns that [`head_from_row`] reads.
pub(super) const HEAD_COLUMNS: &str =
    "task.id, task.context, task.position, task.state, task.status_time";

pub(super) fn entries(
    connection: &Connection,
    id_index: &IdIndex,
    scope: &Scope,
    id: &TaskId,
    after: Seq,
    limit: usize,
) -> rusqlite::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    let Some(task) = task_number(connection, id_index, scope, id)? else {
        return Ok(entries);
    };
    let sql = "SELECT last, body FROM batch WHERE task = ?1 AND last > ?2 ORDER BY last";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([task, i64::try_from(after.0).unwrap_or(i64::MAX)])?;
    while entries.len() < limit {
        let Some(row) = rows.next()? else { break };
        let last = seq_column(row, 0)?;
        let (time, events) =
            codec::decode_events(row.get_ref(1)?.as_blob()?).map_err(corrupt_row)?;
        let before = last.0.checked_sub(events.len() as u64);
        let before = before.ok_or_else(|| corrupt_row(CodecError("more events than positions")))?;
        let numbered = events
            .into_iter()
            .zip(before + 1..)
            .map(|(event, seq)| Entry {
                seq: Seq(seq),
                time,
                event,
            });
        let room = limit - entries.len();
        entries.extend(numbered.skip_while(|entry| entry.seq <= after).take(room));
    }
    Ok(entries)
}

pub(super) fn find(
    connection: &Connection,
    id_index: &IdIndex,
    scope: &Scope,
    id: &TaskId,
) -> rusqlite::Result<Option<Head>> {
    let Some(number) = scope_number(connection, scope)? else {
        return Ok(None);
    };
    let by_id = find_task_row(connection, id_index, number, id, HEAD_COLUMNS, |row| {
        head_from_row(row, scope.clone())
    })?;
    if by_id.is_some() {
        return Ok(by_id);
    }
    let sql = format!("SELECT {HEAD_COLUMNS} FROM task WHERE scope = ?1 AND alias = ?2");
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_row(params![number, id.as_str()], |row| {
            head_from_row(row, scope.clone())
        })
        .optional()
}

/// The number of the task with this id in this scope.
pub(super) fn task_number(
    connection: &Connection,
    id_index: &IdIndex,
    scope: &Scope,
    id: &TaskId,
) -> rusqlite::Result<Option<i64>> {
    let Some(scope) = scope_number(connection, scope)? else {
        return Ok(None);
    };
    find_task_row(connection, id_index, scope, id, "number", |row| row.get(0))
}

/// Reads columns of the task with this id in this scope.
pub(super) fn find_task_row<T>(
    connection: &Connection,
    id_index: &IdIndex,
    scope: i64,
    id: &TaskId,
    columns: &str,
    read: impl Fn(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let sql = format!("SELECT {columns} FROM task WHERE number = ?1 AND id = ?2 AND scope = ?3");
    let mut statement = connection.prepare_cached(&sql)?;
    id_index.find(connection, id_index::hash_task_id(id), |number| {
        statement
            .query_row(params![number, id.as_str(), scope], &read)
            .optional()
    })
}

/// Whether the scope has seen a key: with the same body what it stands for, with another the refusal.
pub(super) fn find_key(
    connection: &Connection,
    id_index: &IdIndex,
    scope: &Scope,
    key: &IdempotencyKey,
) -> rusqlite::Result<Option<Result<IdempotencyRecord>>> {
    match scope_number(connection, scope)? {
        Some(number) => find_key_in_scope(connection, id_index, number, scope, key),
        None => Ok(None),
    }
}

/// The same where the number of the scope is known.
pub(super) fn find_key_in_scope(
    connection: &Connection,
    id_index: &IdIndex,
    number: i64,
    scope: &Scope,
    key: &IdempotencyKey,
) -> rusqlite::Result<Option<Result<IdempotencyRecord>>> {
    let sql = format!(
        "SELECT {HEAD_COLUMNS}, key.body, key.turn FROM key JOIN task ON task.number = key.task
         WHERE key.number = -?1 AND key.scope = ?2 AND key.text = ?3"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    id_index.find(
        connection,
        id_index::hash_key(number, &key.text),
        |key_number| {
            let found = statement.query_row(params![key_number, number, key.text], |row| {
                if row.get_ref(5)?.as_blob()? != key.body {
                    return Ok(Err(Error::KeyReused));
                }
                Ok(Ok(IdempotencyRecord {
                    head: head_from_row(row, scope.clone())?,
                    turn: count_column(row, 6)?,
                }))
            });
            found.optional()
        },
    )
}

pub(super) fn list(
    connection: &mut Connection,
    scope: &Scope,
    query: &TaskQuery,
) -> rusqlite::Result<TaskPage> {
    // One transaction: the total is of the same moment as the tasks.
    let transaction = connection.transaction()?;
    let Some(number) = scope_number(&transaction, scope)? else {
        return Ok(TaskPage::default());
    };
    let filter = ListFilter::new(number, query);
    let total = total(&transaction, number, query, &filter)?;
    let (sql, values) = filter.page(query);
    let mut statement = transaction.prepare_cached(&sql)?;
    let heads = statement.query_map(params_from_iter(values), |row| {
        head_from_row(row, scope.clone())
    })?;
    Ok(TaskPage {
        tasks: heads.collect::<rusqlite::Result<_>>()?,
        total,
    })
}

fn total(
    connection: &Connection,
    scope: i64,
    query: &TaskQuery,
    filter: &ListFilter,
) -> rusqlite::Result<u64> {
    if query.context_id.is_some() || query.since.is_some() {
        let mut statement = connection.prepare_cached(&filter.select("count(*)"))?;
        return statement.query_row(params_from_iter(&filter.values), |row| count_column(row, 0));
    }
    sum_counts(connection, scope, |state| {
        query.state.is_none_or(|wanted| wanted == state)
    })
}

/// How many tasks the tally has in the states that `counts`.
fn sum_counts(
    connection: &Connection,
    scope: i64,
    counts: impl Fn(TaskState) -> bool,
) -> rusqlite::Result<u64> {
    let mut statement =
        connection.prepare_cached("SELECT state, tasks FROM tally WHERE scope = ?1")?;
    let mut rows = statement.query([scope])?;
    let mut total = 0;
    while let Some(row) = rows.next()? {
        if counts(state_column(row, 0)?) {
            total += count_column(row, 1)?;
        }
    }
    Ok(total)
}

/// The tasks of a scope that a query lets through, wherever they stand in the order.
///
/// Indexes are named, because without statistics SQLite cannot know which is the better one.
struct ListFilter {
    with: &'static str,
    from: String,
    values: Vec<Value>,
}

/// The slices of `task_context` that are not empty, one step each.
const SLICES: &str = "WITH RECURSIVE slice (n) AS (
    SELECT min(number) >> 10 FROM task UNION ALL
    SELECT (SELECT min(number) >> 10 FROM task WHERE number >= (n + 1) << 10) FROM slice WHERE n IS NOT NULL)";

impl ListFilter {
    fn new(scope: i64, query: &TaskQuery) -> Self {
        let mut filter = match &query.context_id {
            None => Self::whole_scope(scope),
            Some(context_id) => Self::context(scope, context_id),
        };
        if let Some(state) = query.state {
            filter.and("state = ?", i64::from(state_number(state)));
        }
        if let Some(since) = query.since {
            filter.and("status_time >= ?", since.as_millis());
        }
        filter
    }

    fn whole_scope(scope: i64) -> Self {
        let from = "FROM task INDEXED BY task_listed WHERE scope = ?1".to_owned();
        Self {
            with: "",
            from,
            values: vec![Value::Integer(scope)],
        }
    }

    fn context(scope: i64, context_id: &ContextId) -> Self {
        let from = "FROM slice CROSS JOIN task INDEXED BY task_context
                    WHERE task.number >> 10 = slice.n AND context_hash = ?1 AND context = ?2 AND scope = ?3";
        let values = vec![
            Value::Integer(context_hash(context_id)),
            Value::Text(context_id.to_string()),
            Value::Integer(scope),
        ];
        Self {
            with: SLICES,
            from: from.to_owned(),
            values,
        }
    }

    fn and(&mut self, condition: &str, value: impl Into<Value>) {
        self.from.push_str(" AND ");
        self.from.push_str(condition);
        self.values.push(value.into());
    }

    fn select(&self, what: &str) -> String {
        format!("{} SELECT {what} {}", self.with, self.from)
    }

    /// One page of them, in order.
    fn page(mut self, query: &TaskQuery) -> (String, Vec<Value>) {
        if let Some((time, id)) = &query.after {
            self.and("(status_time, id) < (?, ?)", time.as_millis());
            self.values.push(id.to_string().into());
        }
        self.values.push(sql_limit(query.limit).into());
        (
            format!(
                "{} ORDER BY status_time DESC, id DESC LIMIT ?",
                self.select(HEAD_COLUMNS)
            ),
            self.values,
        )
    }
}

/// FNV-1a, its upper half. It is in files: never changed.
pub(super) fn context_hash(context_id: &ContextId) -> i64 {
    let hash = context_id
        .as_str()
        .bytes()
        .fold(id_index::FNV_OFFSET_BASIS, id_index::fnv1a_step);
    i64::from((hash >> 32) as u32)
}

pub(super) fn list_unfinished(
    connection: &Connection,
    after: Option<&TaskId>,
    limit: usize,
) -> rusqlite::Result<Vec<Head>> {
    by_id(
        connection,
        "INDEXED BY task_unfinished",
        "ended = 0",
        after,
        limit,
    )
}

pub(super) fn list_runnable(
    connection: &Connection,
    after: Option<&TaskId>,
    limit: usize,
) -> rusqlite::Result<Vec<Head>> {
    by_id(
        connection,
        "INDEXED BY task_with_work",
        "ended = 0 AND parked = 0",
        after,
        limit,
    )
}

fn by_id(
    connection: &Connection,
    index: &str,
    which: &str,
    after: Option<&TaskId>,
    limit: usize,
) -> rusqlite::Result<Vec<Head>> {
    let condition = if after.is_some() {
        "AND task.id > ?2"
    } else {
        ""
    };
    let sql = format!(
        "SELECT {HEAD_COLUMNS}, agent, tenant, owner FROM task {index}
         JOIN scope ON scope.number = task.scope WHERE {which} {condition} ORDER BY task.id LIMIT ?1"
    );
    let mut values = vec![Value::Integer(sql_limit(limit))];
    values.extend(after.map(|id| Value::Text(id.to_string())));
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_map(params_from_iter(values), scoped_head_from_row)?
        .collect()
}

pub(super) fn list_parked(
    connection: &Connection,
    scope: &Scope,
    limit: usize,
) -> rusqlite::Result<Vec<Head>> {
    let Some(number) = scope_number(connection, scope)? else {
        return Ok(Vec::new());
    };
    let sql = format!(
        "SELECT {HEAD_COLUMNS} FROM task INDEXED BY task_parked
         WHERE ended = 0 AND parked = 1 AND scope = ?1 ORDER BY status_time LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_map([number, sql_limit(limit)], |row| {
            head_from_row(row, scope.clone())
        })?
        .collect()
}

/// Of the task that was made last, and of the one that ended last: both are found at once.
pub(super) fn latest_time(connection: &Connection) -> rusqlite::Result<Option<Timestamp>> {
    let sql = "SELECT max(time) FROM (
                 SELECT max(status_time) AS time FROM task INDEXED BY task_ended WHERE ended = 1 UNION ALL
                 SELECT status_time FROM task WHERE number = (SELECT max(number) FROM task))";
    let newest: Option<i64> = connection
        .prepare_cached(sql)?
        .query_row((), |row| row.get(0))?;
    Ok(newest.and_then(Timestamp::from_millis))
}

pub(super) fn list_ended(
    connection: &Connection,
    before: Timestamp,
    limit: usize,
) -> rusqlite::Result<Vec<Head>> {
    let sql = format!(
        "SELECT {HEAD_COLUMNS}, agent, tenant, owner FROM task INDEXED BY task_ended
         JOIN scope ON scope.number = task.scope WHERE ended = 1 AND status_time < ?1
         ORDER BY status_time LIMIT ?2"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_map(
            params![before.as_millis(), sql_limit(limit)],
            scoped_head_from_row,
        )?
        .collect()
}

pub(super) fn count_ended(connection: &Connection) -> rusqlite::Result<u64> {
    sum_counts(connection, ALL_SCOPES, TaskState::is_terminal)
}

/// Of a tenant of an agent, whoever its callers are.
pub(super) fn count_tasks(
    connection: &Connection,
    agent: &str,
    tenant: &str,
) -> rusqlite::Result<TaskCounts> {
    let sql = "SELECT state, sum(tasks) FROM scope CROSS JOIN tally
         WHERE agent = ?1 AND tenant = ?2 AND tally.scope = scope.number GROUP BY state";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([agent, tenant])?;
    let mut counts = TaskCounts::default();
    while let Some(row) = rows.next()? {
        let (state, tasks) = (state_column(row, 0)?, count_column(row, 1)?);
        counts.total += tasks;
        if !state.is_terminal() {
            counts.open += tasks;
        }
    }
    Ok(counts)
}

pub(super) fn load_snapshot(
    connection: &Connection,
    id_index: &IdIndex,
    scope: &Scope,
    id: &TaskId,
) -> rusqlite::Result<Option<(Seq, Snapshot)>> {
    let Some(task) = task_number(connection, id_index, scope, id)? else {
        return Ok(None);
    };
    let mut statement =
        connection.prepare_cached("SELECT position, body FROM snapshot WHERE task = ?1")?;
    let found = statement.query_row([task], |row| {
        // A cache: what cannot be read, of another format perhaps, is as good as lost.
        let snapshot = codec::decode_snapshot(row.get_ref(1)?.as_blob()?).ok();
        Ok(snapshot.map(|snapshot| Ok((seq_column(row, 0)?, snapshot))))
    });
    found.optional()?.flatten().transpose()
}

pub(super) fn list_configs(
    connection: &Connection,
    id_index: &IdIndex,
    secret_box: &SecretBox,
    scope: &Scope,
    id: &TaskId,
) -> rusqlite::Result<Vec<PushRegistration>> {
    let Some(task) = task_number(connection, id_index, scope, id)? else {
        return Ok(Vec::new());
    };
    let mut statement =
        connection.prepare_cached("SELECT body FROM config WHERE task = ?1 ORDER BY number")?;
    let configs = statement.query_map([task], |row| decode_registration(row, 0, secret_box))?;
    configs.collect()
}

/// A webhook in the column of a row.
pub(super) fn decode_registration(
    row: &Row<'_>,
    column: usize,
    secret_box: &SecretBox,
) -> rusqlite::Result<PushRegistration> {
    let body = secret_box
        .decrypt(row.get_ref(column)?.as_blob()?)
        .map_err(corrupt_row)?;
    codec::decode_registration(&body).map_err(corrupt_row)
}

pub(super) fn scope_number(
    connection: &Connection,
    scope: &Scope,
) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT number FROM scope WHERE agent = ?1 AND tenant = ?2 AND owner = ?3";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row(
        params![scope.agent, scope.tenant, scope.owner.name()],
        |row| row.get(0),
    );
    found.optional()
}

pub(super) fn head_from_row(row: &Row<'_>, scope: Scope) -> rusqlite::Result<Head> {
    Ok(Head {
        id: row.get_ref(0)?.as_str()?.into(),
        scope,
        context_id: row.get_ref(1)?.as_str()?.into(),
        position: seq_column(row, 2)?,
        state: state_column(row, 3)?,
        status_time: time_column(row, 4)?,
    })
}

pub(super) fn scoped_head_from_row(row: &Row<'_>) -> rusqlite::Result<Head> {
    let owner = Caller::new(row.get_ref(7)?.as_str()?);
    head_from_row(
        row,
        Scope {
            agent: row.get(5)?,
            tenant: row.get(6)?,
            owner,
        },
    )
}

pub(super) fn seq_column(row: &Row<'_>, column: usize) -> rusqlite::Result<Seq> {
    count_column(row, column).map(Seq)
}

pub(super) fn state_column(row: &Row<'_>, column: usize) -> rusqlite::Result<TaskState> {
    state_from_number(row.get(column)?).map_err(corrupt_row)
}

pub(super) fn time_column(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    Timestamp::from_millis(row.get(column)?)
        .ok_or_else(|| corrupt_row(CodecError("a time outside the years 1 to 9999")))
}

pub(super) fn count_column(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    u64::try_from(row.get::<_, i64>(column)?)
        .map_err(|_| corrupt_row(CodecError("a number below zero")))
}

pub(super) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}
