//! A 2 MiB bitmap over id hashes (a one-hash Bloom filter). Answers "certainly new" without an index lookup.
//!
//! Each bit stands for one of 16 million ranges of hashes. A region of bits is loaded from the index on first use and
//! invalidated when the index merges it. So neither startup time nor memory grows with the store.

/// Bits of a hash, as in [`super::id_index`].
const HASH_BITS: u32 = 48;

/// Number of bits of the filter, as a power of two: 2 MiB, allocated region by region.
const BITS: u32 = 24;

/// Number of regions, as a power of two. Each has 4,096 bits.
const REGIONS: u32 = 12;

/// Number of words in a region.
const WORDS: usize = 1 << (BITS - REGIONS - 6);

/// Filter over id hashes, by region. `None`: the region is not loaded.
#[derive(Debug)]
pub(super) struct IdFilter {
    regions: Vec<Option<Box<[u64; WORDS]>>>,
}

impl Default for IdFilter {
    fn default() -> Self {
        Self {
            regions: (0..1 << REGIONS).map(|_| None).collect(),
        }
    }
}

impl IdFilter {
    /// Returns whether an entry may have this hash; `None` if the region is not loaded.
    pub(super) fn may_contain(&self, hash: i64) -> Option<bool> {
        let (word, bit) = bit_position(hash);
        let words = self.regions.get(region(hash))?.as_ref()?;
        words.get(word).map(|word| word & bit != 0)
    }

    /// Adds a hash, if its region is loaded.
    pub(super) fn add(&mut self, hash: i64) {
        if let Some(Some(words)) = self.regions.get_mut(region(hash)) {
            set(words, hash);
        }
    }

    /// Returns the range of hashes in the region of a hash: start and end.
    pub(super) fn region_range(hash: i64) -> (i64, i64) {
        let size = 1 << (HASH_BITS - REGIONS);
        let from = hash & !(size - 1);
        (from, from + size)
    }

    /// Loads the region of a hash. `visit` calls its argument with every hash of the region, and possibly others. If it
    /// returns `None`, the region has too many entries to read, and every hash of it counts as present.
    pub(super) fn load_region<E>(
        &mut self,
        hash: i64,
        visit: impl FnOnce(&mut dyn FnMut(i64)) -> Result<Option<()>, E>,
    ) -> Result<(), E> {
        let mut words = Box::new([0; WORDS]);
        let all = visit(&mut |other| {
            if region(other) == region(hash) {
                set(&mut words, other);
            }
        })?;
        if all.is_none() {
            words.fill(u64::MAX);
        }
        if let Some(slot) = self.regions.get_mut(region(hash)) {
            *slot = Some(words);
        }
        Ok(())
    }

    /// Loads all regions from the complete set of hashes.
    pub(super) fn load_all(&mut self, hashes: impl Iterator<Item = i64>) {
        self.regions.fill_with(|| Some(Box::new([0; WORDS])));
        hashes.for_each(|hash| self.add(hash));
    }

    /// Unloads the regions that begin in a range of hashes, because their bits include removed entries.
    pub(super) fn invalidate(&mut self, from: i64, to: i64) {
        let begin = |hash: i64| region(hash + (1 << (HASH_BITS - REGIONS)) - 1);
        let regions = begin(from)..begin(to).min(self.regions.len());
        if let Some(regions) = self.regions.get_mut(regions) {
            regions.fill(None);
        }
    }
}

fn region(hash: i64) -> usize {
    usize::try_from(hash >> (HASH_BITS - REGIONS)).unwrap_or(usize::MAX)
}

/// Returns the word within the region, and the bit within the word.
fn bit_position(hash: i64) -> (usize, u64) {
    let bit = hash >> (HASH_BITS - BITS);
    let word = usize::try_from(bit >> 6).unwrap_or(usize::MAX) % WORDS;
    (word, 1 << (bit & 63))
}

fn set(words: &mut [u64; WORDS], hash: i64) {
    let (word, bit) = bit_position(hash);
    if let Some(word) = words.get_mut(word) {
        *word |= bit;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load_region(filter: &mut IdFilter, hash: i64, hashes: &[i64]) {
        let each = |visit: &mut dyn FnMut(i64)| {
            hashes.iter().copied().for_each(visit);
            Ok::<_, ()>(Some(()))
        };
        filter.load_region(hash, each).unwrap();
    }

    #[test]
    fn added_hashes_may_be_present_and_most_others_are_not() {
        let mut filter = IdFilter::default();
        let step = 1 << (HASH_BITS - BITS);
        let (from, to) = IdFilter::region_range(7 << 36 | 12_345);
        assert_eq!((from, to), (7 << 36, 8 << 36));
        assert_eq!(filter.may_contain(from), None);
        load_region(
            &mut filter,
            from,
            &[from, from + 70 * step + 3, to - 1, to, from - 1],
        );
        for hash in [from, from + 1, from + 70 * step, to - 1] {
            assert_eq!(filter.may_contain(hash), Some(true), "{hash}");
        }
        for hash in [from + step, from + 6 * step, from + 71 * step] {
            assert_eq!(filter.may_contain(hash), Some(false), "{hash}");
        }
        assert_eq!(
            (filter.may_contain(to), filter.may_contain(from - 1)),
            (None, None),
            "other regions are not loaded"
        );
        filter.add(from + step);
        filter.add(to);
        assert_eq!(
            (filter.may_contain(from + step), filter.may_contain(to)),
            (Some(true), None)
        );
    }

    #[test]
    fn load_all_loads_every_region() {
        let mut filter = IdFilter::default();
        let step = 1 << (HASH_BITS - BITS);
        let hashes = [0, 5 << 36, (1 << HASH_BITS) - 1];
        filter.load_all(hashes.into_iter());
        assert_eq!(hashes.map(|hash| filter.may_contain(hash)), [Some(true); 3]);
        assert_eq!(
            [step, 6 << 36, (1 << HASH_BITS) - 1 - step].map(|hash| filter.may_contain(hash)),
            [Some(false); 3]
        );
    }

    #[test]
    fn a_region_with_too_many_entries_may_contain_everything() {
        let mut filter = IdFilter::default();
        filter.load_region(0, |_| Ok::<_, ()>(None)).unwrap();
        assert_eq!(filter.may_contain(1 << 30), Some(true));
    }

    #[test]
    fn invalidate_unloads_each_region_once_per_pass() {
        let mut filter = IdFilter::default();
        let size = 1 << 36;
        let last = (1 << HASH_BITS) - size;
        for region in [0, size, 2 * size, last] {
            load_region(&mut filter, region, &[]);
        }
        filter.invalidate(1, size);
        assert!(
            [0, size]
                .map(|hash| filter.may_contain(hash))
                .iter()
                .all(Option::is_some)
        );
        filter.invalidate(size, 2 * size);
        assert_eq!(
            [0, size, 2 * size].map(|hash| filter.may_contain(hash)),
            [Some(false), None, Some(false)]
        );
        filter.invalidate(last - 5, 1 << HASH_BITS);
        assert_eq!(
            [0, last].map(|hash| filter.may_contain(hash)),
            [Some(false), None]
        );
    }
}
