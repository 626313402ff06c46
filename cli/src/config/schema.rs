//! JSON Schema of configuration files, for editors and for the reference tables of the documentation.

use attache::auth::CallerLimits;
use attache::model::Limits;
use attache::{AgentSettings, EgressPolicy, PushSettings, ServerSettings, Settings};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::agents::{AgentKind, CardSection};
use super::auth::{AgentAuthSection, AuthSection};
use super::console::ConsoleSection;
use super::database::ClusterSection;
use super::hooks::HooksSection;
use super::sections::{PushSection, ServerSection, StoreSection};
use super::telemetry::TelemetrySection;
use super::{STORE_KEYS, section_of};

/// The JSON Schema of a configuration file.
pub(crate) fn schema() -> Value {
    let mut generator = SchemaSettings::draft07().into_generator();
    let generator = &mut generator;
    let engine = Settings::json_schema(generator);
    let of_engine = |home: &str| -> Map<_, _> {
        properties(&engine)
            .into_iter()
            .filter(|(key, _)| section_of(key) == home)
            .collect()
    };
    let stored = of_engine("store");
    let limits = of_engine("limits");
    debug_assert_eq!(stored.len(), STORE_KEYS.len());
    let server = section_schema(
        "Listen addresses, TLS and HTTP settings.",
        [
            ServerSection::json_schema(generator),
            ServerSettings::json_schema(generator),
        ]
        .iter()
        .map(properties),
    );
    let store = section_schema(
        "Task store and retention.",
        [properties(&StoreSection::json_schema(generator)), stored],
    );
    let cluster = ClusterSection::json_schema(generator);
    let cluster = section_schema(about(&cluster), [properties(&cluster)]);
    let limits = section_schema(
        "Limits of turns, tasks and messages.",
        [limits, properties(&Limits::json_schema(generator))],
    );
    let push = section_schema(
        "Webhook delivery.",
        [
            properties(&PushSection::json_schema(generator)),
            properties(&PushSettings::json_schema(generator)),
        ],
    );
    let reach = EgressPolicy::json_schema(generator);
    let egress = section_schema(about(&reach), [properties(&reach)]);
    let auth = auth(generator);
    let telemetry = section_schema(
        "Log, metrics and traces.",
        [
            properties(&TelemetrySection::json_schema(generator)),
            of_engine("telemetry"),
        ],
    );
    let console = ConsoleSection::json_schema(generator);
    let console = section_schema(about(&console), [properties(&console)]);
    let hooks = properties(&HooksSection::json_schema(generator)).remove("hooks");
    let agents = agents(generator);
    json!({
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "attache",
        "description": "A configuration file of attache: `attache serve agents.toml`",
        "type": "object",
        "properties": {
            "server": server,
            "auth": auth,
            "store": store,
            "cluster": cluster,
            "limits": limits,
            "push": push,
            "egress": egress,
            "telemetry": telemetry,
            "console": console,
            "hooks": hooks,
            "agents": agents,
        },
        "additionalProperties": false,
        "definitions": generator.take_definitions(true),
    })
}

fn auth(generator: &mut SchemaGenerator) -> Value {
    let own = AuthSection::json_schema(generator);
    let caller_limits = CallerLimits::json_schema(generator);
    let caller_limits = section_schema(about(&caller_limits), [properties(&caller_limits)]);
    section_schema(
        about(&own),
        [
            properties(&own),
            Map::from_iter([("limits".to_owned(), caller_limits)]),
        ],
    )
}

fn agents(generator: &mut SchemaGenerator) -> Value {
    let auth = AgentAuthSection::json_schema(generator);
    let auth = section_schema(about(&auth), [properties(&auth)]);
    let card = properties(&CardSection::json_schema(generator));
    let limits = section_schema(
        "Limits of this agent, which override the general ones.",
        [properties(&AgentSettings::json_schema(generator))],
    );
    let kinds = AgentKind::schemas(generator)
        .into_iter()
        .map(|(name, own)| {
            let kind = json!({"const": name, "description": "Type of the agent."});
            let every = [
                ("type", kind),
                ("limits", limits.clone()),
                ("auth", auth.clone()),
            ];
            let every = every
                .map(|(key, value)| (key.to_owned(), value))
                .into_iter()
                .collect();
            let mut schema = section_schema(about(&own), [every, card.clone(), properties(&own)]);
            let required = own
                .get("required")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_default();
            schema["required"] =
                Value::Array([Value::from("type")].into_iter().chain(required).collect());
            schema
        });
    let kinds: Vec<Value> = kinds.collect();
    json!({
        "description": "Agents by name. Each is served at /agents/{name}, the first also at the root.",
        "type": "object",
        "additionalProperties": {"oneOf": kinds},
    })
}

fn section_schema(about: &str, parts: impl IntoIterator<Item = Map<String, Value>>) -> Value {
    let properties: Map<String, Value> = parts.into_iter().flatten().collect();
    json!({"type": "object", "description": about, "properties": properties, "additionalProperties": false})
}

fn properties(schema: &Schema) -> Map<String, Value> {
    schema
        .get("properties")
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

fn about(schema: &Schema) -> &str {
    schema
        .get("description")
        .and_then(Value::as_str)
        .unwrap_or_default()
}
