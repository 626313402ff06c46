//! `attache card lint`: violations of the schema, and warnings about interoperability.

use std::collections::BTreeSet;

use attache::model::AgentCard;
use serde::Serialize;
use serde_json::Value;

use crate::card_schema::{CardSchema, findings};
use crate::error::{CliError, CliResult};
use crate::output::{Output, TextPage};
use crate::reference::{self, is_loopback};
use crate::settings::Settings;

#[derive(Serialize)]
struct LintReport {
    schema: &'static str,
    errors: Vec<String>,
    warnings: Vec<String>,
}

/// Exit code if the card violates the schema.
const EXIT_SCHEMA_ERRORS: u8 = 1;

pub(crate) async fn run(settings: &Settings, out: &mut Output) -> CliResult<u8> {
    let received = reference::fetch_document(settings).await?;
    let read: Value = serde_json::from_str(&received.text)
        .map_err(|error| CliError::card_invalid(format!("the card is not JSON: {error}")))?;
    let schema = CardSchema::select(settings.version.as_deref(), &read);
    let errors = findings(&read, schema);
    // A card that cannot be parsed has errors that explain it.
    let warnings = received
        .parse()
        .map(|found| warnings(&found.card, found.host()))
        .unwrap_or_default();
    let exit = if errors.is_empty() {
        0
    } else {
        EXIT_SCHEMA_ERRORS
    };
    if out.is_json() {
        out.print_json(&LintReport {
            schema: "attache.card-lint/1",
            errors,
            warnings,
        })?;
        return Ok(exit);
    }
    let mut page = TextPage::new(false);
    errors
        .iter()
        .for_each(|finding| page.add_field("Error", finding));
    warnings
        .iter()
        .for_each(|finding| page.add_field("Warning", finding));
    if errors.is_empty() && warnings.is_empty() {
        page.add_field("Findings", "none");
    }
    out.print_page(&page)?;
    Ok(exit)
}

fn warnings(card: &AgentCard, host: Option<&str>) -> Vec<String> {
    let mut found = Vec::new();
    let remote = host.is_some_and(|host| !is_loopback(host));
    for (index, interface) in card.supported_interfaces.iter().enumerate() {
        let place = format!("supportedInterfaces[{index}]");
        if remote && interface.url.starts_with("http://") {
            found.push(format!("{place}.url does not use TLS"));
        }
        if remote
            && ["localhost", "127.0.0.1", "0.0.0.0", "[::"]
                .iter()
                .any(|local| interface.url.contains(local))
        {
            found.push(format!("{place}.url is a loopback address"));
        }
        if interface.binding().is_none() {
            found.push(format!(
                "{place}.protocolBinding is not one of JSONRPC, HTTP+JSON, GRPC"
            ));
        }
    }
    let versions: BTreeSet<_> = card
        .supported_interfaces
        .iter()
        .map(|one| one.protocol_version.as_str())
        .collect();
    if !versions.iter().any(|version| version.starts_with("0.")) {
        found.push(
            "no interface has version 0.3: clients of that version cannot use the agent".to_owned(),
        );
    }
    if !versions.iter().any(|version| version.starts_with("1.")) {
        found.push("no interface has version 1.x: current clients may refuse the agent".to_owned());
    }
    if card.skills.is_empty() {
        found.push("skills is empty: clients cannot select the agent by skill".to_owned());
    }
    let mut ids = BTreeSet::new();
    for (index, skill) in card.skills.iter().enumerate() {
        if !ids.insert(&skill.id) {
            found.push(format!("skills[{index}].id is a duplicate"));
        }
        if skill.examples.is_empty() {
            found.push(format!("skills[{index}].examples is empty"));
        }
    }
    if !card.security_schemes.is_empty() && card.security_requirements.is_empty() {
        found.push(
            "securitySchemes are declared, but securityRequirements requires none of them"
                .to_owned(),
        );
    }
    found
}
