//! Records that wait to be sent to other replicas. Records of one task are merged.

use std::collections::{BTreeMap, BTreeSet};

use super::message::{Content, MessageKind, Record, TaskHash};
use crate::model::Seq;

/// Maximum number of waiting records of one kind. Further ones are dropped: polling finds the logs.
const MAX_RECORDS: usize = 1 << 16;

/// Waiting records by kind.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    has_departure: bool,
    broadcasts: BTreeMap<TaskHash, Seq>,
    announcements: BTreeMap<TaskHash, Seq>,
    interests: BTreeSet<TaskHash>,
}

impl Outbox {
    pub(super) fn add(&mut self, kind: MessageKind, record: Record) {
        match kind {
            MessageKind::Announce => merge(&mut self.announcements, record),
            MessageKind::Broadcast => merge(&mut self.broadcasts, record),
            MessageKind::Interest => {
                if self.interests.len() < MAX_RECORDS {
                    self.interests.insert(record.task);
                }
            }
            MessageKind::Departure => self.has_departure = true,
        }
    }

    /// Adds the departure of this replica. It is sent after everything else.
    pub(super) fn add_departure(&mut self) {
        self.has_departure = true;
    }

    /// Adds the records of a message that could not be sent.
    pub(super) fn restore(&mut self, content: &Content) {
        if content.kind == MessageKind::Departure {
            self.add_departure();
        }
        for record in &content.records {
            self.add(content.kind, *record);
        }
    }

    /// Removes the records of the next message, at most `max_records` of one kind.
    pub(super) fn next(&mut self, max_records: usize) -> Option<Content> {
        let (kind, records) = if !self.broadcasts.is_empty() {
            let records = take_positions(&mut self.broadcasts, max_records);
            (MessageKind::Broadcast, records)
        } else if !self.announcements.is_empty() {
            let records = take_positions(&mut self.announcements, max_records);
            (MessageKind::Announce, records)
        } else if !self.interests.is_empty() {
            let records = take_interests(&mut self.interests, max_records);
            (MessageKind::Interest, records)
        } else if std::mem::take(&mut self.has_departure) {
            (MessageKind::Departure, Vec::new())
        } else {
            return None;
        };
        Some(Content { kind, records })
    }
}

/// Keeps the highest position of each task.
fn merge(records: &mut BTreeMap<TaskHash, Seq>, record: Record) {
    let is_full = records.len() >= MAX_RECORDS;
    if is_full && !records.contains_key(&record.task) {
        return;
    }
    let position = records.entry(record.task).or_default();
    *position = record.position.max(*position);
}

fn take_positions(records: &mut BTreeMap<TaskHash, Seq>, max_records: usize) -> Vec<Record> {
    let next = std::iter::from_fn(|| records.pop_first()).take(max_records);
    next.map(|(task, position)| Record { task, position })
        .collect()
}

fn take_interests(tasks: &mut BTreeSet<TaskHash>, max_records: usize) -> Vec<Record> {
    let next = std::iter::from_fn(|| tasks.pop_first()).take(max_records);
    next.map(|task| Record {
        task,
        position: Seq(0),
    })
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(task: u64, position: u64) -> Record {
        Record {
            task: TaskHash(task),
            position: Seq(position),
        }
    }

    #[test]
    fn records_of_a_task_are_merged_and_messages_are_limited() {
        let mut outbox = Outbox::default();
        for (task, position) in [(1, 4), (2, 1), (1, 9), (1, 3), (3, 1)] {
            outbox.add(MessageKind::Announce, record(task, position));
        }
        outbox.add(MessageKind::Interest, record(1, 0));
        outbox.add(MessageKind::Interest, record(1, 0));
        outbox.add_departure();
        outbox.add(MessageKind::Broadcast, record(1, 10));
        let sent: Vec<Content> = std::iter::from_fn(|| outbox.next(2)).collect();
        let content = |kind, records: &[Record]| Content {
            kind,
            records: records.to_vec(),
        };
        assert_eq!(
            sent,
            [
                content(MessageKind::Broadcast, &[record(1, 10)]),
                content(MessageKind::Announce, &[record(1, 9), record(2, 1)]),
                content(MessageKind::Announce, &[record(3, 1)]),
                content(MessageKind::Interest, &[record(1, 0)]),
                content(MessageKind::Departure, &[]),
            ]
        );
        for content in &sent {
            outbox.restore(content);
        }
        outbox.add(MessageKind::Announce, record(3, 2));
        let again: Vec<Content> = std::iter::from_fn(|| outbox.next(9)).collect();
        assert_eq!(again.len(), 4);
        assert_eq!(again[1].records.last(), Some(&record(3, 2)));
    }

    #[test]
    fn the_number_of_records_is_bounded() {
        let mut outbox = Outbox::default();
        for kind in [
            MessageKind::Announce,
            MessageKind::Broadcast,
            MessageKind::Interest,
        ] {
            for task in 0..=MAX_RECORDS as u64 {
                outbox.add(kind, record(task, 1));
            }
            outbox.add(kind, record(0, 2));
            let content = outbox.next(usize::MAX).unwrap();
            assert_eq!(content.records.len(), MAX_RECORDS);
            let first = content.records[0].position;
            assert_eq!(first == Seq(2), kind != MessageKind::Interest);
        }
    }
}
