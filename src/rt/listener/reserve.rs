//! Reserve of a listener: connections beyond its limits, of which new ones replace old ones.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::model::ClientAddress;

/// Minimum time between two warnings about connections beyond the limits.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Connections in the reserve, oldest first.
#[derive(Debug, Default)]
pub(super) struct Reserve {
    slots: Vec<ReserveSlot>,
    last_number: u64,
    last_warning: Option<Instant>,
}

#[derive(Debug)]
struct ReserveSlot {
    number: u64,
    address: Option<ClientAddress>,
    eviction: CancellationToken,
    is_protected: bool,
}

/// Slot that a connection has taken.
#[derive(Debug)]
pub(super) struct ReserveTicket {
    pub(super) number: u64,
    /// Cancelled when a newer connection takes the slot.
    pub(super) eviction: CancellationToken,
}

impl Reserve {
    /// Takes a slot. If there is none, evicts the oldest connection of the address that has most
    /// unprotected ones. `None`: all connections are protected.
    pub(super) fn take(
        &mut self,
        address: Option<ClientAddress>,
        size: usize,
    ) -> Option<ReserveTicket> {
        if self.slots.len() >= size {
            let evicted = self.slots.remove(self.evictable()?);
            evicted.eviction.cancel();
        }
        self.last_number += 1;
        let eviction = CancellationToken::new();
        self.slots.push(ReserveSlot {
            number: self.last_number,
            address,
            eviction: eviction.clone(),
            is_protected: false,
        });
        Some(ReserveTicket {
            number: self.last_number,
            eviction,
        })
    }

    /// Returns the position of the connection to evict.
    fn evictable(&self) -> Option<usize> {
        let mut counts: HashMap<Option<ClientAddress>, usize> = HashMap::new();
        // Protected connections count for nothing: an operator's must not single out the operator's next one.
        for slot in self.slots.iter().filter(|slot| !slot.is_protected) {
            *counts.entry(slot.address).or_default() += 1;
        }
        let evictable = self.slots.iter().enumerate();
        let evictable = evictable.filter(|(_, slot)| !slot.is_protected);
        // `max_by_key` returns the last maximum, so reversed: the oldest.
        let chosen = evictable
            .rev()
            .max_by_key(|(_, slot)| counts.get(&slot.address).copied());
        chosen.map(|(position, _)| position)
    }

    /// Protects a connection from eviction.
    pub(super) fn protect(&mut self, number: u64) {
        if let Some(slot) = self.slots.iter_mut().find(|slot| slot.number == number) {
            slot.is_protected = true;
        }
    }

    /// Frees the slot of a connection that has ended, unless another has taken it.
    pub(super) fn free(&mut self, number: u64) {
        self.slots.retain(|slot| slot.number != number);
    }

    /// Returns whether to log a warning now, at most once per [`WARNING_INTERVAL`].
    pub(super) fn takes_warning(&mut self, now: Instant) -> bool {
        let is_recent = |last: Instant| now.saturating_duration_since(last) < WARNING_INTERVAL;
        if self.last_warning.is_some_and(is_recent) {
            return false;
        }
        self.last_warning = Some(now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(last: u8) -> Option<ClientAddress> {
        let octets = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last];
        Some(ClientAddress::from_ipv6(octets))
    }

    #[test]
    fn d05_the_oldest_connection_of_the_greediest_address_is_evicted() {
        let mut reserve = Reserve::default();
        let probe = reserve.take(address(1), 4).unwrap();
        let greedy: Vec<_> = (0..3)
            .map(|_| reserve.take(address(2), 4).unwrap())
            .collect();
        let _other = reserve.take(address(3), 4).unwrap();
        let _more = reserve.take(address(2), 4).unwrap();
        let is_evicted = |ticket: &ReserveTicket| ticket.eviction.is_cancelled();
        assert!(!is_evicted(&probe));
        assert_eq!(
            greedy.iter().map(is_evicted).collect::<Vec<_>>(),
            [true, true, false]
        );
    }

    #[test]
    fn d20_protected_connections_do_not_single_out_their_address() {
        let mut reserve = Reserve::default();
        for _ in 0..3 {
            let operator = reserve.take(address(1), 6).unwrap();
            reserve.protect(operator.number);
        }
        let silent = [(); 2].map(|()| reserve.take(address(2), 6).unwrap());
        let operator = reserve.take(address(1), 6).unwrap();
        let _more = reserve.take(address(2), 6).unwrap();
        assert!(silent[0].eviction.is_cancelled());
        assert!(!operator.eviction.is_cancelled());
    }

    #[test]
    fn d05_warnings_are_rare() {
        let mut reserve = Reserve::default();
        let start = Instant::now();
        assert!(reserve.takes_warning(start));
        assert!(!reserve.takes_warning(start + WARNING_INTERVAL / 2));
        assert!(reserve.takes_warning(start + WARNING_INTERVAL));
    }

    #[test]
    fn d20_protected_connections_stay() {
        let mut reserve = Reserve::default();
        let first = reserve.take(None, 2).unwrap();
        let second = reserve.take(None, 2).unwrap();
        reserve.protect(first.number);
        let third = reserve.take(None, 2).unwrap();
        assert!(!first.eviction.is_cancelled());
        assert!(second.eviction.is_cancelled());
        reserve.protect(third.number);
        assert!(reserve.take(None, 2).is_none());
        // The evicted connection ends later; its slot has a new owner.
        reserve.free(second.number);
        assert!(reserve.take(None, 2).is_none());
        reserve.free(first.number);
        assert!(reserve.take(None, 2).is_some());
    }
}
