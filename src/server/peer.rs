//! Remote end of a connection: its address, its caller, and the limits that count it.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::Notify;

use super::transport::Certificate;
use crate::model::{Caller, Error, ErrorKind, Result};
use crate::rt::{BudgetLimits, ConnectionPermit, KeyedBudget, lock};
use crate::telemetry::metrics;

/// `Retry-After` of a connection that exceeds a limit.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Remote end of a connection.
pub(super) struct ConnectionPeer {
    pub(super) address: SocketAddr,
    pub(super) certificate: Option<Certificate>,
    /// Counts the connection against the limits of the listener. `None`: not limited.
    pub(super) permit: Option<ConnectionPermit>,
    /// Counts the connection against the limit of its caller. `None`: not limited.
    pub(super) caller: Option<CallerSlot>,
    pub(super) closing: CloseRequest,
}

impl ConnectionPeer {
    /// Whether the connection exceeds a limit. Only health probes are answered then.
    pub(super) fn is_in_reserve(&self) -> bool {
        let permit = self.permit.as_ref();
        permit.is_some_and(ConnectionPermit::is_in_reserve)
    }

    /// Counts the connection as one of an authenticated caller: that of its last request.
    ///
    /// # Errors
    /// Unavailable: the caller has too many connections. The connection closes after the reply.
    pub(super) fn count_caller(&self, caller: &Caller) -> Result<()> {
        let Some(slot) = &self.caller else {
            return Ok(());
        };
        slot.assign(caller).inspect_err(|_| self.closing.request())
    }
}

/// Connections by authenticated caller.
#[derive(Debug)]
pub(super) struct CallerConnections {
    max_per_caller: usize,
    connections: KeyedBudget<Caller>,
}

/// Place of a connection in [`CallerConnections`], released on drop.
#[derive(Debug)]
pub(super) struct CallerSlot {
    counter: Arc<CallerConnections>,
    current: Mutex<Option<Caller>>,
}

impl CallerConnections {
    pub(super) fn new(max_per_caller: usize) -> Arc<Self> {
        Arc::new(Self {
            max_per_caller,
            connections: KeyedBudget::default(),
        })
    }

    /// Creates the slot of a connection without a caller.
    pub(super) fn slot(self: &Arc<Self>) -> CallerSlot {
        CallerSlot {
            counter: self.clone(),
            current: Mutex::default(),
        }
    }
}

impl CallerSlot {
    fn assign(&self, caller: &Caller) -> Result<()> {
        let mut current = lock(&self.current);
        if current.as_ref() == Some(caller) {
            return Ok(());
        }
        let connections = &self.counter.connections;
        let limits = BudgetLimits {
            total: usize::MAX,
            per_key: self.counter.max_per_caller,
            floor: 0,
        };
        connections
            .reserve(caller, 1, limits)
            .map_err(|_| self.limit_reached())?;
        if let Some(previous) = current.replace(caller.clone()) {
            connections.release(&previous, 1);
        }
        Ok(())
    }

    fn limit_reached(&self) -> Error {
        let setting = "max_connections_per_caller";
        metrics::record_limit_hit(setting);
        let max = self.counter.max_per_caller;
        Error::new(ErrorKind::Unavailable)
            .with_message(format!(
                "too many connections of this caller (limit: {setting} = {max})"
            ))
            .with_retry_after(RETRY_AFTER)
    }
}

impl Drop for CallerSlot {
    fn drop(&mut self) {
        if let Some(caller) = lock(&self.current).take() {
            self.counter.connections.release(&caller, 1);
        }
    }
}

/// Request to close a connection after the current replies.
#[derive(Debug, Default)]
pub(super) struct CloseRequest {
    is_requested: AtomicBool,
    changed: Notify,
}

impl CloseRequest {
    pub(super) fn request(&self) {
        self.is_requested.store(true, Ordering::Release);
        self.changed.notify_one();
    }

    pub(super) fn is_requested(&self) -> bool {
        self.is_requested.load(Ordering::Acquire)
    }

    /// Waits for the request. Only one task may wait.
    pub(super) async fn requested(&self) {
        while !self.is_requested() {
            self.changed.notified().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d05_connections_of_one_caller_are_limited_and_released() {
        let counter = CallerConnections::new(2);
        let ann = Caller::new("ann");
        let bob = Caller::new("bob");
        let slots = [(); 3].map(|()| counter.slot());
        for slot in &slots[..2] {
            slot.assign(&ann).unwrap();
            slot.assign(&ann).unwrap();
        }
        let refused = slots[2].assign(&ann).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Unavailable);
        assert!(
            refused.message().contains("max_connections_per_caller = 2"),
            "{refused}"
        );
        slots[2].assign(&bob).unwrap();
        // A proxy reuses a connection for another caller.
        slots[0].assign(&bob).unwrap();
        slots[2].assign(&ann).unwrap();
        drop(slots);
        assert_eq!(counter.connections.total(), 0);
    }
}
