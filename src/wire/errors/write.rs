//! Error serialization in the version of the request (06 §2).

use std::borrow::Cow;

use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde::{Deserialize, Serialize as DeriveSerialize};

use super::super::lenient::{parse_state, v03_state_name};
use super::{
    BAD_REQUEST, DOMAIN, ERROR_INFO, V03Terms, error_name, grpc_code, http_status, jsonrpc_code,
    reason,
};
use crate::model::{Error, Object, Version};

/// Error object of a JSON-RPC response.
pub struct JsonRpcError<'a>(pub &'a Error, pub Version);

impl Serialize for JsonRpcError<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(error, version) = *self;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("code", &jsonrpc_code(error.kind()))?;
        match version {
            Version::V1 => {
                map.serialize_entry("message", error.message())?;
                map.serialize_entry("data", &TypedDetails(error, None))?;
            }
            Version::V03 => {
                map.serialize_entry("message", &V03Terms::Json.message(error))?;
                if let Some(data) = v03_error_data(error) {
                    map.serialize_entry("data", &data)?;
                }
            }
        }
        map.end()
    }
}

/// Returns the `data` object of 0.3, which has no typed details. `None` without details.
fn v03_error_data(error: &Error) -> Option<Object> {
    if error.metadata().len() == 0 {
        return None;
    }
    let detail = |(key, value)| match (key, parse_state(value)) {
        ("state", Some(state)) => (key, serde_json::Value::from(v03_state_name(state))),
        _ => (key, serde_json::Value::from(value)),
    };
    Some(error.metadata().map(detail).collect())
}

/// Body of a REST error.
pub struct RestError<'a>(pub &'a Error, pub Version);

impl Serialize for RestError<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(error, version) = *self;
        let (terms, message) = match version {
            Version::V1 => (None, Cow::Borrowed(error.message())),
            Version::V03 => (Some(V03Terms::Proto), V03Terms::Proto.message(error)),
        };
        let mut map = serializer.serialize_map(None)?;
        if version == Version::V03 {
            // 0.3 clients read `message`, some `code`; a2a-sdk 1.x in 0.3 mode reads `type`.
            map.serialize_entry("message", &message)?;
            map.serialize_entry("code", &jsonrpc_code(error.kind()))?;
            map.serialize_entry("type", error_name(error.kind(), Version::V03))?;
        }
        let body = RestStatus {
            code: http_status(error.kind(), version),
            status: grpc_code(error.kind(), Version::V1).as_str(),
            message: &message,
            details: TypedDetails(error, terms),
        };
        map.serialize_entry("error", &body)?;
        map.end()
    }
}

#[derive(DeriveSerialize)]
struct RestStatus<'a> {
    code: u16,
    status: &'static str,
    message: &'a str,
    details: TypedDetails<'a>,
}

/// Typed details: always the reason, and the invalid fields if there are any, in the names of the
/// caller.
struct TypedDetails<'a>(&'a Error, Option<V03Terms>);

impl Serialize for TypedDetails<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut seq = serializer.serialize_seq(None)?;
        seq.serialize_element(&JsonErrorInfo(self.0))?;
        if !self.0.violations().is_empty() {
            let field_violations = self.0.violations().iter();
            let translate = |text| match self.1 {
                Some(terms) => terms.translate(text),
                None => Cow::Borrowed(text),
            };
            seq.serialize_element(&BadRequest {
                type_url: BAD_REQUEST.into(),
                field_violations: field_violations
                    .map(|v| FieldViolation {
                        field: translate(v.field()),
                        description: translate(v.description()),
                    })
                    .collect(),
            })?;
        }
        seq.end()
    }
}

struct JsonErrorInfo<'a>(&'a Error);

impl Serialize for JsonErrorInfo<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("@type", ERROR_INFO)?;
        map.serialize_entry("reason", reason(self.0.kind()))?;
        map.serialize_entry("domain", DOMAIN)?;
        if self.0.metadata().len() > 0 {
            map.serialize_entry(
                "metadata",
                &self
                    .0
                    .metadata()
                    .collect::<std::collections::BTreeMap<_, _>>(),
            )?;
        }
        map.end()
    }
}

#[derive(DeriveSerialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BadRequest<'a> {
    // Some serializers escape the slashes, so it cannot always be borrowed.
    #[serde(rename = "@type", borrow, default)]
    pub(super) type_url: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) field_violations: Vec<FieldViolation<'a>>,
}

#[derive(DeriveSerialize, Deserialize)]
pub(super) struct FieldViolation<'a> {
    #[serde(borrow, default)]
    pub(super) field: Cow<'a, str>,
    #[serde(borrow, default)]
    pub(super) description: Cow<'a, str>,
}
