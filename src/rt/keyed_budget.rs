//! Budget that several users share: bounded in total, and for each of them.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;

use super::lock;

/// Part of the total that the floors of all keys may take in addition to it, as a divisor. The number of keys is not
/// bounded.
const FLOORS_DIVISOR: usize = 4;

/// Limits of a [`KeyedBudget`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BudgetLimits {
    pub(crate) total: usize,
    /// Maximum for one key.
    pub(crate) per_key: usize,
    /// Amount that each key gets even if the total is exhausted. In sum they take at most a quarter of the total.
    pub(crate) floor: usize,
}

/// Limit that a reservation would exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExceededLimit {
    Total,
    Key,
}

/// Reserved amounts, in total and by key. Keys without a reservation take no memory.
#[derive(Debug)]
pub(crate) struct KeyedBudget<K>(Mutex<Reserved<K>>);

#[derive(Debug)]
struct Reserved<K> {
    total: usize,
    by_key: HashMap<K, usize>,
}

impl BudgetLimits {
    /// Returns the limit on the total for a key that would have reserved `of_key`.
    fn total_for(self, of_key: usize) -> usize {
        if of_key > self.floor {
            self.total
        } else {
            self.total.saturating_add(self.total / FLOORS_DIVISOR)
        }
    }
}

impl<K: Hash + Eq + Clone> Reserved<K> {
    fn add(&mut self, key: &K, amount: usize) {
        if amount == 0 {
            return;
        }
        self.total += amount;
        match self.by_key.get_mut(key) {
            Some(of_key) => *of_key += amount,
            None => drop(self.by_key.insert(key.clone(), amount)),
        }
    }
}

impl<K> Default for KeyedBudget<K> {
    fn default() -> Self {
        Self(Mutex::new(Reserved {
            total: 0,
            by_key: HashMap::new(),
        }))
    }
}

impl<K: Hash + Eq + Clone> KeyedBudget<K> {
    /// Reserves `amount` for a key.
    ///
    /// # Errors
    /// The limit that would be exceeded. Nothing is reserved then.
    pub(crate) fn reserve(
        &self,
        key: &K,
        amount: usize,
        limits: BudgetLimits,
    ) -> Result<(), ExceededLimit> {
        let mut reserved = lock(&self.0);
        let of_key = reserved.by_key.get(key).copied().unwrap_or_default();
        let wanted = of_key.saturating_add(amount);
        if wanted > limits.floor.max(limits.per_key) {
            return Err(ExceededLimit::Key);
        }
        if reserved.total.saturating_add(amount) > limits.total_for(wanted) {
            return Err(ExceededLimit::Total);
        }
        reserved.add(key, amount);
        Ok(())
    }

    /// Reserves `amount` for a key whatever the limits are.
    #[cfg(feature = "server")]
    pub(crate) fn force_reserve(&self, key: &K, amount: usize) {
        lock(&self.0).add(key, amount);
    }

    /// Releases `amount`, which was reserved for this key.
    pub(crate) fn release(&self, key: &K, amount: usize) {
        let mut reserved = lock(&self.0);
        reserved.total -= amount;
        if let Some(of_key) = reserved.by_key.get_mut(key) {
            *of_key -= amount;
            if *of_key == 0 {
                reserved.by_key.remove(key);
            }
        }
    }

    /// Returns the reserved amount in total.
    #[cfg(test)]
    pub(crate) fn total(&self) -> usize {
        lock(&self.0).total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn total_and_each_key_are_bounded() {
        let budget = KeyedBudget::default();
        let limits = BudgetLimits {
            total: 10,
            per_key: 6,
            floor: 0,
        };
        budget.reserve(&"ann", 6, limits).unwrap();
        assert_eq!(budget.reserve(&"ann", 1, limits), Err(ExceededLimit::Key));
        assert_eq!(budget.reserve(&"bob", 5, limits), Err(ExceededLimit::Total));
        budget.reserve(&"bob", 4, limits).unwrap();
        assert_eq!(
            budget.reserve(&"eve", usize::MAX, limits),
            Err(ExceededLimit::Key)
        );
        budget.release(&"ann", 2);
        budget.reserve(&"bob", 2, limits).unwrap();
        assert_eq!(budget.total(), 10);
        budget.release(&"ann", 4);
        budget.release(&"bob", 6);
        assert!(lock(&budget.0).by_key.is_empty());
    }

    #[test]
    fn each_key_gets_the_floor() {
        let budget = KeyedBudget::default();
        let limits = BudgetLimits {
            total: 12,
            per_key: 12,
            floor: 2,
        };
        budget.reserve(&"ann", 12, limits).unwrap();
        budget.reserve(&"bob", 1, limits).unwrap();
        assert_eq!(budget.reserve(&"bob", 2, limits), Err(ExceededLimit::Total));
        budget.reserve(&"bob", 1, limits).unwrap();
        assert_eq!(budget.total(), 14);
        budget.reserve(&"eve", 1, limits).unwrap();
        assert_eq!(
            budget.reserve(&"eve", 1, limits),
            Err(ExceededLimit::Total),
            "the floors take a quarter of the total"
        );
    }

    #[test]
    fn a_reservation_of_nothing_takes_no_memory() {
        let budget = KeyedBudget::default();
        let limits = BudgetLimits {
            total: 1,
            per_key: 1,
            floor: 0,
        };
        budget.reserve(&"ann", 0, limits).unwrap();
        assert!(lock(&budget.0).by_key.is_empty());
    }
}
