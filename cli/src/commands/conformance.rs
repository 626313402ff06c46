//! `attache conformance`: does an agent keep the rules of the protocol?

use serde::Serialize;

use super::kit;
use crate::args::Conformance;
use crate::conformance::{Finding, Known, Outcome as Found, look_into};
use crate::failure::Outcome;
use crate::output::{Output, Page};
use crate::reference::{self, is_loopback};
use crate::session::Session;
use crate::settings::Settings;

/// The exit code for rules that are broken, if one is asked for.
const BROKEN: u8 = 10;
/// A webhook that is never called: its task has ended.
const WEBHOOK: &str = "https://example.com/attache-conformance";
const LOCAL_WEBHOOK: &str = "http://127.0.0.1:9/attache-conformance";

#[derive(Serialize)]
struct Report {
    schema: &'static str,
    agent: String,
    summary: Summary,
    checks: Vec<Finding>,
}

#[derive(Serialize)]
struct Summary {
    passed: usize,
    failed: usize,
    skipped: usize,
}

pub(crate) async fn run(args: Conformance, settings: &Settings, out: &mut Output) -> Outcome<u8> {
    let found = reference::find(settings).await?;
    if let Some(folder) = &args.kit {
        let passed = kit::run(folder, &found, settings, out).await?;
        return Ok(if args.exit_code && !passed { BROKEN } else { 0 });
    }
    let local = found.host().is_none_or(is_loopback);
    let webhook = args
        .webhook
        .unwrap_or_else(|| if local { LOCAL_WEBHOOK } else { WEBHOOK }.to_owned());
    let known = Known {
        webhook: &webhook,
        slow: args.slow.as_deref(),
        ask: args.ask.as_deref(),
    };
    let agent = found.card.name.clone();
    let mut checks = Vec::new();
    if !out.is_json() {
        out.print(&format!("Agent: {}", crate::output::line(&agent)))?;
    }
    for session in Session::each(settings, &found, out)? {
        let interface = session.client.interface();
        if !out.is_json() {
            let line = format!(
                "{} {} {}",
                interface.protocol_binding, interface.protocol_version, interface.url
            );
            out.print(&format!("Interface: {}", crate::output::line(&line)))?;
        }
        let mut printed = Ok(());
        let mut tell = |finding: &Finding| {
            if !out.is_json() && printed.is_ok() {
                printed = out.page(&page(finding, settings.verbose));
            }
        };
        let findings = look_into(&session, &known, &mut tell).await;
        printed?;
        checks.extend(findings);
    }
    if args.slow.is_none() || args.ask.is_none() {
        out.note("more can be looked into with --slow <TEXT> and --ask <TEXT>, see attache help conformance");
    }
    let count = |outcome| checks.iter().filter(|one| one.outcome == outcome).count();
    let summary = Summary {
        passed: count(Found::Pass),
        failed: count(Found::Fail),
        skipped: count(Found::Skip),
    };
    let code = if args.exit_code && summary.failed > 0 {
        BROKEN
    } else {
        0
    };
    match out.is_json() {
        true => out.json(&Report {
            schema: "attache.conformance/1",
            agent,
            summary,
            checks,
        })?,
        false => {
            let mut page = Page::new(false);
            page.field("Passed", &summary.passed.to_string());
            page.field("Failed", &summary.failed.to_string());
            page.field("Skipped", &summary.skipped.to_string());
            out.page(&page)?;
        }
    }
    Ok(code)
}

fn page(finding: &Finding, verbose: bool) -> Page {
    let mut page = Page::new(false);
    let label = match finding.outcome {
        Found::Pass => "Pass",
        Found::Fail => "Fail",
        Found::Skip => "Skip",
    };
    let detail = finding
        .detail
        .as_ref()
        .map(|detail| format!(": {detail}"))
        .unwrap_or_default();
    // What is skipped is seldom of interest: who wants to know asks for more.
    if finding.outcome != Found::Skip || verbose {
        page.field(label, &format!("{}{detail}", finding.check));
    }
    if verbose || finding.outcome == Found::Fail {
        page.field("Rule", finding.rule);
    }
    page
}
