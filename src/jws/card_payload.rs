//! Payloads of card signatures: the card without its signatures, in canonical JSON (RFC 8785).

use serde_json::{Map, Value};

use crate::model::AgentCard;

/// Maximum nesting of extension parameters.
const MAX_DEPTH: usize = 64;

/// Returns every payload that a signature of this card may cover: the protocol's form, that of the Python SDK, and the
/// received document.
pub(super) fn payloads(card: &AgentCard, received: Option<&[u8]>) -> Vec<Vec<u8>> {
    let literal = received
        .and_then(|bytes| serde_json::from_slice(bytes).ok())
        .map(without_signatures);
    let protocol = protocol_form(card);
    let terse = protocol
        .clone()
        .and_then(|value| drop_empty(value, MAX_DEPTH));
    let mut payloads: Vec<Vec<u8>> = [protocol, terse, literal]
        .into_iter()
        .flatten()
        .filter_map(|value| canonicalize(&value))
        .collect();
    payloads.dedup();
    payloads
}

/// Serializes as canonical JSON (RFC 8785); `None` without a canonical form, such as for a number out of range.
pub(super) fn canonicalize(value: &Value) -> Option<Vec<u8>> {
    serde_json_canonicalizer::to_vec(value).ok()
}

/// The protocol's form: required members always, optional members if set, other members if not empty.
pub(super) fn protocol_form(card: &AgentCard) -> Option<Value> {
    let mut value = without_signatures(serde_json::to_value(card).ok()?);
    let card = value.as_object_mut()?;
    drop_empty_scopes(card);
    for skill in objects_in(card, "skills") {
        drop_empty_scopes(skill);
    }
    if let Some(capabilities) = card.get_mut("capabilities").and_then(Value::as_object_mut) {
        for extension in objects_in(capabilities, "extensions") {
            extension
                .retain(|name, value| name == "params" || !matches!(value, Value::Bool(false)));
            extension.retain(|_, value| value.as_str() != Some(""));
        }
    }
    Some(value)
}

/// Removes empty scope lists of the security requirements.
fn drop_empty_scopes(object: &mut Map<String, Value>) {
    for requirement in objects_in(object, "securityRequirements") {
        let schemes = requirement
            .get_mut("schemes")
            .and_then(Value::as_object_mut);
        for scopes in schemes.into_iter().flat_map(|schemes| schemes.values_mut()) {
            if let Some(scopes) = scopes.as_object_mut() {
                scopes.retain(|_, list| list.as_array().is_none_or(|list| !list.is_empty()));
            }
        }
    }
}

fn objects_in<'a>(
    object: &'a mut Map<String, Value>,
    name: &str,
) -> impl Iterator<Item = &'a mut Map<String, Value>> {
    let items = object.get_mut(name).and_then(Value::as_array_mut);
    items.into_iter().flatten().filter_map(Value::as_object_mut)
}

fn without_signatures(mut card: Value) -> Value {
    if let Some(card) = card.as_object_mut() {
        card.remove("signatures");
    }
    card
}

/// Removes empty strings, lists and objects, recursively; `None` if nothing is left or the nesting is too deep.
fn drop_empty(value: Value, depth: usize) -> Option<Value> {
    let depth = depth.checked_sub(1)?;
    match value {
        Value::Object(members) => {
            let members: Map<_, _> = members
                .into_iter()
                .filter_map(|(name, value)| Some((name, drop_empty(value, depth)?)))
                .collect();
            (!members.is_empty()).then_some(Value::Object(members))
        }
        Value::Array(items) => {
            let items: Vec<_> = items
                .into_iter()
                .filter_map(|item| drop_empty(item, depth))
                .collect();
            (!items.is_empty()).then_some(Value::Array(items))
        }
        Value::String(text) => (!text.is_empty()).then_some(Value::String(text)),
        Value::Null => None,
        other => Some(other),
    }
}
