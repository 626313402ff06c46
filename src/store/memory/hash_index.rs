//! Hash table of task numbers without keys: the caller compares the task that a number stands for.

/// Number that marks an empty slot.
const EMPTY_SLOT: u32 = u32::MAX;

/// Number of slots after the first insertion.
const INITIAL_SLOTS: usize = 16;

/// Hash table with linear probing, eight bytes per slot.
#[derive(Debug, Default)]
pub(super) struct HashIndex {
    /// Hash and number of each slot. The length is a power of two.
    slots: Vec<(u32, u32)>,
    used: usize,
}

impl HashIndex {
    /// Exclusive upper bound of the numbers.
    pub(super) const MAX_NUMBERS: u32 = EMPTY_SLOT;

    /// Returns the number with this hash that `is` accepts.
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.slot(hash, is).map(|at| self.slots[at].1)
    }

    /// Inserts a number that is not in the table.
    pub(super) fn insert(&mut self, hash: u32, number: u32) {
        self.used += 1;
        // Grow at a load factor of 4/5: probe sequences get long beyond it.
        if self.used * 5 > self.slots.len() * 4 {
            let wider = vec![(0, EMPTY_SLOT); (self.slots.len() * 2).max(INITIAL_SLOTS)];
            let old = std::mem::replace(&mut self.slots, wider);
            old.into_iter()
                .filter(|(_, number)| *number != EMPTY_SLOT)
                .for_each(|slot| self.put(slot));
        }
        self.put((hash, number));
    }

    /// Removes a number and shifts later ones of its probe sequence back, so that a search can stop at an empty slot.
    pub(super) fn remove(&mut self, hash: u32, number: u32) {
        let Some(mut hole) = self.slot(hash, |other| other == number) else {
            return;
        };
        let mut at = self.next_slot(hole);
        while self.slots[at].1 != EMPTY_SLOT {
            let home = self.home(self.slots[at].0);
            if self.distance(home, at) >= self.distance(hole, at) {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.next_slot(at);
        }
        self.slots[hole] = (0, EMPTY_SLOT);
        self.used -= 1;
    }

    fn slot(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(hash);
        loop {
            let (other, number) = self.slots[at];
            if number == EMPTY_SLOT {
                return None;
            }
            if other == hash && is(number) {
                return Some(at);
            }
            at = self.next_slot(at);
        }
    }

    fn put(&mut self, slot: (u32, u32)) {
        let mut at = self.home(slot.0);
        while self.slots[at].1 != EMPTY_SLOT {
            at = self.next_slot(at);
        }
        self.slots[at] = slot;
    }

    /// Returns the first slot of the probe sequence of a hash.
    fn home(&self, hash: u32) -> usize {
        hash as usize & (self.slots.len() - 1)
    }

    fn next_slot(&self, at: usize) -> usize {
        (at + 1) & (self.slots.len() - 1)
    }

    fn distance(&self, from: usize, to: usize) -> usize {
        to.wrapping_sub(from) & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Colliding hashes, so that most numbers are not in their first slot.
        #[test]
        fn inserted_numbers_are_found_until_removed(steps in vec((0..200_u32, any::<bool>()), 0..600)) {
            let mut index = HashIndex::default();
            let mut expected = BTreeMap::new();
            let hash = |number: u32| number / 7 * 13;
            for (number, is_insert) in steps {
                if !is_insert {
                    expected.remove(&number);
                    index.remove(hash(number), number);
                } else if expected.insert(number, ()).is_none() {
                    index.insert(hash(number), number);
                }
            }
            for number in 0..200 {
                let found = index.find(hash(number), |other| other == number);
                prop_assert_eq!(found, expected.get(&number).map(|()| number));
            }
            prop_assert_eq!(index.used, expected.len());
        }
    }
}
