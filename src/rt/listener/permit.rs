//! Counts the connections of a listener.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use tokio_util::sync::CancellationToken;

use super::super::keyed_budget::{ExceededLimit, KeyedBudget};
use super::super::lock;
use super::limits::ConnectionLimits;
use super::reserve::{Reserve, ReserveTicket};
use crate::model::ClientAddress;
#[cfg(feature = "server")]
use crate::telemetry::metrics;

/// Connections of a listener: within its limits by address, and in its reserve.
#[derive(Debug)]
pub(super) struct ConnectionCounter {
    limits: ConnectionLimits,
    connections: KeyedBudget<Option<ClientAddress>>,
    reserve: Mutex<Reserve>,
}

/// Permit of one open connection; released on drop.
#[derive(Debug)]
pub struct ConnectionPermit {
    counter: Arc<ConnectionCounter>,
    address: Option<ClientAddress>,
    /// Boxed: connections in the reserve are few.
    excess: Option<Box<Excess>>,
}

/// Place of a connection in the reserve.
#[derive(Debug)]
struct Excess {
    #[cfg(feature = "server")]
    limit: ExceededLimit,
    ticket: ReserveTicket,
}

impl ConnectionCounter {
    pub(super) fn new(limits: ConnectionLimits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            connections: KeyedBudget::default(),
            reserve: Mutex::default(),
        })
    }

    pub(super) fn limits(&self) -> &ConnectionLimits {
        &self.limits
    }

    /// Counts a connection. `None`: the reserve has only protected connections.
    pub(super) fn admit(
        self: &Arc<Self>,
        address: Option<ClientAddress>,
        is_exempt: bool,
    ) -> Option<ConnectionPermit> {
        let limits = self.limits.budget(is_exempt);
        let excess = match self.connections.reserve(&address, 1, limits) {
            Ok(()) => None,
            Err(limit) => Some(Box::new(self.take_reserve(address, limit)?)),
        };
        Some(ConnectionPermit {
            counter: self.clone(),
            address,
            excess,
        })
    }

    fn take_reserve(&self, address: Option<ClientAddress>, limit: ExceededLimit) -> Option<Excess> {
        #[cfg(feature = "server")]
        metrics::record_limit_hit(setting(limit));
        let mut reserve = lock(&self.reserve);
        if reserve.takes_warning(Instant::now()) {
            tracing::warn!(
                limit = setting(limit),
                value = self.limit_value(limit),
                "too many connections; further ones are in the reserve"
            );
        }
        let ticket = reserve.take(address, self.limits.reserve)?;
        Some(Excess {
            #[cfg(feature = "server")]
            limit,
            ticket,
        })
    }

    fn limit_value(&self, limit: ExceededLimit) -> usize {
        match limit {
            ExceededLimit::Total => self.limits.total,
            ExceededLimit::Key => self.limits.max_per_address(),
        }
    }
}

/// Returns the name of a limit in the configuration.
fn setting(limit: ExceededLimit) -> &'static str {
    match limit {
        ExceededLimit::Total => "max_connections",
        ExceededLimit::Key => "max_connections_per_address",
    }
}

impl ConnectionPermit {
    /// Whether the connection exceeds the limits of its listener. It can be
    /// [evicted](Self::eviction) then.
    #[must_use]
    pub fn is_in_reserve(&self) -> bool {
        self.excess.is_some()
    }

    /// Returns the token that is cancelled if a newer connection takes the place of this one in the
    /// reserve. `None`: the connection is within the limits.
    #[must_use]
    pub fn eviction(&self) -> Option<CancellationToken> {
        let excess = self.excess.as_ref()?;
        Some(excess.ticket.eviction.clone())
    }

    /// Protects the connection from eviction, for example once its client is authenticated.
    pub fn protect(&self) {
        if let Some(excess) = &self.excess {
            lock(&self.counter.reserve).protect(excess.ticket.number);
        }
    }

    /// Returns the setting and the value of the limit that the connection exceeds.
    #[cfg(feature = "server")]
    pub(crate) fn exceeded_limit(&self) -> Option<(&'static str, usize)> {
        let limit = self.excess.as_ref()?.limit;
        Some((setting(limit), self.counter.limit_value(limit)))
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        match &self.excess {
            Some(excess) => lock(&self.counter.reserve).free(excess.ticket.number),
            None => self.counter.connections.release(&self.address, 1),
        }
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
    fn d05_one_address_has_half_of_the_connections() {
        let counter = ConnectionCounter::new(ConnectionLimits::new(4).reserve(1));
        let admit = |last| counter.admit(address(last), false).unwrap();
        let first = admit(1);
        let _second = admit(1);
        let third = admit(1);
        assert_eq!(
            third.exceeded_limit(),
            Some(("max_connections_per_address", 2))
        );
        drop(first);
        assert!(!admit(1).is_in_reserve());
        let proxy = counter.admit(address(2), true).unwrap();
        let _others = [(); 2].map(|()| counter.admit(address(2), true).unwrap());
        assert!(!proxy.is_in_reserve());
        assert_eq!(admit(3).exceeded_limit(), Some(("max_connections", 4)));
        assert!(third.eviction().unwrap().is_cancelled());
        drop(proxy);
        assert!(!admit(3).is_in_reserve());
    }
}
