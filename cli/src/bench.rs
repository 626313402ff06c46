//! Load generator: runs one scenario for a time, and measures throughput and latency.

mod closed_loop;
mod held_streams;
mod stats;

use std::sync::Arc;
use std::time::{Duration, Instant};

use attache::model::{Message, SendMessageRequest, SendMessageResponse, TaskState};
use attache::{Client, Error};
use tokio_util::sync::CancellationToken;

use crate::args::Scenario;
pub(crate) use stats::{Measurement, Percentiles};
use stats::{Progress, Samples};

/// Time between progress notes.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Parameters of a measurement.
#[derive(Debug, Clone)]
pub(crate) struct BenchPlan {
    pub(crate) scenario: Scenario,
    pub(crate) connections: usize,
    pub(crate) time: Duration,
    pub(crate) warm_up: Duration,
    pub(crate) count: u64,
    pub(crate) message: Option<String>,
}

impl BenchPlan {
    fn request(&self) -> SendMessageRequest {
        let text = self.message.as_deref().unwrap_or(match self.scenario {
            Scenario::Send | Scenario::Get => "hello",
            Scenario::Stream => "stream 100",
            Scenario::FanOut | Scenario::Idle => "slow",
        });
        Message::user(text).into()
    }
}

/// Failure of one request.
enum BenchFailure {
    /// The call failed.
    Refused(Error),
    /// The task did not complete, or the stream ended early.
    Unexpected(String),
}

impl From<Error> for BenchFailure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Measures one scenario until its time is over or `stop` is cancelled. Each client has its own connection. `report`
/// receives progress notes.
pub(crate) async fn measure(
    plan: &BenchPlan,
    clients: Vec<Client>,
    stop: &CancellationToken,
    report: &mut dyn FnMut(&str),
) -> Measurement {
    let progress = Arc::new(Progress::new(plan.count));
    let end = stop.child_token();
    let work = async {
        let samples = match plan.scenario {
            Scenario::Send | Scenario::Get | Scenario::Stream => {
                closed_loop::run(plan, clients, &progress, &end).await
            }
            Scenario::FanOut => held_streams::fan_out(plan, clients, &progress, &end).await,
            Scenario::Idle => held_streams::idle(plan, clients, &progress, &end).await,
        };
        end.cancel();
        samples
    };
    let clock = watch(plan, &progress, &end, report);
    let (samples, (taken, cpu)) = tokio::join!(work, clock);
    Measurement::new(samples, taken, cpu)
}

/// Starts the measurement after the warm-up, and cancels `end` when its time is over. Returns the measured time, and the
/// CPU time of this process in it.
async fn watch(
    plan: &BenchPlan,
    progress: &Progress,
    end: &CancellationToken,
    report: &mut dyn FnMut(&str),
) -> (Duration, Duration) {
    if !matches!(plan.scenario, Scenario::FanOut | Scenario::Idle) {
        tokio::select! {
            () = tokio::time::sleep(plan.warm_up) => {}
            () = end.cancelled() => {}
        }
    }
    progress.count_from_now();
    let began = Instant::now();
    let cpu = cpu_time();
    let deadline = tokio::time::Instant::now() + plan.time;
    let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
    ticks.tick().await;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => break,
            () = end.cancelled() => break,
            _ = ticks.tick() => report(&progress.line(plan.scenario.name(), began.elapsed(), plan.time)),
        }
    }
    let measured = (began.elapsed(), cpu_time().saturating_sub(cpu));
    end.cancel();
    measured
}

/// CPU time of this process.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Fails if the task of a response failed, was rejected or was canceled.
fn check_answer(answer: &SendMessageResponse) -> Result<(), BenchFailure> {
    match answer {
        SendMessageResponse::Message(_) => Ok(()),
        SendMessageResponse::Task(task) => check_state(task.status.state),
    }
}

fn check_state(state: TaskState) -> Result<(), BenchFailure> {
    match state {
        TaskState::Failed | TaskState::Rejected | TaskState::Canceled => Err(
            BenchFailure::Unexpected(format!("ended as {}", state.as_str())),
        ),
        _ => Ok(()),
    }
}

/// Samples with one failure: the scenario could not start.
fn only_failure(fault: BenchFailure) -> Samples {
    let mut samples = Samples::default();
    samples.add_failure(fault);
    samples
}
