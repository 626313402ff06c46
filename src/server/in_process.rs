//! Server without a socket: clients in the same process connect through in-memory streams.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{DuplexStream, duplex};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::assembly::{AssembledServer, Endpoint};
use super::builder::Server;
use super::handle::ServerHandle;
use super::http_server::HttpServer;
use crate::client::Client;
use crate::egress::{ClientTls, Connector, Egress};
use crate::model::{Binding, Result, Version};
use crate::push::DeadLetters;

/// Peer address of in-process connections. Nothing listens there.
const IN_PROCESS_ADDRESS: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Base URL of in-process requests.
const IN_PROCESS_URL: &str = "http://localhost/";
/// Capacity of one direction of a connection.
const BUFFER_BYTES: usize = 64 << 10;

/// Server that only this process can reach, for tests and for agents in one process.
///
/// Calls pass the same HTTP stack, codecs and limits as over a socket.
///
/// ```
/// # use attache::model::{Binding, Message, SendMessageRequest, Version};
/// # use attache::{AgentCard, Outcome, Server, Turn};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> attache::Result<()> {
/// let agent = |turn: Turn| async move {
///     turn.write("echo", turn.text()).await;
///     Ok(Outcome::Completed)
/// };
/// let card = AgentCard::new("Echo", "Echoes the message");
/// let server = Server::new(card, agent).serve_in_process().await?;
/// let client = server.client(Binding::JsonRpc, Version::V1)?;
/// client.send_message(SendMessageRequest::new(Message::user("hello"))).await?;
/// # Ok(())
/// # }
/// ```
///
/// It serves until it is dropped. Running calls and turns end then.
pub struct InProcessServer {
    egress: Egress,
    handle: ServerHandle,
    _stop: DropGuard,
}

impl Server {
    /// Serves inside this process, to the clients of [`InProcessServer::client`].
    ///
    /// # Errors
    /// Unavailable: the store failed. Invalid: a setting.
    pub async fn serve_in_process(self) -> Result<InProcessServer> {
        let (config, static_config) = self.into_configs()?;
        let endpoint = Endpoint::InProcess(IN_PROCESS_ADDRESS);
        let AssembledServer {
            handle,
            tasks,
            stop,
            ..
        } = static_config.assemble(config, endpoint).await?;
        let engine = handle.engine().clone();
        let maintenance = async move { match engine.run_maintenance().await {} };
        tasks.spawn(stop.clone().run_until_cancelled_owned(maintenance));
        let engine = handle.engine().clone();
        let membership = async move { match engine.run_membership().await {} };
        tasks.spawn(stop.clone().run_until_cancelled_owned(membership));
        let push_dispatcher = handle.push_dispatcher().clone();
        let delivery = async move { match push_dispatcher.run().await {} };
        tasks.spawn(stop.clone().run_until_cancelled_owned(delivery));
        let connector = InProcessConnector {
            http_server: HttpServer::new(handle.current(), tasks, stop.clone()),
            graceful: GracefulShutdown::new(),
            stop: stop.clone(),
        };
        let connector = Arc::new(connector);
        let connector = Connector::new(move |_| std::future::ready(connector.connect()));
        Ok(InProcessServer {
            egress: Egress::with_connector(connector, &ClientTls::new()),
            handle,
            _stop: stop.drop_guard(),
        })
    }
}

impl InProcessServer {
    /// Returns a handle that can replace the configuration while the server runs.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// Returns the undelivered push notifications, for operators.
    #[must_use]
    pub fn dead_letters(&self) -> DeadLetters {
        self.handle.push_dispatcher().dead_letters()
    }

    /// Creates a client of the root agent. Its calls fail once the server is dropped.
    ///
    /// # Errors
    /// Unsupported: gRPC without the feature `grpc`.
    pub fn client(&self, binding: Binding, version: Version) -> Result<Client> {
        Client::with_egress(self.egress.clone(), IN_PROCESS_URL, binding, version)
    }

    /// Creates a client of the agent with this name.
    ///
    /// # Errors
    /// Unsupported: gRPC without the feature `grpc`.
    pub fn client_for(&self, agent: &str, binding: Binding, version: Version) -> Result<Client> {
        let url = format!("{IN_PROCESS_URL}agents/{agent}");
        Client::with_egress(self.egress.clone(), &url, binding, version)
    }
}

/// Connector that opens an in-memory connection to the server.
struct InProcessConnector {
    http_server: HttpServer,
    graceful: GracefulShutdown,
    stop: CancellationToken,
}

impl InProcessConnector {
    fn connect(&self) -> io::Result<DuplexStream> {
        if self.stop.is_cancelled() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (client, server) = duplex(BUFFER_BYTES);
        let watcher = self.graceful.watcher();
        self.http_server
            .serve_connection(server, IN_PROCESS_ADDRESS, watcher);
        Ok(client)
    }
}

#[cfg(test)]
#[cfg(feature = "sqlite")]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;
    use http::{Request, StatusCode};
    use tokio::time::timeout;
    use tokio_util::task::TaskTracker;

    use super::*;
    use crate::agent::{Outcome, Turn};
    use crate::egress::{HANGING_DOMAIN, Protocol};
    use crate::engine::Settings;
    use crate::model::{
        AgentCard, Caller, CallerKey, ErrorKind, GetTaskRequest, Json, ListTasksRequest,
        MEMBER_VISITS, Message, PushConfig, SendMessageRequest,
    };
    use crate::push::PushSettings;
    use crate::store::sqlite::{Options, Sqlite};

    /// Callers that name hanging hosts. Their shares leave one for other callers.
    const HOSTILE_CALLERS: usize = 7;

    /// Starts a server whose store reads every task from the file.
    async fn start(folder: &tempfile::TempDir) -> InProcessServer {
        let store = Sqlite::open(folder.path().join("tasks.db"), Options::default()).unwrap();
        let settings = Settings {
            task_cache_bytes: 0,
            ..Settings::default()
        };
        let mut push = PushSettings::default();
        push.egress.loopback = true;
        let agent = async |_: Turn| Ok(Outcome::Completed);
        Server::new(AgentCard::new("A", "Completes"), agent)
            .store(store)
            .settings(settings)
            .push(push)
            .serve_in_process()
            .await
            .unwrap()
    }

    /// Occupies the only blocking thread of the runtime, then names more hanging hosts than there are lookup threads.
    fn name_hanging_hosts(server: &InProcessServer, tasks: &TaskTracker) {
        drop(tokio::task::spawn_blocking(|| {
            std::thread::park_timeout(Duration::from_secs(60));
        }));
        for caller in 0..HOSTILE_CALLERS {
            for host in 0..3 * PushSettings::default().egress.max_lookups {
                let push = server.handle.push_dispatcher().clone();
                let caller = CallerKey::Caller(Caller::new(&format!("mallory-{caller}")));
                let url = format!("https://{host}{HANGING_DOMAIN}/");
                tasks.spawn(async move { push.check_url(caller, &url, "url").await });
            }
        }
    }

    async fn assert_served(server: &InProcessServer) {
        let client = server.client(Binding::JsonRpc, Version::V1).unwrap();
        let sent = client
            .send_message(SendMessageRequest::new(Message::user("hi")))
            .await
            .unwrap();
        let id = sent.task().unwrap().id.clone();
        let request = GetTaskRequest {
            id: id.clone(),
            ..GetTaskRequest::default()
        };
        client.get_task(request).await.unwrap();
        let page = client.list_tasks(ListTasksRequest::default()).await;
        assert_eq!(page.unwrap().tasks.len(), 1);
        let request = Request::get("http://localhost/readyz").body(Bytes::new());
        let ready = server.egress.send(request.unwrap(), Protocol::Http1).await;
        assert_eq!(ready.unwrap().status(), StatusCode::OK);
        let config = PushConfig {
            url: "http://localhost:9/".to_owned(),
            task_id: Some(id),
            ..PushConfig::default()
        };
        client.create_push_config(config).await.unwrap();
    }

    #[test]
    fn d01_hanging_names_do_not_delay_other_callers() {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let folder = tempfile::tempdir().unwrap();
        runtime.block_on(async {
            let server = start(&folder).await;
            let hanging = TaskTracker::new();
            name_hanging_hosts(&server, &hanging);
            let served = timeout(Duration::from_secs(30), assert_served(&server)).await;
            served.expect("served within the deadline");
            let url = format!("https://one-more{HANGING_DOMAIN}/");
            let caller = CallerKey::Caller(Caller::new("mallory-0"));
            let push = server.handle.push_dispatcher();
            let refused = push.check_url(caller, &url, "url").await.unwrap_err();
            assert_eq!(refused.kind(), ErrorKind::RateLimited, "{refused}");
            assert!(
                refused.message().contains("max_lookups_per_caller = 4"),
                "{refused}"
            );
        });
        runtime.shutdown_background();
    }

    /// Returns the number of member visits of a send with this many metadata members.
    async fn member_visits(client: &crate::client::Client, members: usize) -> usize {
        let metadata = (0..members).map(|number| (number.to_string(), Json::null()));
        let message = Message {
            metadata: Some(metadata.collect()),
            ..Message::user("hi")
        };
        let before = MEMBER_VISITS.get();
        let sent = client.send_message(SendMessageRequest::new(message)).await;
        assert!(sent.is_ok());
        MEMBER_VISITS.get() - before
    }

    /// Client and server run on this thread, so the count includes both.
    #[tokio::test]
    async fn d07_the_work_of_a_send_is_linear_in_its_members() {
        let agent = async |_: Turn| Ok(Outcome::Completed);
        let server = Server::new(AgentCard::new("A", "Completes"), agent)
            .serve_in_process()
            .await
            .unwrap();
        for (binding, version) in [
            (Binding::JsonRpc, Version::V1),
            (Binding::JsonRpc, Version::V03),
            (Binding::HttpJson, Version::V1),
        ] {
            let client = server.client(binding, version).unwrap();
            let half = member_visits(&client, 5_000).await;
            let full = member_visits(&client, 10_000).await;
            assert!(full <= 2 * half + 100, "{half} visits, then {full}");
            assert!(full <= 4 * 10_000, "{full} visits");
        }
    }
}
