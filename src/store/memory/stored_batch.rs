//! Batch of events as the memory store keeps it.

use std::sync::Arc;

use crate::model::{Entry, Event, Seq, Timestamp};
use crate::store::codec::{self, CodecError};
use crate::store::task::EntryPage;
use crate::store::{Batch, ReadLimit, Result};

/// Size in bytes above which a message is shared instead of encoded, if it has few pieces: many pieces are smaller encoded.
const SHARED_MESSAGE_BYTES: usize = 64 << 10;
const MAX_SHARED_PIECES: usize = 16;

/// Batch of a log. Clones share the events.
#[derive(Debug, Clone)]
pub(super) struct StoredBatch {
    /// Position before the first event.
    pub(super) start: Seq,
    form: BatchForm,
}

/// Form of the events of a batch.
#[derive(Debug, Clone)]
pub(super) enum BatchForm {
    /// Binary form of the codec, a quarter of the size in memory.
    Encoded(Arc<[u8]>),
    /// Decoded batch with a large message, whose memory is shared with other holders.
    Shared(Arc<(Timestamp, Vec<Event>)>),
}

impl BatchForm {
    /// Encodes a batch, or shares it if it has a large message.
    pub(super) fn new(batch: &Batch) -> Self {
        if batch.events.len() <= MAX_SHARED_PIECES && batch.events.iter().any(is_kept_shared) {
            return Self::Shared(Arc::new((batch.time, batch.events.clone())));
        }
        Self::Encoded(codec::encode_events(batch.time, &batch.events).into())
    }

    /// Returns the batch that starts at a position.
    pub(super) fn starting_at(self, start: Seq) -> StoredBatch {
        StoredBatch { start, form: self }
    }
}

fn is_kept_shared(event: &Event) -> bool {
    let Event::Message(message) = event else {
        return false;
    };
    let pieces = message.parts.len() + message.reference_task_ids.len() + message.extensions.len();
    pieces <= MAX_SHARED_PIECES && event.memory_size() > SHARED_MESSAGE_BYTES
}

/// Decodes the entries after position `after`, oldest first, up to the limit.
pub(super) fn decode_entries(
    batches: &[StoredBatch],
    after: Seq,
    limit: ReadLimit,
) -> Result<Vec<Entry>, CodecError> {
    let mut page = EntryPage::new(limit);
    for batch in batches {
        if page.is_full() {
            break;
        }
        let (time, events) = match &batch.form {
            BatchForm::Encoded(bytes) => codec::decode_events(bytes)?,
            BatchForm::Shared(batch) => (**batch).clone(),
        };
        let numbered = (batch.start.0 + 1..).map(Seq).zip(events);
        let entries = numbered.map(|(seq, event)| Entry { seq, time, event });
        page.extend(entries.filter(|entry| entry.seq > after));
    }
    Ok(page.into_entries())
}
