//! Notifications between replicas over LISTEN and NOTIFY.
//!
//! NOTIFY runs in a statement of its own, never inside a commit: PostgreSQL holds one server-wide lock from before the commit of
//! a notifying transaction to its end.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::sleep;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::error::DatabaseError;
use super::session::{Connector, Purpose, Session};
use super::statement::Sql;
use crate::store::{Notification, Notifier, Result};

/// Statement that sends a payload to a channel.
const NOTIFY: Sql = Sql {
    name: std::borrow::Cow::Borrowed("notify"),
    text: std::borrow::Cow::Borrowed("SELECT pg_notify($1, $2)"),
};

/// Maximum length of a payload. PostgreSQL refuses 8,000 bytes.
const MAX_PAYLOAD: usize = 7_900;

/// Number of received messages that may wait. Further ones are lost, which the contract allows.
const MAX_WAITING: usize = 1_024;

/// Pauses between attempts to connect.
const MIN_PAUSE: Duration = Duration::from_millis(50);
const MAX_PAUSE: Duration = Duration::from_secs(2);

/// Notifier over LISTEN and NOTIFY on a connection of its own.
pub(super) struct ChannelNotifier {
    channel: String,
    session: watch::Receiver<Option<Arc<Session>>>,
    received: Mutex<mpsc::Receiver<Notification>>,
    /// Ends the task that listens.
    _listener: DropGuard,
}

impl ChannelNotifier {
    /// Starts to listen on the channel of the schema.
    pub(super) fn start(connector: &Arc<Connector>) -> Self {
        let channel = connector.options().schema.clone();
        let (sender, received) = mpsc::channel(MAX_WAITING);
        let (publish, session) = watch::channel(None);
        let cancel = CancellationToken::new();
        let listener = Listener {
            connector: Arc::clone(connector),
            channel: channel.clone(),
            received: sender,
            session: publish,
        };
        let cancelled = cancel.clone();
        connector.tracker().spawn(async move {
            cancelled.run_until_cancelled(listener.run()).await;
        });
        Self {
            channel,
            session,
            received: Mutex::new(received),
            _listener: cancel.drop_guard(),
        }
    }
}

#[async_trait]
impl Notifier for ChannelNotifier {
    fn max_bytes(&self) -> usize {
        MAX_PAYLOAD / 4 * 3
    }

    async fn publish(&self, message: &[u8]) -> Result<()> {
        let session = self.session.borrow().clone();
        let session = session.ok_or_else(|| DatabaseError::lost("the bus connection is down"))?;
        let payload = URL_SAFE_NO_PAD.encode(message);
        session.query(&NOTIFY, &[&self.channel, &payload]).await?;
        Ok(())
    }

    async fn receive(&self) -> Notification {
        match self.received.lock().await.recv().await {
            Some(notification) => notification,
            // The runtime stops.
            None => std::future::pending().await,
        }
    }
}

/// Task that listens and reconnects.
struct Listener {
    connector: Arc<Connector>,
    channel: String,
    received: mpsc::Sender<Notification>,
    session: watch::Sender<Option<Arc<Session>>>,
}

impl Listener {
    async fn run(self) {
        let mut pause = MIN_PAUSE;
        loop {
            if self.listen().await {
                pause = MIN_PAUSE;
            }
            self.session.send_replace(None);
            self.forward(Notification::Down).await;
            sleep(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
        }
    }

    /// Listens until the connection is lost. Returns whether it was established.
    async fn listen(&self) -> bool {
        let (sender, mut payloads) = mpsc::channel(MAX_WAITING);
        let session = match self.connector.connect(Purpose::Bus, Some(sender)).await {
            Ok(session) => session,
            Err(error) => {
                tracing::warn!(%error, "the bus cannot connect to the database");
                return false;
            }
        };
        if let Err(error) = session.batch(&format!("LISTEN \"{}\"", self.channel)).await {
            tracing::warn!(%error, "the bus cannot listen");
            return false;
        }
        let session = Arc::new(session);
        self.session.send_replace(Some(Arc::clone(&session)));
        self.forward(Notification::Gap).await;
        // Ends with the connection, which owns the sender.
        while let Some(payload) = payloads.recv().await {
            if let Ok(message) = URL_SAFE_NO_PAD.decode(payload) {
                self.forward(Notification::Message(message)).await;
            }
        }
        true
    }

    /// Waits while the receiver has no room. The driver of the connection then drops messages.
    async fn forward(&self, notification: Notification) {
        // Fails only if the notifier was dropped, which also cancels this task.
        let _ = self.received.send(notification).await;
    }
}
