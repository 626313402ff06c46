//! Minimal `serde` types for the same bytes: strings, and only the members that occur.

use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
pub struct Call<P> {
    jsonrpc: String,
    id: String,
    method: String,
    params: P,
}

#[derive(Serialize, Deserialize)]
pub struct SendV1 {
    message: MessageV1,
    configuration: ConfigurationV1,
    metadata: Metadata,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageV1 {
    message_id: String,
    role: String,
    parts: Vec<TextV1>,
    context_id: String,
    task_id: String,
    metadata: Metadata,
}

#[derive(Serialize, Deserialize)]
struct TextV1 {
    text: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigurationV1 {
    accepted_output_modes: Vec<String>,
    history_length: i32,
}

#[derive(Serialize, Deserialize)]
struct Metadata {
    trace: String,
    span: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventV1 {
    status_update: StatusUpdateV1,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusUpdateV1 {
    task_id: String,
    context_id: String,
    status: StatusV1,
}

#[derive(Serialize, Deserialize)]
struct StatusV1 {
    state: String,
    message: SaidV1,
    timestamp: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SaidV1 {
    message_id: String,
    role: String,
    parts: Vec<TextV1>,
    context_id: String,
    task_id: String,
}

#[derive(Serialize, Deserialize)]
pub struct SendV03 {
    message: MessageV03,
    configuration: ConfigurationV03,
    metadata: Metadata,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageV03 {
    kind: String,
    message_id: String,
    role: String,
    parts: Vec<TextV03>,
    context_id: String,
    task_id: String,
    metadata: Metadata,
}

#[derive(Serialize, Deserialize)]
struct TextV03 {
    kind: String,
    text: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigurationV03 {
    blocking: bool,
    history_length: i32,
    accepted_output_modes: Vec<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EventV03 {
    kind: String,
    task_id: String,
    context_id: String,
    status: StatusV03,
    r#final: bool,
}

#[derive(Serialize, Deserialize)]
struct StatusV03 {
    state: String,
    message: SaidV03,
    timestamp: String,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SaidV03 {
    kind: String,
    message_id: String,
    role: String,
    parts: Vec<TextV03>,
    context_id: String,
    task_id: String,
}
