//! A gRPC server made by tonic that says what it is told to, and remembers what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use attache::Error;
use attache::model::{Request as Asked, Response as Answer, StreamResponse, Version};
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

/// What it says, whatever it is asked.
pub(super) enum Said {
    Answer(Answer),
    /// The events, and the error that ends them.
    Events(Vec<StreamResponse>, Option<Error>),
    Error(Error),
}

/// What it was asked.
pub(super) struct Heard {
    pub(super) request: Asked,
    metadata: MetadataMap,
}

impl Heard {
    pub(super) fn metadata(&self, name: &str) -> Option<&str> {
        self.metadata.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Serves until it is dropped.
pub(super) struct Peer {
    pub(super) address: SocketAddr,
    service: Service,
    _serving: JoinSet<()>,
}

impl Peer {
    pub(super) async fn start(version: Version, said: Said) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let service = Service {
            said: Arc::new(said),
            heard: Arc::default(),
        };
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, version, service.clone()));
        Self {
            address,
            service,
            _serving: serving,
        }
    }

    /// The last request.
    pub(super) fn heard(&self) -> Heard {
        self.service
            .heard
            .lock()
            .unwrap()
            .take()
            .expect("it was asked")
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
    said: Arc<Said>,
    heard: Arc<Mutex<Option<Heard>>>,
}

impl Service {
    fn hear<P, M>(&self, request: Request<P>, asked: fn(M) -> Asked)
    where
        M: TryFrom<P, Error = Error>,
    {
        let (metadata, _, message) = request.into_parts();
        let request = asked(M::try_from(message).unwrap());
        *self.heard.lock().unwrap() = Some(Heard { request, metadata });
    }

    fn events(&self, version: Version) -> Result<Vec<Result<StreamResponse, Status>>, Status> {
        match &*self.said {
            Said::Events(events, end) => {
                let end = end.iter().map(|error| Err(grpc::to_status(error, version)));
                Ok(events.iter().cloned().map(Ok).chain(end).collect())
            }
            Said::Error(error) => Err(grpc::to_status(error, version)),
            Said::Answer(answer) => panic!("{answer:?} is no stream"),
        }
    }
}

/// The whole service of one version: what each rpc takes, and what it may answer.
macro_rules! service {
    (
        $server:ident $module:ident $version:expr, $event:expr;
        $(@ $stream:ident: $call_of_stream:ident($request_of_stream:ident: $asked_of_stream:expr);)*
        $($call:ident($request:ident: $asked:expr) -> $reply:ty, $answer:pat => $said:expr;)*
    ) => {
        #[tonic::async_trait]
        impl $server::A2aService for Service {
            $(
                type $stream = BoxStream<$module::StreamResponse>;

                async fn $call_of_stream(
                    &self,
                    request: Request<$module::$request_of_stream>,
                ) -> Result<Response<Self::$stream>, Status> {
                    self.hear(request, $asked_of_stream);
                    let events = self.events($version)?.into_iter().map(|event| event.map($event));
                    Ok(Response::new(Box::pin(tokio_stream::iter(events.collect::<Vec<_>>()))))
                }
            )*
            $(
                async fn $call(
                    &self,
                    request: Request<$module::$request>,
                ) -> Result<Response<$reply>, Status> {
                    self.hear(request, $asked);
                    match &*self.said {
                        Said::Answer($answer) => Ok(Response::new($said)),
                        Said::Error(error) => Err(grpc::to_status(error, $version)),
                        Said::Answer(_) | Said::Events(..) => panic!("told to say something else"),
                    }
                }
            )*
        }
    };
}

service! {
    server_v1 v1 Version::V1, |event| (&event).into();
    @ SendStreamingMessageStream: send_streaming_message(SendMessageRequest: |it| Asked::SendStreamingMessage(Box::new(it)));
    @ SubscribeToTaskStream: subscribe_to_task(SubscribeToTaskRequest: Asked::SubscribeToTask);
    send_message(SendMessageRequest: |it| Asked::SendMessage(Box::new(it))) -> v1::SendMessageResponse, Answer::SendMessage(it) => it.into();
    get_task(GetTaskRequest: Asked::GetTask) -> v1::Task, Answer::Task(it) => it.into();
    list_tasks(ListTasksRequest: Asked::ListTasks) -> v1::ListTasksResponse, Answer::ListTasks(it) => it.into();
    cancel_task(CancelTaskRequest: Asked::CancelTask) -> v1::Task, Answer::Task(it) => it.into();
    create_task_push_notification_config(TaskPushNotificationConfig: |it| Asked::CreatePushConfig(Box::new(it)))
        -> v1::TaskPushNotificationConfig, Answer::PushConfig(it) => it.into();
    get_task_push_notification_config(GetTaskPushNotificationConfigRequest: Asked::GetPushConfig)
        -> v1::TaskPushNotificationConfig, Answer::PushConfig(it) => it.into();
    list_task_push_notification_configs(ListTaskPushNotificationConfigsRequest: Asked::ListPushConfigs)
        -> v1::ListTaskPushNotificationConfigsResponse, Answer::ListPushConfigs(it) => it.into();
    delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest: Asked::DeletePushConfig)
        -> (), Answer::Empty => ();
    get_extended_agent_card(GetExtendedAgentCardRequest: Asked::GetExtendedAgentCard)
        -> v1::AgentCard, Answer::AgentCard(it) => (&**it).into();
}

service! {
    server_v03 v03 Version::V03, |event| proto_v03::stream_response(&event, false);
    @ SendStreamingMessageStream: send_streaming_message(SendMessageRequest: |it| Asked::SendStreamingMessage(Box::new(it)));
    @ TaskSubscriptionStream: task_subscription(TaskSubscriptionRequest: Asked::SubscribeToTask);
    send_message(SendMessageRequest: |it| Asked::SendMessage(Box::new(it))) -> v03::SendMessageResponse, Answer::SendMessage(it) => it.into();
    get_task(GetTaskRequest: Asked::GetTask) -> v03::Task, Answer::Task(it) => it.into();
    cancel_task(CancelTaskRequest: Asked::CancelTask) -> v03::Task, Answer::Task(it) => it.into();
    create_task_push_notification_config(CreateTaskPushNotificationConfigRequest: |it| Asked::CreatePushConfig(Box::new(it)))
        -> v03::TaskPushNotificationConfig, Answer::PushConfig(it) => it.into();
    get_task_push_notification_config(GetTaskPushNotificationConfigRequest: Asked::GetPushConfig)
        -> v03::TaskPushNotificationConfig, Answer::PushConfig(it) => it.into();
    list_task_push_notification_config(ListTaskPushNotificationConfigRequest: Asked::ListPushConfigs)
        -> v03::ListTaskPushNotificationConfigResponse, Answer::ListPushConfigs(it) => it.into();
    delete_task_push_notification_config(DeleteTaskPushNotificationConfigRequest: Asked::DeletePushConfig)
        -> (), Answer::Empty => ();
    get_agent_card(GetAgentCardRequest: Asked::GetExtendedAgentCard)
        -> v03::AgentCard, Answer::AgentCard(it) => (&**it).try_into().unwrap();
}
