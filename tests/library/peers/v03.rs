//! 0.3: JSON-RPC through the official models, REST and gRPC through the official protobuf classes.

use attache::model::{
    AgentCard, OAuth2SecurityScheme, OAuthFlows, Operation, Request, Response, SecurityScheme,
    SendMessageResponse, StreamResponse, Version,
};
use attache::wire::card::{CardForm, read_card, write_card};
use attache::wire::jsonrpc::{self, JsonRpcId};
use attache::wire::method::{find_method, method_name};
use attache::wire::path::route;
use attache::wire::{self, Dialect};
use attache::{Error, ErrorKind};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use super::{CASES, CaseResult, V03, ask, ask_bytes, assert_means, is_quick_run};
use crate::strategies::{self, Fit};
use crate::wire::lossy_conversion::{Carrier, Form, Lossy, card_after, error_after};
use crate::wire::protobuf;
use crate::wire::roundtrip::{operation, operations_with_response, or_fail};

/// Returns the operation's prefix in the SDK's JSON-RPC model names; `None` for listing tasks.
fn model_name(operation: Operation) -> Option<&'static str> {
    Some(match operation {
        Operation::SendMessage => "SendMessage",
        Operation::SendStreamingMessage => "SendStreamingMessage",
        Operation::GetTask => "GetTask",
        Operation::ListTasks => return None,
        Operation::CancelTask => "CancelTask",
        Operation::SubscribeToTask => "TaskResubscription",
        Operation::CreatePushConfig => "SetTaskPushNotificationConfig",
        Operation::GetPushConfig => "GetTaskPushNotificationConfig",
        Operation::ListPushConfigs => "ListTaskPushNotificationConfig",
        Operation::DeletePushConfig => "DeleteTaskPushNotificationConfig",
        Operation::GetExtendedAgentCard => "GetAuthenticatedExtendedCard",
    })
}

#[test]
fn official_v03_models_accept_requests() {
    if is_quick_run() {
        return;
    }
    strategies::check(8 * CASES, strategies::request(Fit::Official), |request| {
        let operation = operation(&request);
        let Some(model) = model_name(operation) else {
            return Ok(());
        };
        let mut params = Vec::new();
        or_fail(wire::write_params(&mut params, &request, Version::V03))?;
        let mut body = Vec::new();
        let method_name = method_name(operation, Version::V03).unwrap();
        jsonrpc::write_request(&mut body, &JsonRpcId::from(7), method_name, |out| {
            out.extend(params)
        });
        let kept = ask(&V03, &format!("{model}Request"), "json", &body)?.json;
        let call = jsonrpc::read_request(kept.as_bytes())
            .map_err(|refused| TestCaseError::fail(format!("{:?}", refused.error)))?;
        prop_assert_eq!(
            (&call.id, &*call.method),
            (&JsonRpcId::from(7), method_name)
        );
        let read = wire::read_params(find_method(&call.method).unwrap(), call.params)
            .map(|(request, _)| request);
        assert_means(&kept, read, &request.after_round_trip(Form::V03))
    });
}

/// Sends a result in its envelope through the SDK model and returns the result.
fn result_kept(model: &str, result: &[u8]) -> Result<String, TestCaseError> {
    let mut body = Vec::new();
    jsonrpc::begin_result(&mut body, &JsonRpcId::from(7));
    body.extend_from_slice(result);
    jsonrpc::end_result(&mut body);
    let kept = ask(&V03, model, "json", &body)?.json;
    if result == b"null" {
        // The SDK omits `null`, even where JSON-RPC requires it.
        return Ok("null".to_owned());
    }
    let read = or_fail(jsonrpc::read_response(kept.as_bytes()))?;
    Ok(or_fail(read.result)?.to_owned())
}

#[test]
fn official_v03_models_accept_responses() {
    if is_quick_run() {
        return;
    }
    strategies::check(6 * CASES, strategies::response(Fit::Official), |response| {
        let mut result = Vec::new();
        match wire::write_result(&mut result, &response, &Dialect::V03) {
            // 03 §7: only agents with an interface before 1.0 have a legacy card.
            Err(error) if error.kind() == ErrorKind::UnsupportedOperation => return Ok(()),
            written => or_fail(written)?,
        }
        for operation in operations_with_response(&response) {
            let Some(model) = model_name(*operation) else {
                continue;
            };
            let kept = result_kept(&format!("{model}Response"), &result)?;
            assert_means(
                &kept,
                wire::read_response(*operation, &kept, &Dialect::V03),
                &response.after_round_trip(Form::V03),
            )?;
        }
        Ok(())
    });
}

#[test]
fn official_v03_models_accept_events() {
    if is_quick_run() {
        return;
    }
    let events = (strategies::stream_response(Fit::Official), any::<bool>());
    strategies::check(3 * CASES, events, |(event, closes)| {
        let mut bare = Vec::new();
        wire::write_event(&mut bare, &event, closes, &Dialect::V03);
        let model = match &event {
            StreamResponse::Task(_) => "Task",
            StreamResponse::Message(_) => "Message",
            StreamResponse::StatusUpdate(_) => "TaskStatusUpdateEvent",
            StreamResponse::ArtifactUpdate(_) => "TaskArtifactUpdateEvent",
        };
        let streamed = result_kept("SendStreamingMessageResponse", &bare)?;
        let pushed = ask(&V03, model, "json", &bare)?.json;
        for kept in [streamed, pushed] {
            assert_means(
                &kept,
                wire::read_event(&kept, &Dialect::V03),
                &event.after_round_trip(Form::V03),
            )?;
        }
        Ok(())
    });
}

#[test]
fn official_v03_models_accept_errors() {
    if is_quick_run() {
        return;
    }
    strategies::check(3 * CASES, strategies::error(), |error| {
        let mut body = Vec::new();
        jsonrpc::write_error(&mut body, &JsonRpcId::from(7), &error, Version::V03);
        // Every response and event may be an error.
        for model in [
            "JSONRPCErrorResponse",
            "SendMessageResponse",
            "SendStreamingMessageResponse",
        ] {
            let kept = ask(&V03, model, "json", &body)?.json;
            let read = or_fail(jsonrpc::read_response(kept.as_bytes()))?
                .result
                .unwrap_err();
            prop_assert_eq!(
                read,
                error_after(&error, Carrier::JsonRpc, Version::V03),
                "{}",
                kept
            );
        }
        Ok(())
    });
}

#[test]
fn official_v03_models_accept_cards() {
    if is_quick_run() {
        return;
    }
    strategies::check(2 * CASES, strategies::card(Fit::Official), |card| {
        let Some(meant) = card_after(&card, CardForm::V03) else {
            return Ok(());
        };
        // Strictly by the model, and by the SDK's resolver for forms with additional members.
        let forms = [
            ("AgentCard", CardForm::V03),
            ("UnionCard", CardForm::V03),
            ("UnionCard", CardForm::V03Wrapped),
            ("UnionCard", CardForm::Union),
        ];
        for (kind, form) in forms {
            let mut text = Vec::new();
            or_fail(write_card(&mut text, &card, form))?;
            let kept = ask(&V03, kind, "json", &text)?.json;
            let mut meant = meant.clone();
            if form == CardForm::Union {
                meant.security_schemes.extend(without_flow(&card));
            }
            assert_means(&kept, read_card(kept.as_bytes()), &meant)?;
        }
        Ok(())
    });
}

/// Returns the schemes of a union that 0.3 sees without a flow: those with a device code. No
/// requirement names them.
fn without_flow(card: &AgentCard) -> impl Iterator<Item = (String, SecurityScheme)> {
    card.security_schemes
        .iter()
        .filter_map(|(name, scheme)| match scheme {
            SecurityScheme::OAuth2(scheme)
                if matches!(scheme.flows, Some(OAuthFlows::DeviceCode(_))) =>
            {
                Some((
                    name.clone(),
                    SecurityScheme::OAuth2(OAuth2SecurityScheme {
                        flows: None,
                        ..scheme.clone()
                    }),
                ))
            }
            _ => None,
        })
}

/// Returns the protobuf message type of a REST request body.
fn body_name(request: &Request) -> Option<&'static str> {
    match request {
        Request::SendMessage(_) | Request::SendStreamingMessage(_) => Some("SendMessageRequest"),
        Request::CancelTask(_) => Some("CancelTaskRequest"),
        Request::CreatePushConfig(_) => Some("CreateTaskPushNotificationConfigRequest"),
        Request::GetTask(_)
        | Request::ListTasks(_)
        | Request::SubscribeToTask(_)
        | Request::GetPushConfig(_)
        | Request::ListPushConfigs(_)
        | Request::DeletePushConfig(_)
        | Request::GetExtendedAgentCard(_) => None,
    }
}

#[test]
fn official_v03_protobuf_accepts_rest_bodies() {
    if is_quick_run() {
        return;
    }
    strategies::check(5 * CASES, strategies::request(Fit::Official), |request| {
        let Some(kind) = body_name(&request) else {
            return Ok(());
        };
        let written = or_fail(wire::write_rest(&request, Version::V03))?;
        let kept = ask(&V03, kind, "restjson", &written.body.unwrap())?.json;
        let (path, query) = written.path.split_once('?').unwrap_or((&written.path, ""));
        let read = wire::read_rest(
            &route(written.method, path).unwrap(),
            query,
            kept.as_bytes(),
        );
        assert_means(
            &kept,
            read.map(|(request, _)| request),
            &request.after_round_trip(Form::V03Rest),
        )
    });
}

#[test]
fn official_v03_protobuf_accepts_requests() {
    if is_quick_run() {
        return;
    }
    strategies::check(8 * CASES, strategies::request(Fit::Official), |request| {
        let Some((kind, bytes)) = protobuf::write_request(&request, Version::V03) else {
            return Ok(());
        };
        let kept = ask_bytes(&V03, kind, &bytes)?;
        let read = protobuf::read_request(&request, Version::V03, &kept.bytes.unwrap());
        assert_means(&kept.json, read, &request.after_round_trip(Form::V03Grpc))
    });
}

/// Returns the protobuf message type of a REST response; cards are in 0.3 JSON (08 §2).
fn answer_name(response: &Response) -> Option<&'static str> {
    match response {
        Response::SendMessage(SendMessageResponse::Task(_) | SendMessageResponse::Message(_)) => {
            Some("SendMessageResponse")
        }
        Response::Task(_) => Some("Task"),
        Response::PushConfig(_) => Some("TaskPushNotificationConfig"),
        Response::ListPushConfigs(_) => Some("ListTaskPushNotificationConfigResponse"),
        Response::ListTasks(_) | Response::Empty | Response::AgentCard(_) => None,
    }
}

#[test]
fn official_v03_protobuf_accepts_responses() {
    if is_quick_run() {
        return;
    }
    strategies::check(6 * CASES, strategies::response(Fit::Official), |response| {
        let reads = |text: &str| {
            wire::read_response(
                operations_with_response(&response)[0],
                text,
                &Dialect::V03Rest,
            )
        };
        if let Some(kind) = answer_name(&response) {
            let mut body = Vec::new();
            or_fail(wire::write_body(&mut body, &response, &Dialect::V03Rest))?;
            let kept = ask(&V03, kind, "restjson", &body)?.json;
            assert_means(
                &kept,
                reads(&kept),
                &response.after_round_trip(Form::V03Rest),
            )?;
        }
        let Some((kind, bytes)) = protobuf::write_response(&response, Version::V03) else {
            return Ok(());
        };
        let meant = response.after_round_trip(Form::V03Grpc);
        let kept = ask_bytes(&V03, kind, &bytes)?;
        let read = protobuf::read_response(&response, Version::V03, &kept.bytes.unwrap());
        assert_means(&kept.json, read, &meant)?;
        match answer_name(&response) {
            // The REST form that another 0.3 server would write.
            Some(_) => assert_means(&kept.json, reads(&kept.json), &meant),
            None => Ok(()),
        }
    });
}

#[test]
fn official_v03_protobuf_accepts_events() {
    if is_quick_run() {
        return;
    }
    let events = (strategies::stream_response(Fit::Official), any::<bool>());
    strategies::check(3 * CASES, events, |(event, closes)| {
        both_events(&event, closes)
    });
}

fn both_events(event: &StreamResponse, closes: bool) -> CaseResult {
    let mut text = Vec::new();
    wire::write_event(&mut text, event, closes, &Dialect::V03Rest);
    let (kind, bytes) = protobuf::write_event(event, closes, Version::V03);
    let read_bytes = |bytes: &[u8]| -> Result<StreamResponse, Error> {
        protobuf::read_event(Version::V03, bytes)
    };
    let in_rest = event.after_round_trip(Form::V03Rest);
    let in_bytes = event.after_round_trip(Form::V03Grpc);
    for (kept, meant) in [
        (ask(&V03, kind, "restjson", &text)?, in_rest),
        (ask_bytes(&V03, kind, &bytes)?, in_bytes),
    ] {
        assert_means(
            &kept.json,
            wire::read_event(&kept.json, &Dialect::V03Rest),
            &meant,
        )?;
        assert_means(&kept.json, read_bytes(&kept.bytes.unwrap()), &meant)?;
    }
    Ok(())
}
