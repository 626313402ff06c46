//! Sessions: an agent with its card, the selected interface and a client with credentials.

mod credentials;
mod interface_choice;

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
use crate::version::SelectedVersion;
use crate::wire_log;
use interface_choice::{InterfaceChoice, usable_interfaces};

/// Time limit of a unary call. Messages have none: agents may block until the task ends.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// Connection to one agent over one interface.
pub(crate) struct Session<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) client: Client,
    pub(crate) card: AgentCard,
    pub(crate) resume: ResumeHints,
    pub(crate) binding: Binding,
    pub(crate) version: Version,
    /// Whether requests carry a credential.
    has_credential: bool,
}

impl<'a> Session<'a> {
    /// Resolves the card, selects an interface and attaches the credentials.
    pub(crate) async fn open(settings: &'a Settings, out: &mut Output) -> CliResult<Self> {
        let found = reference::resolve(settings).await?;
        Self::with_card(settings, &found, out)
    }

    /// Selects an interface of a resolved card, and attaches the credentials.
    pub(crate) fn with_card(
        settings: &'a Settings,
        found: &ResolvedCard,
        out: &mut Output,
    ) -> CliResult<Self> {
        let first = usable_interfaces(found, settings)?.into_iter().next();
        let first = first.ok_or_else(|| CliError::card_invalid("the card has no interface"))?;
        Self::connect(settings, found, first, out)
    }

    /// Opens a session per binding of the card; only of the bindings of `--transport`, if the card has any of them.
    pub(crate) fn open_all(
        settings: &'a Settings,
        found: &ResolvedCard,
        out: &mut Output,
    ) -> CliResult<Vec<Self>> {
        let mut choices = usable_interfaces(found, settings)?;
        let is_preferred = |choice: &InterfaceChoice| {
            settings
                .transports
                .iter()
                .any(|name| name.eq_ignore_ascii_case(choice.binding.as_str()))
        };
        if choices.iter().any(is_preferred) {
            choices.retain(is_preferred);
        }
        choices
            .into_iter()
            .map(|choice| Self::connect(settings, found, choice, out))
            .collect()
    }

    /// Opens a session over an interface of the card, whatever the settings prefer. `None` if it is not supported.
    pub(crate) fn over_interface(
        settings: &'a Settings,
        found: &ResolvedCard,
        interface: &AgentInterface,
        out: &mut Output,
    ) -> CliResult<Option<Self>> {
        match interface_choice::any_version(found, interface)? {
            Some(choice) => Self::connect(settings, found, choice, out).map(Some),
            None => Ok(None),
        }
    }

    /// The interface that the settings select; `None` if they select none.
    pub(crate) fn default_interface(
        settings: &Settings,
        found: &ResolvedCard,
    ) -> Option<AgentInterface> {
        let choices = usable_interfaces(found, settings).ok()?;
        choices.into_iter().next().map(|choice| choice.interface)
    }

    /// Whether requests carry a credential.
    pub(crate) fn has_credential(&self) -> bool {
        self.has_credential
    }

    fn connect(
        settings: &'a Settings,
        found: &ResolvedCard,
        choice: InterfaceChoice,
        out: &mut Output,
    ) -> CliResult<Self> {
        let InterfaceChoice {
            interface,
            binding,
            version: SelectedVersion { version, header },
        } = choice;
        if version == Version::V03 {
            out.warn(&format!(
                "using A2A {header} as requested; the output has the 1.0 format"
            ));
        }
        let client = build_client(settings, found, &interface, &header)?;
        let (client, has_credential) =
            credentials::attach(client, found, &interface, settings, out)?;
        if settings.debug {
            let url = &interface.url;
            out.note(&format!("debug: {} {header} at {url}", binding.as_str()));
        }
        Ok(Self {
            settings,
            client: wire_log::add_debug_log(client, settings),
            card: found.card.clone(),
            resume: ResumeHints::new(settings),
            binding,
            version,
            has_credential,
        })
    }

    /// Whether the card declares streaming.
    pub(crate) fn supports_streaming(&self) -> bool {
        self.card.capabilities.streaming == Some(true)
    }

    /// Converts an error of a call.
    pub(crate) fn error(&self, error: &Error) -> CliError {
        let converted = CliError::from_error(error, self.binding, self.has_credential);
        let Some(reason) = Client::block_reason(error) else {
            return converted;
        };
        let host = reference::url_host(&self.client.interface().url);
        let message = format!("the card leads to {host}, but its URL {reason}");
        let rerun =
            crate::resume::rerun_with(&format!("--allow-host {}", shell_words::quote(&host)));
        CliError {
            message,
            ..converted
        }
        .hint(format!("if you trust it: {rerun}"))
    }

    /// Converts an error of sending a message. The hint for a message that may have arrived resends it with the same id.
    pub(crate) fn send_error(&self, message: &Message, error: &Error) -> CliError {
        let converted = self.error(error);
        if error.kind() == ErrorKind::Unavailable && HttpClient::may_have_been_sent(error) {
            let rerun = crate::resume::rerun_with(&format!("--message-id {}", message.message_id));
            return converted.hint(format!(
                "the message may have arrived; resend it with the same id: {rerun}"
            ));
        }
        let has_better_hint = matches!(
            error.kind(),
            ErrorKind::TaskNotFound | ErrorKind::RateLimited | ErrorKind::Unavailable
        );
        if converted.exit != 1 || has_better_hint {
            return converted;
        }
        match &message.task_id {
            Some(id) => {
                let get = self.resume.get_command(id.as_str());
                converted.hint(format!(
                    "see the task with `{get}`, or the requests with --debug"
                ))
            }
            None => converted.hint("see the requests with --debug"),
        }
    }

    /// Converts an error of sending a message to a task. If the task has ended, the hint continues in its context.
    pub(crate) async fn explain_refusal(&self, message: &Message, error: &Error) -> CliError {
        let converted = self.send_error(message, error);
        let Some(id) = message.task_id.as_ref().filter(|_| converted.exit == 1) else {
            return converted;
        };
        if error.kind() == ErrorKind::TaskNotFound {
            return converted;
        }
        match self.task(id, Some(0)).await {
            Ok(task) if task.status.state.is_terminal() => {
                let message = format!(
                    "the task has ended as {}: {}",
                    task.status.state, converted.message
                );
                let next = self.resume.for_task(&task);
                CliError {
                    message,
                    ..converted
                }
                .hint(format!(
                    "continue in its context with `{next}`, or see the requests with --debug"
                ))
            }
            _ => converted,
        }
    }

    /// Awaits a unary call, with a time limit.
    pub(crate) async fn call<T>(
        &self,
        call: impl Future<Output = attache::Result<T>>,
    ) -> CliResult<T> {
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(result) => result.map_err(|error| self.error(&error)),
            Err(_) => {
                Err(CliError::timeout("no answer within 60s").hint("see the requests with --debug"))
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

/// Builds the client of an interface, without credentials.
fn build_client(
    settings: &Settings,
    found: &ResolvedCard,
    interface: &AgentInterface,
    version_header: &str,
) -> CliResult<Client> {
    let unusable =
        |error: Error| CliError::internal(format!("cannot use {}: {error}", interface.url));
    let mut builder = Client::builder()
        .tls(crate::tls::client_tls(settings)?)
        .settings(ClientSettings {
            polling: crate::task_follower::polling(settings),
            v03_files: settings.v03_files,
            ..ClientSettings::default()
        });
    if settings.allows_host(&reference::url_host(&interface.url)) {
        builder = builder.trust(&interface.url).map_err(unusable)?;
    }
    // A card from the network must not lead to a more private network than its own (SSRF).
    let client = match found.url() {
        Some(card_url) => builder.interface_from_card(card_url, interface),
        None => builder.interface(interface),
    };
    let client = client
        .and_then(|client| client.with_header("a2a-version", version_header))
        .map_err(unusable)?;
    let client = with_extensions(client, &found.card, settings)?;
    Ok(match telemetry::parent_trace() {
        Some(trace) => client.with_trace(trace),
        None => client,
    })
}

/// Adds the extensions of `--extension`.
///
/// # Errors
/// The agent requires an extension that is not among them.
fn with_extensions(client: Client, card: &AgentCard, settings: &Settings) -> CliResult<Client> {
    let required = card
        .capabilities
        .extensions
        .iter()
        .filter(|one| one.required == Some(true));
    if let Some(missing) = required
        .map(|one| &one.uri)
        .find(|uri| !settings.extensions.contains(uri))
    {
        return Err(CliError::protocol(
            ErrorKind::ExtensionSupportRequired,
            format!("the agent requires the extension {missing}"),
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
