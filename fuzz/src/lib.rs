//! Fuzz targets as plain functions, so that a stable compiler can build and call them too.
//!
//! Run one with `cargo +nightly fuzz run jsonrpc`. Each target checks that values which were read
//! are written and read back unchanged.

use attache::model::{self, Operation, Version};
use attache::wire::card::{CardForm, read_card, write_card};
use attache::wire::method::{find_method, method_name};
use attache::wire::{self, Dialect, errors, json, jsonrpc, sse as sse_codec};
use prost::Message;

/// JSON-RPC requests and responses, from the envelope to the model.
pub fn jsonrpc(data: &[u8]) {
    if let Ok(call) = jsonrpc::read_request(data)
        && let Ok(method) = find_method(&call.method)
        && let Ok((request, dialect)) = wire::read_params(method, call.params)
    {
        let mut params = Vec::new();
        if wire::write_params(&mut params, &request, dialect.version()).is_ok() {
            assert!(json::check(&params).is_ok());
        }
    }
    if let Ok(answer) = jsonrpc::read_response(data) {
        match answer.result {
            Ok(result) => assert_event_round_trip(result, &Dialect::V1),
            Err(error) => Version::ALL.into_iter().for_each(|version| {
                let mut out = Vec::new();
                wire::write_json(&mut out, &errors::JsonRpcError(&error, version));
                let again = errors::read_jsonrpc_error(
                    std::str::from_utf8(&out).expect("the writer produces UTF-8"),
                );
                assert_eq!(
                    errors::jsonrpc_code(again.kind()),
                    errors::jsonrpc_code(error.kind())
                );
            }),
        }
    }
}

/// Params, responses and events of 1.0.
pub fn v1_json(data: &[u8]) {
    read_texts(data, Version::V1, &[Dialect::V1]);
}

/// Params, responses and events of 0.3 on JSON-RPC and REST; 0.1 is read as 0.3.
pub fn v03_json(data: &[u8]) {
    read_texts(data, Version::V03, &[Dialect::V03, Dialect::V03Rest]);
}

fn read_texts(data: &[u8], version: Version, dialects: &[Dialect]) {
    let Ok(text) = json::check(data) else { return };
    for operation in Operation::ALL {
        if let Some(method) =
            method_name(operation, version).and_then(|name| find_method(name).ok())
        {
            let _ = wire::read_params(method, text);
        }
        for dialect in dialects {
            let _ = wire::read_response(operation, text, dialect);
        }
    }
    dialects
        .iter()
        .for_each(|dialect| assert_event_round_trip(text, dialect));
}

/// Asserts that an event is written and read back unchanged, and written again as the same bytes.
fn assert_event_round_trip(text: &str, dialect: &Dialect) {
    let Ok(first) = wire::read_event(text, dialect) else {
        return;
    };
    let mut once = Vec::new();
    wire::write_event(&mut once, &first, false, dialect);
    let written = std::str::from_utf8(&once).expect("the writer produces UTF-8");
    let second = wire::read_event(written, dialect).expect("written values can be read");
    let mut twice = Vec::new();
    wire::write_event(&mut twice, &second, false, dialect);
    assert_eq!(written, String::from_utf8_lossy(&twice));
}

/// All messages of both protobuf packages that a peer may send: round trip by themselves and
/// through the model.
pub fn protobuf(data: &[u8]) {
    use attache_proto::{v1, v03};
    assert_round_trip::<v1::SendMessageRequest, model::SendMessageRequest>(data);
    assert_round_trip::<v1::SendMessageResponse, model::SendMessageResponse>(data);
    assert_round_trip::<v1::StreamResponse, model::StreamResponse>(data);
    assert_round_trip::<v1::GetTaskRequest, model::GetTaskRequest>(data);
    assert_round_trip::<v1::ListTasksRequest, model::ListTasksRequest>(data);
    assert_round_trip::<v1::ListTasksResponse, model::ListTasksResponse>(data);
    assert_round_trip::<v1::CancelTaskRequest, model::CancelTaskRequest>(data);
    assert_round_trip::<v1::SubscribeToTaskRequest, model::SubscribeToTaskRequest>(data);
    assert_round_trip::<v1::TaskPushNotificationConfig, model::PushConfig>(data);
    assert_round_trip::<v1::GetTaskPushNotificationConfigRequest, model::GetPushConfigRequest>(
        data,
    );
    assert_round_trip::<v1::ListTaskPushNotificationConfigsRequest, model::ListPushConfigsRequest>(
        data,
    );
    assert_round_trip::<v1::ListTaskPushNotificationConfigsResponse, model::ListPushConfigsResponse>(
        data,
    );
    assert_round_trip::<v1::DeleteTaskPushNotificationConfigRequest, model::DeletePushConfigRequest>(
        data,
    );
    assert_round_trip::<v1::GetExtendedAgentCardRequest, model::GetExtendedAgentCardRequest>(data);
    assert_round_trip::<v1::AgentCard, model::AgentCard>(data);
    assert_round_trip::<v03::SendMessageRequest, model::SendMessageRequest>(data);
    assert_round_trip::<v03::SendMessageResponse, model::SendMessageResponse>(data);
    assert_round_trip::<v03::GetTaskRequest, model::GetTaskRequest>(data);
    assert_round_trip::<v03::Task, model::Task>(data);
    assert_round_trip::<v03::CancelTaskRequest, model::CancelTaskRequest>(data);
    assert_round_trip::<v03::TaskSubscriptionRequest, model::SubscribeToTaskRequest>(data);
    assert_round_trip::<v03::CreateTaskPushNotificationConfigRequest, model::PushConfig>(data);
    assert_round_trip::<v03::TaskPushNotificationConfig, model::PushConfig>(data);
    assert_round_trip::<v03::GetTaskPushNotificationConfigRequest, model::GetPushConfigRequest>(
        data,
    );
    assert_round_trip::<v03::ListTaskPushNotificationConfigRequest, model::ListPushConfigsRequest>(
        data,
    );
    assert_round_trip::<v03::ListTaskPushNotificationConfigResponse, model::ListPushConfigsResponse>(
        data,
    );
    assert_round_trip::<v03::DeleteTaskPushNotificationConfigRequest, model::DeletePushConfigRequest>(
        data,
    );
    assert_round_trip::<v03::GetAgentCardRequest, model::GetExtendedAgentCardRequest>(data);
    assert_round_trip_with(data, |event: &model::StreamResponse| {
        Some(wire::proto_v03::stream_response(event, true))
    });
    assert_round_trip_with(data, |card: &model::AgentCard| {
        v03::AgentCard::try_from(card).ok()
    });
}

fn assert_round_trip<P, M>(data: &[u8])
where
    P: Message + Default + for<'a> From<&'a M>,
    M: TryFrom<P, Error = attache::Error>,
{
    assert_round_trip_with(data, |model: &M| Some(P::from(model)));
}

/// Compares bytes instead of messages, because NaN is not equal to itself.
fn assert_round_trip_with<P, M>(data: &[u8], write: impl Fn(&M) -> Option<P>)
where
    P: Message + Default,
    M: TryFrom<P, Error = attache::Error>,
{
    let Ok(first) = P::decode(data) else { return };
    let once = first.encode_to_vec();
    let second = P::decode(&*once).expect("written values can be read");
    assert_eq!(once, second.encode_to_vec());
    let Ok(model) = M::try_from(first) else {
        return;
    };
    let Some(once) = write(&model).map(|proto| proto.encode_to_vec()) else {
        return;
    };
    let read = P::decode(&*once)
        .map(M::try_from)
        .expect("written values can be read");
    let again =
        write(&read.expect("written values can be converted")).expect("it was written before");
    assert_eq!(once, again.encode_to_vec());
}

/// SSE decoder: the result does not depend on the chunking.
pub fn sse(data: &[u8]) {
    const LIMIT: usize = 4096;
    let read = |piece: usize| {
        let mut decoder = sse_codec::Decoder::new(LIMIT);
        let mut events = Vec::new();
        for piece in data.chunks(piece) {
            decoder.push(piece);
            events.extend(&mut decoder);
        }
        (
            events,
            decoder.is_at_boundary(),
            decoder.last_event_id().map(str::to_owned),
            decoder.retry(),
        )
    };
    let whole = read(data.len().max(1));
    assert_eq!(whole, read(1));
    assert_eq!(
        whole,
        read(usize::from(data.first().copied().unwrap_or_default()) + 1)
    );
}

/// Cards of any version, written in every form and read back.
pub fn card(data: &[u8]) {
    let Ok(card) = read_card(data) else { return };
    for form in [
        CardForm::V1,
        CardForm::V03,
        CardForm::V03Wrapped,
        CardForm::V02,
        CardForm::Union,
    ] {
        let mut out = Vec::new();
        if write_card(&mut out, &card, form).is_ok() {
            read_card(&out).expect("written values can be read");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs every target on the golden files and the objects inside them.
    #[test]
    fn targets_accept_golden_bodies() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/golden");
        for entry in std::fs::read_dir(golden).expect("the golden files") {
            let path = entry.expect("an entry").path();
            let Ok(text) = std::fs::read_to_string(path) else {
                continue;
            };
            for (at, _) in text.match_indices('{') {
                let mut values = serde_json::Deserializer::from_str(&text[at..])
                    .into_iter::<serde_json::Value>();
                let Some(Ok(value)) = values.next() else {
                    continue;
                };
                if let Some(digits) = value.get("hex").and_then(|hex| hex.as_str()) {
                    let byte =
                        |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
                    protobuf(&(0..digits.len()).step_by(2).map(byte).collect::<Vec<u8>>());
                }
                let data = value.to_string();
                for target in [jsonrpc, v1_json, v03_json, protobuf, sse, card] {
                    target(data.as_bytes());
                }
            }
        }
    }
}
