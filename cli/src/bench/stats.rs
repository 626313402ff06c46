//! What is counted, and what comes of it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde::Serialize;

use super::BenchFailure;

/// So many kinds of faults are told apart; the rest are counted together.
const MAX_FAILURE_KINDS: usize = 8;

/// How far all workers together are.
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

    /// Takes one of those that are left; not while warming up, where nothing counts.
    pub(super) fn take(&self) -> bool {
        let less = |left: u64| left.checked_sub(1);
        !self.is_counting()
            || self
                .left
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
                .is_ok()
    }

    pub(super) fn record(&self, well: bool) {
        if self.is_counting() {
            if well { &self.done } else { &self.failed }.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn line(&self, what: &str, taken: Duration, of: Duration) -> String {
        let (done, failed) = (
            self.done.load(Ordering::Relaxed),
            self.failed.load(Ordering::Relaxed),
        );
        format!(
            "{what}: {done} done, {failed} failed, {}s of {}s",
            taken.as_secs(),
            of.as_secs()
        )
    }
}

/// What one worker has seen, or all together.
#[derive(Default)]
pub(super) struct Samples {
    /// In microseconds.
    pub(super) latencies: Vec<u32>,
    /// Until the first event, in microseconds.
    pub(super) first: Vec<u32>,
    pub(super) events: u64,
    pub(super) failed: u64,
    pub(super) faults: BTreeMap<String, u64>,
}

impl Samples {
    pub(super) fn add_failure(&mut self, fault: BenchFailure) {
        self.failed += 1;
        let words = match fault {
            BenchFailure::Unexpected(words) => words,
            BenchFailure::Refused(error) => format!("{:?}: {}", error.kind(), error.message()),
        };
        self.count_failure(words, 1);
    }

    fn count_failure(&mut self, words: String, times: u64) {
        let words = match self.faults.len() < MAX_FAILURE_KINDS || self.faults.contains_key(&words)
        {
            true => words,
            false => "others".to_owned(),
        };
        *self.faults.entry(words).or_default() += times;
    }

    pub(super) fn add(&mut self, other: Self) {
        self.latencies.extend(other.latencies);
        self.first.extend(other.first);
        self.events += other.events;
        self.failed += other.failed;
        for (words, times) in other.faults {
            self.count_failure(words, times);
        }
    }
}

pub(super) fn micros(time: Duration) -> u32 {
    u32::try_from(time.as_micros()).unwrap_or(u32::MAX)
}

/// What came of one scenario.
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

/// What measuring cost this side.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct GeneratorLoad {
    pub(crate) cpu_seconds: f64,
    pub(crate) cores: usize,
    /// Of all the time that the cores had.
    pub(crate) share: f64,
    /// The agent may be faster than what was measured.
    pub(crate) was_the_limit: bool,
}

/// Above this share of all cores, it is us who cannot go faster.
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

/// How a duration is spread, in milliseconds.
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
        // The smallest that so many of a thousand are not above.
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
    fn a_percentile_is_the_smallest_that_so_many_are_not_above() {
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
    fn faults_of_many_kinds_do_not_fill_memory() {
        let mut samples = Samples::default();
        for number in 0..100 {
            samples.add_failure(BenchFailure::Unexpected(format!("fault {number}")));
        }
        assert_eq!(samples.failed, 100);
        assert_eq!(samples.faults.len(), MAX_FAILURE_KINDS + 1);
        assert_eq!(samples.faults["others"], 100 - MAX_FAILURE_KINDS as u64);
    }

    #[test]
    fn what_busies_all_cores_was_the_limit() {
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
