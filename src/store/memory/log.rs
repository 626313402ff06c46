//! The log of one task, packed: an ended task is one piece of memory, and a few words that say where it stands.

use super::hook::Hook;
use crate::model::{ContextId, Entry, Event, Scope, Seq, TaskId, TaskState, Timestamp};
use crate::store::codec::{self, Corrupt};
use crate::store::{Batch, Error, Folded, Head, NewTask, Query, Result};

/// A long log is cut into pages of about so many bytes, so that adding to it moves little and reading from its middle
/// skips little.
const PAGE: usize = 16 << 10;

/// Bytes that say how long a batch is.
const LENGTH: usize = size_of::<u32>();

/// A task.
#[derive(Debug)]
pub(super) struct Log {
    /// Whose it is.
    pub(super) scope: u32,
    state: TaskState,
    parked: bool,
    status_time: Timestamp,
    pub(super) position: Seq,
    /// Its batches, each behind its length; those on older pages are before them.
    batches: Vec<u8>,
    /// What most tasks do not have.
    more: Option<Box<More>>,
}

/// What most tasks do not have.
#[derive(Debug, Default)]
pub(super) struct More {
    pages: Vec<Page>,
    /// What the task is called, where the first entry does not say so.
    name: Option<(TaskId, ContextId)>,
    pub(super) hooks: Vec<Hook>,
    pub(super) kept: Option<(Seq, Folded)>,
    pub(super) keys: Vec<String>,
    pub(super) alias: Option<TaskId>,
}

/// A part of a long log that is full.
#[derive(Debug)]
struct Page {
    /// The last entry on it.
    end: Seq,
    batches: Box<[u8]>,
}

/// Where a task is listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Listed {
    pub(super) time: Timestamp,
    pub(super) has_ended: bool,
    pub(super) has_work: bool,
}

/// A batch, in the form in which it is kept: behind its length.
pub(super) struct Packed(Vec<u8>);

impl Packed {
    pub(super) fn new(batch: &Batch) -> Result<Self> {
        let mut bytes = codec::write_short(&[0; LENGTH], batch.time, &batch.events);
        let length = u32::try_from(bytes.len() - LENGTH).map_err(|error| Error::Failed(Box::new(error)))?;
        bytes[..LENGTH].copy_from_slice(&length.to_le_bytes());
        Ok(Self(bytes))
    }
}

impl Log {
    /// A task with its first batch.
    pub(super) fn new(scope: u32, task: &NewTask, first: Packed) -> Self {
        let NewTask { id, context_id, batch, .. } = task;
        let mut log = Self {
            scope,
            state: batch.state,
            parked: batch.parked,
            status_time: batch.status_time,
            position: Seq(0),
            batches: Vec::new(),
            more: None,
        };
        log.add(batch, first);
        let named = matches!(batch.events.first(), Some(Event::Created { id: its, context_id: of, .. })
            if its == id && of == context_id);
        if !named {
            log.more().name = Some((id.clone(), context_id.clone()));
        }
        log
    }

    /// Takes in a batch behind the last.
    pub(super) fn add(&mut self, batch: &Batch, packed: Packed) {
        if self.batches.len() >= PAGE {
            let batches = std::mem::take(&mut self.batches).into_boxed_slice();
            let page = Page { end: self.position, batches };
            self.more().pages.push(page);
        }
        self.put(packed, batch.state.is_terminal());
        self.position = Seq(self.position.0 + batch.events.len() as u64);
        (self.state, self.status_time, self.parked) = (batch.state, batch.status_time, batch.parked);
    }

    fn put(&mut self, packed: Packed, last: bool) {
        let Packed(bytes) = packed;
        if self.batches.is_empty() && bytes.len() >= PAGE {
            // A large one is not there twice, not even for a moment.
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

    pub(super) fn listed(&self) -> Listed {
        let has_ended = self.state.is_terminal();
        Listed { time: self.status_time, has_ended, has_work: !has_ended && !self.parked }
    }

    pub(super) fn is_parked(&self) -> bool {
        self.parked
    }

    pub(super) fn more(&mut self) -> &mut More {
        self.more.get_or_insert_default()
    }

    pub(super) fn has_more(&self) -> Option<&More> {
        self.more.as_deref()
    }

    pub(super) fn has_more_mut(&mut self) -> Option<&mut More> {
        self.more.as_deref_mut()
    }

    pub(super) fn into_more(self) -> Option<Box<More>> {
        self.more
    }

    pub(super) fn hooks(&self) -> &[Hook] {
        self.has_more().map_or(&[], |more| &more.hooks)
    }

    pub(super) fn id(&self) -> &str {
        match self.given_name() {
            Some((id, _)) => id.as_str(),
            None => self.first().and_then(codec::read_created_id).unwrap_or_default(),
        }
    }

    /// The ids of the task and of its conversation.
    fn name(&self) -> (&str, &str) {
        match self.given_name() {
            Some((id, context_id)) => (id.as_str(), context_id.as_str()),
            None => self.first().and_then(codec::read_created).unwrap_or_default(),
        }
    }

    fn given_name(&self) -> Option<&(TaskId, ContextId)> {
        self.has_more().and_then(|more| more.name.as_ref())
    }

    /// The first batch.
    fn first(&self) -> Option<&[u8]> {
        let page = self.has_more().and_then(|more| more.pages.first());
        bodies(page.map_or(&*self.batches, |page| &page.batches)).next()
    }

    /// Whether it passes the filters of a list.
    pub(super) fn matches(&self, query: &Query) -> bool {
        query.state.is_none_or(|state| state == self.state)
            && query.since.is_none_or(|since| self.status_time >= since)
            && query.context_id.as_ref().is_none_or(|context_id| context_id.as_str() == self.name().1)
    }

    pub(super) fn head(&self, scope: Scope) -> Head {
        self.head_of(self.id().into(), scope)
    }

    /// The head of a task whose id is at hand.
    pub(super) fn head_of(&self, id: TaskId, scope: Scope) -> Head {
        let context_id = self.name().1.into();
        Head {
            id,
            scope,
            context_id,
            position: self.position,
            state: self.state,
            status_time: self.status_time,
        }
    }

    /// A copy of the pages that have the `limit` entries after `after`.
    pub(super) fn copy(&self, after: Seq, limit: usize) -> Copied {
        let full = self.has_more().map_or(&[][..], |more| &more.pages);
        let from = full.partition_point(|page| page.end <= after);
        let mut at = if from == 0 { Seq(0) } else { full[from - 1].end };
        let until = Seq(after.0.saturating_add(limit as u64));
        let mut copied = Copied { at, batches: Vec::new() };
        let last = (self.position, &*self.batches);
        for (end, batches) in full[from..].iter().map(|page| (page.end, &*page.batches)).chain([last]) {
            if at < until && after < end {
                copied.batches.extend_from_slice(batches);
            }
            at = end;
        }
        copied
    }
}

/// Batches of a log, to be read without holding anybody up.
#[derive(Debug, Default)]
pub(super) struct Copied {
    /// The entry before the first of them.
    at: Seq,
    batches: Vec<u8>,
}

impl Copied {
    /// The entries after `after`, oldest first, at most `limit` of them.
    pub(super) fn entries(&self, after: Seq, limit: usize) -> Result<Vec<Entry>, Corrupt> {
        let (mut at, mut found) = (self.at, Vec::new());
        for body in bodies(&self.batches) {
            let end = Seq(at.0 + codec::count_events(body)?);
            if end > after {
                let (time, events) = codec::read_events(body)?;
                let entries =
                    (at.0 + 1..).zip(events).map(|(seq, event)| Entry { seq: Seq(seq), time, event });
                found.extend(entries.filter(|entry| entry.seq > after).take(limit - found.len()));
            }
            if found.len() == limit {
                break;
            }
            at = end;
        }
        Ok(found)
    }
}

/// The batches on a page, one by one.
fn bodies(mut batches: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let (length, rest) = batches.split_first_chunk::<LENGTH>()?;
        let (body, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
        batches = rest;
        Some(body)
    })
}
