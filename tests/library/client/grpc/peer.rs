//! Scripted gRPC server built with tonic: sends one canned reply and records the last call.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use attache::Error;
use attache::model::{Request as A2aRequest, Response as A2aResponse, StreamResponse, Version};
use attache::wire::{grpc, proto_v03};
use attache_proto::v1::a2a_service_server as server_v1;
use attache_proto::v03::a2a_service_server as server_v03;
use attache_proto::{v1, v03};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tonic::codegen::{BoxStream, tokio_stream};
use tonic::metadata::MetadataMap;
use tonic::{Request, Response, Status};

/// Reply to every call.
pub(super) enum ScriptedReply {
    Response(A2aResponse),
    /// Events of a stream, and the error that ends it.
    Events(Vec<StreamResponse>, Option<Error>),
    Error(Error),
}

/// Call as received.
pub(super) struct ReceivedCall {
    pub(super) request: A2aRequest,
    metadata: MetadataMap,
}

impl ReceivedCall {
    pub(super) fn metadata(&self, name: &str) -> Option<&str> {
        self.metadata.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Server that runs until it is dropped.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    service: Service,
    _serving: JoinSet<()>,
}

impl Peer {
    pub(super) async fn start(version: Version, reply: ScriptedReply) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = Service {
            reply: Arc::new(reply),
            received: Arc::default(),
        };
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, version, service.clone()));
        Self {
            address,
            service,
            _serving: serving,
        }
    }

    /// Returns the last call.
    pub(super) fn received(&self) -> ReceivedCall {
        self.service
            .received
            .lock()
            .unwrap()
            .take()
            .expect("a call was received")
    }
}

async fn serve(listener: TcpListener, version: Version, service: Service) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let service = service.clone();
        connections.spawn(async move {
            let http = Builder::new(TokioExecutor::new());
            let stream = TokioIo::new(stream);
            let _ = match version {
                Version::V1 => {
                    let service =
                        TowerToHyperService::new(server_v1::A2aServiceServer::new(service));
                    http.serve_connection(stream, service).await
                }
                Version::V03 => {
                    let service =
                        TowerToHyperService::new(server_v03::A2aServiceServer::new(service));
                    http.serve_connection(stream, service).await
                }
            };
        });
    }
}

#[derive(Clone)]
struct Service {
    reply: Arc<ScriptedReply>,
    received: Arc<Mutex<Option<ReceivedCall>>>,
}

impl Service {
    fn record<P, M>(&self, request: Request<P>, convert: fn(M) -> A2aRequest)
    where
        M: TryFrom<P, Error = Error>,
    {
        let (metadata, _, message) = request.into_parts();
        let request = convert(M::try_from(message).unwrap());
        *self.received.lock().unwrap() = Some(ReceivedCall { request, metadata });
    }

    fn events(&self, version: Version) -> Result<Vec<Result<StreamResponse, Status>>, Status> {
        match &*self.reply {
            ScriptedReply::Events(events, end) => {
                let end = end.iter().map(|error| Err(grpc::to_status(error, version)));
                Ok(events.iter().cloned().map(Ok).chain(end).collect())
            }
            ScriptedReply::Error(error) => Err(grpc::to_status(error, version)),
            ScriptedReply::Response(response) => panic!("{response:?} is not a stream"),
        }
    }
}

/// Implements the service of one version: for each RPC its request, and the reply it may send.
macro_rules! service {
    (
        $server:ident $module:ident $version:expr, $event:expr;
        $(@ $stream:ident: $call_of_stream:ident($request_of_stream:ident: $stream_request_of:expr);)*
        $($call:ident($request:ident: $request_of:expr) -> $reply:ty, $pattern:pat => $message:expr;)*
    ) => {
        #[tonic::async_trait]
        impl $server::A2aService for Service {
            $(
                type $stream = BoxStream<$module::StreamResponse>;

                async fn $call_of_stream(
                    &self,
                    request: Request<$module::$request_of_stream>,
                ) -> Result<Response<Self::$stream>, Status> {
                    self.record(request, $stream_request_of);
                    let events = self.events($version)?.into_iter().map(|event| event.map($event));
                    Ok(Response::new(Box::pin(tokio_stream::iter(events.collect::<Vec<_>>()))))
                }
            )*
            $(
                async fn $call(
                    &self,
                    request: Request<$module::$request>,
                ) -> Result<Response<$reply>, Status> {
                    self.record(request, $request_of);
                    match &*self.reply {
                        ScriptedReply::Response($pattern) => Ok(Response::new($message)),
                        ScriptedReply::Error(error) => Err(grpc::to_status(error, $version)),
                        ScriptedReply::Response(_) | ScriptedReply::Events(..) => panic!("the scripted reply is of another operation"),
                    }
                }
            )*
        }
    };
}

service! {
    server_v1 v1 Version::V1, |event| (&event).into();
    @ SendStreamingMessageStream: send_streaming_message(SendMessageRequest: |it| A2aRequest::SendStreamingMessage(Box::new(it)));
    @ SubscribeToTaskStream: subscribe_to_task(SubscribeToTaskRequest: A2aRequest::SubscribeToTask);
    send_message(SendMessageRequest: |it| A2aRequest::SendMessage(Box::new(it))) -> v1::SendMessageResponse, A2aResponse::SendMessage(it) => it.into();
    get_task(GetTaskRequest: A2aRequest::GetTask) -> v1::Task, A2aResponse::Task(it) => it.into();
    list_tasks(ListTasksRequest: A2aRequest::ListTasks) -> v1::ListTasksResponse, A2aResponse::ListTasks(it) => it.into();
    cancel_task(CancelTaskRequest: A2aRequest::CancelTask) -> v1::Task, A2aResponse::Task(it) => it.into();
    create_task_push_notification_config(TaskPushNotificationConfig: |it| A2aRequest::CreatePushConfig(Box::new(it)))
        -> v1::TaskPushNotificationConfig, A2aResponse::PushConfig(it) => it.into();
    get_task_push_notification_config(GetTaskPushNotificationConfigRequest: A2aRequest::GetPushConfig)
        -> v1::TaskPushNotificationConfig, A2aResponse::PushConfig(it) => it.into();
    list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest: A2aRequest::ListPushConfigs)
        -> v1::ListTaskPushNotificationConfigsResponse, A2aResponse::ListPushConfigs(it) => it.into();
    delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest: A2aRequest::DeletePushConfig)
        -> (), A2aResponse::Empty => ();
    get_extended_agent_card(GetExtendedAgentCardRequest: A2aRequest::GetExtendedAgentCard)
        -> v1::AgentCard, A2aResponse::AgentCard(it) => (&**it).into();
}

service! {
    server_v03 v03 Version::V03, |event| proto_v03::stream_response(&event, false);
    @ SendStreamingMessageStream: send_streaming_message(SendMessageRequest: |it| A2aRequest::SendStreamingMessage(Box::new(it)));
    @ TaskSubscriptionStream: task_subscription(TaskSubscriptionRequest: A2aRequest::SubscribeToTask);
    send_message(SendMessageRequest: |it| A2aRequest::SendMessage(Box::new(it))) -> v03::SendMessageResponse, A2aResponse::SendMessage(it) => it.into();
    get_task(GetTaskRequest: A2aRequest::GetTask) -> v03::Task, A2aResponse::Task(it) => it.into();
    cancel_task(CancelTaskRequest: A2aRequest::CancelTask) -> v03::Task, A2aResponse::Task(it) => it.into();
    create_task_push_notification_config(CreateTaskPushNotificationConfigRequest: |it| A2aRequest::CreatePushConfig(Box::new(it)))
        -> v03::TaskPushNotificationConfig, A2aResponse::PushConfig(it) => it.into();
    get_task_push_notification_config(GetTaskPushNotificationConfigRequest: A2aRequest::GetPushConfig)
        -> v03::TaskPushNotificationConfig, A2aResponse::PushConfig(it) => it.into();
    list_task_push_notification_config(ListTaskPushNotificationConfigRequest: A2aRequest::ListPushConfigs)
        -> v03::ListTaskPushNotificationConfigResponse, A2aResponse::ListPushConfigs(it) => it.into();
    delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest: A2aRequest::DeletePushConfig)
        -> (), A2aResponse::Empty => ();
    get_agent_card(GetAgentCardRequest: A2aRequest::GetExtendedAgentCard)
        -> v03::AgentCard, A2aResponse::AgentCard(it) => (&**it).try_into().unwrap();
}
