//! One agent, ready to be talked to: its card, the interface that was chosen, and what goes with every request.

mod credentials;

use std::time::Duration;

use attache::model::{
    AgentCard, AgentInterface, Binding, GetTaskRequest, Message, Task, TaskId, Version,
};
use attache::{Client, ClientSettings, Error, ErrorKind, HttpClient};

use crate::error::{CliError, CliResult};
use crate::output::Output;
use crate::reference::{self, ResolvedCard};
use crate::resume::ResumeHints;
use crate::settings::Settings;
use crate::telemetry;
use crate::version::{VersionPreference, rank};
use crate::wire_log;

/// How long one answer may take; a message may take longer, since agents may wait before they answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Session<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) client: Client,
    pub(crate) card: AgentCard,
    pub(crate) resume: ResumeHints,
    pub(crate) binding: Binding,
    pub(crate) version: Version,
    /// Whether a credential goes along.
    supplied: bool,
}

impl<'a> Session<'a> {
    /// Reads the card, chooses from it, and attaches what the agent asks for and the user gave.
    pub(crate) async fn open(settings: &'a Settings, out: &mut Output) -> CliResult<Self> {
        let found = reference::resolve(settings).await?;
        Self::with_card(settings, &found, out)
    }

    pub(crate) fn with_card(
        settings: &'a Settings,
        found: &ResolvedCard,
        out: &mut Output,
    ) -> CliResult<Self> {
        let first = usable_interfaces(found, settings)?.into_iter().next();
        let first = first.ok_or_else(|| CliError::card_invalid("the card names no interface"))?;
        Self::connect(settings, found, first, out)
    }

    /// Over every binding that is offered; over those that the user prefers, if any are named.
    pub(crate) fn open_all(
        settings: &'a Settings,
        found: &ResolvedCard,
        out: &mut Output,
    ) -> CliResult<Vec<Self>> {
        let mut all = usable_interfaces(found, settings)?;
        let wanted = |name: &String| {
            settings
                .transports
                .iter()
                .any(|it| it.eq_ignore_ascii_case(name))
        };
        if all.iter().any(|(one, _, _)| wanted(&one.protocol_binding)) {
            all.retain(|(one, _, _)| wanted(&one.protocol_binding));
        }
        all.into_iter()
            .map(|one| Self::connect(settings, found, one, out))
            .collect()
    }

    fn connect(
        settings: &'a Settings,
        found: &ResolvedCard,
        (interface, version, signal): InterfaceChoice,
        out: &mut Output,
    ) -> CliResult<Self> {
        if version == Version::V03 {
            out.warn(&format!(
                "speaking A2A {signal}, as asked; what is printed is in the shapes of 1.0"
            ));
        }
        let unusable =
            |error: Error| CliError::internal(format!("cannot use {}: {error}", interface.url));
        let binding = interface.binding().unwrap_or(Binding::JsonRpc);
        let patience = ClientSettings {
            polling: crate::task_follower::polling(settings),
            ..ClientSettings::default()
        };
        let mut builder = Client::builder()
            .tls(crate::tls::client_tls(settings)?)
            .settings(patience);
        if settings.allows_host(&reference::url_host(&interface.url)) {
            builder = builder.trust(&interface.url).map_err(unusable)?;
        }
        // A card may point anywhere, but not further inside than where it came from.
        let client = match found.origin() {
            Some(origin) => builder.interface_from_card(origin, &interface),
            None => builder.interface(&interface),
        };
        let client = client.map_err(unusable)?;
        let client = client
            .with_header("a2a-version", &signal)
            .map_err(unusable)?;
        let client = extensions(client, &found.card, settings)?;
        let client = match telemetry::parent_trace() {
            Some(trace) => client.with_trace(trace),
            None => client,
        };
        let (client, supplied) = credentials::attach(client, found, &interface, settings, out)?;
        if settings.debug {
            out.note(&format!(
                "debug: {} {signal} at {}",
                binding.as_str(),
                interface.url
            ));
        }
        let client = wire_log::watch(client, settings);
        let (resume, card) = (ResumeHints::new(settings), found.card.clone());
        Ok(Self {
            settings,
            client,
            card,
            resume,
            binding,
            version,
            supplied,
        })
    }

    pub(crate) fn supports_streaming(&self) -> bool {
        self.card.capabilities.streaming == Some(true)
    }

    /// What the agent said, in our words.
    pub(crate) fn error(&self, error: &Error) -> CliError {
        let failure = CliError::from_error(error, self.binding, self.supplied);
        // Nobody was asked: the card leads where it may not.
        match Client::block_reason(error) {
            Some(rule) => {
                let host = reference::url_host(&self.client.interface().url);
                let message = format!("the card leads to {host}, but it {rule}");
                let again = crate::resume::rerun_with(&format!(
                    "--allow-host {}",
                    shell_words::quote(&host)
                ));
                CliError { message, ..failure }.hint(format!("if you trust it: {again}"))
            }
            None => failure,
        }
    }

    /// Why a message was not taken, and what to do next; one that may have arrived is not sent a second time under
    /// another id.
    pub(crate) fn send_error(&self, message: &Message, error: &Error) -> CliError {
        let failure = self.error(error);
        if error.kind() == ErrorKind::Unavailable && HttpClient::may_have_been_sent(error) {
            let again = crate::resume::rerun_with(&format!("--message-id {}", message.message_id));
            return failure.hint(format!(
                "it may have arrived; the same message again: {again}"
            ));
        }
        match (&message.task_id, failure.exit) {
            // Whoever does not know a task has nothing to show of it; how long to wait is the best to know.
            _ if matches!(
                error.kind(),
                ErrorKind::TaskNotFound | ErrorKind::RateLimited | ErrorKind::Unavailable
            ) =>
            {
                failure
            }
            (Some(id), 1) => {
                let look = self.resume.get_command(id.as_str());
                failure.hint(format!(
                    "look at the task with `{look}`, or see the wire with --debug"
                ))
            }
            (None, 1) => failure.hint("see the wire with --debug"),
            _ => failure,
        }
    }

    /// The same, where a look at the task may tell more: one that has ended takes no messages, its conversation does.
    pub(crate) async fn explain_refusal(&self, message: &Message, error: &Error) -> CliError {
        let failure = self.send_error(message, error);
        let Some(id) = message.task_id.as_ref().filter(|_| failure.exit == 1) else {
            return failure;
        };
        if error.kind() == ErrorKind::TaskNotFound {
            return failure;
        }
        match self.task(id, Some(0)).await {
            Ok(task) if task.status.state.is_terminal() => {
                let message = format!(
                    "the task has ended, as {}: {}",
                    task.status.state, failure.message
                );
                let further = self.resume.for_task(&task);
                CliError { message, ..failure }.hint(format!(
                    "its conversation goes on with `{further}`; or see the wire with --debug"
                ))
            }
            _ => failure,
        }
    }

    /// Waits for an answer, but not for ever.
    pub(crate) async fn call<T>(
        &self,
        call: impl Future<Output = attache::Result<T>>,
    ) -> CliResult<T> {
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(answer) => answer.map_err(|error| self.error(&error)),
            Err(_) => {
                Err(CliError::timeout("no answer came within 60s")
                    .hint("see the wire with --debug"))
            }
        }
    }

    pub(crate) async fn task(&self, id: &TaskId, history_length: Option<i32>) -> CliResult<Task> {
        let request = GetTaskRequest {
            id: id.clone(),
            history_length,
            ..GetTaskRequest::default()
        };
        self.call(self.client.get_task(request)).await
    }
}

/// An interface, how it is written, and what is signalled.
type InterfaceChoice = (AgentInterface, Version, String);

/// What we speak of what is offered, a binding once: in the order of the card or of the user, the highest version of
/// each.
fn usable_interfaces(found: &ResolvedCard, settings: &Settings) -> CliResult<Vec<InterfaceChoice>> {
    let wanted = VersionPreference::from_settings(settings)?;
    let all = &found.card.supported_interfaces;
    let known = |one: &&AgentInterface| one.binding().is_some();
    let usable: Vec<_> = all
        .iter()
        .filter(known)
        .filter_map(|one| Some((one, wanted.select(one)?)))
        .collect();
    let preferred = settings.transports.iter().filter_map(|name| {
        usable
            .iter()
            .map(|(one, _)| one.binding())
            .find(|it| it.is_some_and(|binding| binding.as_str().eq_ignore_ascii_case(name)))
    });
    let mut bindings = Vec::new();
    for binding in preferred.chain(usable.iter().map(|(one, _)| one.binding())) {
        if !bindings.contains(&binding) {
            bindings.push(binding);
        }
    }
    let best = |binding| {
        let same = usable.iter().filter(|(one, _)| one.binding() == binding);
        // The first of several with the same version: `max_by` alone would take the last.
        let (one, (version, signal)) = same
            .rev()
            .max_by_key(|(one, _)| rank(&one.protocol_version))?;
        let (url, protocol_version) = (found.interface_url(one), version.as_str().to_owned());
        Some((
            AgentInterface {
                url,
                protocol_version,
                ..(*one).clone()
            },
            *version,
            signal.clone(),
        ))
    };
    let offers: Vec<_> = bindings.into_iter().filter_map(best).collect();
    if offers.is_empty() {
        Err(unusable(found, &wanted))
    } else {
        Ok(offers)
    }
}

fn unusable(found: &ResolvedCard, wanted: &VersionPreference) -> CliError {
    let offers = found.card.supported_interfaces.iter();
    let offers: Vec<_> = offers
        .map(|one| format!("{} {}", one.protocol_binding, one.protocol_version))
        .collect();
    let others = found
        .card
        .supported_interfaces
        .iter()
        .filter(|one| one.binding().is_some());
    let old = others
        .filter(|one| VersionPreference::Any.select(one).is_some())
        .map(|one| one.protocol_version.clone())
        .next();
    match (offers.is_empty(), old) {
        (true, _) => CliError::card_invalid("the card names no interface"),
        (false, Some(version)) => CliError::protocol(
            ErrorKind::VersionNotSupported,
            format!(
                "the agent offers {}, which was not asked for",
                offers.join(", ")
            ),
        )
        .hint(crate::resume::rerun_with(&format!(
            "--a2a-version {}",
            if *wanted == VersionPreference::Current {
                version.as_str()
            } else {
                "auto"
            }
        ))),
        (false, None) => CliError::internal(format!(
            "the agent offers {}, and we speak none of them",
            offers.join(", ")
        )),
    }
}

/// Names the extensions that the user wants, and finds those that the agent needs.
fn extensions(client: Client, card: &AgentCard, settings: &Settings) -> CliResult<Client> {
    let needed = card
        .capabilities
        .extensions
        .iter()
        .filter(|one| one.required == Some(true));
    if let Some(missing) = needed
        .map(|one| &one.uri)
        .find(|uri| !settings.extensions.contains(uri))
    {
        return Err(CliError::protocol(
            ErrorKind::ExtensionSupportRequired,
            format!("the agent needs its callers to support {missing}"),
        )
        .hint(crate::resume::rerun_with(&format!(
            "--extension {}",
            shell_words::quote(missing)
        ))));
    }
    if settings.extensions.is_empty() {
        return Ok(client);
    }
    let uris = settings.extensions.iter().map(String::as_str);
    client
        .with_extensions(uris)
        .map_err(|error| CliError::usage(format!("--extension: {error}")))
}
