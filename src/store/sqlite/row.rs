//! Conversion of SQLite columns into model values.

use rusqlite::Row;

use super::error::corrupt_row;
use crate::model::{Caller, Scope, Seq, TaskState, Timestamp};
use crate::store::codec::{CodecError, state_from_number};
use crate::store::{Head, Holder};

/// Columns that [`head_from_row`] reads.
pub(super) const HEAD_COLUMNS: &str =
    "task.id, task.context, task.position, task.state, task.status_time";

/// Reads a head from the first five columns.
pub(super) fn head_from_row(row: &Row<'_>, scope: Scope) -> rusqlite::Result<Head> {
    Ok(Head {
        id: row.get_ref(0)?.as_str()?.into(),
        scope,
        context_id: row.get_ref(1)?.as_str()?.into(),
        position: seq_column(row, 2)?,
        state: state_column(row, 3)?,
        status_time: time_column(row, 4)?,
        holder: Holder::None,
    })
}

/// Reads a head whose scope is in the three columns after [`HEAD_COLUMNS`]: agent, tenant, owner.
pub(super) fn scoped_head_from_row(row: &Row<'_>) -> rusqlite::Result<Head> {
    let scope = Scope {
        agent: row.get(5)?,
        tenant: row.get(6)?,
        owner: Caller::new(row.get_ref(7)?.as_str()?),
    };
    head_from_row(row, scope)
}

pub(super) fn seq_column(row: &Row<'_>, column: usize) -> rusqlite::Result<Seq> {
    count_column(row, column).map(Seq)
}

pub(super) fn state_column(row: &Row<'_>, column: usize) -> rusqlite::Result<TaskState> {
    state_from_number(row.get(column)?).map_err(corrupt_row)
}

pub(super) fn time_column(row: &Row<'_>, column: usize) -> rusqlite::Result<Timestamp> {
    Timestamp::from_millis(row.get(column)?)
        .ok_or_else(|| corrupt_row(CodecError("time outside the years 1 to 9999")))
}

pub(super) fn count_column(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    u64::try_from(row.get::<_, i64>(column)?)
        .map_err(|_| corrupt_row(CodecError("negative number")))
}

/// Converts a limit to an SQL integer; too large ones become `i64::MAX`.
pub(super) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Converts a position to an SQL integer. SQLite cannot hold a log longer than `i64::MAX`.
pub(super) fn sql_position(seq: Seq) -> i64 {
    i64::try_from(seq.0).unwrap_or(i64::MAX)
}
