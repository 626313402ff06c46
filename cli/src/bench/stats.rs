//! Counters, samples and percentiles of a measurement.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::BenchFailure;

/// Maximum number of distinct failure messages; the rest is counted as `others`.
const MAX_FAILURE_KINDS: usize = 8;

/// Progress of all workers.
pub(super) struct Progress {
    counting: AtomicBool,
    left: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
}

impl Progress {
    pub(super) fn new(count: u64) -> Self {
        let left = AtomicU64::new(count);
        Self {
            counting: AtomicBool::new(false),
            left,
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }
    }

    pub(super) fn count_from_now(&self) {
        self.counting.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_counting(&self) -> bool {
        self.counting.load(Ordering::Relaxed)
    }

    /// Reserves one of the remaining requests; always succeeds during the warm-up.
    pub(super) fn reserve(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        !self.is_counting()
            || self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_ok()
    }

    /// Records the result of a request.
    pub(super) fn record(&self, is_success: bool) {
        if self.is_counting() {
            if is_success { &self.done } else { &self.failed }.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A progress note.
    pub(super) fn line(&self, what: &str, taken: Duration, total: Duration) -> String {
        let done = self.done.load(Ordering::Relaxed);
        let failed = self.failed.load(Ordering::Relaxed);
        format!(
            "{what}: {done} done, {failed} failed, {}s of {}s",
            taken.as_secs(),
            total.as_secs()
        )
    }
}

/// Samples of one worker, or of all.
#[derive(Default)]
pub(super) struct Samples {
    /// Latencies, in microseconds.
    pub(super) latencies: Vec<u32>,
    /// Times to the first event, in microseconds.
    pub(super) first: Vec<u32>,
    pub(super) events: u64,
    pub(super) failed: u64,
    pub(super) faults: BTreeMap<String, u64>,
}

impl Samples {
    /// Counts a failure by its message.
    pub(super) fn add_failure(&mut self, failure: BenchFailure) {
        self.failed += 1;
        let message = match failure {
            BenchFailure::Unexpected(message) => message,
            BenchFailure::Refused(error) => format!("{:?}: {}", error.kind(), error.message()),
        };
        self.count_failure(message, 1);
    }

    fn count_failure(&mut self, message: String, times: u64) {
        let is_counted =
            self.faults.len() < MAX_FAILURE_KINDS || self.faults.contains_key(&message);
        let message = if is_counted {
            message
        } else {
            "others".to_owned()
        };
        *self.faults.entry(message).or_default() += times;
    }

    pub(super) fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.first.extend(other.first);
        self.events += other.events;
        self.failed += other.failed;
        for (message, times) in other.faults {
            self.count_failure(message, times);
        }
    }
}

pub(super) fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// Result of one scenario.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Measurement {
    pub(crate) done: usize,
    pub(crate) failed: u64,
    pub(crate) seconds: f64,
    pub(crate) per_second: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) latency_ms: Option<Percentiles>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) first_event_ms: Option<Percentiles>,
    pub(crate) events: u64,
    pub(crate) events_per_second: f64,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) faults: BTreeMap<String, u64>,
    pub(crate) generator: GeneratorLoad,
}

/// CPU use of the load generator.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GeneratorLoad {
    pub(crate) cpu_seconds: f64,
    pub(crate) cores: usize,
    /// Share of the CPU time of all cores.
    pub(crate) share: f64,
    /// Whether the generator, not the agent, limited the result.
    pub(crate) was_the_limit: bool,
}

/// CPU share from which the generator counts as the bottleneck.
const GENERATOR_LIMIT_SHARE: f64 = 0.8;

impl Measurement {
    pub(super) fn new(samples: Samples, taken: Duration, cpu: Duration) -> Self {
        let seconds = taken.as_secs_f64();
        let per_second = |count: f64| {
            if seconds > 0.0 {
                round(count / seconds)
            } else {
                0.0
            }
        };
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let share = if seconds > 0.0 {
            cpu.as_secs_f64() / seconds / cores as f64
        } else {
            0.0
        };
        Self {
            done: samples.latencies.len(),
            failed: samples.failed,
            seconds: round(seconds),
            per_second: per_second(samples.latencies.len() as f64),
            latency_ms: Percentiles::from_micros(samples.latencies),
            first_event_ms: Percentiles::from_micros(samples.first),
            events: samples.events,
            events_per_second: per_second(samples.events as f64),
            faults: samples.faults,
            generator: GeneratorLoad {
                cpu_seconds: round(cpu.as_secs_f64()),
                cores,
                share: round(share),
                was_the_limit: share >= GENERATOR_LIMIT_SHARE,
            },
        }
    }
}

/// Percentiles of a duration, in milliseconds.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Percentiles {
    pub(crate) p50: f64,
    pub(crate) p90: f64,
    pub(crate) p99: f64,
    pub(crate) p999: f64,
    pub(crate) max: f64,
}

impl Percentiles {
    fn from_micros(mut micros: Vec<u32>) -> Option<Self> {
        micros.sort_unstable();
        let max = *micros.last()?;
        // Nearest rank: the smallest sample that is not below this share of all.
        let at = |thousandth: usize| {
            let rank = (micros.len() * thousandth).div_ceil(1000);
            f64::from(micros[rank.saturating_sub(1)]) / 1000.0
        };
        let max = f64::from(max) / 1000.0;
        Some(Self {
            p50: at(500),
            p90: at(900),
            p99: at(990),
            p999: at(999),
            max,
        })
    }
}

fn round(number: f64) -> f64 {
    (number * 1000.0).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_use_the_nearest_rank() {
        let spread = Percentiles::from_micros((1..=1000).rev().map(|ms| ms * 1000).collect());
        let expected = Percentiles {
            p50: 500.0,
            p90: 900.0,
            p99: 990.0,
            p999: 999.0,
            max: 1000.0,
        };
        assert_eq!(spread, Some(expected));
        assert_eq!(
            Percentiles::from_micros(vec![7000]).map(|one| (one.p50, one.p999)),
            Some((7.0, 7.0))
        );
        assert_eq!(Percentiles::from_micros(Vec::new()), None);
    }

    #[test]
    fn the_number_of_failure_kinds_is_bounded() {
        let mut samples = Samples::default();
        for number in 0..100 {
            samples.add_failure(BenchFailure::Unexpected(format!("fault {number}")));
        }
        assert_eq!(samples.failed, 100);
        assert_eq!(samples.faults.len(), MAX_FAILURE_KINDS + 1);
        assert_eq!(samples.faults["others"], 100 - MAX_FAILURE_KINDS as u64);
    }

    #[test]
    fn a_busy_generator_is_reported_as_the_limit() {
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get) as u32;
        let second = Duration::from_secs(1);
        assert!(
            Measurement::new(Samples::default(), second, second * cores)
                .generator
                .was_the_limit
        );
        assert!(
            !Measurement::new(Samples::default(), second, second * cores / 2)
                .generator
                .was_the_limit
        );
    }
}
