//! 1.0: every document as JSON and protobuf, and every error as the official client raises it.

use attache::model::{
    Artifact, Message, Operation, Part, Response, Task, TaskArtifactUpdateEvent, TaskStatus,
    TaskStatusUpdateEvent, Version,
};
use attache::wire::card::{CardForm, read_card, write_card};
use attache::wire::errors::{JsonRpcError, RestError, http_status};
use attache::wire::method::{find_method, method_name};
use attache::wire::{self, Dialect, grpc, json};
use attache::{Error, ErrorKind};
use attache_proto::v1;
use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{CASES, CaseResult, V10, ask, ask_bytes, assert_means, hex, is_quick_run};
use crate::strategies::{self, Fit};
use crate::wire::lossy_conversion::{Form, Lossy, card_after};
use crate::wire::protobuf;
use crate::wire::roundtrip::{operation, operations_with_response, or_fail};

/// Asserts that a document round-trips through the SDK from both encodings to both.
fn assert_round_trips<T: PartialEq + std::fmt::Debug>(
    kind: &str,
    bytes: &[u8],
    text: &[u8],
    meant: &T,
    read_text: impl Fn(&str) -> Result<T, Error>,
    read_bytes: impl Fn(&[u8]) -> Result<T, Error>,
) -> CaseResult {
    for kept in [
        ask(&V10, kind, "json", text)?,
        ask_bytes(&V10, kind, bytes)?,
    ] {
        assert_means(&kept.json, read_text(&kept.json), meant)?;
        assert_means(&kept.json, read_bytes(&kept.bytes.unwrap()), meant)?;
    }
    Ok(())
}

#[test]
fn official_v1_sdk_accepts_requests() {
    if is_quick_run() {
        return;
    }
    strategies::check(8 * CASES, strategies::request(Fit::Official), |request| {
        let (kind, bytes) = protobuf::write_request(&request, Version::V1).unwrap();
        let mut params = Vec::new();
        or_fail(wire::write_params(&mut params, &request, Version::V1))?;
        let method = find_method(method_name(operation(&request), Version::V1).unwrap()).unwrap();
        assert_round_trips(
            kind,
            &bytes,
            &params,
            &request.after_round_trip(Form::V1),
            |text| wire::read_params(method, text).map(|(request, _)| request),
            |bytes| protobuf::read_request(&request, Version::V1, bytes),
        )
    });
}

#[test]
fn official_v1_sdk_accepts_responses() {
    if is_quick_run() {
        return;
    }
    strategies::check(6 * CASES, strategies::response(Fit::Official), |response| {
        let Some((kind, bytes)) = protobuf::write_response(&response, Version::V1) else {
            prop_assert_eq!(&response, &Response::Empty);
            return Ok(());
        };
        let mut result = Vec::new();
        or_fail(wire::write_result(&mut result, &response, &Dialect::V1))?;
        assert_round_trips(
            kind,
            &bytes,
            &result,
            &response.after_round_trip(Form::V1),
            |text| wire::read_response(operations_with_response(&response)[0], text, &Dialect::V1),
            |bytes| protobuf::read_response(&response, Version::V1, bytes),
        )
    });
}

#[test]
fn official_v1_sdk_accepts_events() {
    if is_quick_run() {
        return;
    }
    strategies::check(
        3 * CASES,
        strategies::stream_response(Fit::Official),
        |event| {
            let (kind, bytes) = protobuf::write_event(&event, false, Version::V1);
            let mut text = Vec::new();
            wire::write_event(&mut text, &event, false, &Dialect::V1);
            assert_round_trips(
                kind,
                &bytes,
                &text,
                &event,
                |text| wire::read_event(text, &Dialect::V1),
                |bytes| protobuf::read_event(Version::V1, bytes),
            )
        },
    );
}

/// Checks objects that occur only inside others.
fn check_nested_type<P, M>(kind: &str, values: BoxedStrategy<M>)
where
    P: prost::Message + Default + for<'a> From<&'a M>,
    M: TryFrom<P, Error = Error> + Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    strategies::check(CASES, values, |value| {
        let mut text = Vec::new();
        wire::write_json(&mut text, &value);
        let bytes = P::from(&value).encode_to_vec();
        assert_round_trips(
            kind,
            &bytes,
            &text,
            &value,
            |text| json::read(text),
            protobuf::read::<P, M>,
        )
    });
}

#[test]
fn official_v1_sdk_accepts_nested_types() {
    if is_quick_run() {
        return;
    }
    let fit = Fit::Official;
    check_nested_type::<v1::Task, Task>("Task", strategies::task(fit));
    check_nested_type::<v1::Message, Message>("Message", strategies::message(fit));
    check_nested_type::<v1::Part, Part>("Part", strategies::part(fit));
    check_nested_type::<v1::Artifact, Artifact>("Artifact", strategies::artifact(fit));
    check_nested_type::<v1::TaskStatus, TaskStatus>("TaskStatus", strategies::status(fit));
    check_nested_type::<v1::TaskStatusUpdateEvent, TaskStatusUpdateEvent>(
        "TaskStatusUpdateEvent",
        strategies::status_event(fit),
    );
    check_nested_type::<v1::TaskArtifactUpdateEvent, TaskArtifactUpdateEvent>(
        "TaskArtifactUpdateEvent",
        strategies::artifact_event(fit),
    );
}

#[test]
fn official_v1_resolver_reads_cards_of_every_form() {
    if is_quick_run() {
        return;
    }
    strategies::check(2 * CASES, strategies::card(Fit::Official), |card| {
        for form in [CardForm::V1, CardForm::Union] {
            let mut text = Vec::new();
            or_fail(write_card(&mut text, &card, form))?;
            let kept = ask(&V10, "UnionCard", "json", &text)?;
            // The members of 0.3 in a union have no effect.
            let meant = card_after(&card, CardForm::V1).unwrap();
            assert_means(&kept.json, read_card(kept.json.as_bytes()), &meant)?;
            assert_means(
                &kept.json,
                protobuf::read::<v1::AgentCard, _>(&kept.bytes.unwrap()),
                &meant,
            )?;
        }
        Ok(())
    });
}

/// Class for errors without an A2A code or reason.
const UNKNOWN: &str = "A2AClientError";

/// Returns the class that the official client raises on JSON-RPC, REST and gRPC.
fn classes(kind: ErrorKind) -> [&'static str; 3] {
    match kind {
        // 06 §1: the SDK has no reason for it, because JSON clients cannot cause it.
        ErrorKind::Parse => ["JSONParseError", UNKNOWN, UNKNOWN],
        ErrorKind::InvalidRequest | ErrorKind::PayloadTooLarge => ["InvalidRequestError"; 3],
        ErrorKind::MethodNotFound | ErrorKind::MethodNotAllowed => ["MethodNotFoundError"; 3],
        ErrorKind::InvalidParams => ["InvalidParamsError"; 3],
        ErrorKind::Internal => ["InternalError"; 3],
        ErrorKind::TaskNotFound => ["TaskNotFoundError"; 3],
        ErrorKind::TaskNotCancelable => ["TaskNotCancelableError"; 3],
        ErrorKind::PushNotificationNotSupported => ["PushNotificationNotSupportedError"; 3],
        ErrorKind::UnsupportedOperation => ["UnsupportedOperationError"; 3],
        ErrorKind::ContentTypeNotSupported | ErrorKind::UnsupportedMediaType => {
            ["ContentTypeNotSupportedError"; 3]
        }
        ErrorKind::InvalidAgentResponse => ["InvalidAgentResponseError"; 3],
        ErrorKind::ExtendedAgentCardNotConfigured => ["ExtendedAgentCardNotConfiguredError"; 3],
        ErrorKind::ExtensionSupportRequired => ["ExtensionSupportRequiredError"; 3],
        ErrorKind::VersionNotSupported => ["VersionNotSupportedError"; 3],
        // Determined by the gRPC code before the details.
        ErrorKind::RequestTimeout => [
            "InvalidRequestError",
            "InvalidRequestError",
            "A2AClientTimeoutError",
        ],
        ErrorKind::DeadlineExceeded => [UNKNOWN, UNKNOWN, "A2AClientTimeoutError"],
        ErrorKind::Unauthenticated
        | ErrorKind::PermissionDenied
        | ErrorKind::RateLimited
        | ErrorKind::Unavailable
        | ErrorKind::Canceled
        | ErrorKind::Other(_) => [UNKNOWN; 3],
    }
}

#[test]
fn official_v1_client_raises_the_expected_class() {
    if is_quick_run() {
        return;
    }
    strategies::check(4 * CASES, strategies::error(), |error| {
        let kind = error.kind();
        let version = Version::V1;
        let mut rpc = Vec::new();
        wire::write_json(&mut rpc, &JsonRpcError(&error, version));
        let mut body = Vec::new();
        wire::write_json(&mut body, &RestError(&error, version));
        let body = String::from_utf8(body).unwrap();
        let rest = format!(
            r#"{{"status":{},"body":{body}}}"#,
            http_status(kind, version)
        );
        let status = grpc::to_status(&error, version);
        let code = i32::from(status.code());
        let details = hex(status.details());
        let status =
            json!({"code": code, "message": status.message(), "details": details}).to_string();
        let sent = [
            ("JSONRPCError", rpc),
            ("RESTError", rest.into()),
            ("GRPCError", status.into()),
        ];
        for ((carrier, payload), class) in sent.into_iter().zip(classes(kind)) {
            let kept = ask(&V10, carrier, "json", &payload)?;
            let raised: Value = serde_json::from_str(&kept.json).unwrap();
            prop_assert_eq!(
                &raised["class"],
                class,
                "{} {:?}: {}",
                carrier,
                kind,
                raised
            );
            if class.starts_with("A2AClient") {
                continue;
            }
            prop_assert_eq!(&raised["message"], error.message(), "{}", carrier);
            let metadata: Value = error
                .metadata()
                .map(|(key, value)| (key.to_owned(), Value::from(value)))
                .collect();
            match carrier {
                // Contains the invalid fields, but no metadata.
                "GRPCError" => {
                    let fields = raised["data"]["errors"].as_array().map_or(0, Vec::len);
                    prop_assert_eq!(fields, error.violations().len());
                }
                _ if error.metadata().len() == 0 => prop_assert_eq!(&raised["data"], &Value::Null),
                _ => prop_assert_eq!(&raised["data"], &metadata),
            }
        }
        Ok(())
    });
}

/// Checks that the generator covers every operation.
#[test]
fn generated_requests_cover_every_operation() {
    let seen = std::cell::RefCell::new(std::collections::BTreeSet::new());
    strategies::check(8 * CASES, strategies::request(Fit::Official), |request| {
        seen.borrow_mut()
            .insert(format!("{:?}", operation(&request)));
        Ok(())
    });
    assert_eq!(seen.borrow().len(), Operation::ALL.len());
}
