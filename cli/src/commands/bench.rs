//! `attache bench`: measures the throughput and latency of an agent.

use std::time::Duration;

use attache::Client;
use attache::{ClientSettings, RetryPolicy};
use serde::Serialize;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::args::{BenchArgs, Scenario};
use crate::bench::{BenchPlan, Measurement, Percentiles, measure};
use crate::error::{CliError, CliResult};
use crate::interrupts::Interrupts;
use crate::output::{Output, TextPage};
use crate::reference::{self, is_loopback};
use crate::session::Session;
use crate::settings::{Settings, duration};

#[derive(Serialize)]
struct BenchReport {
    schema: &'static str,
    agent: String,
    results: Vec<ScenarioReport>,
}

/// Result of one scenario over one interface.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ScenarioReport {
    scenario: Scenario,
    binding: String,
    version: &'static str,
    url: String,
    connections: usize,
    #[serde(flatten)]
    measurement: Measurement,
}

pub(crate) async fn run(args: BenchArgs, settings: &Settings, out: &mut Output) -> CliResult<u8> {
    let plans = plans(&args)?;
    let stop = CancellationToken::new();
    let mut signals = JoinSet::new();
    signals.spawn(cancel_on_signal(Interrupts::new()?, stop.clone()));
    let found = stop.run_until_cancelled(reference::resolve(settings)).await;
    let found = found.unwrap_or_else(|| Err(CliError::interrupted(130)))?;
    if !found.host().is_none_or(is_loopback) {
        out.warn("every message causes real work and may cost money; limit it with --count");
    }
    let agent = found.card.name.clone();
    if !out.is_json() {
        out.print_line(&format!("Agent: {}", crate::output::line(&agent)))?;
    }
    // By default the binding that `send` uses; with `--transport`, each of the given ones.
    let sessions = if settings.transports.is_empty() {
        vec![Session::with_card(settings, &found, out)?]
    } else {
        Session::open_all(settings, &found, out)?
    };
    let mut results = Vec::new();
    'all: for session in &sessions {
        for plan in &plans {
            let clients = clients(session, plan.connections)?;
            let measurement = measure(plan, clients, &stop, &mut |line| out.note(line)).await;
            let measured = measured(session, plan, measurement);
            if !out.is_json() {
                out.print_page(&page(&measured))?;
            }
            results.push(measured);
            if stop.is_cancelled() {
                out.note("interrupted: these are partial results");
                break 'all;
            }
        }
    }
    let any = results.iter().any(|one| one.measurement.done > 0);
    let has_failures = results.iter().any(|one| one.measurement.failed > 0);
    if out.is_json() {
        out.print_json(&BenchReport {
            schema: "attache.bench/1",
            agent,
            results,
        })?;
    }
    if stop.is_cancelled() {
        return Ok(signals
            .join_next()
            .await
            .and_then(Result::ok)
            .unwrap_or(130));
    }
    if !any {
        out.note("nothing was measured: every request failed; see the error with attache send");
    }
    Ok(u8::from(has_failures || !any))
}

/// Cancels the token on the first signal, and returns the exit code of that signal.
async fn cancel_on_signal(mut interrupts: Interrupts, stop: CancellationToken) -> u8 {
    let exit = interrupts.exit_code().await;
    stop.cancel();
    exit
}

fn plans(args: &BenchArgs) -> CliResult<Vec<BenchPlan>> {
    let time = time("--for", &args.time)?;
    let warm_up = match args.warm_up.as_str() {
        "0" => Duration::ZERO,
        text => self::time("--warm-up", text)?,
    };
    let scenarios = if args.scenarios.is_empty() {
        &[Scenario::Send][..]
    } else {
        &args.scenarios
    };
    let plan = |scenario: &Scenario| BenchPlan {
        scenario: *scenario,
        connections: args.connections as usize,
        time,
        warm_up,
        count: args.count,
        message: args.message.clone(),
    };
    Ok(scenarios.iter().map(plan).collect())
}

/// Maximum measurement time of one scenario.
const MAX_DURATION: Duration = Duration::from_secs(3600);

fn time(flag: &str, text: &str) -> CliResult<Duration> {
    match duration::parse(text) {
        Some(time) if time > Duration::ZERO && time <= MAX_DURATION => Ok(time),
        Some(_) => Err(CliError::usage(format!(
            "{flag} {text}: must be between 1ms and 1h"
        ))),
        None => Err(
            CliError::usage(format!("{flag} {text}: must be a duration"))
                .hint("such as 500ms, 10s or 1m30s"),
        ),
    }
}

/// Creates one client per connection, without retries: every failure counts.
fn clients(session: &Session<'_>, count: usize) -> CliResult<Vec<Client>> {
    let retries = RetryPolicy {
        max_retries: 0,
        ..RetryPolicy::default()
    };
    let settings = ClientSettings {
        retries,
        ..session.client.settings().clone()
    };
    let client = session.client.clone().with_settings(settings);
    let tls = crate::tls::client_tls(session.settings)?;
    Ok((0..count).map(|_| client.clone().with_tls(&tls)).collect())
}

fn measured(session: &Session<'_>, plan: &BenchPlan, measurement: Measurement) -> ScenarioReport {
    ScenarioReport {
        scenario: plan.scenario,
        binding: session.binding.as_str().to_owned(),
        version: session.version.as_str(),
        url: session.client.interface().url,
        connections: plan.connections,
        measurement,
    }
}

fn page(measured: &ScenarioReport) -> TextPage {
    let measurement = &measured.measurement;
    let scenario = measured.scenario;
    let connections = measured.connections;
    let mut page = TextPage::new(false);
    page.add_field(
        "Scenario",
        &format!("{}, {connections} connections", scenario.name()),
    );
    page.add_field(
        "Interface",
        &format!("{} {} {}", measured.binding, measured.version, measured.url),
    );
    page.add_field(
        "Done",
        &format!("{} in {:.1} s", measurement.done, measurement.seconds),
    );
    page.add_field("Failed", &measurement.failed.to_string());
    for (fault, times) in &measurement.faults {
        page.add_field("Fault", &format!("{times} × {fault}"));
    }
    if !matches!(scenario, Scenario::FanOut | Scenario::Idle) {
        page.add_field("Per second", &format!("{:.0}", measurement.per_second));
    }
    let latency = match scenario {
        Scenario::FanOut => "End seen, behind the first reader",
        Scenario::Idle => "Opened within",
        Scenario::Send | Scenario::Get | Scenario::Stream => "Latency",
    };
    percentiles(&mut page, latency, measurement.latency_ms.as_ref());
    percentiles(
        &mut page,
        "First event",
        measurement.first_event_ms.as_ref(),
    );
    if measurement.events > 0 {
        page.add_field(
            "Events",
            &format!(
                "{}, {:.0} a second",
                measurement.events, measurement.events_per_second
            ),
        );
    }
    let own = &measurement.generator;
    let share = own.share * 100.0;
    page.add_field(
        "Generator",
        &format!(
            "{:.2} s of CPU, {share:.0} % of {} cores",
            own.cpu_seconds, own.cores
        ),
    );
    if own.was_the_limit {
        page.add_field(
            "Limit",
            "the generator was the bottleneck: the agent may be faster; use more machines",
        );
    }
    page
}

fn percentiles(page: &mut TextPage, label: &str, percentiles: Option<&Percentiles>) {
    if let Some(Percentiles {
        p50,
        p90,
        p99,
        p999,
        max,
    }) = percentiles
    {
        let text =
            format!("p50 {p50:.2} ms, p90 {p90:.2}, p99 {p99:.2}, p99.9 {p999:.2}, max {max:.2}");
        page.add_field(label, &text);
    }
}
