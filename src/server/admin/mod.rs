//! The other door: where operators reach a running server.
//!
//! A Unix socket that only its owner can open: whoever can is the operator. And, where it is asked for, an address of its own,
//! for those who have a key of an operator. No credential of a caller leads here, and none of an operator to an agent.

mod routes;

use std::convert::Infallible;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::header::{CACHE_CONTROL, REFERRER_POLICY, WWW_AUTHENTICATE};
use http::{HeaderValue, Request, StatusCode};
use hyper::body::Incoming;
use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::server::Server;
use crate::server::connections::{ByteStream, TlsHandshake};
use crate::server::reply::{Reply, text};
pub(in crate::server) use routes::AdminRoutes;

use crate::auth::{ApiKeys, Authenticator, RequestCredentials};

/// How long one caller may take.
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to wait when nobody can be accepted.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(100);
/// How many connections there may be at the same time.
const MAX_CONNECTIONS: usize = 16;

pub(in crate::server) type ReloadCallback =
    Arc<dyn Fn() -> Result<String, Box<dyn std::error::Error + Send + Sync>> + Send + Sync>;

/// Where operators reach a running server.
#[derive(Clone)]
pub struct Admin {
    directory: PathBuf,
    listen: Option<(SocketAddr, ApiKeys)>,
    reload: ReloadCallbacks,
}

/// What is done when something has changed.
#[derive(Clone)]
pub(in crate::server) struct ReloadCallbacks {
    /// Anything.
    pub(in crate::server) all: ReloadCallback,
    /// Keys, and nothing else is to be looked at.
    pub(in crate::server) keys: ReloadCallback,
}

impl Default for ReloadCallbacks {
    fn default() -> Self {
        Self {
            all: Arc::new(|| Ok(String::new())),
            keys: Arc::new(|| Ok(String::new())),
        }
    }
}

impl Admin {
    /// At the socket `admin/socket` below this directory. The directory `admin` and the socket are for their owner alone.
    pub fn new(directory: impl AsRef<Path>) -> Self {
        Self {
            directory: directory.as_ref().join("admin"),
            listen: None,
            reload: ReloadCallbacks::default(),
        }
    }

    /// Also at this address, for those who show one of these keys; `GET /healthz` is for everybody. It speaks TLS if the server
    /// does.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr, keys: ApiKeys) -> Self {
        self.listen = Some((address, keys));
        self
    }

    /// Does this when it is told that something has changed. It gives what else is to be said of it, if anything, or why it
    /// cannot: only the operator hears it.
    #[must_use]
    pub fn on_reload<F, E>(mut self, reload: F) -> Self
    where
        F: Fn() -> Result<String, E> + Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.reload.all = Arc::new(move || reload().map_err(Into::into));
        self
    }

    /// Does this when it is told that keys have changed, and nothing else.
    #[must_use]
    pub fn on_reload_keys<F, E>(mut self, reload: F) -> Self
    where
        F: Fn() -> Result<(), E> + Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.reload.keys = Arc::new(move || reload().map(|()| String::new()).map_err(Into::into));
        self
    }

    /// Where the socket is.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.directory.join("socket")
    }

    /// Takes the socket and the address. A server that has no socket serves nevertheless: another may have the same directory, or
    /// its name may be too long for a socket.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub(in crate::server) async fn bind(
        self,
        handshake: Option<Arc<dyn TlsHandshake>>,
    ) -> io::Result<AdminListeners> {
        let socket = self.bind_socket().await.inspect_err(
            |error| tracing::warn!(%error, socket = ?self.socket(), "no admin socket: restart to reload"),
        );
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
        // Also where somebody has made it before us: nobody else looks in.
        fs::set_permissions(&self.directory, Permissions::from_mode(0o700))?;
        let socket = self.socket();
        if UnixStream::connect(&socket).await.is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another server has the same directory",
            ));
        }
        // Left by one that was ended before it could clean up.
        let _ = fs::remove_file(&socket);
        let socket = AdminSocket {
            listener: UnixListener::bind(&socket)?,
            path: socket,
        };
        fs::set_permissions(&socket.path, Permissions::from_mode(0o600))?;
        Ok(socket)
    }
}

/// Where operators come in.
pub(in crate::server) struct AdminListeners {
    socket: Option<AdminSocket>,
    tcp: Option<AdminTcpListener>,
    pub(in crate::server) reload: ReloadCallbacks,
    /// Where everything of these doors runs.
    tasks: TaskTracker,
}

impl AdminListeners {
    /// The address for those who have a key.
    pub(in crate::server) fn address(&self) -> Option<SocketAddr> {
        self.tcp
            .as_ref()
            .and_then(|tcp| tcp.listener.local_addr().ok())
    }

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

    /// Waits until nobody is serve_connection any more, after [`serve`](Self::serve) was dropped.
    pub(in crate::server) async fn wait_closed(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// A socket that is listened on; gone when dropped.
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

/// An address that is listened on.
struct AdminTcpListener {
    listener: TcpListener,
    keys: ApiKeys,
    handshake: Option<Arc<dyn TlsHandshake>>,
}

impl AdminTcpListener {
    async fn serve(&self, routes: &Arc<AdminRoutes>, tasks: &TaskTracker) -> Infallible {
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        let close = CancellationToken::new();
        // Also when this future is dropped: no visit outlives it.
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
            let (routes, keys, handshake) =
                (routes.clone(), self.keys.clone(), self.handshake.clone());
            let streams = tasks.clone();
            tasks.spawn(close.clone().run_until_cancelled_owned(async move {
                let handler = move |request| {
                    let (routes, keys) = (routes.clone(), keys.clone());
                    async move { handle(&routes, &keys, peer, request).await }
                };
                match handshake {
                    None => serve_connection(stream, &streams, handler).await,
                    Some(handshake) => {
                        if let Ok(Ok((stream, _))) =
                            timeout(CONNECTION_TIMEOUT, handshake.perform(stream)).await
                        {
                            serve_connection(stream, &streams, handler).await;
                        }
                    }
                }
                drop(permit);
            }));
        }
    }
}

/// Nothing that is asked here is kept by whoever carries it, or told to where a page leads.
async fn handle(
    routes: &AdminRoutes,
    keys: &ApiKeys,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Reply {
    let mut reply = authenticate_and_handle(routes, keys, peer, request).await;
    let headers = reply.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    reply
}

/// Whether it goes well is for everybody to know; all else is for those who have a key.
async fn authenticate_and_handle(
    routes: &AdminRoutes,
    keys: &ApiKeys,
    peer: SocketAddr,
    request: Request<Incoming>,
) -> Reply {
    let credentials =
        RequestCredentials::new(request.headers(), request.uri().query(), peer.ip(), None);
    let is_open = request.uri().path() == "/healthz";
    match keys.authenticate(&credentials).await {
        Ok(Some(_)) => routes.handle(&request).await,
        Ok(None) if is_open => routes.handle(&request).await,
        _ => {
            tracing::info!(peer = %peer.ip(), "operator refused");
            let mut reply = text(StatusCode::UNAUTHORIZED, "a key of an operator is needed\n");
            let challenge = HeaderValue::from_static("Bearer realm=\"attache admin\"");
            reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            reply
        }
    }
}

async fn log_accept_error(error: &io::Error) {
    tracing::error!(%error, "cannot accept the operator");
    sleep(ACCEPT_RETRY_DELAY).await;
}

/// Serves a connection. Whoever takes too long, or says nothing that makes sense, is let go.
async fn serve_connection<F>(
    stream: impl ByteStream + 'static,
    tasks: &TaskTracker,
    handler: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
) where
    F: Future<Output = Reply> + Send + 'static,
{
    let service = service_fn(move |request| {
        let handler = handler(request);
        async { Ok::<_, Infallible>(handler.await) }
    });
    let close = CancellationToken::new();
    // What HTTP/2 has begun ends with its connection, whatever ends that.
    let _guard = close.clone().drop_guard();
    let mut http = auto::Builder::new(AdminExecutor {
        tasks: tasks.clone(),
        close,
    });
    http.http1().timer(TokioTimer::new());
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(8);
    let _ = timeout(
        CONNECTION_TIMEOUT,
        http.serve_connection(TokioIo::new(stream), service),
    )
    .await;
}

/// Where HTTP/2 has its streams, as long as their connection lasts.
#[derive(Clone)]
struct AdminExecutor {
    tasks: TaskTracker,
    close: CancellationToken,
}

impl<F> Executor<F> for AdminExecutor
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.tasks
            .spawn(self.close.clone().run_until_cancelled_owned(future));
    }
}

impl Server {
    /// Lets operators reach it while it runs.
    #[must_use]
    pub fn admin(mut self, admin: Admin) -> Self {
        self.admin = Some(admin);
        self
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http_body_util::Empty;
    use hyper::client::conn::http2;

    use super::*;

    /// A call close HTTP/2 that is never answered ends with the door, and nothing of it is left.
    #[tokio::test(start_paused = true)]
    async fn open_streams_end_with_their_connection() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (tracker, client) = (TaskTracker::new(), TaskTracker::new());
        let serving = async {
            serve_connection(far, &tracker, |_| std::future::pending()).await;
        };
        let executor = AdminExecutor {
            tasks: client.clone(),
            close: CancellationToken::new(),
        };
        let mut pending = None;
        let calling = async {
            let (mut sender, connection) = http2::handshake(executor, TokioIo::new(near))
                .await
                .unwrap();
            client.spawn(async { drop(connection.await) });
            let request = Request::get("http://admin/metrics")
                .body(Empty::<Bytes>::new())
                .unwrap();
            pending = Some(client.spawn(sender.send_request(request)));
            // The stream has a task of its own now.
            while tracker.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = serving => panic!("it waits"),
            () = calling => {}
        }
        tracker.close();
        timeout(Duration::from_millis(1), tracker.wait())
            .await
            .expect("no stream outlives the connection");
        assert!(pending.unwrap().await.unwrap().is_err());
    }
}
