//! One agent, ready to be talked to: its card, the interface that was chosen, and what goes with every request.

mod credentials;

use std::time::Duration;

use attache::model::{AgentCard, AgentInterface, Binding, GetTaskRequest, Task, TaskId, Version};
use attache::{Client, Error, ErrorKind};

use crate::failure::{Failure, Outcome};
use crate::output::Output;
use crate::reference::{self, Found};
use crate::resume::Resume;
use crate::settings::Settings;
use crate::version::{Wanted, rank};
use crate::wire_log;

/// How long one answer may take; a message may take longer, since agents may wait before they answer.
const CALL_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Session<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) client: Client,
    pub(crate) card: AgentCard,
    pub(crate) resume: Resume,
    binding: Binding,
    /// Whether a credential goes along.
    supplied: bool,
}

impl<'a> Session<'a> {
    /// Reads the card, chooses from it, and attaches what the agent asks for and the user gave.
    pub(crate) async fn open(settings: &'a Settings, out: &mut Output) -> Outcome<Self> {
        let found = reference::find(settings).await?;
        Self::on(settings, found, out)
    }

    pub(crate) fn on(settings: &'a Settings, found: Found, out: &mut Output) -> Outcome<Self> {
        let (interface, version, signal) = choose(&found, settings)?;
        if version == Version::V03 {
            out.warn(&format!("speaking A2A {signal}, as asked; what is printed is in the shapes of 1.0"));
        }
        let unusable = |error: Error| Failure::internal(format!("cannot use {}: {error}", interface.url));
        let binding = interface.binding().unwrap_or(Binding::JsonRpc);
        let client = Client::from_interface(&interface).map_err(unusable)?;
        let client = client.with_tls(&crate::tls::of(settings)?);
        let client = client.with_header("a2a-version", &signal).map_err(unusable)?;
        let client = extensions(client, &found.card, settings)?;
        let (client, supplied) = credentials::attach(client, &found, &interface, settings, out)?;
        let client = if settings.debug {
            out.note(&format!("debug: {} {signal} at {}", binding.as_str(), interface.url));
            wire_log::watch(client, settings)
        } else {
            client
        };
        let resume = Resume::new(settings);
        Ok(Self { settings, client, card: found.card, resume, binding, supplied })
    }

    pub(crate) fn streams(&self) -> bool {
        self.card.capabilities.streaming == Some(true)
    }

    /// What the agent said, in our words.
    pub(crate) fn failure(&self, error: &Error) -> Failure {
        Failure::of(error, self.binding, self.supplied)
    }

    /// Waits for an answer, but not for ever.
    pub(crate) async fn call<T>(&self, call: impl Future<Output = attache::Result<T>>) -> Outcome<T> {
        match tokio::time::timeout(CALL_TIMEOUT, call).await {
            Ok(answer) => answer.map_err(|error| self.failure(&error)),
            Err(_) => Err(Failure::timeout("no answer came within 60s").hint("see the wire with --debug")),
        }
    }

    pub(crate) async fn task(&self, id: &TaskId, history_length: Option<i32>) -> Outcome<Task> {
        let request = GetTaskRequest { id: id.clone(), history_length, ..GetTaskRequest::default() };
        self.call(self.client.get_task(request)).await
    }
}

/// The first interface that we speak, in the order of the card or of the user; of its binding the highest version.
fn choose(found: &Found, settings: &Settings) -> Outcome<(AgentInterface, Version, String)> {
    let wanted = Wanted::of(settings)?;
    let all = &found.card.supported_interfaces;
    let known = |one: &&AgentInterface| one.binding().is_some();
    let usable: Vec<_> = all.iter().filter(known).filter_map(|one| Some((one, wanted.take(one)?))).collect();
    let preferred = settings.transports.iter().find_map(|name| {
        usable.iter().map(|(one, _)| *one).find(|one| one.protocol_binding.eq_ignore_ascii_case(name))
    });
    let first = preferred.or_else(|| usable.first().map(|(one, _)| *one));
    let Some(first) = first else { return Err(unusable(found, &wanted)) };
    let same = usable.into_iter().filter(|(one, _)| one.binding() == first.binding());
    // The first of several with the same version: `max_by` alone would take the last.
    let best = same.rev().max_by_key(|(one, _)| rank(&one.protocol_version));
    let Some((one, (version, signal))) = best else { return Err(unusable(found, &wanted)) };
    let url = found.address(one);
    let protocol_version = version.as_str().to_owned();
    Ok((AgentInterface { url, protocol_version, ..one.clone() }, version, signal))
}

fn unusable(found: &Found, wanted: &Wanted) -> Failure {
    let offers = found.card.supported_interfaces.iter();
    let offers: Vec<_> =
        offers.map(|one| format!("{} {}", one.protocol_binding, one.protocol_version)).collect();
    let others = found.card.supported_interfaces.iter().filter(|one| one.binding().is_some());
    let old =
        others.filter(|one| Wanted::Any.take(one).is_some()).map(|one| one.protocol_version.clone()).next();
    match (offers.is_empty(), old) {
        (true, _) => Failure::card_invalid("the card names no interface"),
        (false, Some(version)) => Failure::protocol(
            ErrorKind::VersionNotSupported,
            format!("the agent offers {}, which was not asked for", offers.join(", ")),
        )
        .hint(crate::resume::again(&format!(
            "--a2a-version {}",
            if *wanted == Wanted::Current { version.as_str() } else { "auto" }
        ))),
        (false, None) => {
            Failure::internal(format!("the agent offers {}, and we speak none of them", offers.join(", ")))
        }
    }
}

/// Names the extensions that the user wants, and finds those that the agent needs.
fn extensions(client: Client, card: &AgentCard, settings: &Settings) -> Outcome<Client> {
    let needed = card.capabilities.extensions.iter().filter(|one| one.required == Some(true));
    if let Some(missing) = needed.map(|one| &one.uri).find(|uri| !settings.extensions.contains(uri)) {
        return Err(Failure::protocol(
            ErrorKind::ExtensionSupportRequired,
            format!("the agent needs its callers to support {missing}"),
        )
        .hint(crate::resume::again(&format!("--extension {}", shell_words::quote(missing)))));
    }
    if settings.extensions.is_empty() {
        return Ok(client);
    }
    let uris = settings.extensions.iter().map(String::as_str);
    client.with_extensions(uris).map_err(|error| Failure::usage(format!("--extension: {error}")))
}
