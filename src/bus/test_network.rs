//! Network of notifiers for tests, which loses, repeats and refuses messages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use tokio::sync::mpsc;

use crate::rt::lock;
use crate::store::{Error, Notification, Notifier, Result};

/// Number of messages that a notifier holds.
const CAPACITY: usize = 4096;

/// Network that connects the notifiers of all replicas.
#[derive(Default)]
pub(crate) struct TestNetwork {
    receivers: Mutex<Vec<mpsc::Sender<Notification>>>,
    /// All messages, also lost ones.
    sent: Mutex<Vec<Vec<u8>>>,
    loses: AtomicBool,
    repeats: AtomicBool,
}

/// Notifier of one replica.
pub(crate) struct TestNotifier {
    network: Arc<TestNetwork>,
    sender: mpsc::Sender<Notification>,
    receiver: tokio::sync::Mutex<mpsc::Receiver<Notification>>,
    max_bytes: usize,
    refuses: AtomicBool,
}

impl TestNetwork {
    /// Adds a notifier with this limit of a message.
    pub(crate) fn notifier(self: &Arc<Self>, max_bytes: usize) -> Arc<TestNotifier> {
        let (sender, receiver) = mpsc::channel(CAPACITY);
        lock(&self.receivers).push(sender.clone());
        Arc::new(TestNotifier {
            network: self.clone(),
            sender,
            receiver: tokio::sync::Mutex::new(receiver),
            max_bytes,
            refuses: AtomicBool::new(false),
        })
    }

    /// Loses all messages, or delivers them.
    pub(crate) fn lose(&self, loses: bool) {
        self.loses.store(loses, Ordering::Relaxed);
    }

    /// Delivers messages twice, or once.
    pub(crate) fn repeat(&self, repeats: bool) {
        self.repeats.store(repeats, Ordering::Relaxed);
    }

    /// Returns the messages that were sent since the last call.
    pub(crate) fn take_sent(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut lock(&self.sent))
    }

    fn deliver(&self, message: &[u8]) {
        let copies = 1 + usize::from(self.repeats.load(Ordering::Relaxed));
        for receiver in &*lock(&self.receivers) {
            for _ in 0..copies {
                // A full or closed receiver loses it.
                let _ = receiver.try_send(Notification::Message(message.to_vec()));
            }
        }
    }
}

impl TestNotifier {
    /// Refuses or accepts messages of this replica.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::Relaxed);
    }

    /// Delivers a notification to this replica alone.
    pub(crate) fn inject(&self, notification: Notification) {
        self.sender.try_send(notification).unwrap();
    }
}

#[async_trait]
impl Notifier for TestNotifier {
    fn max_bytes(&self) -> usize {
        self.max_bytes
    }

    async fn publish(&self, message: &[u8]) -> Result<()> {
        assert!(message.len() <= self.max_bytes);
        if self.refuses.load(Ordering::Relaxed) {
            return Err(Error::Failed("refused".into()));
        }
        lock(&self.network.sent).push(message.to_vec());
        if !self.network.loses.load(Ordering::Relaxed) {
            self.network.deliver(message);
        }
        Ok(())
    }

    async fn receive(&self) -> Notification {
        match self.receiver.lock().await.recv().await {
            Some(notification) => notification,
            None => std::future::pending().await,
        }
    }
}
