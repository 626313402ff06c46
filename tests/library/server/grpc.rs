//! The gRPC binding: both services, called by clients that others generated, and by one that writes frames by hand.

mod calls;
mod codec;
mod health;
mod limits;
mod refusals;
mod streams;

use std::time::Duration;

use attache::{AgentCard, Server};
use attache_proto::{v1, v03};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tonic::metadata::MetadataMap;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};

use crate::harness::{Echo, Running, start_with, with_deadline};

pub(crate) const SEND: &str = "/lf.a2a.v1.A2AService/SendMessage";

type V1 = v1::a2a_service_client::A2aServiceClient<Channel>;
type V03 = v03::a2a_service_client::A2aServiceClient<Channel>;

/// Both clients, on a connection of their own.
struct Clients {
    v1: V1,
    v03: V03,
}

fn channel(server: &Running) -> Channel {
    let endpoint = Endpoint::from_shared(format!("http://{}", server.address)).unwrap();
    endpoint.timeout(Duration::from_secs(30)).connect_lazy()
}

fn clients(server: &Running) -> Clients {
    let channel = channel(server);
    Clients {
        v1: V1::new(channel.clone()),
        v03: V03::new(channel),
    }
}

/// A server whose card has this and that.
async fn start_card(set_up: impl FnOnce(&mut AgentCard)) -> Running {
    let mut card = AgentCard::new("Echo", "Says it back");
    set_up(&mut card);
    start_with(Echo, |_| Server::new(card, Echo)).await
}

fn say(text: &str) -> v1::SendMessageRequest {
    let part = v1::Part {
        content: Some(v1::part::Content::Text(text.to_owned())),
        ..Default::default()
    };
    let message = v1::Message {
        message_id: "m-1".to_owned(),
        role: v1::Role::User.into(),
        parts: vec![part],
        ..Default::default()
    };
    v1::SendMessageRequest {
        message: Some(message),
        ..Default::default()
    }
}

fn say_v03(text: &str) -> v03::SendMessageRequest {
    let part = v03::Part {
        content: Some(v03::part::Content::Text(text.to_owned())),
        ..Default::default()
    };
    let message = v03::Message {
        message_id: "m-1".to_owned(),
        role: v03::Role::User.into(),
        content: vec![part],
        ..Default::default()
    };
    v03::SendMessageRequest {
        request: Some(message),
        ..Default::default()
    }
}

fn task(response: v1::SendMessageResponse) -> v1::Task {
    match response.payload {
        Some(v1::send_message_response::Payload::Task(task)) => task,
        other => panic!("no task: {other:?}"),
    }
}

fn task_v03(response: v03::SendMessageResponse) -> v03::Task {
    match response.payload {
        Some(v03::send_message_response::Payload::Task(task)) => task,
        other => panic!("no task: {other:?}"),
    }
}

/// A request with metadata.
fn with<T>(message: T, metadata: &[(&'static str, &'static str)]) -> Request<T> {
    let mut request = Request::new(message);
    for (name, value) in metadata {
        request.metadata_mut().append(*name, value.parse().unwrap());
    }
    request
}

fn text<'a>(metadata: &'a MetadataMap, name: &str) -> Option<&'a str> {
    metadata.get(name).map(|value| value.to_str().unwrap())
}

/// Everything in a stream, and how it ended.
async fn all<T>(mut stream: Streaming<T>) -> (Vec<T>, Result<(), Status>) {
    let mut events = Vec::new();
    loop {
        match with_deadline(stream.message()).await {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, Ok(())),
            Err(status) => return (events, Err(status)),
        }
    }
}

/// A connection that is written by hand.
struct Raw {
    sender: hyper::client::conn::http2::SendRequest<Full<Bytes>>,
    _connection: JoinSet<()>,
}

/// Response on a raw HTTP/2 stream.
#[derive(Debug)]
struct Heard {
    status: u16,
    headers: http::HeaderMap,
    body: Bytes,
    trailers: http::HeaderMap,
}

impl Heard {
    async fn read(answer: http::Response<Incoming>) -> Self {
        let (head, body) = answer.into_parts();
        let whole = with_deadline(body.collect()).await.unwrap();
        let trailers = whole.trailers().cloned().unwrap_or_default();
        Self {
            status: head.status.as_u16(),
            headers: head.headers,
            body: whole.to_bytes(),
            trailers,
        }
    }

    /// The status of gRPC, wherever it is.
    fn code(&self) -> tonic::Code {
        let headers = if self.trailers.contains_key("grpc-status") {
            &self.trailers
        } else {
            &self.headers
        };
        Status::from_header_map(headers)
            .unwrap_or_else(|| panic!("no status: {self:?}"))
            .code()
    }
}

async fn connect<B>(server: &Running) -> (hyper::client::conn::http2::SendRequest<B>, JoinSet<()>)
where
    B: Body<Data = Bytes, Error: Into<Box<dyn std::error::Error + Send + Sync>>>
        + Send
        + Unpin
        + 'static,
{
    let io = TokioIo::new(
        with_deadline(TcpStream::connect(server.address))
            .await
            .unwrap(),
    );
    let (sender, connection) = with_deadline(hyper::client::conn::http2::handshake(
        TokioExecutor::new(),
        io,
    ))
    .await
    .unwrap();
    let mut tasks = JoinSet::new();
    tasks.spawn(async move {
        let _ = connection.await;
    });
    (sender, tasks)
}

impl Raw {
    async fn new(server: &Running) -> Self {
        let (sender, connection) = connect(server).await;
        Self {
            sender,
            _connection: connection,
        }
    }

    async fn post(&mut self, path: &str, headers: &[(&str, &str)], body: Vec<u8>) -> Heard {
        let mut request = http::Request::post(format!("http://localhost{path}"));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(body))).unwrap();
        Heard::read(
            with_deadline(self.sender.send_request(request))
                .await
                .unwrap(),
        )
        .await
    }
}

/// A message in its frame.
fn framed(message: &[u8]) -> Vec<u8> {
    let length = u32::try_from(message.len()).unwrap();
    [&[0], &length.to_be_bytes()[..], message].concat()
}
