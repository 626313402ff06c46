//! Diagnosis of a connection to an agent, step by step: name, connection, TLS, card, clock, interfaces, credentials,
//! answer, streaming and buffering.
//!
//! Each step reports a [`Diagnostic`]. A step that fails ends the diagnosis if the later ones depend on it.

mod answer;
mod buffering;
mod card;
mod clock;
mod interfaces;
mod network;
mod recommendation;

use serde::Serialize;

use crate::error::CliResult;
use crate::output::Output;
use crate::reference::{self, ResolvedCard};
use crate::settings::Settings;
use crate::wire_log::HeadCapture;
pub(crate) use interfaces::InterfaceReport;
use interfaces::ProbedInterface;
use network::NetworkTarget;

/// Step of a diagnosis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DiagnosticStep {
    Resolve,
    Connect,
    Tls,
    Card,
    Clock,
    Interface,
    Auth,
    Answer,
    Streaming,
    Buffering,
}

impl DiagnosticStep {
    /// Label of the step in text.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Resolve => "Resolve",
            Self::Connect => "Connect",
            Self::Tls => "TLS",
            Self::Card => "Card",
            Self::Clock => "Clock",
            Self::Interface => "Interface",
            Self::Auth => "Auth",
            Self::Answer => "Answer",
            Self::Streaming => "Streaming",
            Self::Buffering => "Buffering",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum DiagnosticStatus {
    Ok,
    /// Calls work, with a restriction.
    Warning,
    Failed,
    /// The step does not apply, or cannot be decided.
    Skipped,
}

/// Result of a step.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Diagnostic {
    pub(crate) step: DiagnosticStep,
    pub(crate) status: DiagnosticStatus,
    pub(crate) message: String,
    /// What to do about it.
    pub(crate) hint: Option<String>,
}

impl Diagnostic {
    fn new(step: DiagnosticStep, status: DiagnosticStatus, message: impl Into<String>) -> Self {
        Self {
            step,
            status,
            message: message.into(),
            hint: None,
        }
    }

    fn ok(step: DiagnosticStep, message: impl Into<String>) -> Self {
        Self::new(step, DiagnosticStatus::Ok, message)
    }

    fn warning(step: DiagnosticStep, message: impl Into<String>) -> Self {
        Self::new(step, DiagnosticStatus::Warning, message)
    }

    fn failed(step: DiagnosticStep, message: impl Into<String>) -> Self {
        Self::new(step, DiagnosticStatus::Failed, message)
    }

    fn skipped(step: DiagnosticStep, message: impl Into<String>) -> Self {
        Self::new(step, DiagnosticStatus::Skipped, message)
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        Self {
            hint: Some(hint.into()),
            ..self
        }
    }
}

/// Result of a diagnosis.
#[derive(Debug, Serialize)]
pub(crate) struct Diagnosis {
    pub(crate) schema: &'static str,
    /// The reference of the agent, as given.
    pub(crate) agent: String,
    /// Whether a call of the agent works.
    pub(crate) works: bool,
    pub(crate) checks: Vec<Diagnostic>,
    pub(crate) interfaces: Vec<InterfaceReport>,
    /// A command that works.
    pub(crate) command: Option<String>,
}

/// Receives the result of each step when it is known.
pub(crate) type Reporter<'a> = dyn FnMut(&Diagnostic, &mut Output) -> CliResult + 'a;

/// A diagnosis in progress.
struct Examination<'a> {
    settings: &'a Settings,
    out: &'a mut Output,
    report: &'a mut Reporter<'a>,
    checks: Vec<Diagnostic>,
    /// Hosts and ports whose connection was examined.
    targets: Vec<(NetworkTarget, bool)>,
}

impl Examination<'_> {
    fn add(&mut self, diagnostic: Diagnostic) -> CliResult {
        (self.report)(&diagnostic, self.out)?;
        self.checks.push(diagnostic);
        Ok(())
    }

    /// Reports an interface, which the diagnosis lists apart from the checks.
    fn add_interface(&mut self, report: &InterfaceReport) -> CliResult {
        (self.report)(&report.diagnostic(), self.out)
    }

    fn has(&self, step: DiagnosticStep) -> bool {
        self.checks.iter().any(|check| check.step == step)
    }

    /// Whether a connection to the host of a URL can be established. Examines each host and port once.
    async fn can_connect(&mut self, url: &str) -> CliResult<bool> {
        let Some(target) = NetworkTarget::from_url(url) else {
            // The request will name what is wrong with the URL.
            return Ok(true);
        };
        let known = self.targets.iter().find(|(known, _)| *known == target);
        if let Some((_, is_reachable)) = known {
            return Ok(*is_reachable);
        }
        let checks = network::examine(&target).await;
        let is_reachable = checks
            .iter()
            .all(|check| check.status != DiagnosticStatus::Failed);
        for check in checks {
            self.add(check)?;
        }
        self.targets.push((target, is_reachable));
        Ok(is_reachable)
    }
}

/// Examines the agent of the settings. `message` is sent to it, unless it is `None`.
///
/// # Errors
/// The settings name no agent, or the report cannot be written.
pub(crate) async fn diagnose(
    settings: &Settings,
    message: Option<&str>,
    out: &mut Output,
    report: &mut Reporter<'_>,
) -> CliResult<Diagnosis> {
    let card_url = reference::card_url(settings)?;
    let mut examination = Examination {
        settings,
        out,
        report,
        checks: Vec::new(),
        targets: Vec::new(),
    };
    let mut interfaces = Vec::new();
    let mut command = None;
    if let Some(found) = examine_card(&mut examination, card_url.as_deref()).await? {
        let probed = interfaces::examine(&mut examination, &found).await?;
        let best = recommendation::best(&probed, &found, settings);
        command = best.map(|one| recommendation::command(one, &found, settings));
        if let Some(ProbedInterface {
            session: Some(session),
            ..
        }) = best
        {
            answer::examine(&mut examination, session, message).await?;
        }
        interfaces = probed.into_iter().map(|one| one.report).collect();
    }
    Ok(Diagnosis {
        schema: "attache.doctor/1",
        agent: agent_reference(settings),
        works: command.is_some(),
        checks: examination.checks,
        interfaces,
        command,
    })
}

/// The agent as the user gave it.
pub(crate) fn agent_reference(settings: &Settings) -> String {
    let given = settings.endpoint.as_ref().or(settings.agent.as_ref());
    given.cloned().unwrap_or_default()
}

/// Examines the way to the card, and the card.
async fn examine_card(
    examination: &mut Examination<'_>,
    url: Option<&str>,
) -> CliResult<Option<ResolvedCard>> {
    let Some(url) = url else {
        // A file, an entry of a catalog or an endpoint: the interfaces lead to the hosts to examine.
        return card::examine_document(examination).await;
    };
    if !examination.can_connect(url).await? {
        return Ok(None);
    }
    let heads = HeadCapture::default();
    let found = card::examine_url(examination, url, &heads).await?;
    clock::examine(examination, &heads)?;
    Ok(found)
}
