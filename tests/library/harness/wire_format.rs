//! Requests and responses of both JSON bindings in both versions, built and parsed for tests.

use serde_json::{Map, Value, json};

use super::Answer;

/// A JSON binding in one version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WireFormat {
    Rpc1,
    Rpc03,
    Rest1,
    Rest03,
}

pub(crate) const WIRE_FORMATS: [WireFormat; 4] = [
    WireFormat::Rpc1,
    WireFormat::Rpc03,
    WireFormat::Rest1,
    WireFormat::Rest03,
];

/// A raw HTTP request.
#[derive(Clone, Debug)]
pub(crate) struct WireRequest {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl WireRequest {
    /// Adds a header.
    pub(crate) fn with(mut self, name: &str, value: impl std::fmt::Display) -> Self {
        self.head.push_str(&format!("\r\n{name}: {value}"));
        self
    }

    pub(crate) fn resuming(self, position: impl std::fmt::Display) -> Self {
        self.with("Last-Event-ID", position)
    }
}

/// Content of a response or event, independent of its wire format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ObservedEvent {
    /// State, and the texts of the history.
    Task(String, Vec<String>),
    /// State, text, and whether the event is marked as the last one.
    Status(String, String, Option<bool>),
    /// Text, and whether it is appended to the artifact.
    Artifact(String, bool),
    Message(String),
}

pub(crate) fn task(state: &str, texts: &[&str]) -> ObservedEvent {
    ObservedEvent::Task(
        state.to_owned(),
        texts.iter().map(|text| (*text).to_owned()).collect(),
    )
}

impl WireFormat {
    pub(crate) fn is_v1(self) -> bool {
        matches!(self, Self::Rpc1 | Self::Rest1)
    }

    pub(crate) fn is_rpc(self) -> bool {
        matches!(self, Self::Rpc1 | Self::Rpc03)
    }

    pub(crate) fn version(self) -> &'static str {
        if self.is_v1() { "1.0" } else { "0.3" }
    }

    /// Returns the same binding in the other version.
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Rpc1 => Self::Rpc03,
            Self::Rpc03 => Self::Rpc1,
            Self::Rest1 => Self::Rest03,
            Self::Rest03 => Self::Rest1,
        }
    }

    /// Builds the expected status event. 1.0 has no `final` member, and ProtoJSON omits `false`.
    pub(crate) fn status(self, state: &str, text: &str, closes: bool) -> ObservedEvent {
        let told = match self {
            Self::Rpc1 | Self::Rest1 => None,
            Self::Rpc03 => Some(closes),
            Self::Rest03 => closes.then_some(true),
        };
        ObservedEvent::Status(state.to_owned(), text.to_owned(), told)
    }

    /// Builds a message with one text part; `more` holds members with the same name in every format.
    pub(crate) fn message(self, text: &str, more: Value) -> Value {
        let mut message = match self {
            Self::Rpc1 | Self::Rest1 => {
                json!({"messageId": "m", "role": "ROLE_USER", "parts": [{"text": text}]})
            }
            Self::Rpc03 => json!({
                "kind": "message", "messageId": "m", "role": "user", "parts": [{"kind": "text", "text": text}]
            }),
            Self::Rest03 => {
                json!({"messageId": "m", "role": "ROLE_USER", "content": [{"text": text}]})
            }
        };
        message
            .as_object_mut()
            .unwrap()
            .extend(more.as_object().unwrap().clone());
        message
    }

    pub(crate) fn stream(self, text: &str, more: Value) -> WireRequest {
        self.ask(
            "SendStreamingMessage",
            json!({"message": self.message(text, more)}),
        )
    }

    pub(crate) fn subscribe(self, id: &str) -> WireRequest {
        self.ask("SubscribeToTask", json!({"id": id}))
    }

    /// Builds a call of an operation, named as in 1.0. For REST, path parameters are removed from `params`.
    pub(crate) fn ask(self, operation: &str, params: Value) -> WireRequest {
        match self {
            Self::Rpc1 => self.post("/", operation, &params),
            Self::Rpc03 => self.post("/", old_name(operation), &params),
            Self::Rest1 => self.rest("", operation, params),
            Self::Rest03 => self.rest("/v1", operation, params),
        }
    }

    fn post(self, path: &str, method: &str, params: &Value) -> WireRequest {
        let body = json!({"jsonrpc": "2.0", "id": "call-1", "method": method, "params": params})
            .to_string();
        self.versioned(WireRequest {
            head: format!("POST {path} HTTP/1.1\r\nContent-Type: application/json"),
            body,
        })
    }

    fn rest(self, base: &str, operation: &str, mut params: Value) -> WireRequest {
        let map = params.as_object_mut().unwrap();
        let mut take = |name: &str| match map.remove(name) {
            Some(Value::String(text)) => text,
            _ => String::new(),
        };
        let (method, path) = match operation {
            "SendMessage" => ("POST", "/message:send".to_owned()),
            "SendStreamingMessage" => ("POST", "/message:stream".to_owned()),
            "GetTask" => ("GET", format!("/tasks/{}", take("id"))),
            "ListTasks" => ("GET", "/tasks".to_owned()),
            "CancelTask" => ("POST", format!("/tasks/{}:cancel", take("id"))),
            "SubscribeToTask" => ("GET", format!("/tasks/{}:subscribe", take("id"))),
            "CreateTaskPushNotificationConfig" => (
                "POST",
                format!("/tasks/{}/pushNotificationConfigs", take("taskId")),
            ),
            "ListTaskPushNotificationConfigs" => (
                "GET",
                format!("/tasks/{}/pushNotificationConfigs", take("taskId")),
            ),
            "GetTaskPushNotificationConfig" | "DeleteTaskPushNotificationConfig" => {
                let method = if operation.starts_with("Get") {
                    "GET"
                } else {
                    "DELETE"
                };
                (
                    method,
                    format!(
                        "/tasks/{}/pushNotificationConfigs/{}",
                        take("taskId"),
                        take("id")
                    ),
                )
            }
            "GetExtendedAgentCard" if self == Self::Rest03 => ("GET", "/card".to_owned()),
            "GetExtendedAgentCard" => ("GET", "/extendedAgentCard".to_owned()),
            _ => panic!("{operation} has no path"),
        };
        if method == "POST" {
            let head = format!("POST {base}{path} HTTP/1.1\r\nContent-Type: application/json");
            return self.versioned(WireRequest {
                head,
                body: params.to_string(),
            });
        }
        let query = query(params.as_object().unwrap());
        self.versioned(WireRequest {
            head: format!("{method} {base}{path}{query} HTTP/1.1"),
            body: String::new(),
        })
    }

    /// The `A2A-Version` header. 1.0 clients send it, 0.3 clients may omit it.
    fn versioned(self, ask: WireRequest) -> WireRequest {
        if self.is_v1() {
            ask.with("A2A-Version", "1.0")
        } else {
            ask
        }
    }

    /// Returns the payload of a response or event without its envelope.
    pub(crate) fn payload(self, text: &str) -> Value {
        let value: Value = serde_json::from_str(text).unwrap();
        if !self.is_rpc() {
            return value;
        }
        let mut keys: Vec<_> = value.as_object().unwrap().keys().collect();
        keys.sort();
        assert_eq!(keys, ["id", "jsonrpc", "result"], "{text}");
        assert_eq!(
            (&value["jsonrpc"], &value["id"]),
            (&json!("2.0"), &json!("call-1"))
        );
        value["result"].clone()
    }

    /// Decodes an event. Panics on members that do not belong to this format.
    pub(crate) fn decode_event(self, text: &str) -> ObservedEvent {
        let payload = self.payload(text);
        assert_eq!(
            self == Self::Rpc03,
            contains_key(&payload, "kind"),
            "{payload}"
        );
        assert!(
            !(self.is_v1() && contains_key(&payload, "final")),
            "{payload}"
        );
        if self == Self::Rpc03 {
            return self.read(payload["kind"].as_str().unwrap(), &payload);
        }
        let map = payload.as_object().unwrap();
        assert_eq!(map.len(), 1, "{payload}");
        let (name, inner) = map.iter().next().unwrap();
        self.read(name, inner)
    }

    fn read(self, name: &str, value: &Value) -> ObservedEvent {
        match name {
            "task" => {
                let history = value["history"]
                    .as_array()
                    .map(Vec::as_slice)
                    .unwrap_or_default();
                let texts = history.iter().map(|message| self.text(message)).collect();
                ObservedEvent::Task(state(&value["status"]), texts)
            }
            "statusUpdate" | "status-update" => {
                let text = value["status"]
                    .get("message")
                    .map(|message| self.text(message));
                let closes = value.get("final").map(|closes| closes.as_bool().unwrap());
                ObservedEvent::Status(state(&value["status"]), text.unwrap_or_default(), closes)
            }
            "artifactUpdate" | "artifact-update" => {
                let append = value
                    .get("append")
                    .is_some_and(|append| append.as_bool().unwrap());
                ObservedEvent::Artifact(texts(&value["artifact"]["parts"]), append)
            }
            "message" => ObservedEvent::Message(self.text(value)),
            other => panic!("{other} is no event"),
        }
    }

    fn text(self, message: &Value) -> String {
        texts(
            &message[if self == Self::Rest03 {
                "content"
            } else {
                "parts"
            }],
        )
    }

    /// Returns the JSON-RPC code and message of an error response. Asserts that the response has this format.
    pub(crate) fn refusal(self, answer: &Answer) -> (i64, String) {
        let text = answer
            .body
            .strip_prefix("data: ")
            .unwrap_or(&answer.body)
            .trim_end();
        let body: Value = serde_json::from_str(text).unwrap_or_else(|_| panic!("{answer:?}"));
        let error = &body["error"];
        let words = error["message"]
            .as_str()
            .unwrap_or_else(|| panic!("{answer:?}"))
            .to_owned();
        let code = match self {
            Self::Rpc1 => {
                let reason = error["data"][0]["reason"].as_str().unwrap();
                assert_eq!(error["data"][0]["domain"], "a2a-protocol.org", "{body}");
                assert!(
                    code_of(reason).is_none_or(|code| code == error["code"]),
                    "{body}"
                );
                error["code"].as_i64()
            }
            Self::Rpc03 => {
                assert!(!error["data"].is_array(), "{body}");
                error["code"].as_i64()
            }
            Self::Rest1 => {
                assert_eq!(error["code"], answer.status, "{body}");
                code_of(error["details"][0]["reason"].as_str().unwrap())
            }
            Self::Rest03 => {
                assert_eq!(error["code"], answer.status, "{body}");
                assert_eq!(body["message"], error["message"]);
                body["code"].as_i64()
            }
        };
        (code.unwrap_or_else(|| panic!("{answer:?}")), words)
    }
}

fn old_name(operation: &str) -> &str {
    match operation {
        "SendMessage" => "message/send",
        "SendStreamingMessage" => "message/stream",
        "GetTask" => "tasks/get",
        "CancelTask" => "tasks/cancel",
        "SubscribeToTask" => "tasks/resubscribe",
        "CreateTaskPushNotificationConfig" => "tasks/pushNotificationConfig/set",
        "GetTaskPushNotificationConfig" => "tasks/pushNotificationConfig/get",
        "ListTaskPushNotificationConfigs" => "tasks/pushNotificationConfig/list",
        "DeleteTaskPushNotificationConfig" => "tasks/pushNotificationConfig/delete",
        "GetExtendedAgentCard" => "agent/getAuthenticatedExtendedCard",
        "ListTasks" => "tasks/list",
        other => panic!("{other} has no old name"),
    }
}

/// Returns the JSON-RPC code of a reason.
fn code_of(reason: &str) -> Option<i64> {
    Some(match reason {
        "PARSE_ERROR" => -32700,
        "INVALID_REQUEST" => -32600,
        "METHOD_NOT_FOUND" => -32601,
        "INVALID_PARAMS" => -32602,
        "INTERNAL_ERROR" => -32603,
        "UNAVAILABLE" => -32000,
        "TASK_NOT_FOUND" => -32001,
        "TASK_NOT_CANCELABLE" => -32002,
        "PUSH_NOTIFICATION_NOT_SUPPORTED" => -32003,
        "UNSUPPORTED_OPERATION" => -32004,
        "CONTENT_TYPE_NOT_SUPPORTED" => -32005,
        "EXTENDED_AGENT_CARD_NOT_CONFIGURED" => -32007,
        "EXTENSION_SUPPORT_REQUIRED" => -32008,
        "VERSION_NOT_SUPPORTED" => -32009,
        _ => return None,
    })
}

/// Normalizes a state name: `TASK_STATE_INPUT_REQUIRED` and `input-required` become equal.
fn state(status: &Value) -> String {
    let text = status["state"].as_str().unwrap();
    let plain = text
        .strip_prefix("TASK_STATE_")
        .unwrap_or(text)
        .to_ascii_lowercase()
        .replace('_', "-");
    plain.replace("cancelled", "canceled")
}

fn texts(parts: &Value) -> String {
    parts
        .as_array()
        .unwrap()
        .iter()
        .map(|part| part["text"].as_str().unwrap())
        .collect()
}

/// Whether an object has a member, or any object in it. Metadata may have any members.
fn contains_key(value: &Value, key: &str) -> bool {
    match value {
        Value::Object(map) => {
            let mut others = map.iter().filter(|(name, _)| *name != "metadata");
            map.contains_key(key) || others.any(|(_, value)| contains_key(value, key))
        }
        Value::Array(items) => items.iter().any(|value| contains_key(value, key)),
        _ => false,
    }
}

fn query(params: &Map<String, Value>) -> String {
    let pairs: Vec<_> = params
        .iter()
        .map(|(name, value)| match value {
            Value::String(text) => format!("{name}={text}"),
            other => format!("{name}={other}"),
        })
        .collect();
    if pairs.is_empty() {
        String::new()
    } else {
        format!("?{}", pairs.join("&"))
    }
}
