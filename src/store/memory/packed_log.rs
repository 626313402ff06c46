//! Log of one task in binary form. An ended task is one allocation and a few fields; only large messages stay decoded.

use std::sync::Arc;

use super::stored_webhook::StoredWebhook;
use crate::model::{ContextId, Entry, Event, Scope, Seq, TaskId, TaskState, Timestamp};
use crate::store::codec::{self, CodecError};
use crate::store::task::EntryPage;
use crate::store::{Batch, Error, Head, NewTask, ReadLimit, Result, Snapshot, TaskQuery};

/// Approximate size of a page in bytes. A long log is split into pages, so that appending moves little memory and reading
/// from the middle skips little.
const PAGE_BYTES: usize = 16 << 10;

/// Size of the length prefix of a batch.
const LENGTH_BYTES: usize = size_of::<u32>();

/// Size in bytes above which a message is shared instead of packed, if it has few pieces: many pieces are smaller packed.
const SHARED_MESSAGE_BYTES: usize = 64 << 10;
const MAX_SHARED_PIECES: usize = 16;

/// Log and head of a task.
#[derive(Debug)]
pub(super) struct PackedLog {
    /// Number of the scope.
    pub(super) scope: u32,
    state: TaskState,
    parked: bool,
    status_time: Timestamp,
    pub(super) position: Seq,
    /// Batches of the last page, each after its length.
    batches: Vec<u8>,
    /// Fields that most tasks do not use.
    rare: Option<Box<RareFields>>,
}

/// Fields that most tasks do not use.
#[derive(Debug, Default)]
pub(super) struct RareFields {
    pages: Vec<LogPage>,
    /// Ids of the task and its context, if the first batch does not begin with them.
    ids: Option<(TaskId, ContextId)>,
    pub(super) webhooks: Vec<StoredWebhook>,
    pub(super) snapshot: Option<(Seq, Snapshot)>,
    pub(super) keys: Vec<String>,
    pub(super) alias: Option<TaskId>,
}

/// Full page of a long log.
#[derive(Debug)]
struct LogPage {
    /// Position of its last entry.
    end: Seq,
    form: BatchForm,
}

/// Form in which a part of a log is kept.
#[derive(Debug, Clone)]
pub(super) enum BatchForm {
    /// Encoded batches, each after its length.
    Packed(Vec<u8>),
    /// Decoded batch with a large message, whose memory is shared with other holders.
    Whole(Timestamp, Arc<[Event]>),
}

/// Properties that decide in which lists and sweeps a task is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ListingKey {
    pub(super) time: Timestamp,
    pub(super) has_ended: bool,
    pub(super) is_runnable: bool,
}

impl BatchForm {
    /// Encodes a batch, or shares it if it has a large message.
    pub(super) fn new(batch: &Batch) -> Result<Self> {
        if batch.events.len() <= MAX_SHARED_PIECES && batch.events.iter().any(is_kept_shared) {
            return Ok(Self::Whole(batch.time, batch.events.as_slice().into()));
        }
        let mut bytes = codec::encode_compact_events(&[0; LENGTH_BYTES], batch.time, &batch.events);
        let length = u32::try_from(bytes.len() - LENGTH_BYTES)
            .map_err(|error| Error::Failed(Box::new(error)))?;
        bytes[..LENGTH_BYTES].copy_from_slice(&length.to_le_bytes());
        Ok(Self::Packed(bytes))
    }
}

impl BatchForm {
    /// Size of the encoded batches. A shared batch occupies no memory of its own.
    fn packed_bytes(&self) -> usize {
        match self {
            Self::Packed(bytes) => bytes.len(),
            Self::Whole(..) => 0,
        }
    }
}

fn is_kept_shared(event: &Event) -> bool {
    let Event::Message(message) = event else {
        return false;
    };
    let pieces = message.parts.len() + message.reference_task_ids.len() + message.extensions.len();
    pieces <= MAX_SHARED_PIECES && event.memory_size() > SHARED_MESSAGE_BYTES
}

impl PackedLog {
    /// Creates the log of a task with its first batch.
    pub(super) fn new(scope: u32, task: &NewTask, first: BatchForm) -> Self {
        let NewTask {
            id,
            context_id,
            batch,
            ..
        } = task;
        let mut log = Self {
            scope,
            state: batch.state,
            parked: batch.parked,
            status_time: batch.status_time,
            position: Seq(0),
            batches: Vec::new(),
            rare: None,
        };
        let is_named = matches!(first, BatchForm::Packed(_))
            && matches!(batch.events.first(), Some(Event::Created { id: its, context_id: of, .. })
                if its == id && of == context_id);
        if !is_named {
            log.rare_mut().ids = Some((id.clone(), context_id.clone()));
        }
        log.add(batch, first);
        log
    }

    /// Appends a batch.
    pub(super) fn add(&mut self, batch: &Batch, form: BatchForm) {
        let end = Seq(self.position.0 + batch.events.len() as u64);
        match form {
            BatchForm::Packed(bytes) => {
                if self.batches.len() >= PAGE_BYTES {
                    self.seal_page();
                }
                self.put(bytes, batch.state.is_terminal());
            }
            BatchForm::Whole(..) => {
                self.seal_page();
                self.rare_mut().pages.push(LogPage { end, form });
            }
        }
        self.position = end;
        self.state = batch.state;
        self.status_time = batch.status_time;
        self.parked = batch.parked;
    }

    fn seal_page(&mut self) {
        if !self.batches.is_empty() {
            let mut batches = std::mem::take(&mut self.batches);
            batches.shrink_to_fit();
            let page = LogPage {
                end: self.position,
                form: BatchForm::Packed(batches),
            };
            self.rare_mut().pages.push(page);
        }
    }

    fn put(&mut self, bytes: Vec<u8>, last: bool) {
        if self.batches.is_empty() && bytes.len() >= PAGE_BYTES {
            // Take the buffer over: a large batch is not copied.
            self.batches = bytes;
            return self.batches.shrink_to_fit();
        }
        if last || self.batches.is_empty() {
            self.batches.reserve_exact(bytes.len());
        }
        self.batches.extend_from_slice(&bytes);
        if last {
            self.batches.shrink_to_fit();
        }
    }

    pub(super) fn listed(&self) -> ListingKey {
        let has_ended = self.state.is_terminal();
        ListingKey {
            time: self.status_time,
            has_ended,
            is_runnable: !has_ended && !self.parked,
        }
    }

    pub(super) fn is_parked(&self) -> bool {
        self.parked
    }

    pub(super) fn rare_mut(&mut self) -> &mut RareFields {
        self.rare.get_or_insert_default()
    }

    pub(super) fn rare(&self) -> Option<&RareFields> {
        self.rare.as_deref()
    }

    pub(super) fn existing_rare_mut(&mut self) -> Option<&mut RareFields> {
        self.rare.as_deref_mut()
    }

    pub(super) fn into_rare(self) -> Option<Box<RareFields>> {
        self.rare
    }

    pub(super) fn webhooks(&self) -> &[StoredWebhook] {
        self.rare().map_or(&[], |rare| &rare.webhooks)
    }

    pub(super) fn id(&self) -> &str {
        match self.stored_ids() {
            Some((id, _)) => id.as_str(),
            None => self
                .first()
                .and_then(codec::decode_created_id)
                .unwrap_or_default(),
        }
    }

    /// Returns the ids of the task and its context.
    fn ids(&self) -> (&str, &str) {
        match self.stored_ids() {
            Some((id, context_id)) => (id.as_str(), context_id.as_str()),
            None => self
                .first()
                .and_then(codec::decode_created_ids)
                .unwrap_or_default(),
        }
    }

    fn stored_ids(&self) -> Option<&(TaskId, ContextId)> {
        self.rare().and_then(|rare| rare.ids.as_ref())
    }

    /// Returns the first batch, if it is encoded.
    fn first(&self) -> Option<&[u8]> {
        match self.rare().and_then(|rare| rare.pages.first()) {
            None => bodies(&self.batches).next(),
            Some(LogPage {
                form: BatchForm::Packed(batches),
                ..
            }) => bodies(batches).next(),
            Some(LogPage {
                form: BatchForm::Whole(..),
                ..
            }) => None,
        }
    }

    /// Returns whether the task passes the filters of a list.
    pub(super) fn matches(&self, query: &TaskQuery) -> bool {
        query.state.is_none_or(|state| state == self.state)
            && query.since.is_none_or(|since| self.status_time >= since)
            && query
                .context_id
                .as_ref()
                .is_none_or(|context_id| context_id.as_str() == self.ids().1)
    }

    pub(super) fn head(&self, scope: Scope) -> Head {
        self.head_with_id(self.id().into(), scope)
    }

    /// Returns the head without decoding the id.
    pub(super) fn head_with_id(&self, id: TaskId, scope: Scope) -> Head {
        let context_id = self.ids().1.into();
        Head {
            id,
            scope,
            context_id,
            position: self.position,
            state: self.state,
            status_time: self.status_time,
        }
    }

    /// Copies the pages that have the entries after `after`, up to the limit.
    pub(super) fn copy(&self, after: Seq, limit: ReadLimit) -> CopiedPages {
        let full = self.rare().map_or(&[][..], |rare| &rare.pages);
        let from = full.partition_point(|page| page.end <= after);
        let mut at = if from == 0 {
            Seq(0)
        } else {
            full[from - 1].end
        };
        let until = Seq(after.0.saturating_add(limit.entries as u64));
        let mut copied = CopiedPages {
            at,
            pages: Vec::new(),
        };
        let mut bytes = 0_usize;
        for page in &full[from..] {
            if at >= until || bytes >= limit.bytes {
                return copied;
            }
            copied.pages.push(page.form.clone());
            // The first page may begin with entries before `after`, which do not count.
            if at >= after {
                bytes += page.form.packed_bytes();
            }
            at = page.end;
        }
        if at < until && after < self.position && at < self.position {
            copied.pages.push(BatchForm::Packed(self.batches.clone()));
        }
        copied
    }
}

/// Copied pages, decoded after the lock of the store is released.
#[derive(Debug, Default)]
pub(super) struct CopiedPages {
    /// Position before the first entry.
    at: Seq,
    pages: Vec<BatchForm>,
}

impl CopiedPages {
    /// Decodes the entries after `after`, oldest first, up to the limit.
    pub(super) fn entries(&self, after: Seq, limit: ReadLimit) -> Result<Vec<Entry>, CodecError> {
        let mut found = EntryCollector {
            at: self.at,
            after,
            page: EntryPage::new(limit),
        };
        for page in &self.pages {
            match page {
                BatchForm::Packed(batches) => {
                    for body in bodies(batches) {
                        if found.should_decode(codec::count_events(body)?) {
                            let (time, events) = codec::decode_events(body)?;
                            found.take(time, events);
                        }
                    }
                }
                BatchForm::Whole(time, events) => {
                    if found.should_decode(events.len() as u64) {
                        found.take(*time, events.iter().cloned());
                    }
                }
            }
        }
        Ok(found.page.into_entries())
    }
}

/// Collector of the entries in a range of positions.
struct EntryCollector {
    /// Position before the next entry.
    at: Seq,
    after: Seq,
    page: EntryPage,
}

impl EntryCollector {
    /// Returns whether one of the next `count` entries is in the range; if not, skips them.
    fn should_decode(&mut self, count: u64) -> bool {
        let end = Seq(self.at.0 + count);
        let wanted = end > self.after && !self.page.is_full();
        if !wanted {
            self.at = end;
        }
        wanted
    }

    fn take(&mut self, time: Timestamp, events: impl IntoIterator<Item = Event>) {
        let after = self.after;
        let mut at = self.at;
        let entries = events.into_iter().map(|event| {
            at = Seq(at.0 + 1);
            Entry {
                seq: at,
                time,
                event,
            }
        });
        self.page.extend(entries.filter(|entry| entry.seq > after));
        self.at = at;
    }
}

/// Iterates over the batches of a page.
fn bodies(mut batches: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = batches.split_first_chunk::<LENGTH_BYTES>()?;
        let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        batches = rest;
        Some(body)
    })
}
