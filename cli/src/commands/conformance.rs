//! `attache conformance`: checks an agent against the rules of the protocol.

use serde::Serialize;

use super::conformance_kit;
use crate::args::ConformanceArgs;
use crate::conformance::{CheckInputs, CheckOutcome, Finding, run_checks};
use crate::error::CliResult;
use crate::output::{Output, TextPage};
use crate::reference::{self, ResolvedCard, is_loopback};
use crate::session::Session;
use crate::settings::Settings;

/// Exit code if the agent breaks a rule, with `--exit-code`.
const EXIT_RULE_BROKEN: u8 = 10;
/// Default webhook. It is never called: it is registered for a task that has ended.
const WEBHOOK: &str = "https://example.com/attache-conformance";
/// Default webhook for an agent on this machine, which may refuse public addresses.
const LOCAL_WEBHOOK: &str = "http://127.0.0.1:9/attache-conformance";

#[derive(Serialize)]
struct ConformanceReport {
    schema: &'static str,
    agent: String,
    summary: ConformanceSummary,
    checks: Vec<Finding>,
}

#[derive(Serialize)]
struct ConformanceSummary {
    passed: usize,
    failed: usize,
    skipped: usize,
}

pub(crate) async fn run(
    args: ConformanceArgs,
    settings: &Settings,
    out: &mut Output,
) -> CliResult<u8> {
    let found = reference::resolve(settings).await?;
    let is_passed = match &args.kit {
        Some(folder) => conformance_kit::run(folder, &found, settings, out).await?,
        None => run_own_checks(&args, &found, settings, out).await?,
    };
    Ok(if args.exit_code && !is_passed {
        EXIT_RULE_BROKEN
    } else {
        0
    })
}

/// Runs the checks over all interfaces, and prints the report. Returns whether none failed.
async fn run_own_checks(
    args: &ConformanceArgs,
    found: &ResolvedCard,
    settings: &Settings,
    out: &mut Output,
) -> CliResult<bool> {
    let is_local = found.host().is_none_or(is_loopback);
    let default_webhook = if is_local { LOCAL_WEBHOOK } else { WEBHOOK };
    let inputs = CheckInputs {
        webhook: args.webhook.as_deref().unwrap_or(default_webhook),
        slow: args.slow.as_deref(),
        ask: args.ask.as_deref(),
    };
    let agent = found.card.name.clone();
    if !out.is_json() {
        out.print_line(&format!("Agent: {}", crate::output::line(&agent)))?;
    }
    let mut checks = Vec::new();
    for session in Session::open_all(settings, found, out)? {
        checks.extend(check_interface(&session, &inputs, out).await?);
    }
    if args.slow.is_none() || args.ask.is_none() {
        out.note("--slow <TEXT> and --ask <TEXT> enable more checks, see attache help conformance");
    }
    let count = |outcome| checks.iter().filter(|one| one.outcome == outcome).count();
    let summary = ConformanceSummary {
        passed: count(CheckOutcome::Pass),
        failed: count(CheckOutcome::Fail),
        skipped: count(CheckOutcome::Skip),
    };
    let is_passed = summary.failed == 0;
    print_summary(agent, summary, checks, out)?;
    Ok(is_passed)
}

/// Runs the checks over one interface. Text findings are printed as they are made.
async fn check_interface(
    session: &Session<'_>,
    inputs: &CheckInputs<'_>,
    out: &mut Output,
) -> CliResult<Vec<Finding>> {
    let interface = session.client.interface();
    if !out.is_json() {
        let line = format!(
            "{} {} {}",
            interface.protocol_binding, interface.protocol_version, interface.url
        );
        out.print_line(&format!("Interface: {}", crate::output::line(&line)))?;
    }
    let mut printed = Ok(());
    let mut report = |finding: &Finding| {
        if !out.is_json() && printed.is_ok() {
            printed = out.print_page(&page(finding, session.settings.verbose));
        }
    };
    let findings = run_checks(session, inputs, &mut report).await;
    printed?;
    Ok(findings)
}

fn print_summary(
    agent: String,
    summary: ConformanceSummary,
    checks: Vec<Finding>,
    out: &mut Output,
) -> CliResult {
    if out.is_json() {
        return out.print_json(&ConformanceReport {
            schema: "attache.conformance/1",
            agent,
            summary,
            checks,
        });
    }
    let mut page = TextPage::new(false);
    page.add_field("Passed", &summary.passed.to_string());
    page.add_field("Failed", &summary.failed.to_string());
    page.add_field("Skipped", &summary.skipped.to_string());
    out.print_page(&page)
}

fn page(finding: &Finding, verbose: bool) -> TextPage {
    let mut page = TextPage::new(false);
    let label = match finding.outcome {
        CheckOutcome::Pass => "Pass",
        CheckOutcome::Fail => "Fail",
        CheckOutcome::Skip => "Skip",
    };
    let detail = finding
        .detail
        .as_ref()
        .map(|detail| format!(": {detail}"))
        .unwrap_or_default();
    // Skipped checks are only printed with `--verbose`.
    if finding.outcome != CheckOutcome::Skip || verbose {
        page.add_field(label, &format!("{}{detail}", finding.check));
    }
    if verbose || finding.outcome == CheckOutcome::Fail {
        page.add_field("Rule", finding.rule);
    }
    page
}
