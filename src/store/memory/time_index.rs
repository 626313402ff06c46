//! Sorted set of time keys, optimized for insertion at the end.

use super::scope_table::TimeKey;

/// Maximum number of keys in a block. An insertion in the middle moves at most one block.
const MAX_BLOCK_KEYS: usize = 256;

/// Sorted set of keys in sorted blocks. Appending the largest key takes constant time.
#[derive(Debug, Default)]
pub(super) struct TimeIndex {
    /// No block is empty.
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

    /// Iterates in ascending order.
    pub(super) fn iter(&self) -> impl DoubleEndedIterator<Item = TimeKey> {
        self.blocks.iter().flatten().copied()
    }

    /// Inserts a key, unless it exists.
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

    /// Removes a key.
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

    /// Appends a key that is larger than all others.
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

    /// Returns the index of the block that has, or would have, the key.
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
        fn inserted_keys_are_iterated_in_order_until_removed(
            first in 0..1_500_i64,
            steps in vec((0..1_500_i64, any::<bool>()), 0..1_200),
        ) {
            // Most insertions are in order, as status times are.
            let steps = (0..first).map(|time| (time, true)).chain(steps);
            let mut index = TimeIndex::default();
            let mut expected = BTreeSet::new();
            for (time, is_insert) in steps {
                let key = key(time);
                if is_insert {
                    index.insert(key);
                    expected.insert(key);
                } else {
                    index.remove(key);
                    expected.remove(&key);
                }
                prop_assert_eq!((index.len(), index.last()), (expected.len(), expected.last().copied()));
            }
            prop_assert!(index.iter().eq(expected.iter().copied()));
            prop_assert!(index.iter().rev().eq(expected.iter().rev().copied()));
            prop_assert_eq!(index.is_empty(), expected.is_empty());
            let (last, full) = index.blocks.split_last().map_or((0, &[][..]), |(last, full)| (last.len(), full));
            prop_assert!(last <= MAX_BLOCK_KEYS && full.iter().all(|block| (1..=MAX_BLOCK_KEYS).contains(&block.len())));
            prop_assert!(full.iter().all(|block| block.capacity() <= MAX_BLOCK_KEYS + 2));
        }
    }
}
