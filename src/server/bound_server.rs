//! Server with a bound listener: serves until shutdown.

use std::convert::Infallible;
use std::net::SocketAddr;
#[cfg(unix)]
use std::sync::Arc;

use tokio::net::TcpListener;

#[cfg(unix)]
use super::admin::{AdminListeners, AdminRoutes};
use super::assembly::AssembledServer;
use super::base_url::BaseUrl;
use super::handle::ServerHandle;
use super::http_server::HttpServer;
use crate::model::Result;
use crate::push::DeadLetters;

/// Server that has bound its address. Connections wait in the backlog until it serves.
pub struct BoundServer {
    pub(super) listener: TcpListener,
    #[cfg(unix)]
    pub(super) admin: Option<AdminListeners>,
    pub(super) address: SocketAddr,
    pub(super) server: AssembledServer,
}

impl BoundServer {
    /// Returns the listening address.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// Returns the URL of the root agent: the public URL, or that of the listening address.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.base_url.url()
    }

    /// Returns the URL of the listening address, for clients on the same machine.
    #[must_use]
    pub fn local_url(&self) -> String {
        BaseUrl::from_address(self.address, self.server.handshake.is_some()).url()
    }

    /// Returns the TCP address of the admin interface, if it has one.
    #[cfg(unix)]
    #[must_use]
    pub fn admin_addr(&self) -> Option<SocketAddr> {
        self.admin.as_ref().and_then(AdminListeners::address)
    }

    /// Creates a one-time link to the web console, valid for 60 s. `None`: the server has no console, or the admin interface has
    /// no TCP address.
    #[cfg(unix)]
    #[must_use]
    pub fn console_link(&self) -> Option<String> {
        self.admin.as_ref().and_then(AdminListeners::create_link)
    }

    /// Returns a handle that can replace the configuration while the server runs.
    #[must_use]
    pub fn handle(&self) -> ServerHandle {
        self.server.handle.clone()
    }

    /// Returns the undelivered push notifications, for operators.
    #[must_use]
    pub fn dead_letters(&self) -> DeadLetters {
        self.server.handle.push_dispatcher().dead_letters()
    }

    /// Serves until the process ends.
    ///
    /// # Errors
    /// None at present. The failure of a connection ends only that connection.
    pub async fn serve(self) -> Result<()> {
        self.serve_until(std::future::pending()).await
    }

    /// Serves until `shutdown` is ready, then drains.
    ///
    /// The server keeps accepting connections for `shutdown_delay`. After that, calls and turns
    /// have `shutdown_grace` to end. Dropping the future ends them at once.
    ///
    /// # Errors
    /// None at present. The failure of a connection ends only that connection.
    pub async fn serve_until(mut self, shutdown: impl Future<Output = ()> + Send) -> Result<()> {
        tracing::info!(address = %self.address, "server started");
        let AssembledServer {
            handle,
            handshake,
            tasks,
            stop,
            ..
        } = self.server;
        let engine = handle.engine().clone();
        let push_dispatcher = handle.push_dispatcher().clone();
        #[cfg(unix)]
        let admin = serve_admin(self.admin.as_mut(), handle.clone());
        #[cfg(not(unix))]
        let admin = std::future::pending::<Infallible>();
        let http = HttpServer::new(handle.current(), tasks, stop.clone()).with_handshake(handshake);
        tokio::select! {
            () = http.serve(self.listener, shutdown) => {}
            never = engine.run_maintenance() => match never {},
            never = engine.run_membership() => match never {},
            never = push_dispatcher.run() => match never {},
            never = admin => match never {},
        }
        stop.cancel();
        #[cfg(unix)]
        if let Some(admin) = &self.admin {
            admin.wait_closed().await;
        }
        push_dispatcher.wait_stopped().await;
        if let Err(error) = engine.leave_cluster().await {
            // The other replicas evict this one after its lease.
            tracing::warn!(error = &error as &dyn std::error::Error, "cluster not left");
        }
        tracing::info!(address = %self.address, "server stopped");
        Ok(())
    }
}

/// Serves the admin interface. Never ready if there is none.
#[cfg(unix)]
async fn serve_admin(listeners: Option<&mut AdminListeners>, handle: ServerHandle) -> Infallible {
    match listeners {
        Some(listeners) => {
            let routes = AdminRoutes::new(listeners, handle);
            listeners.serve(Arc::new(routes)).await
        }
        None => std::future::pending().await,
    }
}
