//! The other side of the wire: the eleven operations, over every binding and version.

mod credentials;
mod discover;
mod events;
#[cfg(feature = "grpc")]
mod grpc;
#[cfg(not(feature = "grpc"))]
#[path = "no_grpc.rs"]
mod grpc;
mod http;
mod jsonrpc;
mod receiver;
mod rest;

use std::fmt;
use std::sync::Arc;

use ::http::{HeaderMap, HeaderName, HeaderValue, Uri};

#[cfg(feature = "tls")]
use crate::egress::ClientTls;
use crate::egress::{self, Egress};
use crate::model::{
    AgentCard, AgentInterface, Binding, CancelTaskRequest, DeletePushConfigRequest, Error, ErrorKind,
    GetExtendedAgentCardRequest, GetPushConfigRequest, GetTaskRequest, ListPushConfigsRequest,
    ListPushConfigsResponse, ListTasksRequest, ListTasksResponse, PushConfig, Request, Response, Result,
    Secret, SendMessageRequest, SendMessageResponse, Seq, SubscribeToTaskRequest, Task, Version,
};
use crate::wire::decide::Asked;
use crate::wire::header;
use credentials::Wallet;
pub use credentials::{
    ApiKey, Basic, Bearer, Credentials, DeviceLogin, Endpoints, MutualTls, OAuth, Shown, Token,
};
pub use events::EventStream;
pub use receiver::{Notification, PushNotifications, PushReceiver, PushReceiverSettings};

/// How much of one answer, or of one event, is read unless said otherwise.
const MAX_BYTES: usize = 10 << 20;

/// Talks to one agent, in one binding and one version. Cheap to clone; clones share their connections.
///
/// An error that the agent sent has the kind it has on the wire. [`ErrorKind::Unavailable`] with a source is a
/// connection that could not be made or was lost, [`ErrorKind::InvalidAgentResponse`] an answer that makes no sense.
/// Nothing is tried again, and only connecting has a deadline: wrap a call into a timeout where it needs one.
#[derive(Clone)]
pub struct Client {
    url: Uri,
    binding: Binding,
    version: Version,
    tenant: Option<String>,
    headers: HeaderMap,
    max_bytes: usize,
    egress: Egress,
    card: Option<Arc<AgentCard>>,
    /// Where the card came from.
    home: Option<Uri>,
    wallet: Wallet,
}

impl Client {
    /// A client of the agent at this url; gRPC also takes `host:port` and `grpc://host:port`.
    ///
    /// # Errors
    /// Invalid parameters: the url is not one of HTTP. Unsupported: gRPC without the feature `grpc`.
    pub fn new(url: &str, binding: Binding, version: Version) -> Result<Self> {
        Self::over(Egress::trusted(), url, binding, version)
    }

    /// A client that goes out by this door.
    pub(crate) fn over(egress: Egress, url: &str, binding: Binding, version: Version) -> Result<Self> {
        let url = match binding {
            Binding::JsonRpc | Binding::HttpJson => url.parse().ok(),
            Binding::Grpc => grpc::address(url)?,
        };
        let url: Uri =
            url.ok_or_else(|| Error::invalid("url", "must begin with http:// or https:// and name a host"))?;
        egress::check(&url)?;
        let headers = HeaderMap::from_iter([
            (HeaderName::from_static(header::VERSION), HeaderValue::from_static(version.as_str())),
            (
                ::http::header::USER_AGENT,
                HeaderValue::from_static(concat!("attache/", env!("CARGO_PKG_VERSION"))),
            ),
        ]);
        Ok(Self {
            url,
            binding,
            version,
            tenant: None,
            headers,
            max_bytes: MAX_BYTES,
            egress,
            card: None,
            home: None,
            wallet: Wallet::default(),
        })
    }

    /// A client of an interface that a card names, with its tenant.
    ///
    /// # Errors
    /// Unsupported: a binding or version that this client does not speak. Invalid parameters: its url.
    pub fn from_interface(interface: &AgentInterface) -> Result<Self> {
        let unspoken = || {
            Error::new(ErrorKind::UnsupportedOperation).with_message(
                "This operation is not supported: the interface is in another binding or version",
            )
        };
        let (binding, version) = spoken(interface).ok_or_else(unspoken)?;
        let client = Self::new(&interface.url, binding, version)?;
        Ok(Self { tenant: interface.tenant.clone(), ..client })
    }

    /// Trusts whom these settings trust, and shows their certificate to servers that ask for one.
    #[cfg(feature = "tls")]
    #[must_use]
    pub fn with_tls(self, tls: &ClientTls) -> Self {
        Self { egress: Egress::with_tls(tls), ..self }
    }

    /// Puts this tenant into every request that names none; 0.3 has no tenants.
    #[must_use]
    pub fn with_tenant(self, tenant: impl Into<String>) -> Self {
        Self { tenant: Some(tenant.into()), ..self }
    }

    /// Sends a header, or gRPC metadata, with every request, in place of what there was under its name. For one call
    /// alone, on a clone: `client.clone().with_header("Idempotency-Key", "k-1")?.send_message(..)`.
    ///
    /// # Errors
    /// Invalid parameters: no such header can be sent.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self> {
        let name: HeaderName =
            name.parse().map_err(|_| Error::invalid("header", "must have a name that HTTP can carry"))?;
        let value = value_of(name.as_str(), value)?;
        self.headers.insert(name, value);
        Ok(self)
    }

    /// Sends this token as `Authorization: Bearer`, whatever the card says and wherever it leads; rather use
    /// [`with_credentials`](Self::with_credentials).
    ///
    /// # Errors
    /// Invalid parameters: the token has characters that a header cannot carry.
    pub fn with_bearer(mut self, token: &Secret) -> Result<Self> {
        let value = value_of("authorization", &format!("Bearer {}", token.expose()))?;
        self.headers.insert(::http::header::AUTHORIZATION, value);
        Ok(self)
    }

    /// Asks for these extensions, by their URIs, with every request.
    ///
    /// # Errors
    /// Invalid parameters: a URI has characters that a header cannot carry.
    pub fn with_extensions<'a>(mut self, uris: impl IntoIterator<Item = &'a str>) -> Result<Self> {
        let uris = uris.into_iter().collect::<Vec<_>>().join(", ");
        for name in header::extensions(self.version) {
            self.headers.insert(HeaderName::from_static(name), value_of(name, &uris)?);
        }
        Ok(self)
    }

    /// Reads at most so many bytes of one answer, or of one event of a stream; by default 10 MiB.
    #[must_use]
    pub fn with_max_bytes(self, max_bytes: usize) -> Self {
        Self { max_bytes, ..self }
    }

    /// Where it talks to, and how.
    #[must_use]
    pub fn interface(&self) -> AgentInterface {
        AgentInterface {
            tenant: self.tenant.clone(),
            ..AgentInterface::new(self.url.to_string(), self.binding, self.version)
        }
    }

    /// The card it was made from, if [`discover`](Self::discover) made it.
    #[must_use]
    pub fn card(&self) -> Option<&AgentCard> {
        self.card.as_deref()
    }

    /// Sends a message and waits for the answer.
    ///
    /// # Errors
    /// Of the agent, of the connection, or an answer that makes no sense; the same for every operation.
    pub async fn send_message(&self, mut request: SendMessageRequest) -> Result<SendMessageResponse> {
        self.address(&mut request.tenant);
        match self.call(Request::SendMessage(request)).await? {
            Response::SendMessage(answer) => Ok(answer),
            other => Err(mismatch(&other)),
        }
    }

    /// Sends a message and streams what happens.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message). A refusal may also come as the first item of the stream.
    pub async fn send_streaming_message(&self, mut request: SendMessageRequest) -> Result<EventStream> {
        self.address(&mut request.tenant);
        self.stream(Request::SendStreamingMessage(request), None).await
    }

    /// Reads a task.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn get_task(&self, mut request: GetTaskRequest) -> Result<Task> {
        self.address(&mut request.tenant);
        task(self.call(Request::GetTask(request)).await?)
    }

    /// Lists tasks by page.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message). Unsupported: 0.3 cannot list tasks.
    pub async fn list_tasks(&self, mut request: ListTasksRequest) -> Result<ListTasksResponse> {
        self.address(&mut request.tenant);
        match self.call(Request::ListTasks(request)).await? {
            Response::ListTasks(page) => Ok(page),
            other => Err(mismatch(&other)),
        }
    }

    /// Asks for a task to be canceled.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn cancel_task(&self, mut request: CancelTaskRequest) -> Result<Task> {
        self.address(&mut request.tenant);
        task(self.call(Request::CancelTask(request)).await?)
    }

    /// Streams what happens to an existing task: from now, or from behind a position that an earlier stream gave.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message). A refusal may also come as the first item of the stream.
    pub async fn subscribe_to_task(
        &self,
        mut request: SubscribeToTaskRequest,
        after: Option<Seq>,
    ) -> Result<EventStream> {
        self.address(&mut request.tenant);
        self.stream(Request::SubscribeToTask(request), after).await
    }

    /// Registers a webhook for a task.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn create_push_config(&self, mut config: PushConfig) -> Result<PushConfig> {
        self.address(&mut config.tenant);
        push_config(self.call(Request::CreatePushConfig(config)).await?)
    }

    /// Reads a webhook registration.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn get_push_config(&self, mut request: GetPushConfigRequest) -> Result<PushConfig> {
        self.address(&mut request.tenant);
        push_config(self.call(Request::GetPushConfig(request)).await?)
    }

    /// Lists the webhook registrations of a task.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn list_push_configs(
        &self,
        mut request: ListPushConfigsRequest,
    ) -> Result<ListPushConfigsResponse> {
        self.address(&mut request.tenant);
        match self.call(Request::ListPushConfigs(request)).await? {
            Response::ListPushConfigs(list) => Ok(list),
            other => Err(mismatch(&other)),
        }
    }

    /// Removes a webhook registration.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn delete_push_config(&self, mut request: DeletePushConfigRequest) -> Result<()> {
        self.address(&mut request.tenant);
        self.call(Request::DeletePushConfig(request)).await.map(|_| ())
    }

    /// Reads the card that authenticated callers see.
    ///
    /// # Errors
    /// As [`send_message`](Self::send_message).
    pub async fn get_extended_agent_card(&self) -> Result<AgentCard> {
        let request = GetExtendedAgentCardRequest { tenant: self.tenant.clone() };
        match self.call(Request::GetExtendedAgentCard(request)).await? {
            Response::AgentCard(card) => Ok(*card),
            other => Err(mismatch(&other)),
        }
    }

    /// 1.0: every request carries the tenant of its interface.
    fn address(&self, tenant: &mut Option<String>) {
        if tenant.is_none() {
            tenant.clone_from(&self.tenant);
        }
    }

    async fn call(&self, request: Request) -> Result<Response> {
        match self.binding {
            Binding::JsonRpc => jsonrpc::call(self, &request).await,
            Binding::HttpJson => rest::call(self, &request).await,
            Binding::Grpc => grpc::call(self, &request).await,
        }
    }

    async fn stream(&self, request: Request, after: Option<Seq>) -> Result<EventStream> {
        match self.binding {
            Binding::JsonRpc => jsonrpc::stream(self, &request, after).await,
            Binding::HttpJson => rest::stream(self, &request, after).await,
            Binding::Grpc => grpc::stream(self, &request, after).await,
        }
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("interface", &self.interface()).finish_non_exhaustive()
    }
}

/// The binding and the version of an interface, if this client speaks both.
fn spoken(interface: &AgentInterface) -> Option<(Binding, Version)> {
    let binding = interface.binding().filter(|binding| *binding != Binding::Grpc || grpc::SPOKEN)?;
    match Asked::read([&*interface.protocol_version]) {
        Asked::For(version) => Some((binding, version)),
        Asked::Nothing | Asked::Other(_) => None,
    }
}

/// Any of them may be a credential, so none of them prints.
fn value_of(name: &str, value: &str) -> Result<HeaderValue> {
    let mut value: HeaderValue = value
        .parse()
        .map_err(|_| Error::invalid(name, "must have no control characters: a header cannot carry them"))?;
    value.set_sensitive(true);
    Ok(value)
}

fn task(response: Response) -> Result<Task> {
    match response {
        Response::Task(task) => Ok(task),
        other => Err(mismatch(&other)),
    }
}

fn push_config(response: Response) -> Result<PushConfig> {
    match response {
        Response::PushConfig(config) => Ok(config),
        other => Err(mismatch(&other)),
    }
}

/// The readers answer by operation, so this does not happen; if it does, it is our fault.
fn mismatch(_: &Response) -> Error {
    Error::internal("an answer of another operation")
}
