//! 1.0: every document in JSON and in bytes, and every error as the official client raises it.

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

use super::{CASES, CaseResult, V10, ask, ask_bytes, hex, means, quick};
use crate::strategies::{self, Fit};
use crate::wire::lossy_conversion::{Form, Lossy, card_after};
use crate::wire::protobuf;
use crate::wire::roundtrip::{operation, operations_with_response, or_fail};

/// A document in both forms comes back in both forms of both.
fn comes_back<T: PartialEq + std::fmt::Debug>(
    (kind, bytes): (&str, &[u8]),
    text: &[u8],
    meant: &T,
    read_text: impl Fn(&str) -> Result<T, Error>,
    read_bytes: impl Fn(&[u8]) -> Result<T, Error>,
) -> CaseResult {
    for kept in [
        ask(&V10, kind, "json", text)?,
        ask_bytes(&V10, kind, bytes)?,
    ] {
        means(&kept.json, read_text(&kept.json), meant)?;
        means(&kept.json, read_bytes(&kept.bytes.unwrap()), meant)?;
    }
    Ok(())
}

#[test]
fn the_official_sdk_of_1_0_understands_every_request() {
    if quick() {
        return;
    }
    strategies::check(8 * CASES, strategies::request(Fit::Official), |request| {
        let (kind, bytes) = protobuf::write_request(&request, Version::V1).unwrap();
        let mut params = Vec::new();
        or_fail(wire::write_params(&mut params, &request, Version::V1))?;
        let method = find_method(method_name(operation(&request), Version::V1).unwrap()).unwrap();
        comes_back(
            (kind, &bytes),
            &params,
            &request.after_round_trip(Form::V1),
            |text| wire::read_params(method, text).map(|(request, _)| request),
            |bytes| protobuf::read_request(&request, Version::V1, bytes),
        )
    });
}

#[test]
fn the_official_sdk_of_1_0_understands_every_answer() {
    if quick() {
        return;
    }
    strategies::check(6 * CASES, strategies::response(Fit::Official), |response| {
        let Some((kind, bytes)) = protobuf::write_response(&response, Version::V1) else {
            prop_assert_eq!(&response, &Response::Empty);
            return Ok(());
        };
        let mut result = Vec::new();
        or_fail(wire::write_result(&mut result, &response, &Dialect::V1))?;
        comes_back(
            (kind, &bytes),
            &result,
            &response.after_round_trip(Form::V1),
            |text| wire::read_response(operations_with_response(&response)[0], text, &Dialect::V1),
            |bytes| protobuf::read_response(&response, Version::V1, bytes),
        )
    });
}

#[test]
fn the_official_sdk_of_1_0_understands_every_event() {
    if quick() {
        return;
    }
    strategies::check(
        3 * CASES,
        strategies::stream_response(Fit::Official),
        |event| {
            let (kind, bytes) = protobuf::write_event(&event, false, Version::V1);
            let mut text = Vec::new();
            wire::write_event(&mut text, &event, false, &Dialect::V1);
            comes_back(
                (kind, &bytes),
                &text,
                &event,
                |text| wire::read_event(text, &Dialect::V1),
                |bytes| protobuf::read_event(Version::V1, bytes),
            )
        },
    );
}

/// What stands inside the others, on its own.
fn bare<P, M>(kind: &str, values: BoxedStrategy<M>)
where
    P: prost::Message + Default + for<'a> From<&'a M>,
    M: TryFrom<P, Error = Error> + Serialize + DeserializeOwned + PartialEq + std::fmt::Debug,
{
    strategies::check(CASES, values, |value| {
        let mut text = Vec::new();
        wire::write_json(&mut text, &value);
        let bytes = P::from(&value).encode_to_vec();
        comes_back(
            (kind, &bytes),
            &text,
            &value,
            |text| json::read(text),
            protobuf::read::<P, M>,
        )
    });
}

#[test]
fn the_official_sdk_of_1_0_understands_the_pieces() {
    if quick() {
        return;
    }
    let fit = Fit::Official;
    bare::<v1::Task, Task>("Task", strategies::task(fit));
    bare::<v1::Message, Message>("Message", strategies::message(fit));
    bare::<v1::Part, Part>("Part", strategies::part(fit));
    bare::<v1::Artifact, Artifact>("Artifact", strategies::artifact(fit));
    bare::<v1::TaskStatus, TaskStatus>("TaskStatus", strategies::status(fit));
    bare::<v1::TaskStatusUpdateEvent, TaskStatusUpdateEvent>(
        "TaskStatusUpdateEvent",
        strategies::status_event(fit),
    );
    bare::<v1::TaskArtifactUpdateEvent, TaskArtifactUpdateEvent>(
        "TaskArtifactUpdateEvent",
        strategies::artifact_event(fit),
    );
}

#[test]
fn the_card_resolver_of_1_0_reads_cards_of_every_form() {
    if quick() {
        return;
    }
    strategies::check(2 * CASES, strategies::card(Fit::Official), |card| {
        for form in [CardForm::V1, CardForm::Union] {
            let mut text = Vec::new();
            or_fail(write_card(&mut text, &card, form))?;
            let kept = ask(&V10, "UnionCard", "json", &text)?;
            // The members of 0.3 beside those of 1.0 change nothing.
            let meant = card_after(&card, CardForm::V1).unwrap();
            means(&kept.json, read_card(kept.json.as_bytes()), &meant)?;
            means(
                &kept.json,
                protobuf::read::<v1::AgentCard, _>(&kept.bytes.unwrap()),
                &meant,
            )?;
        }
        Ok(())
    });
}

/// What the client calls an error that it does not know: all that A2A has no code or reason for.
const UNKNOWN: &str = "A2AClientError";

/// The class that the official client raises: over JSON-RPC, over REST, over gRPC.
fn classes(kind: ErrorKind) -> [&'static str; 3] {
    match kind {
        // Its table of reasons has none for this: 06 §1, what no JSON client can send is no A2A error elsewhere.
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
        // By the code of gRPC, before it looks at anything else.
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
fn the_official_client_of_1_0_raises_the_class_of_every_error() {
    if quick() {
        return;
    }
    strategies::check(4 * CASES, strategies::error(), |error| {
        let (kind, version) = (error.kind(), Version::V1);
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
        let (code, details) = (i32::from(status.code()), hex(status.details()));
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
                // There it has the fields at fault and no metadata.
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

/// Every operation has been tried, whatever the generator does.
#[test]
fn the_requests_that_are_tried_are_of_every_operation() {
    let seen = std::cell::RefCell::new(std::collections::BTreeSet::new());
    strategies::check(8 * CASES, strategies::request(Fit::Official), |request| {
        seen.borrow_mut()
            .insert(format!("{:?}", operation(&request)));
        Ok(())
    });
    assert_eq!(seen.borrow().len(), Operation::ALL.len());
}
