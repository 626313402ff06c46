//! Write commands in encoded form, shared by the databases.
//!
//! Callers encode and encrypt on their own threads, so that a writer only executes SQL.

use std::io;

use super::secret_box::SecretBox;
use crate::model::{ContextId, Event, PushConfigId, Scope, TaskId, TaskState, Timestamp};
use crate::store::{Batch, Error, IdempotencyKey, NewTask, PushRegistration, Result, codec};

/// Maximum number of events in one row. A larger batch takes several rows, so that a read can skip a part of it.
const EVENTS_PER_ROW: usize = 256;

/// Size in bytes above which a row with several events is split. A read decodes whole rows.
const SPLIT_ROW_BYTES: usize = 64 << 10;

/// Maximum size of a blob in bytes. SQLite refuses 1,000,000,000, PostgreSQL a message of 1 GiB.
const BYTES_PER_ROW: usize = 900_000_000;

/// Encoded [`Batch`].
pub(super) struct EncodedBatch {
    pub(super) time: Timestamp,
    pub(super) rows: Vec<EncodedRow>,
    pub(super) state: TaskState,
    pub(super) status_time: Timestamp,
    pub(super) parked: bool,
    pub(super) key: Option<IdempotencyKey>,
    pub(super) turn: u64,
}

/// One row of the table `batch`.
pub(super) struct EncodedRow {
    /// Number of events in the row.
    pub(super) count: u64,
    pub(super) body: Vec<u8>,
}

impl EncodedBatch {
    pub(super) fn new(batch: &Batch) -> Result<Self> {
        let mut rows = Vec::with_capacity(1);
        for events in batch.events.chunks(EVENTS_PER_ROW) {
            encode_rows(&mut rows, batch.time, events)?;
        }
        Ok(Self {
            time: batch.time,
            rows,
            state: batch.state,
            status_time: batch.status_time,
            parked: batch.parked,
            key: batch.key.clone(),
            turn: batch.turn,
        })
    }

    /// Returns the number of events.
    pub(super) fn count(&self) -> u64 {
        self.rows.iter().map(|row| row.count).sum()
    }
}

/// Encodes events as one row, or as several if the row would be too large to be read in pages.
fn encode_rows(rows: &mut Vec<EncodedRow>, time: Timestamp, events: &[Event]) -> Result<()> {
    let encoded = codec::encode_events(time, events);
    let body = check_row_size(codec::with_checksum(encoded))?;
    if body.len() > SPLIT_ROW_BYTES && events.len() > 1 {
        let (first, second) = events.split_at(events.len() / 2);
        encode_rows(rows, time, first)?;
        return encode_rows(rows, time, second);
    }
    rows.push(EncodedRow {
        count: events.len() as u64,
        body,
    });
    Ok(())
}

/// Encoded [`NewTask`].
pub(super) struct EncodedTask {
    pub(super) id: TaskId,
    pub(super) scope: Scope,
    pub(super) context_id: ContextId,
    pub(super) alias: Option<TaskId>,
    pub(super) config: Option<EncodedConfig>,
    pub(super) batch: EncodedBatch,
}

impl EncodedTask {
    pub(super) fn new(task: &NewTask, secret_box: &SecretBox) -> Result<Self> {
        let config = task
            .config
            .as_ref()
            .map(|config| EncodedConfig::new(config, secret_box))
            .transpose()?;
        Ok(Self {
            id: task.id.clone(),
            scope: task.scope.clone(),
            context_id: task.context_id.clone(),
            alias: task.alias.clone(),
            config,
            batch: EncodedBatch::new(&task.batch)?,
        })
    }
}

/// Encoded and encrypted webhook registration.
pub(super) struct EncodedConfig {
    pub(super) id: Option<PushConfigId>,
    pub(super) body: Vec<u8>,
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

/// Refuses a blob that the database would refuse, before it fails a commit that other commands share.
pub(super) fn check_row_size(body: Vec<u8>) -> Result<Vec<u8>> {
    if body.len() <= BYTES_PER_ROW {
        Ok(body)
    } else {
        let message = format!(
            "{} bytes are too many for one row (limit: {BYTES_PER_ROW})",
            body.len()
        );
        Err(Error::Failed(Box::new(io::Error::other(message))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::WriterRole;

    #[test]
    fn large_events_get_rows_of_their_own() {
        let event = |length| Event::Ignored {
            reason: "x".repeat(length),
        };
        for (lengths, counts) in [
            (vec![10; 300], vec![256, 44]),
            (vec![SPLIT_ROW_BYTES; 3], vec![1, 1, 1]),
            (vec![2 * SPLIT_ROW_BYTES, 10, 10, 10], vec![1, 1, 2]),
        ] {
            let batch = Batch {
                time: Timestamp::default(),
                events: lengths.into_iter().map(event).collect(),
                state: TaskState::Working,
                status_time: Timestamp::default(),
                parked: false,
                key: None,
                turn: 1,
                writer: WriterRole::Holder,
            };
            let rows = EncodedBatch::new(&batch).unwrap().rows;
            let found: Vec<_> = rows.iter().map(|row| row.count).collect();
            assert_eq!(found, counts);
        }
    }
}
