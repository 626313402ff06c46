//! A server without a socket: clients in the same process are connected to it directly.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use hyper_util::server::graceful::GracefulShutdown;
use tokio::io::{DuplexStream, duplex};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::connections::Connections;
use super::{Built, Running, Server};
use crate::client::Client;
use crate::egress::{ClientTls, Connector, Egress};
use crate::model::{Binding, Result, Version};
use crate::push::Deliveries;

/// Nobody listens there; what a caller of this process is seen as.
const NOWHERE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);
/// Where its clients say that they call.
const URL: &str = "http://localhost/";
/// How much may be under way in one direction of one connection.
const BUFFER: usize = 64 << 10;

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
/// let server = Server::new(AgentCard::new("Echo", "Says it back"), agent).local().await?;
/// let client = server.client(Binding::JsonRpc, Version::V1)?;
/// client.send_message(SendMessageRequest::new(Message::user("hello"))).await?;
/// # Ok(())
/// # }
/// ```
///
/// It serves until it is dropped; calls and turns end with it.
pub struct Local {
    egress: Egress,
    running: Running,
    _stop: DropGuard,
}

impl Server {
    /// Serves within this process, to the clients that [`Local::client`] makes.
    ///
    /// # Errors
    /// The store does not answer, or two agents have one name.
    pub async fn local(self) -> Result<Local> {
        let (plan, rest) = self.parts()?;
        let Built {
            running,
            tasks,
            stop,
            ..
        } = rest.build(plan, NOWHERE).await?;
        let (engine, delivering) = (running.engine().clone(), running.pushes().clone());
        let house = async move { match engine.keep_house().await {} };
        tasks.spawn(stop.clone().run_until_cancelled_owned(house));
        let delivering = async move { match delivering.keep_delivering().await {} };
        tasks.spawn(stop.clone().run_until_cancelled_owned(delivering));
        let door = Arc::new(Door {
            connections: Connections::new(running.current(), tasks, stop.clone()),
            graceful: GracefulShutdown::new(),
            stop: stop.clone(),
        });
        let connector = Connector::new(move |_| std::future::ready(door.connect()));
        let egress = Egress::over(connector, &ClientTls::new());
        Ok(Local {
            egress,
            running,
            _stop: stop.drop_guard(),
        })
    }
}

impl Local {
    /// The way to change what it serves while it runs.
    #[must_use]
    pub fn running(&self) -> Running {
        self.running.clone()
    }

    /// What became of deliveries to webhooks, for operators.
    #[must_use]
    pub fn deliveries(&self) -> Deliveries {
        self.running.pushes().deliveries()
    }

    /// A client of the agent at the root. Its calls fail once the server is dropped.
    ///
    /// # Errors
    /// Unsupported: gRPC without the feature `grpc`.
    pub fn client(&self, binding: Binding, version: Version) -> Result<Client> {
        Client::over(self.egress.clone(), URL, binding, version)
    }
}

impl Local {
    /// A client of the agent that was given under this name.
    ///
    /// # Errors
    /// Unsupported: gRPC without the feature `grpc`.
    pub fn client_of(&self, agent: &str, binding: Binding, version: Version) -> Result<Client> {
        Client::over(
            self.egress.clone(),
            &format!("{URL}agents/{agent}"),
            binding,
            version,
        )
    }
}

struct Door {
    connections: Connections,
    graceful: GracefulShutdown,
    stop: CancellationToken,
}

impl Door {
    fn connect(&self) -> io::Result<DuplexStream> {
        if self.stop.is_cancelled() {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = duplex(BUFFER);
        self.connections
            .take(far, NOWHERE, None, self.graceful.watcher());
        Ok(near)
    }
}
