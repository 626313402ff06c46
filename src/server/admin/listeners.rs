//! Listeners of the admin interface: the Unix socket and the TCP address.

use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::connection::{CONNECTION_TIMEOUT, OperatorSession, serve_connection};
use super::{Admin, AdminRoutes, ReloadCallbacks};
use crate::auth::ApiKeys;
use crate::server::transport::TlsHandshake;

/// Delay after a failed accept.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// Maximum number of concurrent TCP connections.
const MAX_CONNECTIONS: usize = 16;

/// Bound listeners of the admin interface.
pub(in crate::server) struct AdminListeners {
    socket: Option<AdminSocket>,
    tcp: Option<AdminTcpListener>,
    pub(in crate::server) reload: ReloadCallbacks,
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
        let tcp = match self.listen {
            Some((address, keys)) => Some(AdminTcpListener {
                listener: TcpListener::bind(address).await?,
                keys,
                handshake,
            }),
            None => None,
        };
        Ok(AdminListeners {
            socket: socket.ok(),
            tcp,
            reload: self.reload,
            tasks: TaskTracker::new(),
        })
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
            listener: UnixListener::bind(&path)?,
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

    /// Serves both listeners. Dropping the future closes all connections.
    pub(in crate::server) async fn serve(&self, routes: Arc<AdminRoutes>) -> Infallible {
        let socket = async {
            match &self.socket {
                Some(socket) => socket.serve(&routes, &self.tasks).await,
                None => std::future::pending().await,
            }
        };
        let tcp = async {
            match &self.tcp {
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

/// Unix socket. Its connections are served one at a time. Dropping it removes the file.
struct AdminSocket {
    listener: UnixListener,
    path: PathBuf,
}

impl AdminSocket {
    async fn serve(&self, routes: &Arc<AdminRoutes>, tasks: &TaskTracker) -> Infallible {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let routes = routes.clone();
                    serve_connection(stream, tasks, move |request| {
                        let routes = routes.clone();
                        async move { routes.handle(&request).await }
                    })
                    .await;
                }
                Err(error) => log_accept_error(&error).await,
            }
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
    listener: TcpListener,
    keys: ApiKeys,
    handshake: Option<Arc<dyn TlsHandshake>>,
}

impl AdminTcpListener {
    async fn serve(&self, routes: &Arc<AdminRoutes>, tasks: &TaskTracker) -> Infallible {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let close = CancellationToken::new();
        // Also on drop of this future: no connection outlives it.
        let _guard = close.clone().drop_guard();
        loop {
            let permit = permits.clone().acquire_owned().await;
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    log_accept_error(&error).await;
                    continue;
                }
            };
            let session = OperatorSession {
                routes: routes.clone(),
                keys: self.keys.clone(),
                peer,
            };
            let connection = serve_tcp(stream, self.handshake.clone(), session, tasks.clone());
            tasks.spawn(close.clone().run_until_cancelled_owned(async move {
                connection.await;
                drop(permit);
            }));
        }
    }
}

/// Serves one TCP connection, after the TLS handshake if there is one.
async fn serve_tcp(
    stream: TcpStream,
    handshake: Option<Arc<dyn TlsHandshake>>,
    session: OperatorSession,
    tasks: TaskTracker,
) {
    let handler = move |request| {
        let session = session.clone();
        async move { session.handle(request).await }
    };
    let Some(handshake) = handshake else {
        return serve_connection(stream, &tasks, handler).await;
    };
    if let Ok(Ok(secure)) = timeout(CONNECTION_TIMEOUT, handshake.perform(stream)).await {
        serve_connection(secure.stream, &tasks, handler).await;
    }
}

async fn log_accept_error(error: &io::Error) {
    tracing::error!(%error, "cannot accept admin connections");
    sleep(ACCEPT_RETRY_DELAY).await;
}
