//! Calls over each binding and version of the card, and the credentials they need.

use std::time::{Duration, Instant};

use attache::model::{AgentInterface, Binding, GetTaskRequest, TaskId, Version};
use attache::{ClientSettings, Error, ErrorKind, RetryPolicy, Timeouts};
use serde::Serialize;

use super::DiagnosticStep::{Auth, Interface};
use super::{Diagnostic, DiagnosticStatus, Examination, clock};
use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::reference::{ResolvedCard, is_loopback, url_host};
use crate::session::Session;
use crate::wire_log::{self, HeadCapture};

/// Time limit of a probe.
const PROBE_TIMEOUT: Duration = Duration::from_secs(10);
/// Id of a task that no agent has.
const UNKNOWN_TASK_ID: &str = "00000000-0000-4000-8000-000000000000";

/// Whether calls over an interface work.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct InterfaceReport {
    pub(crate) binding: String,
    pub(crate) version: String,
    pub(crate) url: String,
    /// Whether the card lists the interface. Others are found by trying.
    pub(crate) on_card: bool,
    pub(crate) status: DiagnosticStatus,
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl InterfaceReport {
    /// The report as a step of the diagnosis.
    pub(super) fn diagnostic(&self) -> Diagnostic {
        let Self {
            binding,
            version,
            url,
            message,
            ..
        } = self;
        Diagnostic {
            step: Interface,
            status: self.status,
            message: format!("{binding} {version} {url}: {message}"),
            hint: self.hint.clone(),
        }
    }
}

/// An interface with the result of a call over it.
pub(super) struct ProbedInterface<'a> {
    pub(super) report: InterfaceReport,
    /// `None` if the interface cannot be used.
    pub(super) session: Option<Session<'a>>,
}

impl ProbedInterface<'_> {
    pub(super) fn works(&self) -> bool {
        self.report.status == DiagnosticStatus::Ok
    }
}

/// Calls the agent over every interface of the card, and in the versions that the card does not list.
pub(super) async fn examine<'a>(
    examination: &mut Examination<'a>,
    found: &ResolvedCard,
) -> CliResult<Vec<ProbedInterface<'a>>> {
    let heads = HeadCapture::default();
    let mut probed = Vec::new();
    let mut refusals = Vec::new();
    for interface in &found.card.supported_interfaces {
        let one = examine_one(examination, found, interface, &heads, &mut refusals).await?;
        examination.add_interface(&one.report)?;
        probed.push(one);
    }
    for interface in unlisted_versions(&found.card.supported_interfaces) {
        let one = examine_one(examination, found, &interface, &heads, &mut Vec::new()).await?;
        if one.works() {
            let report = InterfaceReport {
                on_card: false,
                message: format!("{}, but the card does not list it", one.report.message),
                ..one.report
            };
            examination.add_interface(&report)?;
            probed.push(ProbedInterface { report, ..one });
        }
    }
    clock::examine(examination, &heads)?;
    examination.add(auth(&probed, refusals.into_iter().next()))?;
    Ok(probed)
}

async fn examine_one<'a>(
    examination: &mut Examination<'a>,
    found: &ResolvedCard,
    interface: &AgentInterface,
    heads: &HeadCapture,
    refusals: &mut Vec<CliError>,
) -> CliResult<ProbedInterface<'a>> {
    let settings = examination.settings;
    let mut report = InterfaceReport {
        binding: interface.protocol_binding.clone(),
        version: interface.protocol_version.clone(),
        url: interface.url.clone(),
        on_card: true,
        status: DiagnosticStatus::Failed,
        message: String::new(),
        hint: None,
    };
    // Warnings about the credential would repeat for every interface.
    let session = Session::over_interface(settings, found, interface, &mut Output::silent());
    let session = match session {
        Ok(Some(session)) => session,
        Ok(None) => {
            report.status = DiagnosticStatus::Skipped;
            report.message = "this program does not support it".to_owned();
            return Ok(ProbedInterface {
                report,
                session: None,
            });
        }
        Err(error) => {
            report.message.clone_from(&error.message);
            report.hint.clone_from(&error.hint);
            if error.exit == 4 {
                refusals.push(error);
            }
            return Ok(ProbedInterface {
                report,
                session: None,
            });
        }
    };
    report.url = found.resolve_interface(interface)?.url;
    if !examination.can_connect(&report.url).await? {
        report.message = "no connection to its host".to_owned();
        report.hint = other_host_hint(found, &report.url);
        return Ok(ProbedInterface {
            report,
            session: None,
        });
    }
    match probe(&session, heads).await {
        Ok(time) => {
            report.status = DiagnosticStatus::Ok;
            report.message = format!("answers in {} ms", time.as_millis());
        }
        Err(error) => {
            report.message.clone_from(&error.message);
            report.hint = other_host_hint(found, &report.url).or_else(|| error.hint.clone());
            if error.exit == 4 {
                refusals.push(error);
            }
        }
    }
    Ok(ProbedInterface {
        report,
        session: Some(session),
    })
}

/// A hint if the card of another host leads to this machine.
fn other_host_hint(found: &ResolvedCard, url: &str) -> Option<String> {
    let leads_here = is_loopback(&url_host(url)) && !found.host().is_none_or(is_loopback);
    leads_here.then(|| {
        "the card leads to your own machine; its operator must set the public URL (serve --public-url)"
            .to_owned()
    })
}

/// Requests a task that does not exist: an agent that says so works.
async fn probe(session: &Session<'_>, heads: &HeadCapture) -> CliResult<Duration> {
    let client = session.client.clone();
    let settings = ClientSettings {
        retries: RetryPolicy {
            max_retries: 0,
            ..RetryPolicy::default()
        },
        timeouts: Timeouts {
            first_byte: PROBE_TIMEOUT,
            total: PROBE_TIMEOUT,
            ..Timeouts::default()
        },
        ..client.settings().clone()
    };
    let client = client.with_settings(settings);
    let (client, body) = wire_log::with_probe_capture(client, session.settings, heads);
    let request = GetTaskRequest {
        id: TaskId::from(UNKNOWN_TASK_ID),
        ..GetTaskRequest::default()
    };
    let start = Instant::now();
    let answer = client.get_task(request).await;
    let time = start.elapsed();
    match answer {
        Ok(_) => Ok(time),
        Err(error) if is_answer(&error, session.binding, &body.take()) => Ok(time),
        Err(error) if error.kind() == ErrorKind::TaskNotFound => {
            Err(CliError::failed("the server has no such path (404)")
                .hint("the URL on the card may be wrong, or a proxy does not forward it"))
        }
        Err(error) => Err(session.error(&error)),
    }
}

/// Whether an error shows that an agent has answered. A 404 of any web server looks like an unknown task, unless its body
/// speaks of tasks.
fn is_answer(error: &Error, binding: Binding, body: &[u8]) -> bool {
    match error.kind() {
        ErrorKind::TaskNotFound if binding == Binding::HttpJson => String::from_utf8_lossy(body)
            .to_ascii_lowercase()
            .contains("task"),
        ErrorKind::TaskNotFound | ErrorKind::InvalidParams | ErrorKind::UnsupportedOperation => {
            true
        }
        _ => false,
    }
}

/// The other version of each binding, at the URL of the listed one.
fn unlisted_versions(listed: &[AgentInterface]) -> Vec<AgentInterface> {
    let is_listed = |binding, version: Version| {
        listed.iter().any(|one| {
            one.binding() == Some(binding)
                && crate::version::wire_version(&one.protocol_version) == Some(version)
        })
    };
    let mut found: Vec<AgentInterface> = Vec::new();
    for interface in listed {
        let Some(binding) = interface.binding() else {
            continue;
        };
        for version in [Version::V1, Version::V03] {
            let is_known = found
                .iter()
                .any(|one| one.protocol_binding == interface.protocol_binding);
            if !is_listed(binding, version) && !is_known {
                found.push(AgentInterface {
                    protocol_version: version.as_str().to_owned(),
                    ..interface.clone()
                });
            }
        }
    }
    found
}

/// Whether the credentials suffice.
fn auth(probed: &[ProbedInterface<'_>], refusal: Option<CliError>) -> Diagnostic {
    let working = probed.iter().find(|one| one.works());
    let has_credential = |one: &ProbedInterface<'_>| {
        let session = one.session.as_ref();
        session.is_some_and(|session| session.has_credential())
    };
    match (working, refusal) {
        (Some(one), None) if has_credential(one) => {
            Diagnostic::ok(Auth, "calls with the given credentials are accepted")
        }
        (Some(_), None) => Diagnostic::ok(Auth, "no credentials are required"),
        (Some(_), Some(error)) => Diagnostic {
            hint: error.hint,
            ..Diagnostic::warning(Auth, format!("not over every interface: {}", error.message))
        },
        (None, Some(error)) => Diagnostic {
            hint: error.hint,
            ..Diagnostic::failed(Auth, error.message)
        },
        (None, None) => Diagnostic::skipped(Auth, "no interface answers"),
    }
}
