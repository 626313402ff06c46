//! What is written is read back as it was, in every form; what an older form cannot say is listed in `lossy.rs`.

use std::fmt::Debug;

use attache::Error;
use attache::model::{
    Operation, Part, Request, Response, SendMessageResponse, StreamResponse, Version,
};
use attache::wire::card::{CardForm, read_card, write_card};
use attache::wire::errors::{
    JsonRpcError, RestError, http_status, read_jsonrpc_error, read_rest_error,
};
use attache::wire::fast::{LARGE_BODY_BYTES, fast_decode, fast_decode_large};
use attache::wire::jsonrpc::{self, JsonRpcId};
use attache::wire::method::{find_method, method_name};
use attache::wire::path::route;
use attache::wire::{self, Dialect, sse};
use proptest::prelude::*;
use proptest::test_runner::TestCaseError;

use crate::strategies::{self, Fit};
use crate::wire::lossy_conversion::{Carrier, Form, Lossy, card_after, card_form, error_after};
use crate::wire::members::{self, Shapes};

type Tried = Result<(), TestCaseError>;

const CASES: u32 = 200;

pub(crate) fn said<T>(result: Result<T, Error>) -> Result<T, TestCaseError> {
    result.map_err(|error| TestCaseError::fail(format!("{error:?}")))
}

/// Equal, and to the letter: two numbers may be one value, but we keep how it was written.
fn same<T: PartialEq + Debug>(read: &T, wanted: &T) -> Tried {
    prop_assert_eq!(read, wanted);
    prop_assert_eq!(format!("{read:?}"), format!("{wanted:?}"));
    Ok(())
}

#[test]
fn params_of_every_call_come_back_in_both_versions() {
    strategies::check(CASES, strategies::request(Fit::Json), |request| {
        [Form::V1, Form::V03]
            .into_iter()
            .try_for_each(|form| call_comes_back(&request, form))
    });
}

fn call_comes_back(request: &Request, form: Form) -> Tried {
    let (operation, version) = (operation(request), form.version());
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
    said(written)?;
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
    let (read, dialect) = said(wire::read_params(
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
        same(&quick.request, &request.after(form))?;
    }
    same(&read, &request.after(form))
}

#[test]
fn a_call_that_is_mostly_a_file_comes_back() {
    strategies::check(CASES / 4, strategies::request(Fit::Json), |mut request| {
        let Request::SendMessage(send) = &mut request else {
            return Ok(());
        };
        send.message
            .parts
            .insert(0, Part::file(vec![7; LARGE_BODY_BYTES], "image/png"));
        let mut params = Vec::new();
        said(wire::write_params(&mut params, &request, Version::V1))?;
        let mut body = Vec::new();
        let write = |out: &mut Vec<u8>| out.extend_from_slice(&params);
        jsonrpc::write_request(&mut body, &JsonRpcId::from(7), "SendMessage", write);
        match fast_decode_large(body.clone()) {
            Ok(read) => same(&read.request, &request.after(Form::V1)),
            Err(back) => {
                // There is too much beside it.
                prop_assert!(back == body && body.len() > LARGE_BODY_BYTES / 3 * 4 * 9 / 8);
                Ok(())
            }
        }
    });
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
fn path_query_and_body_of_every_request_come_back_in_both_versions() {
    strategies::check(CASES, strategies::request(Fit::Json), |request| {
        [Form::V1, Form::V03Rest]
            .into_iter()
            .try_for_each(|form| rest_comes_back(&request, form))
    });
}

fn rest_comes_back(request: &Request, form: Form) -> Tried {
    let written = match (
        wire::write_rest(request, form.version()),
        operation(request),
    ) {
        (Err(error), Operation::ListTasks) if form == Form::V03Rest => {
            prop_assert_eq!(error.kind(), attache::ErrorKind::UnsupportedOperation);
            return Ok(());
        }
        (written, _) => said(written)?,
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
    let (read, dialect) = said(wire::read_rest(
        &route,
        query,
        &written.body.unwrap_or_default(),
    ))?;
    prop_assert_eq!(dialect, form.dialect());
    same(&read, &request.after(form))
}

#[test]
fn results_and_bodies_of_every_answer_come_back_in_every_dialect() {
    strategies::check(CASES, strategies::response(Fit::Json), |response| {
        Form::ALL
            .into_iter()
            .try_for_each(|form| answer_comes_back(&response, form))
    });
}

fn answer_comes_back(response: &Response, form: Form) -> Tried {
    let dialect = form.dialect();
    let (mut result, mut body) = (Vec::new(), Vec::new());
    let written = wire::write_result(&mut result, response, &dialect);
    if let Response::AgentCard(card) = response
        && card_after(card, card_form(form)).is_none()
    {
        // 03 §7: an older card only of an agent that speaks an older version.
        prop_assert_eq!(
            written.unwrap_err().kind(),
            attache::ErrorKind::UnsupportedOperation
        );
        return Ok(());
    }
    said(written)?;
    said(wire::write_body(&mut body, response, &dialect))?;
    if let Some((shapes, shape)) = shape_of(response, form) {
        members::check(shapes, shape, &result)?;
        prop_assert_eq!(&body, &result);
    }
    let mut answer = Vec::new();
    jsonrpc::begin_result(&mut answer, &JsonRpcId::NULL);
    answer.extend_from_slice(&result);
    jsonrpc::end_result(&mut answer);
    let read = said(said(jsonrpc::read_response(&answer))?.result)?;
    let wanted = response.after(form);
    for operation in answered(response) {
        same(
            &said(wire::read_response(*operation, read, &dialect))?,
            &wanted,
        )?;
        same(
            &said(wire::read_response(
                *operation,
                std::str::from_utf8(&body).unwrap(),
                &dialect,
            ))?,
            &wanted,
        )?;
    }
    Ok(())
}

/// The operations that such an answer may answer.
pub(crate) fn answered(response: &Response) -> &'static [Operation] {
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
fn events_and_webhooks_come_back_through_sse_in_every_dialect() {
    strategies::check(
        CASES,
        (strategies::stream_response(Fit::Json), any::<bool>()),
        |(event, closes)| {
            Form::ALL
                .into_iter()
                .try_for_each(|form| event_comes_back(&event, closes, form))
        },
    );
}

fn event_comes_back(event: &StreamResponse, closes: bool, form: Form) -> Tried {
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
    let answer = said(jsonrpc::read_response(frame.data.as_bytes()))?;
    let read = said(wire::read_event(said(answer.result)?, &form.dialect()))?;
    prop_assert!(decoder.next().is_none() && decoder.is_at_boundary());
    same(&read, &event.after(form))
}

#[test]
fn a_client_of_the_first_days_reads_its_own_name_for_the_task() {
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
            let StreamResponse::Task(read) = said(wire::read_event(
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
fn cards_come_back_in_every_form() {
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
            said(written)?;
            members::check(Shapes::Card(form), "Card", &out)?;
            same(&said(read_card(&out))?, &wanted)?;
        }
        Ok(())
    });
}

#[test]
fn errors_come_back_on_every_binding_and_in_both_versions() {
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
fn fields_at_fault_are_read_from_printers_that_escape_slashes() {
    let text = r#"{"code":-32602,"data":[{"@type":"type.googleapis.com\/google.rpc.BadRequest","fieldViolations":[{"field":"id","description":"must not be empty"}]}]}"#;
    assert_eq!(
        read_jsonrpc_error(text).violations(),
        Error::invalid("id", "must not be empty").violations()
    );
}

/// 08 §4: a scheme of several flows becomes several schemes, and each of them meets the requirement.
#[test]
fn a_requirement_is_met_by_any_flow_of_its_scheme() {
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
