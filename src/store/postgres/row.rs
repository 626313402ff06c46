//! Conversion between rows and model values.

use tokio_postgres::Row;
use tokio_postgres::types::FromSql;

use super::error::DatabaseError;
use crate::model::{Caller, Scope, Seq, TaskState, Timestamp};
use crate::store::codec::{self, CodecError};
use crate::store::secret_box::SecretBox;
use crate::store::{DeliveryProgress, DeliveryState, Head, Holder, PushRegistration, Webhook};

type Result<T> = std::result::Result<T, DatabaseError>;

// Values of the column `delivery_state`.
const ACTIVE: i16 = 0;
const FINISHED: i16 = 1;
const FAILED: i16 = 2;

/// Reads one column.
pub(super) fn column<'a, T: FromSql<'a>>(row: &'a Row, column: usize) -> Result<T> {
    row.try_get(column).map_err(DatabaseError::new)
}

pub(super) fn seq_column(row: &Row, index: usize) -> Result<Seq> {
    count_column(row, index).map(Seq)
}

pub(super) fn count_column(row: &Row, index: usize) -> Result<u64> {
    u64::try_from(column::<i64>(row, index)?)
        .map_err(|_| DatabaseError::damaged(CodecError("negative number")))
}

fn state_column(row: &Row, index: usize) -> Result<TaskState> {
    let number =
        u8::try_from(column::<i16>(row, index)?).map_err(|_| CodecError("unknown task state"))?;
    Ok(codec::state_from_number(number)?)
}

pub(super) fn time_column(row: &Row, index: usize) -> Result<Timestamp> {
    let time = Timestamp::from_millis(column(row, index)?);
    time.ok_or_else(|| DatabaseError::damaged(CodecError("time outside the years 1 to 9999")))
}

fn text_column(row: &Row, index: usize) -> Result<&str> {
    let bytes: &[u8] = column(row, index)?;
    std::str::from_utf8(bytes).map_err(|_| DatabaseError::damaged(CodecError("text is not UTF-8")))
}

/// Reads a holder as this replica sees it.
fn holder_column(row: &Row, index: usize, replica: i64) -> Result<Holder> {
    Ok(match column::<Option<i64>>(row, index)? {
        None => Holder::None,
        Some(holder) if holder == replica => Holder::Local,
        Some(_) => Holder::Remote,
    })
}

/// Reads a head from the first six columns: id, context, position, state, status time, holder.
pub(super) fn head_from_row(row: &Row, scope: Scope, replica: i64) -> Result<Head> {
    Ok(Head {
        id: column::<&str>(row, 0)?.into(),
        scope,
        context_id: text_column(row, 1)?.into(),
        position: seq_column(row, 2)?,
        state: state_column(row, 3)?,
        status_time: time_column(row, 4)?,
        holder: holder_column(row, 5, replica)?,
    })
}

/// Reads a head whose scope is in the three columns after it: agent, tenant, owner.
pub(super) fn scoped_head_from_row(row: &Row, replica: i64) -> Result<Head> {
    let scope = Scope {
        agent: column::<&str>(row, 6)?.into(),
        tenant: column::<&str>(row, 7)?.into(),
        owner: Caller::new(text_column(row, 8)?),
    };
    head_from_row(row, scope, replica)
}

/// Reads a webhook: its head with the scope, then number, generation, body, position, attempts, due, state, reason and holder.
pub(super) fn webhook_from_row(row: &Row, replica: i64, secrets: &SecretBox) -> Result<Webhook> {
    let attempts = u32::try_from(column::<i64>(row, 13)?)
        .map_err(|_| CodecError("number of attempts out of range"))?;
    let state = match column::<i16>(row, 15)? {
        ACTIVE => DeliveryState::Active,
        FINISHED => DeliveryState::Finished,
        FAILED => DeliveryState::Failed(column(row, 16)?),
        _ => return Err(DatabaseError::damaged(CodecError("unknown delivery state"))),
    };
    Ok(Webhook {
        number: count_column(row, 9)?,
        generation: count_column(row, 10)?,
        task: scoped_head_from_row(row, replica)?,
        registration: registration_from_column(row, 11, secrets)?,
        delivery: DeliveryProgress {
            position: seq_column(row, 12)?,
            attempts,
            due: time_column(row, 14)?,
            state,
        },
        holder: holder_column(row, 17, replica)?,
    })
}

/// Decrypts and decodes a registration.
pub(super) fn registration_from_column(
    row: &Row,
    index: usize,
    secrets: &SecretBox,
) -> Result<PushRegistration> {
    let body = secrets.decrypt(column(row, index)?)?;
    Ok(codec::decode_registration(&body)?)
}

/// Returns the columns `delivery_state` and `reason`.
pub(super) fn delivery_columns(state: &DeliveryState) -> (i16, String) {
    match state {
        DeliveryState::Active => (ACTIVE, String::new()),
        DeliveryState::Finished => (FINISHED, String::new()),
        // PostgreSQL stores no NUL in text.
        DeliveryState::Failed(reason) => (FAILED, reason.replace('\0', "\u{fffd}")),
    }
}

/// Converts a number to an SQL integer; too large ones become `i64::MAX`.
pub(super) fn sql_number(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Converts a limit to an SQL integer; too large ones become `i64::MAX`.
pub(super) fn sql_limit(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX)
}

/// Returns the text, or `None` if it contains NUL: no column of type text contains one.
pub(super) fn sql_text(text: &str) -> Option<&str> {
    (!text.contains('\0')).then_some(text)
}
