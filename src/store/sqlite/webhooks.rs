//! Webhooks with what has become of them.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::corrupt_row;
use super::id_index::IdIndex;
use super::read::{
    self, HEAD_COLUMNS, count_column, decode_registration, scoped_head_from_row, seq_column,
    sql_limit, task_number,
};
use super::secret_box::SecretBox;
use super::write::sql_integer;
use super::writer::CommandResult;
use crate::model::{PushConfigId, Scope, TaskId};
use crate::store::codec::CodecError;
use crate::store::{DeliveryProgress, DeliveryState, Webhook, WebhookFilter};

const ACTIVE: i64 = 0;
const FINISHED: i64 = 1;
const FAILED: i64 = 2;

/// The columns that [`webhook_from_row`] reads, and where they are.
fn select(index: &str) -> String {
    format!(
        "SELECT {HEAD_COLUMNS}, agent, tenant, owner, config.number, config.generation, config.body, config.position,
         config.attempts, config.due, config.standing, config.reason
         FROM config {index} JOIN task ON task.number = config.task JOIN scope ON scope.number = task.scope"
    )
}

pub(super) fn list(
    connection: &Connection,
    secret_box: &SecretBox,
    filter: WebhookFilter,
    after: Option<u64>,
    limit: usize,
) -> rusqlite::Result<Vec<Webhook>> {
    let (index, state) = match filter {
        WebhookFilter::Active => ("INDEXED BY config_open", ACTIVE),
        WebhookFilter::Failed => ("INDEXED BY config_stopped", FAILED),
    };
    let select = select(index);
    let sql = format!(
        "{select} WHERE config.standing = {state} AND config.number > ?1 ORDER BY config.number LIMIT ?2"
    );
    let after = after.map_or(0, |after| i64::try_from(after).unwrap_or(i64::MAX));
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_map(params![after, sql_limit(limit)], |row| {
            webhook_from_row(row, secret_box)
        })?
        .collect()
}

pub(super) fn find(
    connection: &Connection,
    id_index: &IdIndex,
    secret_box: &SecretBox,
    (scope, task): (&Scope, &TaskId),
    id: &PushConfigId,
) -> rusqlite::Result<Option<Webhook>> {
    let Some(task) = task_number(connection, id_index, scope, task)? else {
        return Ok(None);
    };
    let sql = format!("{} WHERE config.task = ?1 AND config.id = ?2", select(""));
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
        _ => return Err(corrupt_row(CodecError("an unknown standing of a webhook"))),
    };
    Ok(Webhook {
        number: count_column(row, 8)?,
        generation: count_column(row, 9)?,
        task: scoped_head_from_row(row)?,
        registration: decode_registration(row, 10, secret_box)?,
        delivery: DeliveryProgress {
            position: seq_column(row, 11)?,
            attempts: row.get(12)?,
            due: read::time_column(row, 13)?,
            state,
        },
    })
}

/// What is written of a delivery.
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
            "UPDATE config SET position = ?3, attempts = ?4, due = ?5, standing = ?6, reason = ?7
                   WHERE number = ?1 AND generation = ?2";
        let (position, due) = (sql_integer(*position), due.as_millis());
        let values = params![
            self.number,
            self.generation,
            position,
            attempts,
            due,
            state,
            reason
        ];
        Ok(Ok(connection.prepare_cached(sql)?.execute(values)? > 0))
    }
}
