//! Checks of credentials, extensions and media types against the declarations of the card.

use attache::model::{Binding, GetTaskRequest, Message, Part, SecurityRequirement, Task};
use attache::{Client, Error, ErrorKind};
use serde_json::json;

use super::raw::{self, JSON, get_unknown_task, require_binding};
use super::{
    AgentUnderTest, CheckResult, ConformanceCheck, ensure, expect_ok, skip, unknown_task_id,
    violation, with_timeout,
};
use crate::tls;

const NO_EXTENSION: &str = "https://example.com/attache-conformance/no-such-extension";

pub(super) const CHECKS: &[ConformanceCheck] = &[
    ConformanceCheck {
        name: "operations/auth-required",
        rule: "if the card requires credentials, a call without them is refused",
        run: |agent| Box::pin(auth_required(agent)),
    },
    ConformanceCheck {
        name: "operations/auth-challenge",
        rule: "over HTTP, a call without credentials is 401 with WWW-Authenticate",
        run: |agent| Box::pin(auth_challenge(agent)),
    },
    ConformanceCheck {
        name: "operations/auth-undeclared",
        rule: "if the card requires no credentials, calls succeed without them",
        run: |agent| Box::pin(auth_undeclared(agent)),
    },
    ConformanceCheck {
        name: "operations/extension-required",
        rule: "a call without an extension that the card requires is ExtensionSupportRequired",
        run: |agent| Box::pin(extension_required(agent)),
    },
    ConformanceCheck {
        name: "operations/extension-unknown",
        rule: "an unknown extension is ignored",
        run: |agent| Box::pin(extension_unknown(agent)),
    },
    ConformanceCheck {
        name: "operations/output-modes",
        rule: "artifacts have media types that the card declares",
        run: |agent| Box::pin(output_modes(agent)),
    },
    ConformanceCheck {
        name: "operations/input-modes",
        rule: "a part of an undeclared media type is accepted, or refused with ContentTypeNotSupported",
        run: |agent| Box::pin(input_modes(agent)),
    },
];

/// A client of the same interface without credentials.
fn anonymous_client(agent: &AgentUnderTest<'_>) -> CheckResult<Client> {
    let session = agent.session;
    let made = Client::from_interface(&session.client.interface())
        .map_err(|error| violation(error.to_string()))?;
    let tls = tls::client_tls(session.settings).map_err(|failure| skip(failure.message))?;
    let uris = session.settings.extensions.iter().map(String::as_str);
    let made = if session.settings.extensions.is_empty() {
        Ok(made)
    } else {
        made.with_extensions(uris)
    };
    Ok(made
        .map_err(|error| violation(error.to_string()))?
        .with_tls(&tls))
}

async fn get_task_anonymously(agent: &AgentUnderTest<'_>) -> CheckResult<Result<Task, Error>> {
    let request = GetTaskRequest {
        id: unknown_task_id(),
        ..GetTaskRequest::default()
    };
    Ok(with_timeout(anonymous_client(agent)?.get_task(request)).await)
}

/// Skips the check unless the card requires credentials other than a client certificate.
fn require_declared_auth(agent: &AgentUnderTest<'_>) -> CheckResult {
    let requirements = &agent.session.card.security_requirements;
    let has_scheme = |one: &SecurityRequirement| !one.schemes.is_empty();
    if requirements.is_empty() || !requirements.iter().all(has_scheme) {
        return Err(skip("the card requires no credentials"));
    }
    if agent.session.settings.cert.is_some() {
        return Err(skip("every connection has a client certificate"));
    }
    Ok(())
}

async fn auth_required(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_declared_auth(agent)?;
    match get_task_anonymously(agent).await? {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Unauthenticated | ErrorKind::PermissionDenied
            ) =>
        {
            Ok(())
        }
        Err(error) => Err(violation(format!("the error is {:?}", error.kind()))),
        Ok(_) => Err(violation("the call succeeded")),
    }
}

async fn auth_challenge(agent: &AgentUnderTest<'_>) -> CheckResult {
    require_declared_auth(agent)?;
    let (method, path, body) = match agent.session.binding {
        Binding::JsonRpc => ("POST", "", get_unknown_task(&json!(1))),
        Binding::HttpJson => ("GET", "/tasks", String::new()),
        Binding::Grpc => return Err(skip("of HTTP+JSON and JSONRPC")),
    };
    let answer = raw::send_with(&anonymous_client(agent)?, method, path, &[JSON], &body).await?;
    ensure(answer.status == 401, || format!("it is {}", answer.status))?;
    ensure(answer.has_header("www-authenticate"), || {
        "there is no WWW-Authenticate".to_owned()
    })
}

async fn auth_undeclared(agent: &AgentUnderTest<'_>) -> CheckResult {
    if !agent.session.card.security_requirements.is_empty() {
        return Err(skip("the card requires credentials"));
    }
    match get_task_anonymously(agent).await? {
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::Unauthenticated | ErrorKind::PermissionDenied
            ) =>
        {
            Err(violation("a call without credentials is refused"))
        }
        _ => Ok(()),
    }
}

async fn extension_required(agent: &AgentUnderTest<'_>) -> CheckResult {
    let extensions = &agent.session.card.capabilities.extensions;
    if !extensions.iter().any(|one| one.required == Some(true)) {
        return Err(skip("the card requires no extension"));
    }
    require_binding(agent, Binding::JsonRpc)?;
    let headers = [JSON, ("a2a-extensions", NO_EXTENSION)];
    let answer = raw::send(agent, "POST", "", &headers, &get_unknown_task(&json!(1))).await?;
    raw::expect_code(&answer.body, -32008)
}

async fn extension_unknown(agent: &AgentUnderTest<'_>) -> CheckResult {
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
        .map_err(|error| violation(error.to_string()))?;
    let request = GetTaskRequest {
        id: unknown_task_id(),
        ..GetTaskRequest::default()
    };
    match with_timeout(client.get_task(request)).await {
        Err(error) if error.kind() == ErrorKind::TaskNotFound => Ok(()),
        Err(error) => Err(violation(format!(
            "it was refused with {:?}: {}",
            error.kind(),
            error.message()
        ))),
        Ok(_) => Err(violation("an unknown task was returned")),
    }
}

async fn output_modes(agent: &AgentUnderTest<'_>) -> CheckResult {
    let task = agent.first_task()?;
    let card = &agent.session.card;
    let skills = card.skills.iter().flat_map(|skill| &skill.output_modes);
    let declared: Vec<_> = card
        .default_output_modes
        .iter()
        .chain(skills)
        .map(String::as_str)
        .collect();
    if declared.is_empty() {
        return Err(skip("the card declares none"));
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
        Some(kind) => Err(violation(format!(
            "there is {kind}, and the card declares {}",
            declared.join(", ")
        ))),
        None => Ok(()),
    }
}

async fn input_modes(agent: &AgentUnderTest<'_>) -> CheckResult {
    agent.first_response()?;
    let part = Part::text("hello").with_media_type("application/x-attache-conformance");
    let message = Message {
        parts: vec![part],
        ..Message::user("hello")
    };
    match with_timeout(
        agent
            .session
            .client
            .send_message(super::without_waiting(message)),
    )
    .await
    {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::ContentTypeNotSupported => Ok(()),
        other => expect_ok(other).map(drop),
    }
}
