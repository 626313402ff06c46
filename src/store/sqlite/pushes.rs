//! Webhooks with what has become of them.

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::error::damaged;
use super::names::Names;
use super::read::{self, HEAD, count, limited, number, registered, scoped_head, seq};
use super::seal::Seal;
use super::write::signed;
use super::writer::Done;
use crate::model::{PushConfigId, Scope, TaskId};
use crate::store::codec::Corrupt;
use crate::store::{Delivery, Push, Standing, Which};

const OPEN: i64 = 0;
const OVER: i64 = 1;
const STOPPED: i64 = 2;

/// The columns that [`push`] reads, and where they are.
fn select(index: &str) -> String {
    format!(
        "SELECT {HEAD}, agent, tenant, owner, config.number, config.generation, config.body, config.position,
         config.attempts, config.due, config.standing, config.reason
         FROM config {index} JOIN task ON task.number = config.task JOIN scope ON scope.number = task.scope"
    )
}

pub(super) fn list(
    connection: &Connection,
    seal: &Seal,
    which: Which,
    after: Option<u64>,
    limit: usize,
) -> rusqlite::Result<Vec<Push>> {
    let (index, standing) = match which {
        Which::Open => ("INDEXED BY config_open", OPEN),
        Which::Stopped => ("INDEXED BY config_stopped", STOPPED),
    };
    let select = select(index);
    let sql = format!(
        "{select} WHERE config.standing = {standing} AND config.number > ?1 ORDER BY config.number LIMIT ?2"
    );
    let after = after.map_or(0, |after| i64::try_from(after).unwrap_or(i64::MAX));
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_map(params![after, limited(limit)], |row| push(row, seal))?
        .collect()
}

pub(super) fn one(
    connection: &Connection,
    names: &Names,
    seal: &Seal,
    (scope, task): (&Scope, &TaskId),
    id: &PushConfigId,
) -> rusqlite::Result<Option<Push>> {
    let Some(task) = number(connection, names, scope, task)? else {
        return Ok(None);
    };
    let sql = format!("{} WHERE config.task = ?1 AND config.id = ?2", select(""));
    let mut statement = connection.prepare_cached(&sql)?;
    statement
        .query_row(params![task, id.as_str()], |row| push(row, seal))
        .optional()
}

fn push(row: &Row<'_>, seal: &Seal) -> rusqlite::Result<Push> {
    let standing = match row.get(14)? {
        OPEN => Standing::Open,
        OVER => Standing::Over,
        STOPPED => Standing::Stopped(row.get(15)?),
        _ => return Err(damaged(Corrupt("an unknown standing of a webhook"))),
    };
    Ok(Push {
        number: count(row, 8)?,
        generation: count(row, 9)?,
        task: scoped_head(row)?,
        registered: registered(row, 10, seal)?,
        delivery: Delivery {
            position: seq(row, 11)?,
            attempts: row.get(12)?,
            due: read::time(row, 13)?,
            standing,
        },
    })
}

/// What is written of a delivery.
pub(super) struct Record {
    number: i64,
    generation: i64,
    delivery: Delivery,
}

impl Record {
    pub(super) fn new(push: &Push) -> Self {
        let number = |number| i64::try_from(number).unwrap_or(i64::MAX);
        Self {
            number: number(push.number),
            generation: number(push.generation),
            delivery: push.delivery.clone(),
        }
    }

    pub(super) fn write(&self, connection: &Connection) -> Done<bool> {
        let Delivery {
            position,
            attempts,
            due,
            standing,
        } = &self.delivery;
        let (standing, reason) = match standing {
            Standing::Open => (OPEN, ""),
            Standing::Over => (OVER, ""),
            Standing::Stopped(reason) => (STOPPED, reason.as_str()),
        };
        let sql =
            "UPDATE config SET position = ?3, attempts = ?4, due = ?5, standing = ?6, reason = ?7
                   WHERE number = ?1 AND generation = ?2";
        let (position, due) = (signed(*position), due.as_millis());
        let values = params![
            self.number,
            self.generation,
            position,
            attempts,
            due,
            standing,
            reason
        ];
        Ok(Ok(connection.prepare_cached(sql)?.execute(values)? > 0))
    }
}
