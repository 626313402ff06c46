//! Requests of the card: TLS, status, content and schema.

use std::time::Instant;

use attache::model::Binding;
use attache::wire::card::WELL_KNOWN;
use attache::{ClientSettings, ClientTls, ConnectError, Error, ErrorKind, HttpClient, RetryPolicy};

use super::DiagnosticStep::{Card, Tls};
use super::{Diagnostic, Examination};
use crate::card_schema::{CardSchema, findings};
use crate::error::{CliError, CliResult};
use crate::reference::{self, ResolvedCard};
use crate::settings::Settings;
use crate::wire_log::{self, HeadCapture};

/// Examines a card that is not given by a URL.
pub(super) async fn examine_document(
    examination: &mut Examination<'_>,
) -> CliResult<Option<ResolvedCard>> {
    let found = match reference::fetch_document(examination.settings).await {
        Ok(document) => document.parse(),
        Err(error) => Err(error),
    };
    match found {
        Ok(found) => {
            examination.add(describe(&found, None))?;
            Ok(Some(found))
        }
        Err(error) => {
            examination.add(from_error(Card, error))?;
            Ok(None)
        }
    }
}

/// Requests the card from a URL, and from the well-known paths below it.
pub(super) async fn examine_url(
    examination: &mut Examination<'_>,
    url: &str,
    heads: &HeadCapture,
) -> CliResult<Option<ResolvedCard>> {
    let settings = examination.settings;
    let mut failure = None;
    for candidate in reference::candidate_urls(url, true) {
        let start = Instant::now();
        let answer = fetch(settings, &candidate, heads, Certificates::Checked).await;
        if let Some(cause) = answer.as_ref().err().and_then(HttpClient::connect_error) {
            let failure = connection_failure(settings, &candidate, heads, &answer, cause).await;
            examination.add(failure)?;
            return Ok(None);
        }
        if candidate.starts_with("https://") && !examination.has(Tls) {
            examination.add(Diagnostic::ok(Tls, certificate_state(settings)))?;
        }
        let parsed = answer
            .map_err(|error| refusal(settings, &candidate, &error))
            .and_then(|text| parse(candidate, text, heads));
        match parsed {
            Ok(found) => {
                let millis = start.elapsed().as_millis();
                examination.add(describe(&found, Some(millis)))?;
                return Ok(Some(found));
            }
            Err(diagnostic) => drop(failure.get_or_insert(diagnostic)),
        }
    }
    if let Some(failure) = failure {
        examination.add(failure)?;
    }
    Ok(None)
}

/// Whether to verify the certificate of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Certificates {
    Checked,
    /// To learn the time of the server. Such a request carries no credentials.
    Ignored,
}

async fn fetch(
    settings: &Settings,
    url: &str,
    heads: &HeadCapture,
    certificates: Certificates,
) -> Result<String, Error> {
    let builder = match certificates {
        Certificates::Checked => reference::card_client_with_credentials(settings, url)?,
        Certificates::Ignored => reference::card_client(settings)?.tls(ClientTls::new().insecure()),
    };
    let builder = builder.settings(ClientSettings {
        timeouts: reference::card_timeouts(),
        retries: RetryPolicy {
            max_retries: 0,
            ..RetryPolicy::default()
        },
        ..ClientSettings::default()
    });
    wire_log::capture_heads_of_builder(builder, settings, heads)
        .card_text(url)
        .await
}

fn certificate_state(settings: &Settings) -> &'static str {
    match (settings.insecure, &settings.ca) {
        (true, _) => "the connection is encrypted, but the certificate is not checked (--insecure)",
        (false, Some(_)) => "the certificate is valid for the authority of --ca",
        (false, None) => "the certificate is valid",
    }
}

/// A failed connection. Tries what would work instead.
async fn connection_failure(
    settings: &Settings,
    url: &str,
    heads: &HeadCapture,
    answer: &Result<String, Error>,
    cause: ConnectError,
) -> Diagnostic {
    let Err(error) = answer else {
        return Diagnostic::ok(Card, "");
    };
    let error = CliError::from_error(error, Binding::HttpJson, false);
    match cause {
        ConnectError::NotTls => {
            let plain = url.replacen("https://", "http://", 1);
            let works = fetch(settings, &plain, heads, Certificates::Checked).await;
            let error = CliError {
                message: format!("the server at {url} does not use TLS"),
                ..error
            };
            with_alternative(error, &plain, works.is_ok())
        }
        ConnectError::NotHttp => {
            let encrypted = url.replacen("http://", "https://", 1);
            let works = fetch(settings, &encrypted, heads, Certificates::Checked).await;
            let error = CliError {
                message: format!("the server at {url} does not speak plain HTTP"),
                ..error
            };
            with_alternative(error, &encrypted, works.is_ok())
        }
        ConnectError::CaCertificate
        | ConnectError::CertificateName
        | ConnectError::UntrustedCertificate => {
            // For the date: a certificate may only look expired.
            let _ = fetch(settings, url, heads, Certificates::Ignored).await;
            from_error(Tls, error)
        }
        ConnectError::ClientCertificateRequired => from_error(Tls, error),
        ConnectError::Other => from_error(Card, error),
    }
}

/// A failure of TLS, with a reference that works if there is one.
fn with_alternative(error: CliError, url: &str, works: bool) -> Diagnostic {
    let failure = from_error(Tls, error);
    if !works {
        return failure;
    }
    let reference = url.strip_suffix(WELL_KNOWN[0]).unwrap_or(url);
    failure.hint(format!("this works: -a {}", shell_words::quote(reference)))
}

fn from_error(step: super::DiagnosticStep, error: CliError) -> Diagnostic {
    let diagnostic = Diagnostic::failed(step, error.message);
    match error.hint {
        Some(hint) => diagnostic.hint(hint),
        None => diagnostic,
    }
}

/// A response that is an error.
fn refusal(settings: &Settings, url: &str, error: &Error) -> Diagnostic {
    match error.kind() {
        ErrorKind::TaskNotFound => Diagnostic::failed(Card, format!("there is no card at {url}"))
            .hint("check the path: behind a shared host name an agent has its own, such as https://host/agent"),
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied if settings.card_auth => {
            Diagnostic::failed(Card, format!("the server refuses the credentials for {url}"))
                .hint("check that the credential is for this agent and has not expired")
        }
        ErrorKind::Unauthenticated | ErrorKind::PermissionDenied => {
            Diagnostic::failed(Card, format!("{url} requires credentials"))
                .hint("the first request carries none; to send them: --card-auth with --bearer or --api-key")
        }
        _ => from_error(Card, reference::card_error(url, error)),
    }
}

/// Parses the document, or describes it if it is no card.
fn parse(url: String, text: String, heads: &HeadCapture) -> Result<ResolvedCard, Diagnostic> {
    let head = heads.last();
    let content_type = head
        .as_ref()
        .and_then(|head| head.header("content-type"))
        .unwrap_or("no content type")
        .to_owned();
    let is_page = content_type.starts_with("text/html") || text.trim_start().starts_with("<");
    let location = url.clone();
    let parsed = reference::received(url, text).parse();
    match parsed {
        Ok(found) if !found.card.supported_interfaces.is_empty() => Ok(found),
        _ if is_page => Err(Diagnostic::failed(
            Card,
            format!("{location} is a web page ({content_type}), not a card"),
        )
        .hint("is this the address of the agent, or of a login page or portal in front of it?")),
        Ok(_) => Err(
            Diagnostic::failed(Card, format!("the card at {location} has no interface"))
                .hint("see its errors: attache card lint"),
        ),
        Err(error) => Err(from_error(Card, error)),
    }
}

/// Name, version and interfaces of a card; a warning if it violates the schema.
fn describe(found: &ResolvedCard, millis: Option<u128>) -> Diagnostic {
    let card = &found.card;
    let time = millis.map(|millis| format!(", in {millis} ms"));
    let what = format!(
        "{} {}{}",
        crate::output::line(&card.name),
        crate::output::line(&card.version),
        time.unwrap_or_default()
    );
    let document = serde_json::from_str(&found.received.text).unwrap_or_default();
    let errors = findings(&document, CardSchema::select(None, &document));
    match errors.first() {
        None => Diagnostic::ok(Card, what),
        Some(first) => {
            let count = errors.len();
            Diagnostic::warning(
                Card,
                format!("{what}; errors in the card: {count}, the first is {first}"),
            )
            .hint("other clients may refuse it; see attache card lint")
        }
    }
}
