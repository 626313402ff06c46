//! Reads of one task: its entries, head, idempotency key and snapshot.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::TaskKey;
use super::error::corrupt_row;
use super::row::{HEAD_COLUMNS, count_column, head_from_row, seq_column, sql_limit, sql_position};
use crate::model::{Entry, Scope, Seq, TaskId};
use crate::store::codec;
use crate::store::log_row::LogRow;
use crate::store::task::EntryPage;
use crate::store::{Head, IdempotencyKey, IdempotencyRecord, ReadLimit, Snapshot};

/// Result of the lookup of an idempotency key.
pub(super) enum KeyLookup {
    /// The scope has not used the key.
    Unused,
    /// The scope has used the key with the same body.
    SameBody(IdempotencyRecord),
    /// The scope has used the key with another body.
    OtherBody,
}

/// Reads the entries after `after`, up to the limit. A row holds up to 256 events, so the first one may be skipped partly.
pub(super) fn entries(
    connection: &Connection,
    task: &TaskKey,
    after: Seq,
    limit: ReadLimit,
) -> rusqlite::Result<Vec<Entry>> {
    let mut page = EntryPage::new(limit);
    let Some(task) = task_number(connection, task)? else {
        return Ok(Vec::new());
    };
    let sql = "SELECT last_position, body FROM batch WHERE task = ?1 AND last_position > ?2 ORDER BY last_position";
    let mut statement = connection.prepare_cached(sql)?;
    let mut rows = statement.query([task, sql_position(after)])?;
    let mut last = None;
    while !page.is_full()
        && let Some(row) = rows.next()?
    {
        let row = decode_row(row)?;
        row.check_order(after, last).map_err(corrupt_row)?;
        last = Some(row.last());
        page.extend(row.into_entries().skip_while(|entry| entry.seq <= after));
    }
    Ok(page.into_entries())
}

/// Decodes the columns `last_position` and `body`.
fn decode_row(row: &Row<'_>) -> rusqlite::Result<LogRow> {
    let last = seq_column(row, 0)?;
    LogRow::decode(last, row.get_ref(1)?.as_blob()?).map_err(corrupt_row)
}

/// Returns the ids of tasks whose log is damaged, at most `limit`: a checksum is wrong, or positions have a gap.
pub(super) fn damaged_tasks(
    connection: &Connection,
    limit: usize,
) -> rusqlite::Result<Vec<String>> {
    let sql = "SELECT last_position, body, task, id, position FROM batch JOIN task ON number = task
               ORDER BY task, last_position";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query(())?;
    let mut damaged: Vec<String> = Vec::new();
    let mut log = None;
    while damaged.len() < limit
        && let Some(row) = rows.next()?
    {
        let task: i64 = row.get(2)?;
        let expected = match log {
            Some((current, last)) if current == task => last,
            _ => Seq(0),
        };
        let is_intact = decode_row(row).is_ok_and(|row| row.before == expected);
        if !is_intact {
            let id: String = row.get(3)?;
            if damaged.last() != Some(&id) {
                damaged.push(id);
            }
        }
        log = Some((task, seq_column(row, 0)?));
    }
    Ok(damaged)
}

/// Finds a task by its id, or else by its alias.
pub(super) fn find(connection: &Connection, task: &TaskKey) -> rusqlite::Result<Option<Head>> {
    let TaskKey { scope, id } = task;
    let Some(number) = scope_number(connection, scope)? else {
        return Ok(None);
    };
    let by_id = find_task_row(connection, number, id, HEAD_COLUMNS, |row| {
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

/// Returns the row number of a task.
pub(super) fn task_number(
    connection: &Connection,
    task: &TaskKey,
) -> rusqlite::Result<Option<i64>> {
    let Some(scope) = scope_number(connection, &task.scope)? else {
        return Ok(None);
    };
    find_task_row(connection, scope, &task.id, "number", |row| row.get(0))
}

/// Reads columns of the task with this id in this scope.
pub(super) fn find_task_row<T>(
    connection: &Connection,
    scope: i64,
    id: &TaskId,
    columns: &str,
    read: impl FnOnce(&Row<'_>) -> rusqlite::Result<T>,
) -> rusqlite::Result<Option<T>> {
    let sql = format!("SELECT {columns} FROM task WHERE id = ?1 AND scope = ?2");
    connection
        .prepare_cached(&sql)?
        .query_row(params![id.as_str(), scope], read)
        .optional()
}

/// Looks an idempotency key up.
pub(super) fn find_key(
    connection: &Connection,
    scope: &Scope,
    key: &IdempotencyKey,
) -> rusqlite::Result<KeyLookup> {
    match scope_number(connection, scope)? {
        Some(number) => find_key_in_scope(connection, number, scope, key),
        None => Ok(KeyLookup::Unused),
    }
}

/// Looks an idempotency key up in the scope with this row number.
pub(super) fn find_key_in_scope(
    connection: &Connection,
    number: i64,
    scope: &Scope,
    key: &IdempotencyKey,
) -> rusqlite::Result<KeyLookup> {
    let sql = format!(
        "SELECT {HEAD_COLUMNS}, digest, turn FROM idempotency_key AS key JOIN task ON task.number = key.task
         WHERE key.scope = ?1 AND key.text = ?2 AND key.time >= ?3"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let found = statement.query_row(
        params![number, key.text, key.oldest_valid.as_millis()],
        |row| {
            if row.get_ref(5)?.as_blob()? != key.body {
                return Ok(KeyLookup::OtherBody);
            }
            Ok(KeyLookup::SameBody(IdempotencyRecord {
                head: head_from_row(row, scope.clone())?,
                turn: count_column(row, 6)?,
            }))
        },
    );
    Ok(found.optional()?.unwrap_or(KeyLookup::Unused))
}

/// Loads the snapshot of a task, if it has at most `max_bytes`. One that cannot be decoded, for example of an older format,
/// is ignored: it is a cache.
pub(super) fn load_snapshot(
    connection: &Connection,
    task: &TaskKey,
    max_bytes: usize,
) -> rusqlite::Result<Option<(Seq, Snapshot)>> {
    let Some(task) = task_number(connection, task)? else {
        return Ok(None);
    };
    // `length` of a blob does not read the blob.
    let sql = "SELECT position, body FROM snapshot WHERE task = ?1 AND length(body) <= ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let found = statement.query_row([task, sql_limit(max_bytes)], |row| {
        let body = codec::verify_checksum(row.get_ref(1)?.as_blob()?);
        let snapshot = body.and_then(codec::decode_snapshot).ok();
        snapshot
            .map(|snapshot| Ok((seq_column(row, 0)?, snapshot)))
            .transpose()
    });
    Ok(found.optional()?.flatten())
}

/// Returns the row number of a scope.
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
