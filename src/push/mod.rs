//! Webhook delivery: a reader of the event log that posts push notifications, with retry and dead letters.
//!
//! Each webhook of a task has a worker that is independent of the task's runner. The worker follows the log from the position
//! stored for the webhook and stores the new position after each delivered notification. This gives at-least-once delivery in
//! order: after a restart, or a lost response, a notification is sent again with the same event id. A webhook that is down
//! delays only itself.
//!
//! Failed attempts are retried with backoff ([`PushSettings`]). A webhook that does not recover, or that responds with a
//! permanent error, becomes a dead letter ([`DeadLetters`]); an operator can retry it.

mod active_workers;
mod attempt_result;
mod bodies;
mod dead_letters;
mod dispatcher;
mod notification;
mod settings;
#[cfg(feature = "jws")]
mod signature;
#[cfg(not(feature = "jws"))]
#[path = "signature_disabled.rs"]
mod signature;
#[cfg(test)]
mod tests;
mod worker;

pub use dead_letters::{DeadLetters, FailedWebhook, UndeliveredNotification};
pub(crate) use dispatcher::PushDispatcher;
pub use settings::PushSettings;
pub(crate) use signature::NotificationSigner;
