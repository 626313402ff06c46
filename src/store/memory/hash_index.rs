//! Finds numbers by a hash. The table keeps no keys: whoever asks compares with what the number stands for.

/// Stands in a place that is free.
const EMPTY_SLOT: u32 = u32::MAX;

/// The places before anything is there.
const INITIAL_SLOTS: usize = 16;

/// A hash table of numbers, eight bytes a place: what does not fit in its own place is in the next one that was free.
#[derive(Debug, Default)]
pub(super) struct HashIndex {
    /// As many as a power of two: a hash, and the number.
    slots: Vec<(u32, u32)>,
    used: usize,
}

impl HashIndex {
    /// Every number is smaller.
    pub(super) const MAX_NUMBERS: u32 = EMPTY_SLOT;

    /// The number of this hash that is the one that is sought.
    pub(super) fn find(&self, hash: u32, is: impl Fn(u32) -> bool) -> Option<u32> {
        self.slot(hash, is).map(|at| self.slots[at].1)
    }

    /// Takes in a number that is not there.
    pub(super) fn insert(&mut self, hash: u32, number: u32) {
        self.used += 1;
        // Fuller than four fifths, a search would take long.
        if self.used * 5 > self.slots.len() * 4 {
            let wider = vec![(0, EMPTY_SLOT); (self.slots.len() * 2).max(INITIAL_SLOTS)];
            let old = std::mem::replace(&mut self.slots, wider);
            old.into_iter()
                .filter(|(_, number)| *number != EMPTY_SLOT)
                .for_each(|slot| self.put(slot));
        }
        self.put((hash, number));
    }

    /// Lets go of a number; those who had to stand behind it move up, so that a search may stop at a free place.
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

    /// Where a hash belongs.
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
        /// Hashes that crowd together, so that most are not at home.
        #[test]
        fn what_was_put_in_and_not_taken_out_is_found(steps in vec((0..200_u32, any::<bool>()), 0..600)) {
            let (mut index, mut there) = (HashIndex::default(), BTreeMap::new());
            let hash = |number: u32| number / 7 * 13;
            for (number, comes) in steps {
                match comes {
                    true if there.insert(number, ()).is_none() => index.insert(hash(number), number),
                    true => {}
                    false => {
                        there.remove(&number);
                        index.remove(hash(number), number);
                    }
                }
            }
            for number in 0..200 {
                let found = index.find(hash(number), |other| other == number);
                prop_assert_eq!(found, there.get(&number).map(|()| number));
            }
            prop_assert_eq!(index.used, there.len());
        }
    }
}
