//! Time, CPU time and memory of this process, from the kernel.

use std::time::{Duration, Instant};

/// Elapsed time, and CPU time of all threads of this process.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) time: Duration,
    pub(crate) cpu: Duration,
}

/// Runs a function and returns its cost and its result.
pub(crate) fn cost<T>(run: impl FnOnce() -> T) -> (Cost, T) {
    let start = Instant::now();
    let worked = cpu();
    let result = run();
    (
        Cost {
            time: start.elapsed(),
            cpu: cpu() - worked,
        },
        result,
    )
}

impl Cost {
    pub(crate) fn add(&mut self, other: Self) {
        self.time += other.time;
        self.cpu += other.cpu;
    }

    /// Returns elapsed and CPU microseconds per item.
    pub(crate) fn per(self, count: usize) -> (f64, f64) {
        let per = |time: Duration| time.as_secs_f64() * 1e6 / count as f64;
        (per(self.time), per(self.cpu))
    }
}

/// User and system time, at a resolution of 10 ms. Measurements must be much longer.
fn cpu() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").expect("Linux");
    let fields = stat
        .rsplit_once(')')
        .expect("a name in brackets")
        .1
        .split_whitespace();
    let ticks: u64 = fields
        .skip(11)
        .take(2)
        .map(|ticks| ticks.parse::<u64>().expect("ticks"))
        .sum();
    Duration::from_millis(10 * ticks)
}

/// Anonymous memory in bytes, without file pages.
pub(crate) fn memory() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("RssAnon:"))
        .expect("a line about memory");
    1024 * line
        .trim()
        .trim_end_matches(" kB")
        .parse::<i64>()
        .expect("kilobytes")
}

pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
