//! Settings of webhook delivery and the retry schedule.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::egress::EgressPolicy;
use crate::model::units::{HumanDuration, HumanDurations};

/// Settings of webhook delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[non_exhaustive]
pub struct PushSettings {
    /// Egress policy: targets that callers may register.
    #[serde(skip)]
    pub egress: EgressPolicy,
    /// Timeout of one delivery attempt.
    #[serde(with = "HumanDuration")]
    pub timeout: Duration,
    /// Backoff before each of the first retries. Up to 25 % jitter is added, so that webhooks that fail together are not
    /// retried together.
    #[serde(with = "HumanDurations")]
    pub first_retries: Vec<Duration>,
    /// Interval of all later retries, plus up to 10 % jitter.
    #[serde(with = "HumanDuration")]
    pub retry_every: Duration,
    /// How long later retries continue. After that the webhook has failed and becomes a dead letter.
    #[serde(with = "HumanDuration")]
    pub retry_for: Duration,
    /// Maximum number of concurrent first attempts; the same number again for retries.
    pub max_deliveries: usize,
    /// Maximum number of concurrent deliveries to one host.
    pub max_deliveries_per_host: usize,
    /// Maximum number of webhooks with a delivery worker; others wait until one is idle.
    pub max_webhooks: usize,
    /// Maximum number of webhooks of one authenticated caller, over all tasks that have not ended.
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
    /// Returns the backoff after this number of failed attempts; `None` after the last one. `jitter` is in `0.0..1.0`.
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

    /// Longest delay between two attempts.
    pub(super) fn max_delay(&self) -> Duration {
        self.retry_every.max(MAX_RETRY_AFTER).mul_f64(1.25)
    }
}

/// Longest `Retry-After` that is honoured.
pub(super) const MAX_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r28_five_quick_retries_then_every_five_minutes_for_a_day() {
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
