//! Messages between the replicas of one store.
//!
//! A message has a header (version, kind, sender, send time) and records of one kind. Receivers ignore versions and kinds that
//! they do not know, so that programs of several versions can share a store. Messages contain no content of callers.

use crate::model::{Seq, TaskId, Timestamp};

/// Version of the message format.
const VERSION: u8 = 1;

/// Size of the header: version, kind, sender and send time.
const HEADER_BYTES: usize = 1 + 1 + 8 + 8;

/// Largest size of a record: hash and variable-length position.
const MAX_RECORD_BYTES: usize = 8 + 10;

/// 64-bit FNV-1a hash of a task id. A collision costs one unnecessary wake-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct TaskHash(pub(super) u64);

impl From<&TaskId> for TaskHash {
    fn from(task: &TaskId) -> Self {
        let bytes = task.as_str().bytes();
        Self(bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }))
    }
}

/// Kind of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MessageKind {
    /// Logs have grown. Sent by their holder for tasks of which other replicas have requested it.
    Announce,
    /// Logs have grown, or were removed. Concerns every replica.
    Broadcast,
    /// The sender has followers of these tasks.
    Interest,
    /// The sender has left the cluster.
    Departure,
}

impl MessageKind {
    fn byte(self) -> u8 {
        match self {
            Self::Announce => b'A',
            Self::Broadcast => b'B',
            Self::Interest => b'I',
            Self::Departure => b'D',
        }
    }

    fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            b'A' => Self::Announce,
            b'B' => Self::Broadcast,
            b'I' => Self::Interest,
            b'D' => Self::Departure,
            _ => return None,
        })
    }

    /// Whether its records have a position.
    fn has_positions(self) -> bool {
        match self {
            Self::Announce | Self::Broadcast => true,
            Self::Interest | Self::Departure => false,
        }
    }
}

impl MessageKind {
    /// Returns its name in metrics.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Announce => "announce",
            Self::Broadcast => "broadcast",
            Self::Interest => "interest",
            Self::Departure => "departure",
        }
    }
}

/// A task that a message names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) task: TaskHash,
    /// End of the log. 0: not known.
    pub(super) position: Seq,
}

/// Records that are sent together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Content {
    pub(super) kind: MessageKind,
    pub(super) records: Vec<Record>,
}

/// A received message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// Id of the sending bus.
    pub(super) sender: u64,
    pub(super) sent: Timestamp,
    pub(super) content: Content,
}

/// Returns how many records fit into a message of this size, at least one.
pub(super) fn max_records(max_bytes: usize) -> usize {
    (max_bytes.saturating_sub(HEADER_BYTES) / MAX_RECORD_BYTES).max(1)
}

impl Message {
    pub(super) fn encode(&self) -> Vec<u8> {
        let Content { kind, records } = &self.content;
        let mut bytes = Vec::with_capacity(HEADER_BYTES + records.len() * MAX_RECORD_BYTES);
        bytes.push(VERSION);
        bytes.push(kind.byte());
        bytes.extend(self.sender.to_be_bytes());
        bytes.extend(self.sent.as_millis().to_be_bytes());
        for record in records {
            bytes.extend(record.task.0.to_be_bytes());
            if kind.has_positions() {
                write_varint(&mut bytes, record.position.0);
            }
        }
        bytes
    }

    /// Returns `None` for an unknown version or kind. Ignores a record that was cut off.
    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut input = bytes;
        let [version, kind] = take(&mut input)?;
        let kind = MessageKind::from_byte(kind).filter(|_| version == VERSION)?;
        let sender = u64::from_be_bytes(take(&mut input)?);
        let sent = i64::from_be_bytes(take(&mut input)?);
        let records = std::iter::from_fn(|| read_record(&mut input, kind)).collect();
        Some(Self {
            sender,
            sent: Timestamp::from_millis(sent).unwrap_or_default(),
            content: Content { kind, records },
        })
    }
}

fn read_record(input: &mut &[u8], kind: MessageKind) -> Option<Record> {
    let task = TaskHash(u64::from_be_bytes(take(input)?));
    let position = if kind.has_positions() {
        read_varint(input)?
    } else {
        0
    };
    Some(Record {
        task,
        position: Seq(position),
    })
}

/// Splits `N` bytes off the input.
fn take<const N: usize>(input: &mut &[u8]) -> Option<[u8; N]> {
    let (bytes, rest) = input.split_first_chunk()?;
    *input = rest;
    Some(*bytes)
}

/// Writes seven bits per byte, the lowest first. The high bit marks that another byte follows.
fn write_varint(bytes: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

fn read_varint(input: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..u64::BITS).step_by(7) {
        let [byte] = take(input)?;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: MessageKind, positions: &[u64]) -> Message {
        let record = |(task, position): (usize, &u64)| Record {
            task: TaskHash(u64::MAX - task as u64),
            position: Seq(*position),
        };
        Message {
            sender: 7,
            sent: Timestamp::from_millis(1_700_000_000_123).unwrap(),
            content: Content {
                kind,
                records: positions.iter().enumerate().map(record).collect(),
            },
        }
    }

    #[test]
    fn messages_survive_encoding_and_fit() {
        let positions = [0, 1, 127, 128, 1 << 14, u64::from(u32::MAX), u64::MAX];
        for kind in [MessageKind::Announce, MessageKind::Broadcast] {
            let sent = message(kind, &positions);
            assert_eq!(Message::decode(&sent.encode()), Some(sent));
        }
        for kind in [MessageKind::Interest, MessageKind::Departure] {
            let sent = message(kind, &[0, 0]);
            assert_eq!(Message::decode(&sent.encode()), Some(sent));
        }
        for max_bytes in [40, 100, 5_925] {
            let largest = vec![u64::MAX; max_records(max_bytes)];
            let bytes = message(MessageKind::Announce, &largest).encode();
            assert!(bytes.len() <= max_bytes, "{} bytes", bytes.len());
        }
    }

    #[test]
    fn unknown_versions_and_kinds_are_ignored_and_damage_is_no_panic() {
        let bytes = message(MessageKind::Announce, &[300, 5]).encode();
        for (index, value) in [(0, 2), (1, b'Z')] {
            let mut other = bytes.clone();
            other[index] = value;
            assert_eq!(Message::decode(&other), None);
        }
        for end in 0..bytes.len() {
            let cut = Message::decode(&bytes[..end]);
            let records = cut.map(|message| message.content.records.len());
            assert_eq!(records.is_some(), end >= HEADER_BYTES);
            assert!(records.is_none_or(|records| records < 2));
        }
        // A position of eleven bytes.
        let mut endless = bytes[..HEADER_BYTES + 8].to_vec();
        endless.extend([0xff; 11]);
        let decoded = Message::decode(&endless).unwrap();
        assert!(decoded.content.records.is_empty());
    }

    #[test]
    fn the_hash_is_fnv_1a() {
        assert_eq!(TaskHash::from(&TaskId::from("")).0, 0xcbf2_9ce4_8422_2325);
        assert_eq!(TaskHash::from(&TaskId::from("a")).0, 0xaf63_dc4c_8601_ec8c);
    }
}
