//! Places in their order. Nearly every one that comes is the last, and those that go are the first.

use super::scope_table::TimeKey;

/// So many places are together, at the most: what comes into the middle moves no more than these.
const MAX_BLOCK_KEYS: usize = 256;

/// Places, each there once, in blocks that are in order too. What comes last is put behind the others, whatever their number.
#[derive(Debug, Default)]
pub(super) struct TimeIndex {
    /// None of them is empty.
    blocks: Vec<Vec<TimeKey>>,
    length: usize,
}

impl TimeIndex {
    pub(super) fn len(&self) -> usize {
        self.length
    }

    pub(super) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(super) fn last(&self) -> Option<TimeKey> {
        self.blocks.last()?.last().copied()
    }

    /// From the first to the last.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = TimeKey> {
        self.blocks.iter().flatten().copied()
    }

    /// Takes in a place, unless it is there.
    pub(super) fn insert(&mut self, key: TimeKey) {
        if self.last().is_none_or(|last| last < key) {
            return self.push(key);
        }
        let at = self.block(key);
        let block = &mut self.blocks[at];
        let Err(before) = block.binary_search(&key) else {
            return;
        };
        block.insert(before, key);
        self.length += 1;
        if block.len() > MAX_BLOCK_KEYS {
            let behind = block.split_off(MAX_BLOCK_KEYS / 2);
            block.shrink_to_fit();
            self.blocks.insert(at + 1, behind);
        }
    }

    /// Lets go of a place.
    pub(super) fn remove(&mut self, key: TimeKey) {
        let at = self.block(key);
        let Some(block) = self.blocks.get_mut(at) else {
            return;
        };
        let Ok(found) = block.binary_search(&key) else {
            return;
        };
        block.remove(found);
        self.length -= 1;
        if block.is_empty() {
            self.blocks.remove(at);
        }
    }

    /// Puts a place behind all others.
    fn push(&mut self, key: TimeKey) {
        self.length += 1;
        match self
            .blocks
            .last_mut()
            .filter(|block| block.len() < MAX_BLOCK_KEYS)
        {
            Some(block) => block.push(key),
            None => self.blocks.push(vec![key]),
        }
    }

    /// The block that a place is in, or would be.
    fn block(&self, key: TimeKey) -> usize {
        self.blocks
            .partition_point(|block| block.last().is_some_and(|last| *last < key))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::model::Timestamp;

    fn key(time: i64) -> TimeKey {
        TimeKey::new(
            Timestamp::from_millis(time / 3).unwrap(),
            u32::try_from(time % 3).unwrap(),
        )
    }

    proptest! {
        #[test]
        fn what_was_put_in_and_not_taken_out_is_there_in_order(
            first in 0..1_500_i64,
            steps in vec((0..1_500_i64, any::<bool>()), 0..1_200),
        ) {
            // Most come in order, as times do.
            let steps = (0..first).map(|time| (time, true)).chain(steps);
            let (mut order, mut there) = (TimeIndex::default(), BTreeSet::new());
            for (time, comes) in steps {
                let key = key(time);
                if comes {
                    order.insert(key);
                    there.insert(key);
                } else {
                    order.remove(key);
                    there.remove(&key);
                }
                prop_assert_eq!((order.len(), order.last()), (there.len(), there.last().copied()));
            }
            prop_assert!(order.iter().eq(there.iter().copied()));
            prop_assert!(order.iter().rev().eq(there.iter().rev().copied()));
            prop_assert_eq!(order.is_empty(), there.is_empty());
            let (last, full) = order.blocks.split_last().map_or((0, &[][..]), |(last, full)| (last.len(), full));
            prop_assert!(last <= MAX_BLOCK_KEYS && full.iter().all(|block| (1..=MAX_BLOCK_KEYS).contains(&block.len())));
            prop_assert!(full.iter().all(|block| block.capacity() <= MAX_BLOCK_KEYS + 2));
        }
    }
}
