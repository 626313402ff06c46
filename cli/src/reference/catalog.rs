//! Agent catalogs: `<catalog>#<name>`, or `@<name>` with `--catalog`.

use serde::Deserialize;
use serde_json::Value;

use crate::error::{CliError, CliResult};
use crate::settings::Settings;

/// Well-known path of a catalog.
pub(super) const WELL_KNOWN: &str = "/.well-known/ai-catalog.json";
/// Type of an entry that is an agent card.
const CARD: &str = "application/a2a-agent-card+json";

/// Reference to a catalog entry.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct CatalogReference {
    pub(super) catalog: String,
    pub(super) name: String,
}

/// The card of an entry: its URL, or the card itself.
#[derive(Debug, PartialEq)]
pub(super) enum CardSource {
    Url(String),
    Data(Value),
}

#[derive(Deserialize)]
struct AgentCatalog {
    entries: Vec<CatalogEntry>,
}

#[derive(Deserialize)]
struct CatalogEntry {
    #[serde(default)]
    identifier: String,
    #[serde(default, rename = "displayName")]
    display_name: String,
    #[serde(default, rename = "type")]
    kind: String,
    url: Option<String>,
    data: Option<Value>,
}

/// Parses a reference; `None` if it does not refer to a catalog entry.
pub(super) fn parse_reference(
    reference: &str,
    settings: &Settings,
) -> CliResult<Option<CatalogReference>> {
    if let Some(name) = reference.strip_prefix('@') {
        let catalog = settings.catalog.clone().ok_or_else(|| {
            CliError::usage(format!(
                "{reference} is a catalog entry, and no catalog is given"
            ))
            .hint("give one: --catalog <host, url or file>, or ATTACHE_CATALOG")
        })?;
        return Ok(Some(CatalogReference {
            catalog,
            name: name.to_owned(),
        }));
    }
    Ok(reference
        .split_once('#')
        .filter(|(_, name)| !name.is_empty())
        .map(|(catalog, name)| CatalogReference {
            catalog: catalog.to_owned(),
            name: name.to_owned(),
        }))
}

/// Finds an entry by its identifier, else by its display name.
pub(super) fn find(text: &str, location: &str, name: &str) -> CliResult<CardSource> {
    let catalog: AgentCatalog = serde_json::from_str(text).map_err(|error| {
        CliError::card_not_found(format!("{location} is not a catalog: {error}"))
    })?;
    let agents: Vec<_> = catalog
        .entries
        .into_iter()
        .filter(|one| one.kind == CARD)
        .collect();
    let listed = agents
        .iter()
        .map(|one| format!("{} ({})", one.display_name, one.identifier));
    let listed: Vec<_> = listed.take(20).collect();
    let by_id = agents.iter().any(|one| one.identifier == name);
    let is_match = |one: &CatalogEntry| {
        if by_id {
            one.identifier == name
        } else {
            one.display_name == name
        }
    };
    let mut found: Vec<_> = agents.into_iter().filter(is_match).collect();
    let Some(line) = found.pop() else {
        let error =
            CliError::card_not_found(format!("the catalog at {location} has no agent {name}"));
        return Err(if listed.is_empty() {
            error.hint("it has no agents")
        } else {
            error.hint(format!("it has {}", listed.join(", ")))
        });
    };
    if !found.is_empty() {
        let all = found
            .iter()
            .chain([&line])
            .map(|one| one.identifier.as_str());
        let all = all.collect::<Vec<_>>().join(", ");
        return Err(CliError::usage(format!(
            "the catalog at {location} has several agents {name}"
        ))
        .hint(format!("use an identifier: {all}")));
    }
    match (line.url, line.data) {
        (Some(url), _) => Ok(CardSource::Url(url)),
        (None, Some(data)) => Ok(CardSource::Data(data)),
        (None, None) => Err(CliError::card_not_found(format!(
            "the entry {name} at {location} has neither url nor data"
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn card_get_005_an_entry_is_found_by_its_identifier_or_its_name() {
        let line = |id: &str, name: &str, url: &str| json!({"identifier": id, "displayName": name, "type": CARD, "url": url});
        let text = json!({"specVersion": "1.0", "entries": [
            line("urn:a", "Tides", "/a"), line("urn:b", "Twin", "/b"), line("urn:c", "Twin", "/c"),
            {"identifier": "urn:d", "displayName": "Tool", "type": "application/mcp-server+json", "url": "/d"},
            {"identifier": "urn:e", "displayName": "Inline", "type": CARD, "data": {"name": "x"}},
        ]})
        .to_string();
        let find = |name: &str| find(&text, "here", name);
        assert_eq!(find("urn:b").unwrap(), CardSource::Url("/b".to_owned()));
        assert_eq!(find("Tides").unwrap(), CardSource::Url("/a".to_owned()));
        assert_eq!(
            find("Inline").unwrap(),
            CardSource::Data(json!({"name": "x"}))
        );
        let several = find("Twin").unwrap_err();
        assert!(
            several.exit == 2 && several.hint.as_deref().unwrap().contains("urn:b"),
            "{several:?}"
        );
        for unknown in ["Tool", "none"] {
            assert_eq!(find(unknown).unwrap_err().exit, 3, "{unknown}");
        }
    }
}
