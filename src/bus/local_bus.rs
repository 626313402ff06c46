//! Bus within one process: a `watch` channel per watched task.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use tokio::sync::watch;

use super::Bus;
use crate::model::{Seq, TaskId};
use crate::rt::lock;

/// One channel per task that has subscribers.
#[derive(Default)]
pub(crate) struct LocalBus {
    channels: Mutex<Channels>,
}

#[derive(Default)]
struct Channels {
    by_task: HashMap<TaskId, watch::Sender<Seq>>,
    /// Number of channels at which those without a receiver are removed. Grows with the map, so that a subscription
    /// costs amortized constant time.
    sweep_threshold: usize,
}

const MIN_SWEEP_THRESHOLD: usize = 64;

impl LocalBus {
    fn channels(&self) -> MutexGuard<'_, Channels> {
        lock(&self.channels)
    }
}

impl Channels {
    /// Removes channels without a receiver, once the map has reached its threshold.
    fn sweep(&mut self) {
        if self.by_task.len() >= self.sweep_threshold {
            self.by_task
                .retain(|_, channel| channel.receiver_count() > 0);
            self.sweep_threshold = MIN_SWEEP_THRESHOLD.max(self.by_task.len() * 2);
        }
    }
}

impl Bus for LocalBus {
    fn announce(&self, task: &TaskId, at: Seq) {
        let mut channels = self.channels();
        let Some(channel) = channels.by_task.get(task) else {
            return;
        };
        if channel.receiver_count() == 0 {
            channels.by_task.remove(task);
        } else {
            channel.send_modify(|position| *position = at.max(*position));
        }
    }

    fn is_watched(&self, task: &TaskId) -> bool {
        self.channels()
            .by_task
            .get(task)
            .is_some_and(|channel| channel.receiver_count() > 0)
    }

    fn watch(&self, task: &TaskId) -> watch::Receiver<Seq> {
        let mut channels = self.channels();
        channels.sweep();
        let channel = channels
            .by_task
            .entry(task.clone())
            .or_insert_with(|| watch::Sender::new(Seq(0)));
        channel.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watchers_are_woken_and_positions_never_go_back() {
        let bus = LocalBus::default();
        let task = TaskId::from("t");
        bus.announce(&task, Seq(1));
        let mut watch = bus.watch(&task);
        assert!(!watch.has_changed().unwrap());
        bus.announce(&task, Seq(3));
        bus.announce(&task, Seq(2));
        assert!(watch.has_changed().unwrap());
        assert_eq!(*watch.borrow_and_update(), Seq(3));
        assert!(bus.is_watched(&task));
        drop(watch);
        assert!(!bus.is_watched(&task));
    }

    #[test]
    fn unwatched_tasks_have_no_channel() {
        let bus = LocalBus::default();
        drop(bus.watch(&"a".into()));
        bus.announce(&"a".into(), Seq(1));
        assert_eq!(bus.channels().by_task.len(), 0);
        for number in 0..10 * MIN_SWEEP_THRESHOLD {
            drop(bus.watch(&number.to_string().into()));
        }
        assert!(bus.channels().by_task.len() <= MIN_SWEEP_THRESHOLD);
    }
}
