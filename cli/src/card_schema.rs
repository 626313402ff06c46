//! Validation of agent cards against the schemas of 1.0 and 0.x.

use serde_json::{Map, Value};

/// Schema of a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CardSchema {
    V1,
    /// 0.3, which requires `protocolVersion`.
    V03,
    /// 0.1 and 0.2.
    V02,
}

impl CardSchema {
    /// Returns the schema for `--a2a-version`. `auto` selects the newest that the card was written for; without the flag
    /// it is 1.0.
    pub(crate) fn select(version: Option<&str>, card: &Value) -> Self {
        match version {
            Some("auto") if card.get("supportedInterfaces").is_some() => Self::V1,
            Some("auto") if card.get("protocolVersion").is_some() => Self::V03,
            Some("auto") => Self::V02,
            Some(version) if version == "0.3" || version.starts_with("0.3.") => Self::V03,
            Some(version) if version.starts_with("0.") => Self::V02,
            Some(_) | None => Self::V1,
        }
    }
}

/// Returns all violations of a card, each with its JSON path.
pub(crate) fn findings(card: &Value, schema: CardSchema) -> Vec<String> {
    let mut found = SchemaFindings::default();
    match card {
        Value::Object(card) => found.card(card, schema),
        _ => found.add("the card", "must be an object"),
    }
    found.0
}

#[derive(Default)]
struct SchemaFindings(Vec<String>);

impl SchemaFindings {
    fn add(&mut self, path: &str, rule: &str) {
        self.0.push(format!("{path} {rule}"));
    }

    fn card(&mut self, card: &Map<String, Value>, schema: CardSchema) {
        for name in ["name", "description", "version"] {
            self.text(card, "", name);
        }
        for name in ["defaultInputModes", "defaultOutputModes"] {
            self.texts(card, "", name);
        }
        match schema {
            CardSchema::V1 => {
                self.objects(card, "", "supportedInterfaces", true, |found, one, at| {
                    for name in ["url", "protocolBinding", "protocolVersion"] {
                        found.text(one, at, name);
                    }
                    found.optional_text(one, at, "tenant");
                });
                self.schemes(card);
            }
            CardSchema::V03 => {
                self.text(card, "", "protocolVersion");
                self.optional_text(card, "", "preferredTransport");
                self.v03_endpoint(card);
            }
            CardSchema::V02 => self.v03_endpoint(card),
        }
        self.objects(card, "", "skills", false, |found, one, at| {
            for name in ["id", "name", "description"] {
                found.text(one, at, name);
            }
            found.texts(one, at, "tags");
        });
        self.capabilities(card);
        if card.contains_key("signatures") {
            self.objects(card, "", "signatures", false, |found, one, at| {
                found.text(one, at, "protected");
                found.text(one, at, "signature");
            });
        }
    }

    /// Checks the endpoints and security schemes of 0.x.
    fn v03_endpoint(&mut self, card: &Map<String, Value>) {
        const KINDS: [&str; 5] = ["apiKey", "http", "oauth2", "openIdConnect", "mutualTLS"];
        self.text(card, "", "url");
        if card.contains_key("additionalInterfaces") {
            self.objects(card, "", "additionalInterfaces", false, |found, one, at| {
                found.text(one, at, "url");
                found.text(one, at, "transport");
            });
        }
        let declared = card.get("securitySchemes").and_then(Value::as_object);
        for (name, scheme) in declared.into_iter().flatten() {
            let kind = scheme.get("type").and_then(Value::as_str);
            if !kind.is_some_and(|kind| KINDS.contains(&kind)) {
                self.add(
                    &format!("securitySchemes.{name}.type"),
                    &format!("must be one of {}", KINDS.join(", ")),
                );
            }
        }
        let requirements = card.get("security").and_then(Value::as_array);
        for (at, requirement) in requirements.into_iter().flatten().enumerate() {
            let named = requirement.as_object();
            for name in named.into_iter().flat_map(Map::keys) {
                if declared.is_none_or(|declared| !declared.contains_key(name)) {
                    self.add(
                        &format!("security[{at}]"),
                        &format!("names {name}, which securitySchemes does not have"),
                    );
                }
            }
        }
    }

    fn capabilities(&mut self, card: &Map<String, Value>) {
        let Some(capabilities) = card.get("capabilities").and_then(Value::as_object) else {
            return self.add("capabilities", "must be an object");
        };
        for name in ["streaming", "pushNotifications", "extendedAgentCard"] {
            if capabilities
                .get(name)
                .is_some_and(|value| !value.is_boolean())
            {
                self.add(&format!("capabilities.{name}"), "must be true or false");
            }
        }
        if capabilities.contains_key("extensions") {
            self.objects(
                capabilities,
                "capabilities.",
                "extensions",
                false,
                |found, one, at| {
                    found.text(one, at, "uri");
                },
            );
        }
    }

    fn schemes(&mut self, card: &Map<String, Value>) {
        const KINDS: [&str; 5] = [
            "apiKeySecurityScheme",
            "httpAuthSecurityScheme",
            "oauth2SecurityScheme",
            "openIdConnectSecurityScheme",
            "mtlsSecurityScheme",
        ];
        let declared = card.get("securitySchemes").and_then(Value::as_object);
        for (name, scheme) in declared.into_iter().flatten() {
            let kinds = KINDS
                .iter()
                .filter(|kind| scheme.get(**kind).is_some())
                .count();
            if kinds != 1 {
                self.add(
                    &format!("securitySchemes.{name}"),
                    &format!("must have exactly one of {}", KINDS.join(", ")),
                );
            }
        }
        let requirements = card.get("securityRequirements").and_then(Value::as_array);
        for (at, requirement) in requirements.into_iter().flatten().enumerate() {
            let named = requirement.get("schemes").and_then(Value::as_object);
            for name in named.into_iter().flat_map(Map::keys) {
                if declared.is_none_or(|declared| !declared.contains_key(name)) {
                    let place = format!("securityRequirements[{at}]");
                    self.add(
                        &place,
                        &format!("names {name}, which securitySchemes does not have"),
                    );
                }
            }
        }
    }

    fn text(&mut self, object: &Map<String, Value>, at: &str, name: &str) {
        match object.get(name) {
            Some(Value::String(text)) if !text.is_empty() => {}
            Some(Value::String(_)) => self.add(&format!("{at}{name}"), "must not be empty"),
            Some(_) => self.add(&format!("{at}{name}"), "must be a string"),
            None => self.add(&format!("{at}{name}"), "is missing"),
        }
    }

    fn optional_text(&mut self, object: &Map<String, Value>, at: &str, name: &str) {
        if object.get(name).is_some_and(|value| !value.is_string()) {
            self.add(&format!("{at}{name}"), "must be a string");
        }
    }

    fn texts(&mut self, object: &Map<String, Value>, at: &str, name: &str) {
        let texts = object.get(name).and_then(Value::as_array);
        if !texts.is_some_and(|texts| texts.iter().all(Value::is_string)) {
            self.add(&format!("{at}{name}"), "must be a list of strings");
        }
    }

    fn objects(
        &mut self,
        object: &Map<String, Value>,
        at: &str,
        name: &str,
        is_required: bool,
        check: impl Fn(&mut Self, &Map<String, Value>, &str),
    ) {
        let place = format!("{at}{name}");
        let Some(list) = object.get(name).and_then(Value::as_array) else {
            return self.add(&place, "must be a list");
        };
        if is_required && list.is_empty() {
            self.add(&place, "must not be empty");
        }
        for (index, one) in list.iter().enumerate() {
            match one.as_object() {
                Some(one) => check(self, one, &format!("{place}[{index}].")),
                None => self.add(&format!("{place}[{index}]"), "must be an object"),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn good() -> Value {
        json!({
            "name": "a", "description": "b", "version": "1", "capabilities": {"streaming": true},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "supportedInterfaces": [{"url": "http://x", "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}],
            "skills": [{"id": "s", "name": "s", "description": "s", "tags": []}],
            "securitySchemes": {"k": {"apiKeySecurityScheme": {"location": "header", "name": "x"}}},
            "securityRequirements": [{"schemes": {"k": {"list": []}}}],
        })
    }

    #[test]
    fn card_get_002_a_good_card_has_no_findings_and_a_bad_one_names_each_place() {
        assert_eq!(findings(&good(), CardSchema::V1), Vec::<String>::new());
        let mut bad = good();
        bad["name"] = json!("");
        bad["capabilities"]["streaming"] = json!("yes");
        bad["supportedInterfaces"] = json!([{"url": 7}]);
        bad["skills"][0]["tags"] = json!(null);
        bad["securitySchemes"] = json!({"k": {}});
        bad["securityRequirements"] = json!([{"schemes": {"z": {}}}]);
        bad.as_object_mut().unwrap().remove("version");
        let found = findings(&bad, CardSchema::V1).join("\n");
        for place in [
            "name must not be empty",
            "version is missing",
            "capabilities.streaming",
            "supportedInterfaces[0].url must be a string",
            "supportedInterfaces[0].protocolBinding is missing",
            "skills[0].tags",
            "securitySchemes.k must have exactly one",
            "securityRequirements[0] names z",
        ] {
            assert!(found.contains(place), "{place} in {found}");
        }
    }
    #[test]
    fn seed_1_24_a_card_of_0_2_is_checked_against_its_own_version() {
        let card = json!({
            "name": "a", "description": "b", "version": "1", "url": "http://x", "capabilities": {},
            "defaultInputModes": ["text/plain"], "defaultOutputModes": ["text/plain"],
            "skills": [{"id": "s", "name": "s", "description": "s", "tags": []}],
            "securitySchemes": {"k": {"type": "apiKey", "in": "header", "name": "x"}},
            "security": [{"k": []}],
        });
        let found = |version| findings(&card, CardSchema::select(version, &card));
        assert_eq!(found(Some("0.2")), Vec::<String>::new());
        assert_eq!(found(Some("0.2.5")), Vec::<String>::new());
        assert_eq!(found(Some("auto")), Vec::<String>::new());
        assert_eq!(found(Some("0.3")), ["protocolVersion is missing"]);
        assert_eq!(found(None), found(Some("1.0")));
        assert!(found(None).contains(&"supportedInterfaces must be a list".to_owned()));
        let mut bad = card.clone();
        bad["url"] = json!("");
        bad["securitySchemes"]["k"]["type"] = json!("key");
        bad["security"] = json!([{"z": []}]);
        assert_eq!(
            findings(&bad, CardSchema::V02),
            [
                "url must not be empty",
                "securitySchemes.k.type must be one of apiKey, http, oauth2, openIdConnect, mutualTLS",
                "security[0] names z, which securitySchemes does not have",
            ]
        );
    }
}
