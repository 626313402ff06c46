//! All readers of the library that accept bytes from peers.

use attache::Error;
use attache::model::{Operation, PushConfigId, TaskId, Version};
use attache::wire::fast::fast_decode;
use attache::wire::method::{find_method, method_name};
use attache::wire::negotiation::{RequestedVersion, RouteVersion, negotiate};
use attache::wire::path::{self, RestRoute};
use attache::wire::{self, Dialect, card, errors, json, jsonrpc, sse};

/// Reader under test. Its result is ignored; only its error is checked.
pub(super) struct InputReader {
    pub(super) name: String,
    /// Whether another reader uses the same code, apart from the names of a few members.
    pub(super) twin: bool,
    read: Box<Read>,
}

type Read = dyn Fn(&[u8]) -> Option<Error> + std::panic::RefUnwindSafe;

impl InputReader {
    pub(super) fn read(&self, input: &[u8]) -> Option<Error> {
        (self.read)(input)
    }

    fn new(
        name: impl Into<String>,
        read: impl Fn(&[u8]) -> Option<Error> + std::panic::RefUnwindSafe + 'static,
    ) -> Self {
        Self {
            name: name.into(),
            twin: false,
            read: Box::new(read),
        }
    }

    /// Creates a reader of text; input that is not UTF-8 does not reach it.
    fn of_text(
        name: impl Into<String>,
        read: impl Fn(&str) -> Option<Error> + std::panic::RefUnwindSafe + 'static,
    ) -> Self {
        Self::new(name, move |input| read(std::str::from_utf8(input).ok()?))
    }
}

/// Returns all readers.
pub(super) fn readers() -> Vec<InputReader> {
    let mut all = envelopes();
    all.extend(params());
    all.extend(replies());
    all.extend(rest());
    all.extend(others());
    all
}

fn envelopes() -> Vec<InputReader> {
    vec![
        InputReader::new("read_request", |input| match jsonrpc::read_request(input) {
            Err(refused) => Some(refused.error),
            Ok(call) => wire::read_params(find_method(&call.method).ok()?, call.params).err(),
        }),
        // The fast path must produce the same result as the general path.
        InputReader::new("fast_decode", |input| {
            let quick = fast_decode(input)?;
            let call = jsonrpc::read_request(input).unwrap();
            let (request, _) = wire::read_params(quick.method, call.params).unwrap();
            assert_eq!(
                (quick.id, Ok(quick.method), quick.request),
                (call.id, find_method(&call.method), request)
            );
            None
        }),
        InputReader::new("read_response", |input| {
            match jsonrpc::read_response(input) {
                Err(error) => Some(error),
                Ok(answer) => wire::read_event(answer.result.ok()?, &Dialect::V1).err(),
            }
        }),
    ]
}

fn params() -> Vec<InputReader> {
    let current = Operation::ALL
        .into_iter()
        .flat_map(|operation| Version::ALL.map(|version| method_name(operation, version)));
    let old = [
        "tasks/send",
        "tasks/pushNotification/set",
        "tasks/pushNotification/get",
        "tasks/list",
    ];
    let names = current.flatten().chain(old);
    let reader = |name: &'static str| InputReader {
        // Streaming operations, and operations that differ only in their ids.
        twin: [
            "Stream",
            "stream",
            "Subscribe",
            "subscribe",
            "Delete",
            "delete",
            "GetExtended",
            "getAuth",
        ]
        .iter()
        .any(|word| name.contains(word)),
        ..InputReader::of_text(name, move |text| {
            wire::read_params(find_method(name).unwrap(), text).err()
        })
    };
    names.map(reader).collect()
}

fn dialects() -> [Dialect; 4] {
    [
        Dialect::V1,
        Dialect::V03,
        Dialect::V03Rest,
        Dialect::V01 {
            alias: Some("own".into()),
        },
    ]
}

fn replies() -> Vec<InputReader> {
    let mut all = Vec::new();
    for dialect in dialects() {
        for operation in Operation::ALL {
            let name = format!("response to {operation:?} in {dialect:?}");
            let twin = is_twin(operation, &dialect);
            let dialect = dialect.clone();
            let read = move |text: &str| wire::read_response(operation, text, &dialect).err();
            all.push(InputReader {
                twin,
                ..InputReader::of_text(name, read)
            });
        }
        let name = format!("event in {dialect:?}");
        let twin = matches!(dialect, Dialect::V01 { .. });
        let read = move |text: &str| wire::read_event(text, &dialect).err();
        all.push(InputReader {
            twin,
            ..InputReader::of_text(name, read)
        });
    }
    all
}

/// Whether the reader has a twin: responses with a task, push configurations and cards are read
/// alike in all dialects, and 0.1 as 0.3.
fn is_twin(operation: Operation, dialect: &Dialect) -> bool {
    match operation {
        Operation::SendMessage | Operation::GetTask | Operation::ListTasks => {
            matches!(dialect, Dialect::V01 { .. })
        }
        Operation::CreatePushConfig
        | Operation::ListPushConfigs
        | Operation::GetExtendedAgentCard => *dialect != Dialect::V1,
        Operation::SendStreamingMessage
        | Operation::CancelTask
        | Operation::SubscribeToTask
        | Operation::GetPushConfig
        | Operation::DeletePushConfig => true,
    }
}

fn rest() -> Vec<InputReader> {
    let mut all = Vec::new();
    for (operation, key) in Operation::ALL
        .into_iter()
        .flat_map(|o| [(o, RouteVersion::PathV1), (o, RouteVersion::PathV03)])
    {
        let route = RestRoute {
            operation,
            route_version: key,
            tenant: None,
            task: Some(TaskId::from("t")),
            config: Some(PushConfigId::from("c")),
        };
        let in_body = route.clone();
        let twin = !matches!(
            operation,
            Operation::SendMessage
                | Operation::GetTask
                | Operation::CancelTask
                | Operation::CreatePushConfig
        );
        let read = move |body: &[u8]| wire::read_rest(&in_body, "", body).err();
        all.push(InputReader {
            twin,
            ..InputReader::new(format!("body of {operation:?} {key:?}"), read)
        });
        let twin = !matches!(
            operation,
            Operation::GetTask | Operation::ListTasks | Operation::ListPushConfigs
        );
        let read = move |query: &str| wire::read_rest(&route, query, b"").err();
        all.push(InputReader {
            twin,
            ..InputReader::of_text(format!("query of {operation:?} {key:?}"), read)
        });
    }
    all
}

fn others() -> Vec<InputReader> {
    vec![
        InputReader::new("card", |body| card::read_card(body).err()),
        InputReader::new("json", |body| json::check(body).err()),
        // Error texts of peers are passed on unchanged.
        InputReader::of_text("JSON-RPC error", |text| {
            drop(errors::read_jsonrpc_error(text));
            None
        }),
        InputReader::of_text("REST error", |text| {
            [400, 404, 500]
                .into_iter()
                .for_each(|status| drop(errors::read_rest_error(status, text)));
            None
        }),
        InputReader::of_text("path", |text| {
            ["GET", "POST", "DELETE", "BREW"]
                .into_iter()
                .for_each(|verb| drop(path::route(verb, text)));
            None
        }),
        InputReader::of_text("version", |text| {
            negotiate(
                RouteVersion::MethodV1,
                &RequestedVersion::parse(text.split(',')),
                true,
            )
            .err()
            .map(|refusal| refusal.error)
        }),
        InputReader::new("sse", |stream| {
            stream_in(stream, stream.len().max(1));
            // Chunk lengths derived from the input.
            stream_in(
                stream,
                stream.iter().map(|byte| usize::from(*byte)).sum::<usize>() % 97 + 1,
            );
            None
        }),
    ]
}

fn stream_in(stream: &[u8], piece: usize) {
    let mut decoder = sse::Decoder::new(16 * 1024);
    for piece in stream.chunks(piece) {
        decoder.push(piece);
        decoder.by_ref().for_each(drop);
    }
}
