//! Watch channels by the hash of the task id, for announcements that name only the hash.

use std::collections::HashMap;

use tokio::sync::watch;

use super::message::TaskHash;
use crate::model::{Seq, TaskId};

/// Number of hashes at which those without a receiver are removed first.
const MIN_SWEEP_THRESHOLD: usize = 64;

/// One channel per watched task.
#[derive(Debug, Default)]
pub(super) struct Channels {
    /// Tasks with equal hashes share a list.
    by_hash: HashMap<TaskHash, Vec<Channel>>,
    /// Number of hashes at which those without a receiver are removed. Grows with the map, so that a subscription costs
    /// amortized constant time.
    sweep_threshold: usize,
}

#[derive(Debug)]
struct Channel {
    task: TaskId,
    sender: watch::Sender<Seq>,
}

impl Channel {
    fn is_watched(&self) -> bool {
        self.sender.receiver_count() > 0
    }
}

impl Channels {
    /// Wakes the receivers of a task whose log reaches to `at`.
    pub(super) fn announce(&mut self, task: &TaskId, at: Seq) {
        let hash = TaskHash::from(task);
        let Some(channels) = self.by_hash.get_mut(&hash) else {
            return;
        };
        channels.retain(Channel::is_watched);
        for channel in channels.iter().filter(|channel| channel.task == *task) {
            let sender = &channel.sender;
            sender.send_modify(|position| *position = at.max(*position));
        }
        if channels.is_empty() {
            self.by_hash.remove(&hash);
        }
    }

    /// Wakes the receivers of all tasks with this hash. The position may belong to another task with the same hash.
    ///
    /// A runner waits for a position beyond the last one that it has seen. So a lower position also advances the channel: the
    /// last one may have belonged to another task.
    pub(super) fn announce_hash(&mut self, hash: TaskHash, at: Seq) {
        for channel in self.by_hash.get(&hash).into_iter().flatten() {
            channel.sender.send_modify(|position| {
                if at < *position {
                    position.0 = position.0.saturating_add(1);
                } else {
                    *position = at;
                }
            });
        }
    }

    pub(super) fn is_watched(&self, task: &TaskId) -> bool {
        let channels = self.by_hash.get(&TaskHash::from(task));
        let mut channels = channels.into_iter().flatten();
        channels.any(|channel| channel.task == *task && channel.is_watched())
    }

    pub(super) fn is_hash_watched(&self, hash: TaskHash) -> bool {
        let channels = self.by_hash.get(&hash);
        channels.is_some_and(|channels| channels.iter().any(Channel::is_watched))
    }

    pub(super) fn watch(&mut self, task: &TaskId) -> watch::Receiver<Seq> {
        self.sweep();
        let channels = self.by_hash.entry(TaskHash::from(task)).or_default();
        if let Some(channel) = channels.iter().find(|channel| channel.task == *task) {
            return channel.sender.subscribe();
        }
        let (sender, receiver) = watch::channel(Seq(0));
        let task = task.clone();
        channels.push(Channel { task, sender });
        receiver
    }

    /// Removes channels without a receiver, once the map has reached its threshold.
    fn sweep(&mut self) {
        if self.by_hash.len() >= self.sweep_threshold {
            self.by_hash.retain(|_, channels| {
                channels.retain(Channel::is_watched);
                !channels.is_empty()
            });
            self.sweep_threshold = MIN_SWEEP_THRESHOLD.max(self.by_hash.len() * 2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unwatched_tasks_have_no_channel() {
        let mut channels = Channels::default();
        drop(channels.watch(&"a".into()));
        channels.announce(&"a".into(), Seq(1));
        assert_eq!(channels.by_hash.len(), 0);
        for number in 0..10 * MIN_SWEEP_THRESHOLD {
            drop(channels.watch(&number.to_string().into()));
        }
        assert!(channels.by_hash.len() <= MIN_SWEEP_THRESHOLD);
    }

    #[test]
    fn a_task_with_an_equal_hash_is_woken_and_misses_nothing() {
        let mut channels = Channels::default();
        let task = TaskId::from("t");
        let hash = TaskHash::from(&task);
        let mut watch = channels.watch(&task);
        // The position of the other task is higher.
        channels.announce_hash(hash, Seq(100));
        let seen = *watch.borrow_and_update();
        channels.announce(&task, Seq(4));
        channels.announce_hash(hash, Seq(5));
        assert!(watch.has_changed().unwrap());
        assert!(*watch.borrow() > seen, "a runner looks at the log again");
        // Both tasks have a channel of their own.
        let other = TaskId::from("other");
        let receiver = channels.watch(&other);
        let channel = channels.by_hash.remove(&TaskHash::from(&other)).unwrap();
        channels.by_hash.get_mut(&hash).unwrap().extend(channel);
        channels.announce(&task, Seq(300));
        assert!(!receiver.has_changed().unwrap());
        channels.announce_hash(hash, Seq(1));
        assert!(receiver.has_changed().unwrap());
        drop(watch);
        channels.announce(&task, Seq(301));
        assert_eq!(channels.by_hash[&hash].len(), 1);
    }
}
