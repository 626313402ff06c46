//! Authentication of MCP clients, and the connections of each key.

use std::net::IpAddr;
use std::sync::Mutex;

use ::http::HeaderMap;
use ::http::header::AUTHORIZATION;
use attache::model::{Caller, CallerKey, ClientAddress, Secret};
use attache::{FairPermit, FairSemaphore};
use subtle::ConstantTimeEq;

use crate::lock::lock;

/// Keys of clients.
pub(super) struct ClientKeys {
    keys: Vec<(CallerKey, Secret)>,
    /// Connections by key.
    connections: FairSemaphore<CallerKey>,
}

/// Place of a connection among those of its key. Dropping it releases the place.
#[derive(Default)]
pub(super) struct KeyConnection(Mutex<Option<(CallerKey, FairPermit<CallerKey>)>>);

/// The key has the maximum number of connections.
pub(super) struct TooManyConnections;

impl ClientKeys {
    /// Creates the keys. Each has at most `max_connections`.
    pub(super) fn new(keys: Vec<Secret>, max_connections: usize) -> Self {
        let total = max_connections.saturating_mul(keys.len());
        let number = |(index, key)| {
            let caller = Caller::new(&format!("key {}", index + 1));
            (CallerKey::Caller(caller), key)
        };
        Self {
            keys: keys.into_iter().enumerate().map(number).collect(),
            connections: FairSemaphore::new(total, Some(max_connections)),
        }
    }

    /// Returns the caller of a request: its key, or its address if clients need no key. `None`: the key is missing or
    /// wrong. All keys are compared, each in constant time.
    pub(super) fn authenticate(&self, headers: &HeaderMap, peer: IpAddr) -> Option<CallerKey> {
        if self.keys.is_empty() {
            return Some(CallerKey::Address(client_address(peer)));
        }
        let token = headers.get(AUTHORIZATION)?;
        let token = token.as_bytes().strip_prefix(b"Bearer ")?;
        let mut found = None;
        for (caller, key) in &self.keys {
            if token.ct_eq(key.expose().as_bytes()).into() {
                found = Some(caller.clone());
            }
        }
        found
    }

    /// Counts a connection as one of an authenticated caller: that of its last request. Clients without keys are
    /// counted by address, by the listener.
    pub(super) fn count_connection(
        &self,
        connection: &KeyConnection,
        caller: &CallerKey,
    ) -> Result<(), TooManyConnections> {
        if matches!(caller, CallerKey::Address(_)) {
            return Ok(());
        }
        let mut current = lock(&connection.0);
        if current.as_ref().is_some_and(|(held, _)| held == caller) {
            return Ok(());
        }
        let permit = self.connections.try_acquire(caller.clone());
        let permit = permit.ok_or(TooManyConnections)?;
        *current = Some((caller.clone(), permit));
        Ok(())
    }
}

/// Returns the address as limits count it.
fn client_address(peer: IpAddr) -> ClientAddress {
    ClientAddress::from_ipv6(match peer {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    })
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const PEER: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn authenticate(keys: &ClientKeys, token: &str) -> Option<CallerKey> {
        let mut headers = HeaderMap::new();
        headers.insert(AUTHORIZATION, token.parse().unwrap());
        keys.authenticate(&headers, PEER)
    }

    #[test]
    fn d15_connections_are_counted_per_key() {
        let keys = ClientKeys::new(vec![Secret::from("one"), Secret::from("two")], 2);
        let one = authenticate(&keys, "Bearer one").unwrap();
        let two = authenticate(&keys, "Bearer two").unwrap();
        assert!(one != two && authenticate(&keys, "Bearer three").is_none());
        assert!(keys.authenticate(&HeaderMap::new(), PEER).is_none());
        let connections: [KeyConnection; 3] = Default::default();
        let count = |at: usize, caller| keys.count_connection(&connections[at], caller).is_ok();
        assert!(count(0, &one) && count(1, &one) && count(0, &one) && !count(2, &one));
        // A proxy uses a connection for another key.
        assert!(count(0, &two) && count(2, &one));
    }

    #[test]
    fn clients_without_keys_are_callers_by_address() {
        let keys = ClientKeys::new(Vec::new(), 1);
        let caller = keys.authenticate(&HeaderMap::new(), PEER);
        assert!(matches!(caller, Some(CallerKey::Address(_))));
    }
}
