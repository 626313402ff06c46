//! Listeners of the admin interface: the Unix socket and the TCP address.
//!
//! Connections beyond the limits are served too. The oldest of them that has not authenticated is
//! closed for a new one, so silent connections do not lock operators out (D20).

use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{OperatorConnection, serve_connection};
use super::connection_deadline::{CONNECTION_TIMEOUT, ConnectionDeadline};
use super::host_policy::HostPolicy;
use super::operator::Operator;
use super::operator_access::OperatorAccess;
use super::session::LinkError;
use super::state::{AdminContext, TcpEndpoint};
use super::{Admin, AdminAddress, AdminRoutes, ReloadCallbacks};
use crate::rt::{ConnectionLimits, ConnectionPermit, LimitedListener, run_until_evicted};
use crate::server::transport::TlsHandshake;

/// Maximum number of connections beyond the limit of a listener.
const RESERVED_CONNECTIONS: usize = 16;

/// Bound listeners of the admin interface.
pub(in crate::server) struct AdminListeners {
    socket: Option<AdminSocket>,
    tcp: Option<AdminTcpListener>,
    pub(super) reload: ReloadCallbacks,
    pub(super) context: AdminContext,
    /// Tracker of all admin connections.
    tasks: TaskTracker,
}

impl Admin {
    /// Binds the socket and the address.
    ///
    /// A failure of the socket is only logged: another server may use the directory, or the path
    /// may be too long.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub(in crate::server) async fn bind(
        self,
        handshake: Option<Arc<dyn TlsHandshake>>,
    ) -> io::Result<AdminListeners> {
        let socket = self.bind_socket().await.inspect_err(|error| {
            let socket = self.socket();
            tracing::warn!(%error, ?socket, "cannot bind the admin socket; a reload needs a restart");
        });
        let limits = self.connection_limits();
        let max_failed_logins = self.max_failed_logins_per_minute;
        let mut context = AdminContext {
            sessions: Arc::default(),
            console: self.console,
            tcp: None,
        };
        let tcp = match self.listen {
            Some(listen) => {
                let listener = bind_address(&listen).await?;
                let endpoint = TcpEndpoint {
                    address: listener.local_addr()?,
                    uses_tls: handshake.is_some(),
                    access: Arc::new(OperatorAccess::new(listen.keys, max_failed_logins)),
                };
                context.tcp = Some(endpoint.clone());
                let console_url = context.console.url.clone();
                Some(AdminTcpListener {
                    listener: LimitedListener::new(listener, limits),
                    access: endpoint.access,
                    hosts: Arc::new(HostPolicy::new(endpoint.address, console_url)),
                    handshake,
                })
            }
            None => None,
        };
        Ok(AdminListeners {
            socket: socket.ok(),
            tcp,
            reload: self.reload,
            context,
            tasks: TaskTracker::new(),
        })
    }

    fn connection_limits(&self) -> ConnectionLimits {
        ConnectionLimits::new(self.max_connections).reserve(RESERVED_CONNECTIONS)
    }

    async fn bind_socket(&self) -> io::Result<AdminSocket> {
        match DirBuilder::new().mode(0o700).create(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // An existing directory may have been created with other permissions.
        fs::set_permissions(&self.directory, Permissions::from_mode(0o700))?;
        let path = self.socket();
        if UnixStream::connect(&path).await.is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another server uses this directory",
            ));
        }
        // A stale socket of a server that was killed.
        let _ = fs::remove_file(&path);
        let socket = AdminSocket {
            listener: LimitedListener::new(UnixListener::bind(&path)?, self.connection_limits()),
            path,
        };
        fs::set_permissions(&socket.path, Permissions::from_mode(0o600))?;
        Ok(socket)
    }
}

impl AdminListeners {
    /// Returns the bound TCP address.
    pub(in crate::server) fn address(&self) -> Option<SocketAddr> {
        let tcp = self.tcp.as_ref()?;
        tcp.listener.local_addr().ok()
    }

    /// Creates a one-time link to the console. `None`: there is no console, or no address.
    pub(in crate::server) fn create_link(&self) -> Option<String> {
        self.context.create_link().unwrap_or_else(|error| {
            match error {
                LinkError::TooMany => tracing::warn!("too many open links to the console"),
                LinkError::Random(error) => tracing::error!(%error, "no random source"),
            }
            None
        })
    }

    /// Serves both listeners. Dropping the future closes all connections.
    pub(in crate::server) async fn serve(&mut self, routes: Arc<AdminRoutes>) -> Infallible {
        let socket = async {
            match &mut self.socket {
                Some(socket) => socket.serve(&routes, &self.tasks).await,
                None => std::future::pending().await,
            }
        };
        let tcp = async {
            match &mut self.tcp {
                Some(tcp) => tcp.serve(&routes, &self.tasks).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = socket => never,
            never = tcp => never,
        }
    }

    /// Waits until all connections have ended, after [`serve`](Self::serve) was dropped.
    pub(in crate::server) async fn wait_closed(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Unix socket. Dropping it removes the file.
struct AdminSocket {
    listener: LimitedListener<UnixListener>,
    path: PathBuf,
}

impl AdminSocket {
    async fn serve(&mut self, routes: &Arc<AdminRoutes>, tasks: &TaskTracker) -> Infallible {
        let close = CancellationToken::new();
        // Also on drop of this future: no connection outlives it.
        let _guard = close.clone().drop_guard();
        loop {
            let accepted = self.listener.accept().await;
            let connection = serve_unix(
                accepted.stream,
                accepted.permit,
                routes.clone(),
                tasks.clone(),
            );
            tasks.spawn(close.clone().run_until_cancelled_owned(connection));
        }
    }
}

impl Drop for AdminSocket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// TCP listener for operators with a key.
struct AdminTcpListener {
    listener: LimitedListener<TcpListener>,
    access: Arc<OperatorAccess>,
    hosts: Arc<HostPolicy>,
    handshake: Option<Arc<dyn TlsHandshake>>,
}

impl AdminTcpListener {
    async fn serve(&mut self, routes: &Arc<AdminRoutes>, tasks: &TaskTracker) -> Infallible {
        let close = CancellationToken::new();
        // Also on drop of this future: no connection outlives it.
        let _guard = close.clone().drop_guard();
        loop {
            let accepted = self.listener.accept().await;
            let session = OperatorConnection {
                routes: routes.clone(),
                access: self.access.clone(),
                hosts: self.hosts.clone(),
                peer: accepted.peer,
                permit: Arc::new(accepted.permit),
            };
            let handshake = self.handshake.clone();
            let connection = serve_tcp(accepted.stream, handshake, session, tasks.clone());
            tasks.spawn(close.clone().run_until_cancelled_owned(connection));
        }
    }
}

/// Serves one connection of the socket. Its file mode has authenticated the operator, so a request
/// protects it from eviction.
async fn serve_unix(
    stream: UnixStream,
    permit: ConnectionPermit,
    routes: Arc<AdminRoutes>,
    tasks: TaskTracker,
) {
    let eviction = permit.eviction();
    let permit = Arc::new(permit);
    let deadline = ConnectionDeadline::new();
    let activity = deadline.clone();
    let connection = serve_connection(stream, &tasks, deadline, move |request| {
        permit.protect();
        activity.extend();
        let routes = routes.clone();
        async move {
            let operator = Some(Operator::socket());
            routes.handle(request, operator, None).await
        }
    });
    run_until_evicted(eviction, connection).await;
}

/// Serves one TCP connection, after the TLS handshake if there is one.
async fn serve_tcp(
    stream: TcpStream,
    handshake: Option<Arc<dyn TlsHandshake>>,
    session: OperatorConnection,
    tasks: TaskTracker,
) {
    let eviction = session.permit.eviction();
    let deadline = ConnectionDeadline::new();
    let activity = deadline.clone();
    let handler = move |request| {
        let session = session.clone();
        let activity = activity.clone();
        async move { session.handle(request, activity).await }
    };
    let connection = async move {
        let Some(handshake) = handshake else {
            return serve_connection(stream, &tasks, deadline, handler).await;
        };
        if let Ok(Ok(secure)) = timeout(CONNECTION_TIMEOUT, handshake.perform(stream)).await {
            serve_connection(secure.stream, &tasks, deadline, handler).await;
        }
    };
    run_until_evicted(eviction, connection).await;
}

/// Binds the TCP address. If its port is taken and another may be used, binds a free one.
async fn bind_address(listen: &AdminAddress) -> io::Result<TcpListener> {
    match TcpListener::bind(listen.address).await {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && listen.may_use_free_port => {
            TcpListener::bind(SocketAddr::new(listen.address.ip(), 0)).await
        }
        bound => bound,
    }
}
