//! Webhooks: registrations, delivery progress and their rows in `webhook`.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::TaskKey;
use super::error::corrupt_row;
use super::read::task_number;
use super::row::{
    HEAD_COLUMNS, count_column, scoped_head_from_row, seq_column, sql_limit, sql_position,
    time_column,
};
use super::writer::CommandResult;
use crate::model::PushConfigId;
use crate::store::codec::{self, CodecError};
use crate::store::secret_box::SecretBox;
use crate::store::{
    DeliveryProgress, DeliveryState, Holder, PushRegistration, Webhook, WebhookFilter,
};

// Values of the column `delivery_state`.
const ACTIVE: i64 = 0;
const FINISHED: i64 = 1;
const FAILED: i64 = 2;

/// Lists the webhook registrations of a task in the order of their first registration.
pub(super) fn list_configs(
    connection: &Connection,
    secret_box: &SecretBox,
    task: &TaskKey,
) -> rusqlite::Result<Vec<PushRegistration>> {
    let Some(task) = task_number(connection, task)? else {
        return Ok(Vec::new());
    };
    let mut statement = connection
        .prepare_cached("SELECT registration FROM webhook WHERE task = ?1 ORDER BY number")?;
    let configs = statement.query_map([task], |row| decode_registration(row, 0, secret_box))?;
    configs.collect()
}

/// Decrypts and decodes the registration in a column.
fn decode_registration(
    row: &Row<'_>,
    column: usize,
    secret_box: &SecretBox,
) -> rusqlite::Result<PushRegistration> {
    let body = secret_box
        .decrypt(row.get_ref(column)?.as_blob()?)
        .map_err(corrupt_row)?;
    codec::decode_registration(&body).map_err(corrupt_row)
}

/// Returns the SELECT of the columns that [`webhook_from_row`] reads.
fn select(index: &str) -> String {
    format!(
        "SELECT {HEAD_COLUMNS}, agent, tenant, owner, webhook.number, generation, registration, webhook.position, attempts,
         next_attempt, delivery_state, failure_reason
         FROM webhook {index} JOIN task ON task.number = webhook.task JOIN scope ON scope.number = task.scope"
    )
}

/// Lists webhooks of every scope by delivery state, ordered by number.
pub(super) fn list(
    connection: &Connection,
    secret_box: &SecretBox,
    filter: WebhookFilter,
    after: Option<u64>,
    limit: usize,
) -> rusqlite::Result<Vec<Webhook>> {
    let (index, state) = match filter {
        WebhookFilter::Active => ("INDEXED BY webhook_active", ACTIVE),
        WebhookFilter::Failed => ("INDEXED BY webhook_failed", FAILED),
    };
    let select = select(index);
    let sql = format!(
        "{select} WHERE delivery_state = {state} AND webhook.number > ?1 ORDER BY webhook.number LIMIT ?2"
    );
    let after = after.map_or(0, |after| i64::try_from(after).unwrap_or(i64::MAX));
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_map(params![after, sql_limit(limit)], |row| {
            webhook_from_row(row, secret_box)
        })?
        .collect()
}

/// Finds a webhook of a task.
pub(super) fn find(
    connection: &Connection,
    secret_box: &SecretBox,
    task: &TaskKey,
    id: &PushConfigId,
) -> rusqlite::Result<Option<Webhook>> {
    let Some(task) = task_number(connection, task)? else {
        return Ok(None);
    };
    let sql = format!("{} WHERE webhook.task = ?1 AND webhook.id = ?2", select(""));
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_row(params![task, id.as_str()], |row| {
            webhook_from_row(row, secret_box)
        })
        .optional()
}

fn webhook_from_row(row: &Row<'_>, secret_box: &SecretBox) -> rusqlite::Result<Webhook> {
    let state = match row.get(14)? {
        ACTIVE => DeliveryState::Active,
        FINISHED => DeliveryState::Finished,
        FAILED => DeliveryState::Failed(row.get(15)?),
        _ => return Err(corrupt_row(CodecError("unknown delivery state"))),
    };
    Ok(Webhook {
        number: count_column(row, 8)?,
        generation: count_column(row, 9)?,
        task: scoped_head_from_row(row)?,
        registration: decode_registration(row, 10, secret_box)?,
        delivery: DeliveryProgress {
            position: seq_column(row, 11)?,
            attempts: row.get(12)?,
            due: time_column(row, 13)?,
            state,
        },
        holder: Holder::None,
    })
}

/// Write command for the delivery progress of a webhook.
pub(super) struct DeliveryUpdate {
    number: i64,
    generation: i64,
    delivery: DeliveryProgress,
}

impl DeliveryUpdate {
    pub(super) fn new(webhook: &Webhook) -> Self {
        let number = |number| i64::try_from(number).unwrap_or(i64::MAX);
        Self {
            number: number(webhook.number),
            generation: number(webhook.generation),
            delivery: webhook.delivery.clone(),
        }
    }

    /// Updates the row and returns `true`, unless the webhook was deleted or replaced since it was read.
    pub(super) fn write(&self, connection: &Connection) -> CommandResult<bool> {
        let DeliveryProgress {
            position,
            attempts,
            due,
            state,
        } = &self.delivery;
        let (state, reason) = match state {
            DeliveryState::Active => (ACTIVE, ""),
            DeliveryState::Finished => (FINISHED, ""),
            DeliveryState::Failed(reason) => (FAILED, reason.as_str()),
        };
        let sql =
            "UPDATE webhook SET position = ?3, attempts = ?4, next_attempt = ?5, delivery_state = ?6,
                   failure_reason = ?7 WHERE number = ?1 AND generation = ?2";
        let values = params![
            self.number,
            self.generation,
            sql_position(*position),
            attempts,
            due.as_millis(),
            state,
            reason
        ];
        Ok(Ok(connection.prepare_cached(sql)?.execute(values)? > 0))
    }
}
