//! How fast is an agent? A load of one kind for a while, and what came of it.

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

/// How often it is told how far it is.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// What is measured, how hard and how long.
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

/// Why a piece of work does not count.
enum BenchFailure {
    /// The agent, or the way to it, said no.
    Refused(Error),
    /// The work ended otherwise than well, or never.
    Unexpected(String),
}

impl From<Error> for BenchFailure {
    fn from(error: Error) -> Self {
        Self::Refused(error)
    }
}

/// Measures one scenario, until it is told to `stop`. Each of `clients` has a connection of its own; `tell` hears now and then how
/// far it is.
pub(crate) async fn measure(
    plan: &BenchPlan,
    clients: Vec<Client>,
    stop: &CancellationToken,
    report: &mut dyn FnMut(&str),
) -> Measurement {
    let progress = Arc::new(Progress::new(plan.count));
    let over = stop.child_token();
    let work = async {
        let samples = match plan.scenario {
            Scenario::Send | Scenario::Get | Scenario::Stream => {
                closed_loop::run(plan, clients, &progress, &over).await
            }
            Scenario::FanOut => held_streams::fan_out(plan, clients, &progress, &over).await,
            Scenario::Idle => held_streams::idle(plan, clients, &progress, &over).await,
        };
        over.cancel();
        samples
    };
    let clock = watch(plan, &progress, &over, report);
    let (samples, (taken, cpu)) = tokio::join!(work, clock);
    Measurement::new(samples, taken, cpu)
}

/// Begins to count after the warm-up, and ends it all when the time is over; the time that counted, and our CPU in it.
async fn watch(
    plan: &BenchPlan,
    progress: &Progress,
    over: &CancellationToken,
    report: &mut dyn FnMut(&str),
) -> (Duration, Duration) {
    if !matches!(plan.scenario, Scenario::FanOut | Scenario::Idle) {
        tokio::select! {
            () = tokio::time::sleep(plan.warm_up) => {}
            () = over.cancelled() => {}
        }
    }
    progress.count_from_now();
    let (began, cpu) = (Instant::now(), cpu_time());
    let end = tokio::time::Instant::now() + plan.time;
    let mut ticks = tokio::time::interval(PROGRESS_INTERVAL);
    ticks.tick().await;
    loop {
        tokio::select! {
            () = tokio::time::sleep_until(end) => break,
            () = over.cancelled() => break,
            _ = ticks.tick() => report(&progress.line(plan.scenario.name(), began.elapsed(), plan.time)),
        }
    }
    let measured = (began.elapsed(), cpu_time().saturating_sub(cpu));
    over.cancel();
    measured
}

/// The processor time that this process has used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

/// Whether an answer is what somebody who asked would call one.
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

/// A sheet with one fault: nothing could be begun.
fn only_failure(fault: BenchFailure) -> Samples {
    let mut samples = Samples::default();
    samples.add_failure(fault);
    samples
}
