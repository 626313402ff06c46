//! How webhooks are called. Every bound has a default.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::egress::EgressPolicy;
use crate::model::units::{HumanDuration, HumanDurations};

/// How webhooks are called.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PushSettings {
    /// Where callers may have us post.
    #[serde(skip)]
    pub egress: EgressPolicy,
    /// How long a webhook may take to answer.
    #[serde(with = "HumanDuration")]
    pub timeout: Duration,
    /// How long to wait before each of the first attempts to deliver again; a little is added, so that webhooks which
    /// fail together are not called together.
    #[serde(with = "HumanDurations")]
    pub first_retries: Vec<Duration>,
    /// How long to wait between all later attempts.
    #[serde(with = "HumanDuration")]
    pub retry_every: Duration,
    /// For how long there are later attempts; then the webhook is given up.
    #[serde(with = "HumanDuration")]
    pub retry_for: Duration,
    /// Deliveries at the same time to webhooks that answer, and as many again to those that did not.
    pub max_deliveries: usize,
    /// Deliveries at the same time to one host.
    pub max_deliveries_per_host: usize,
    /// Webhooks that are followed at the same time; more wait until one has nothing to deliver.
    pub max_webhooks: usize,
    /// Webhooks of one caller whom we know, of tasks that have not ended: more are refused.
    pub max_webhooks_per_caller: usize,
}

impl Default for PushSettings {
    fn default() -> Self {
        Self {
            egress: EgressPolicy::default(),
            timeout: Duration::from_secs(15),
            first_retries: [1, 2, 4, 8, 16].map(Duration::from_secs).to_vec(),
            retry_every: Duration::from_secs(5 * 60),
            retry_for: Duration::from_secs(24 * 60 * 60),
            max_deliveries: 128,
            max_deliveries_per_host: 8,
            max_webhooks: 20_000,
            max_webhooks_per_caller: 1_000,
        }
    }
}

impl PushSettings {
    /// How long to wait after so many attempts in vain; `None` when that were enough. `jitter` is below one.
    pub(super) fn backoff(&self, attempts: u32, jitter: f64) -> Option<Duration> {
        let attempts = attempts.max(1) as usize;
        let later = attempts.saturating_sub(self.first_retries.len());
        let most = self.retry_for.as_nanos() / self.retry_every.as_nanos().max(1);
        match self.first_retries.get(attempts - 1) {
            Some(pause) => Some(pause.mul_f64(1.0 + jitter / 4.0)),
            None if later as u128 <= most => Some(self.retry_every.mul_f64(1.0 + jitter / 10.0)),
            None => None,
        }
    }

    /// The longest that anybody is waited for.
    pub(super) fn max_delay(&self) -> Duration {
        self.retry_every.max(MAX_RETRY_AFTER).mul_f64(1.25)
    }
}

/// The longest `Retry-After` that is heeded.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r28_five_quick_attempts_then_every_five_minutes_for_a_day() {
        let settings = PushSettings::default();
        let pauses: Vec<_> = (1..)
            .map_while(|attempts| settings.backoff(attempts, 0.0))
            .collect();
        let seconds: Vec<_> = pauses.iter().take(7).map(Duration::as_secs).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 300, 300]);
        assert_eq!(pauses.len(), 5 + 24 * 12);
        assert_eq!(settings.backoff(1, 0.5), Some(Duration::from_millis(1125)));
    }
}
