//! A server without a socket: clients in the same process are connected to it directly.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{DuplexStream, duplex};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connections::HttpServer;
use super::{AssembledServer, Server, ServerHandle};
use crate::client::Client;
use crate::egress::{ClientTls, Connector, Egress};
use crate::model::{Binding, Result, Version};
use crate::push::DeadLetters;

/// Nobody listens there; what a caller of this process is seen as.
const IN_PROCESS_ADDRESS: SocketAddr =
    SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Where its clients say that they call.
const IN_PROCESS_URL: &str = "http://localhost/";
/// How much may be under way in one direction of one connection.
const BUFFER_BYTES: usize = 64 << 10;

/// A server that only this process can reach, for tests and for agents that live together. Everything but the socket
/// is there: what a client says goes through the same HTTP, codecs and limits.
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
/// let server = Server::new(AgentCard::new("Echo", "Says it back"), agent).serve_in_process().await?;
/// let client = server.client(Binding::JsonRpc, Version::V1)?;
/// client.send_message(SendMessageRequest::new(Message::user("hello"))).await?;
/// # Ok(())
/// # }
/// ```
///
/// It serves until it is dropped; calls and turns end with it.
pub struct InProcessServer {
    egress: Egress,
    handle: ServerHandle,
    _stop: DropGuard,
}

impl Server {
    /// Serves within this process, to the clients that [`InProcessServer::client`] makes.
    ///
    /// # Errors
    /// The store does not answer, or two agents have one name.
    pub async fn serve_in_process(self) -> Result<InProcessServer> {
        let (config, static_config) = self.into_configs()?;
        let AssembledServer {
            handle,
            tasks,
            stop,
            ..
        } = static_config.assemble(config, IN_PROCESS_ADDRESS).await?;
        let (engine, push_dispatcher) = (handle.engine().clone(), handle.push_dispatcher().clone());
        let maintenance = async move { match engine.run_maintenance().await {} };
        tasks.spawn(stop.clone().run_until_cancelled_owned(maintenance));
        let push_dispatcher = async move { match push_dispatcher.run().await {} };
        tasks.spawn(stop.clone().run_until_cancelled_owned(push_dispatcher));
        let connector = Arc::new(InProcessConnector {
            http_server: HttpServer::new(handle.current(), tasks, stop.clone()),
            graceful: GracefulShutdown::new(),
            stop: stop.clone(),
        });
        let connector = Connector::new(move |_| std::future::ready(connector.connect()));
        let egress = Egress::with_connector(connector, &ClientTls::new());
        Ok(InProcessServer {
            egress,
            handle,
            _stop: stop.drop_guard(),
        })
    }
}

impl InProcessServer {
    /// The way to change what it serves while it runs.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        self.handle.clone()
    }

    /// What became of deliveries to webhooks, for operators.
    #[must_use]
    pub fn dead_letters(&self) -> DeadLetters {
        self.handle.push_dispatcher().dead_letters()
    }

    /// A client of the agent at the root. Its calls fail once the server is dropped.
    ///
    /// # Errors
    /// Unsupported: gRPC without the feature `grpc`.
    pub fn client(&self, binding: Binding, version: Version) -> Result<Client> {
        Client::with_egress(self.egress.clone(), IN_PROCESS_URL, binding, version)
    }
}

impl InProcessServer {
    /// A client of the agent that was given under this name.
    ///
    /// # Errors
    /// Unsupported: gRPC without the feature `grpc`.
    pub fn client_for(&self, agent: &str, binding: Binding, version: Version) -> Result<Client> {
        Client::with_egress(
            self.egress.clone(),
            &format!("{IN_PROCESS_URL}agents/{agent}"),
            binding,
            version,
        )
    }
}

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
        let (near, far) = duplex(BUFFER_BYTES);
        self.http_server
            .serve_connection(far, IN_PROCESS_ADDRESS, None, self.graceful.watcher());
        Ok(near)
    }
}
