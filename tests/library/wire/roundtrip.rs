//! Round trips of generated values in every form. `lossy_conversion.rs` lists the documented
//! losses.

use std::fmt::Debug;

use attache::Error;
use attache::model::{Operation, Request, Response, SendMessageResponse, StreamResponse, Version};
use attache::wire::card::{CardForm, read_card, write_card};
use attache::wire::errors::{
    JsonRpcError, RestError, http_status, read_jsonrpc_error, read_rest_error,
};
use attache::wire::fast::fast_decode;
use attache::wire::jsonrpc::{self, JsonRpcId};
use attache::wire::method::{find_method, method_name};
use attache::wire::path::route;
use attache::wire::{self, Dialect, sse};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::strategies::{self, Fit};
use crate::wire::lossy_conversion::{Carrier, Form, Lossy, card_after, card_form, error_after};
use crate::wire::members::{self, Shapes};

type CaseResult = Result<(), TestCaseError>;

const CASES: u32 = 200;

pub(crate) fn or_fail<T>(result: Result<T, Error>) -> Result<T, TestCaseError> {
    result.map_err(|error| TestCaseError::fail(format!("{error:?}")))
}

/// Asserts that two values are equal including their JSON text: numbers must keep their spelling.
fn assert_same<T: PartialEq + Debug>(read: &T, wanted: &T) -> CaseResult {
    prop_assert_eq!(read, wanted);
    prop_assert_eq!(format!("{read:?}"), format!("{wanted:?}"));
    Ok(())
}

#[test]
fn params_round_trip_in_both_versions() {
    strategies::check(CASES, strategies::request(Fit::Json), |request| {
        [Form::V1, Form::V03]
            .into_iter()
            .try_for_each(|form| assert_call_round_trips(&request, form))
    });
}

fn assert_call_round_trips(request: &Request, form: Form) -> CaseResult {
    let operation = operation(request);
    let version = form.version();
    let mut params = Vec::new();
    let written = wire::write_params(&mut params, request, version);
    let Some(name) = method_name(operation, version) else {
        // 08 §2: 0.3 cannot list tasks.
        prop_assert_eq!((operation, form), (Operation::ListTasks, Form::V03));
        prop_assert_eq!(
            written.unwrap_err().kind(),
            attache::ErrorKind::UnsupportedOperation
        );
        return Ok(());
    };
    or_fail(written)?;
    let shape = match (request, form) {
        (Request::SendStreamingMessage(_), _) => "SendMessage".to_owned(),
        (Request::CreatePushConfig(_), Form::V1) => "PushConfig".to_owned(),
        _ => format!("{operation:?}"),
    };
    members::check(Shapes::Of(form), &shape, &params)?;
    let mut body = Vec::new();
    jsonrpc::write_request(&mut body, &JsonRpcId::from(7), name, |out| {
        out.extend_from_slice(&params)
    });
    let call = jsonrpc::read_request(&body)
        .map_err(|no| TestCaseError::fail(format!("{:?}", no.error)))?;
    let (read, dialect) = or_fail(wire::read_params(
        find_method(&call.method).unwrap(),
        call.params,
    ))?;
    prop_assert_eq!((call.id, dialect), (JsonRpcId::from(7), form.dialect()));
    use Request::{GetTask, SendMessage, SendStreamingMessage};
    if let (Form::V1, SendMessage(_) | SendStreamingMessage(_) | GetTask(_)) = (form, &read) {
        let Some(quick) = fast_decode(&body) else {
            return Err(TestCaseError::fail("not read in one go"));
        };
        prop_assert_eq!(
            (quick.id, quick.method.operation),
            (JsonRpcId::from(7), operation)
        );
        assert_same(&quick.request, &request.after_round_trip(form))?;
    }
    assert_same(&read, &request.after_round_trip(form))
}

pub(crate) fn operation(request: &Request) -> Operation {
    match request {
        Request::SendMessage(_) => Operation::SendMessage,
        Request::SendStreamingMessage(_) => Operation::SendStreamingMessage,
        Request::GetTask(_) => Operation::GetTask,
        Request::ListTasks(_) => Operation::ListTasks,
        Request::CancelTask(_) => Operation::CancelTask,
        Request::SubscribeToTask(_) => Operation::SubscribeToTask,
        Request::CreatePushConfig(_) => Operation::CreatePushConfig,
        Request::GetPushConfig(_) => Operation::GetPushConfig,
        Request::ListPushConfigs(_) => Operation::ListPushConfigs,
        Request::DeletePushConfig(_) => Operation::DeletePushConfig,
        Request::GetExtendedAgentCard(_) => Operation::GetExtendedAgentCard,
    }
}

#[test]
fn rest_requests_round_trip_in_both_versions() {
    strategies::check(CASES, strategies::request(Fit::Json), |request| {
        [Form::V1, Form::V03Rest]
            .into_iter()
            .try_for_each(|form| assert_rest_round_trips(&request, form))
    });
}

fn assert_rest_round_trips(request: &Request, form: Form) -> CaseResult {
    let written = match (
        wire::write_rest(request, form.version()),
        operation(request),
    ) {
        (Err(error), Operation::ListTasks) if form == Form::V03Rest => {
            prop_assert_eq!(error.kind(), attache::ErrorKind::UnsupportedOperation);
            return Ok(());
        }
        (written, _) => or_fail(written)?,
    };
    if let Some(body) = &written.body {
        let shape = match (request, form) {
            (Request::SendStreamingMessage(_), _) => "SendMessage".to_owned(),
            (Request::CreatePushConfig(_), Form::V1) => "PushConfig".to_owned(),
            _ => format!("{:?}", operation(request)),
        };
        members::check(Shapes::Of(form), &shape, body)?;
    }
    prop_assert!(
        written.path.bytes().all(|byte| byte.is_ascii_graphic()),
        "{}",
        written.path
    );
    let (path, query) = written.path.split_once('?').unwrap_or((&written.path, ""));
    let route =
        route(written.method, path).map_err(|no| TestCaseError::fail(format!("{path}: {no:?}")))?;
    let (read, dialect) = or_fail(wire::read_rest(
        &route,
        query,
        &written.body.unwrap_or_default(),
    ))?;
    prop_assert_eq!(dialect, form.dialect());
    assert_same(&read, &request.after_round_trip(form))
}

#[test]
fn responses_round_trip_in_every_dialect() {
    strategies::check(CASES, strategies::response(Fit::Json), |response| {
        Form::ALL
            .into_iter()
            .try_for_each(|form| assert_response_round_trips(&response, form))
    });
}

fn assert_response_round_trips(response: &Response, form: Form) -> CaseResult {
    let dialect = form.dialect();
    let mut result = Vec::new();
    let mut body = Vec::new();
    let written = wire::write_result(&mut result, response, &dialect);
    if let Response::AgentCard(card) = response
        && card_after(card, card_form(form)).is_none()
    {
        // 03 §7: only agents with an interface before 1.0 have a legacy card.
        prop_assert_eq!(
            written.unwrap_err().kind(),
            attache::ErrorKind::UnsupportedOperation
        );
        return Ok(());
    }
    or_fail(written)?;
    or_fail(wire::write_body(&mut body, response, &dialect))?;
    if let Some((shapes, shape)) = shape_of(response, form) {
        members::check(shapes, shape, &result)?;
        prop_assert_eq!(&body, &result);
    }
    let mut answer = Vec::new();
    jsonrpc::begin_result(&mut answer, &JsonRpcId::NULL);
    answer.extend_from_slice(&result);
    jsonrpc::end_result(&mut answer);
    let read = or_fail(or_fail(jsonrpc::read_response(&answer))?.result)?;
    let wanted = response.after_round_trip(form);
    for operation in operations_with_response(response) {
        assert_same(
            &or_fail(wire::read_response(*operation, read, &dialect))?,
            &wanted,
        )?;
        assert_same(
            &or_fail(wire::read_response(
                *operation,
                std::str::from_utf8(&body).unwrap(),
                &dialect,
            ))?,
            &wanted,
        )?;
    }
    Ok(())
}

/// Returns the operations that may have this response.
pub(crate) fn operations_with_response(response: &Response) -> &'static [Operation] {
    match response {
        Response::SendMessage(_) => &[Operation::SendMessage],
        Response::Task(_) => &[Operation::GetTask, Operation::CancelTask],
        Response::ListTasks(_) => &[Operation::ListTasks],
        Response::PushConfig(_) => &[Operation::CreatePushConfig, Operation::GetPushConfig],
        Response::ListPushConfigs(_) => &[Operation::ListPushConfigs],
        Response::Empty => &[Operation::DeletePushConfig],
        Response::AgentCard(_) => &[Operation::GetExtendedAgentCard],
    }
}

fn shape_of(response: &Response, form: Form) -> Option<(Shapes, &'static str)> {
    let bare = form == Form::V03;
    let shape = match response {
        Response::SendMessage(SendMessageResponse::Task(_)) if bare => "Task",
        Response::SendMessage(SendMessageResponse::Message(_)) if bare => "Message",
        Response::SendMessage(_) => "Event",
        Response::Task(_) => "Task",
        Response::ListTasks(_) if form == Form::V03Rest => {
            return Some((Shapes::Of(Form::V03), "Tasks"));
        }
        Response::ListTasks(_) => "Tasks",
        Response::PushConfig(_) => "PushConfig",
        Response::ListPushConfigs(_) => "PushConfigs",
        Response::Empty => return None,
        Response::AgentCard(_) => return Some((Shapes::Card(card_form(form)), "Card")),
    };
    Some((Shapes::Of(form), shape))
}

#[test]
fn events_round_trip_through_sse_in_every_dialect() {
    strategies::check(
        CASES,
        (strategies::stream_response(Fit::Json), any::<bool>()),
        |(event, closes)| {
            Form::ALL
                .into_iter()
                .try_for_each(|form| assert_event_round_trips(&event, closes, form))
        },
    );
}

fn assert_event_round_trips(event: &StreamResponse, closes: bool, form: Form) -> CaseResult {
    let mut bare = Vec::new();
    wire::write_event(&mut bare, event, closes, &form.dialect());
    let shape = match event {
        _ if form != Form::V03 => "Event",
        StreamResponse::Task(_) => "Task",
        StreamResponse::Message(_) => "Message",
        StreamResponse::StatusUpdate(_) => "StatusEvent",
        StreamResponse::ArtifactUpdate(_) => "ArtifactEvent",
    };
    members::check(Shapes::Of(form), shape, &bare)?;
    let mut framed = Vec::new();
    sse::begin_event(&mut framed, Some(3));
    jsonrpc::begin_result(&mut framed, &JsonRpcId::NULL);
    framed.extend_from_slice(&bare);
    jsonrpc::end_result(&mut framed);
    sse::end_event(&mut framed);
    let mut decoder = sse::Decoder::default();
    decoder.push(&framed);
    let frame = decoder.next().unwrap().unwrap();
    let answer = or_fail(jsonrpc::read_response(frame.data.as_bytes()))?;
    let read = or_fail(wire::read_event(or_fail(answer.result)?, &form.dialect()))?;
    prop_assert!(decoder.next().is_none() && decoder.is_at_boundary());
    assert_same(&read, &event.after_round_trip(form))
}

#[test]
fn v01_client_gets_its_own_task_id() {
    strategies::check(
        CASES,
        (strategies::task(Fit::Json), strategies::id()),
        |(task, alias)| {
            let dialect = Dialect::V01 {
                alias: Some(alias.clone().into()),
            };
            let mut out = Vec::new();
            wire::write_event(&mut out, &StreamResponse::Task(task), false, &dialect);
            prop_assert!(members::is_unique(std::str::from_utf8(&out).unwrap()));
            let StreamResponse::Task(read) = or_fail(wire::read_event(
                std::str::from_utf8(&out).unwrap(),
                &dialect,
            ))?
            else {
                return Err(TestCaseError::fail("no task"));
            };
            prop_assert_eq!(read.id.as_str(), alias);
            Ok(())
        },
    );
}

#[test]
fn cards_round_trip_in_every_form() {
    strategies::check(CASES, strategies::card(Fit::Json), |card| {
        for form in [
            CardForm::V1,
            CardForm::V03,
            CardForm::V03Wrapped,
            CardForm::V02,
            CardForm::Union,
        ] {
            let mut out = Vec::new();
            let written = write_card(&mut out, &card, form);
            let Some(wanted) = card_after(&card, form) else {
                prop_assert_eq!(
                    written.unwrap_err().kind(),
                    attache::ErrorKind::UnsupportedOperation
                );
                continue;
            };
            or_fail(written)?;
            members::check(Shapes::Card(form), "Card", &out)?;
            assert_same(&or_fail(read_card(&out))?, &wanted)?;
        }
        Ok(())
    });
}

#[test]
fn errors_round_trip_on_every_binding_and_version() {
    strategies::check(CASES, strategies::error(), |error| {
        for version in Version::ALL {
            let mut out = Vec::new();
            wire::write_json(&mut out, &JsonRpcError(&error, version));
            let read = read_jsonrpc_error(std::str::from_utf8(&out).unwrap());
            prop_assert_eq!(read, error_after(&error, Carrier::JsonRpc, version));
            let mut out = Vec::new();
            wire::write_json(&mut out, &RestError(&error, version));
            let read = read_rest_error(
                http_status(error.kind(), version),
                std::str::from_utf8(&out).unwrap(),
            );
            prop_assert_eq!(read, error_after(&error, Carrier::Rest, version));
        }
        Ok(())
    });
}

#[test]
fn violations_with_escaped_slashes_are_read() {
    let text = r#"{"code":-32602,"data":[{"@type":"type.googleapis.com\/google.rpc.BadRequest","fieldViolations":[{"field":"id","description":"must not be empty"}]}]}"#;
    assert_eq!(
        read_jsonrpc_error(text).violations(),
        Error::invalid("id", "must not be empty").violations()
    );
}

/// 08 §4: a scheme with several flows becomes several schemes, each of which satisfies the
/// requirement.
#[test]
fn requirement_is_expanded_to_every_flow_of_its_scheme() {
    let two = r#"{"type":"oauth2","flows":{"password":{"tokenUrl":"p"},"implicit":{"authorizationUrl":"i"}}}"#;
    let card = format!(
        r#"{{"url":"u","securitySchemes":{{"a":{two},"b":{two},"c":{{"type":"http"}}}},"security":[{{"a":["s"],"b":[],"c":[]}}]}}"#
    );
    let read = read_card(card.as_bytes()).unwrap();
    let names: Vec<_> = read.security_schemes.keys().map(String::as_str).collect();
    assert_eq!(names, ["a", "a.password", "b", "b.password", "c"]);
    let ways = read
        .security_requirements
        .iter()
        .map(|way| way.schemes.keys().map(String::as_str).collect());
    let mut ways: Vec<Vec<_>> = ways.collect();
    ways.sort_unstable();
    assert_eq!(
        ways,
        [
            ["a", "b", "c"],
            ["a", "b.password", "c"],
            ["a.password", "b", "c"],
            ["a.password", "b.password", "c"]
        ]
    );
    assert!(
        read.security_requirements
            .iter()
            .all(|way| way.schemes.values().flatten().count() == 1)
    );
}
