//! Who may call and with what: credentials, extensions, media types. What a card declares is what is seen.

use attache::model::{Binding, GetTaskRequest, Message, Part, SecurityRequirement, Task};
use attache::{Client, Error, ErrorKind};
use serde_json::json;

use super::raw::{self, JSON, get_nobody, over};
use super::{Agent, Check, Ruling, broken, fine, holds, moot, nobody, within};
use crate::tls;

const NO_EXTENSION: &str = "https://example.com/attache-conformance/no-such-extension";

pub(super) const CHECKS: &[Check] = &[
    Check {
        name: "operations/auth-required",
        rule: "where the card asks for credentials, a call without them is refused",
        run: |agent| Box::pin(auth_required(agent)),
    },
    Check {
        name: "operations/auth-challenge",
        rule: "over HTTP, a call without credentials is 401 and says in WWW-Authenticate what to bring",
        run: |agent| Box::pin(auth_challenge(agent)),
    },
    Check {
        name: "operations/auth-undeclared",
        rule: "where the card asks for no credentials, none are needed",
        run: |agent| Box::pin(auth_undeclared(agent)),
    },
    Check {
        name: "operations/extension-required",
        rule: "a call that does not name an extension which the card requires is ExtensionSupportRequired",
        run: |agent| Box::pin(extension_required(agent)),
    },
    Check {
        name: "operations/extension-unknown",
        rule: "an extension that the agent does not know is ignored",
        run: |agent| Box::pin(extension_unknown(agent)),
    },
    Check {
        name: "operations/output-modes",
        rule: "what the agent makes is of the media types that its card declares",
        run: |agent| Box::pin(output_modes(agent)),
    },
    Check {
        name: "operations/input-modes",
        rule: "a part of a media type that the agent does not take is ContentTypeNotSupported, or taken",
        run: |agent| Box::pin(input_modes(agent)),
    },
];

/// The same interface for somebody who has nothing to show.
fn stranger(agent: &Agent<'_>) -> Ruling<Client> {
    let session = agent.session;
    let made = Client::from_interface(&session.client.interface())
        .map_err(|error| broken(error.to_string()))?;
    let tls = tls::of(session.settings).map_err(|failure| moot(failure.message))?;
    let uris = session.settings.extensions.iter().map(String::as_str);
    let made = if session.settings.extensions.is_empty() {
        Ok(made)
    } else {
        made.with_extensions(uris)
    };
    Ok(made
        .map_err(|error| broken(error.to_string()))?
        .with_tls(&tls))
}

async fn asked_by_stranger(agent: &Agent<'_>) -> Ruling<Result<Task, Error>> {
    let request = GetTaskRequest {
        id: nobody(),
        ..GetTaskRequest::default()
    };
    Ok(within(stranger(agent)?.get_task(request)).await)
}

/// Whether every requirement of the card asks for something that is not TLS itself.
fn required(agent: &Agent<'_>) -> Ruling {
    let requirements = &agent.session.card.security_requirements;
    let asks = |one: &SecurityRequirement| !one.schemes.is_empty();
    match !requirements.is_empty() && requirements.iter().all(asks) {
        true if agent.session.settings.cert.is_some() => {
            Err(moot("a certificate is shown with every connection"))
        }
        true => Ok(()),
        false => Err(moot("the card asks for no credentials")),
    }
}

async fn auth_required(agent: &Agent<'_>) -> Ruling {
    required(agent)?;
    match asked_by_stranger(agent).await? {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Unauthenticated | ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        Err(error) => Err(broken(format!("it was answered with {:?}", error.kind()))),
        Ok(_) => Err(broken("it was answered")),
    }
}

async fn auth_challenge(agent: &Agent<'_>) -> Ruling {
    required(agent)?;
    let (method, path, body) = match agent.session.binding {
        Binding::JsonRpc => ("POST", "", get_nobody(&json!(1))),
        Binding::HttpJson => ("GET", "/tasks", String::new()),
        Binding::Grpc => return Err(moot("of HTTP+JSON and JSONRPC")),
    };
    let answer = raw::send_by(&stranger(agent)?, method, path, &[JSON], &body).await?;
    holds(answer.status == 401, || format!("it is {}", answer.status))?;
    holds(answer.has_header("www-authenticate"), || {
        "there is no WWW-Authenticate".to_owned()
    })
}

async fn auth_undeclared(agent: &Agent<'_>) -> Ruling {
    if !agent.session.card.security_requirements.is_empty() {
        return Err(moot("the card asks for credentials"));
    }
    match asked_by_stranger(agent).await? {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Unauthenticated | ErrorKind::PermissionDenied
            ) =>
        {
            Err(broken("a call without credentials is refused"))
        }
        _ => Ok(()),
    }
}

async fn extension_required(agent: &Agent<'_>) -> Ruling {
    let extensions = &agent.session.card.capabilities.extensions;
    if !extensions.iter().any(|one| one.required == Some(true)) {
        return Err(moot("the card requires no extension"));
    }
    over(agent, Binding::JsonRpc)?;
    let headers = [JSON, ("a2a-extensions", NO_EXTENSION)];
    let answer = raw::send(agent, "POST", "", &headers, &get_nobody(&json!(1))).await?;
    raw::is_code(&answer.body, -32008)
}

async fn extension_unknown(agent: &Agent<'_>) -> Ruling {
    let mut uris: Vec<_> = agent
        .session
        .settings
        .extensions
        .iter()
        .map(String::as_str)
        .collect();
    uris.push(NO_EXTENSION);
    let client = agent
        .session
        .client
        .clone()
        .with_extensions(uris)
        .map_err(|error| broken(error.to_string()))?;
    let request = GetTaskRequest {
        id: nobody(),
        ..GetTaskRequest::default()
    };
    match within(client.get_task(request)).await {
        Err(error) if error.kind() == ErrorKind::TaskNotFound => Ok(()),
        Err(error) => Err(broken(format!(
            "it was refused with {:?}: {}",
            error.kind(),
            error.message()
        ))),
        Ok(_) => Err(broken("a task that is not there was answered")),
    }
}

async fn output_modes(agent: &Agent<'_>) -> Ruling {
    let task = agent.task()?;
    let card = &agent.session.card;
    let skills = card.skills.iter().flat_map(|skill| &skill.output_modes);
    let declared: Vec<_> = card
        .default_output_modes
        .iter()
        .chain(skills)
        .map(String::as_str)
        .collect();
    if declared.is_empty() {
        return Err(moot("the card declares none"));
    }
    let takes = |one: &str, kind: &str| {
        let all = one
            .strip_suffix("/*")
            .is_some_and(|family| kind.split('/').next() == Some(family));
        one == "*/*" || all || one.eq_ignore_ascii_case(kind)
    };
    let parts = task.artifacts.iter().flat_map(|artifact| &artifact.parts);
    let kinds = parts
        .filter_map(|part| part.media_type())
        .map(|kind| kind.split(';').next().unwrap_or(kind).trim());
    match kinds
        .into_iter()
        .find(|kind| !declared.iter().any(|one| takes(one, kind)))
    {
        Some(kind) => Err(broken(format!(
            "there is {kind}, and the card declares {}",
            declared.join(", ")
        ))),
        None => Ok(()),
    }
}

async fn input_modes(agent: &Agent<'_>) -> Ruling {
    agent.answer()?;
    let part = Part::text("hello").with_media_type("application/x-attache-conformance");
    let message = Message {
        parts: vec![part],
        ..Message::user("hello")
    };
    match within(agent.session.client.send_message(super::at_once(message))).await {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::ContentTypeNotSupported => Ok(()),
        other => fine(other).map(drop),
    }
}
