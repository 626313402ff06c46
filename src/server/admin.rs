//! The other door: where operators reach a running server.
//!
//! A Unix socket that only its owner can open: whoever can is the operator. And, where it is asked for, an address of its own,
//! for those who have a key of an operator. No credential of a caller leads here, and none of an operator to an agent.

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

use super::Server;
use super::connections::{Bytes, Handshake};
use super::desk::Desk;
use super::reply::{Reply, plain};
use crate::auth::{Authenticator, Credentials, Keys};

/// How long one caller may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait when nobody can be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// How many connections there may be at the same time.
const CONNECTIONS: usize = 16;

pub(super) type Reload =
    Arc<dyn Fn() -> Result<String, Box<dyn std::error::Error + Send + Sync>> + Send + Sync>;

/// Where operators reach a running server.
#[derive(Clone)]
pub struct Admin {
    folder: PathBuf,
    listen: Option<(SocketAddr, Keys)>,
    reload: Reloads,
}

/// What is done when something has changed.
#[derive(Clone)]
pub(super) struct Reloads {
    /// Anything.
    pub(super) all: Reload,
    /// Keys, and nothing else is to be looked at.
    pub(super) keys: Reload,
}

impl Default for Reloads {
    fn default() -> Self {
        Self {
            all: Arc::new(|| Ok(String::new())),
            keys: Arc::new(|| Ok(String::new())),
        }
    }
}

impl Admin {
    /// At the socket `admin/socket` below this folder. The folder `admin` and the socket are for their owner alone.
    pub fn below(folder: impl AsRef<Path>) -> Self {
        Self {
            folder: folder.as_ref().join("admin"),
            listen: None,
            reload: Reloads::default(),
        }
    }

    /// Also at this address, for those who show one of these keys; `GET /healthz` is for everybody. It speaks TLS if the server
    /// does.
    #[must_use]
    pub fn listen(mut self, address: SocketAddr, keys: Keys) -> Self {
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
    pub fn on_new_keys<F, E>(mut self, reload: F) -> Self
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
        self.folder.join("socket")
    }

    /// Takes the socket and the address. A server that has no socket serves nevertheless: another may have the same folder, or
    /// its name may be too long for a socket.
    ///
    /// # Errors
    /// The address cannot be listened on.
    pub(super) async fn bind(self, handshake: Option<Arc<dyn Handshake>>) -> io::Result<Doors> {
        let socket = self.take().await.inspect_err(
            |error| tracing::warn!(%error, socket = ?self.socket(), "no admin socket: restart to reload"),
        );
        let gate = match self.listen {
            Some((address, keys)) => Some(Gate {
                listener: TcpListener::bind(address).await?,
                keys,
                handshake,
            }),
            None => None,
        };
        Ok(Doors {
            socket: socket.ok(),
            gate,
            reload: self.reload,
            tasks: TaskTracker::new(),
        })
    }

    async fn take(&self) -> io::Result<Door> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Also where somebody has made it before us: nobody else looks in.
        fs::set_permissions(&self.folder, Permissions::from_mode(0o700))?;
        let socket = self.socket();
        if UnixStream::connect(&socket).await.is_ok() {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                "another server has the same folder",
            ));
        }
        // Left by one that was ended before it could clean up.
        let _ = fs::remove_file(&socket);
        let door = Door {
            listener: UnixListener::bind(&socket)?,
            socket,
        };
        fs::set_permissions(&door.socket, Permissions::from_mode(0o600))?;
        Ok(door)
    }
}

/// Where operators come in.
pub(super) struct Doors {
    socket: Option<Door>,
    gate: Option<Gate>,
    pub(super) reload: Reloads,
    /// Where everything of these doors runs.
    tasks: TaskTracker,
}

impl Doors {
    /// The address for those who have a key.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        self.gate
            .as_ref()
            .and_then(|gate| gate.listener.local_addr().ok())
    }

    pub(super) async fn serve(&self, desk: Arc<Desk>) -> Infallible {
        let socket = async {
            match &self.socket {
                Some(door) => door.serve(&desk, &self.tasks).await,
                None => std::future::pending().await,
            }
        };
        let gate = async {
            match &self.gate {
                Some(gate) => gate.serve(&desk, &self.tasks).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            never = socket => never,
            never = gate => never,
        }
    }

    /// Waits until nobody is served any more, after [`serve`](Self::serve) was dropped.
    pub(super) async fn ended(&self) {
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// A socket that is listened on; gone when dropped.
struct Door {
    listener: UnixListener,
    socket: PathBuf,
}

impl Door {
    async fn serve(&self, desk: &Arc<Desk>, tasks: &TaskTracker) -> Infallible {
        loop {
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let desk = desk.clone();
                    served(stream, tasks, move |request| {
                        let desk = desk.clone();
                        async move { desk.answer(&request).await }
                    })
                    .await;
                }
                Err(error) => unaccepted(&error).await,
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}

/// An address that is listened on.
struct Gate {
    listener: TcpListener,
    keys: Keys,
    handshake: Option<Arc<dyn Handshake>>,
}

impl Gate {
    async fn serve(&self, desk: &Arc<Desk>, tasks: &TaskTracker) -> Infallible {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        let over = CancellationToken::new();
        // Also when this future is dropped: no visit outlives it.
        let _ends = over.clone().drop_guard();
        loop {
            let place = places.clone().acquire_owned().await;
            let (stream, peer) = match self.listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    unaccepted(&error).await;
                    continue;
                }
            };
            let (desk, keys, handshake) = (desk.clone(), self.keys.clone(), self.handshake.clone());
            let streams = tasks.clone();
            tasks.spawn(over.clone().run_until_cancelled_owned(async move {
                let answer = move |request| {
                    let (desk, keys) = (desk.clone(), keys.clone());
                    async move { asked(&desk, &keys, peer, request).await }
                };
                match handshake {
                    None => served(stream, &streams, answer).await,
                    Some(handshake) => {
                        if let Ok(Ok((stream, _))) =
                            timeout(PATIENCE, handshake.shake(stream)).await
                        {
                            served(stream, &streams, answer).await;
                        }
                    }
                }
                drop(place);
            }));
        }
    }
}

/// Nothing that is asked here is kept by whoever carries it, or told to where a page leads.
async fn asked(desk: &Desk, keys: &Keys, peer: SocketAddr, request: Request<Incoming>) -> Reply {
    let mut reply = let_in(desk, keys, peer, request).await;
    let headers = reply.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    reply
}

/// Whether it goes well is for everybody to know; all else is for those who have a key.
async fn let_in(desk: &Desk, keys: &Keys, peer: SocketAddr, request: Request<Incoming>) -> Reply {
    let credentials = Credentials::new(request.headers(), request.uri().query(), peer.ip(), None);
    let is_open = request.uri().path() == "/healthz";
    match keys.authenticate(&credentials).await {
        Ok(Some(_)) => desk.answer(&request).await,
        Ok(None) if is_open => desk.answer(&request).await,
        _ => {
            tracing::info!(peer = %peer.ip(), "operator refused");
            let mut reply = plain(StatusCode::UNAUTHORIZED, "a key of an operator is needed\n");
            let challenge = HeaderValue::from_static("Bearer realm=\"attache admin\"");
            reply.headers_mut().insert(WWW_AUTHENTICATE, challenge);
            reply
        }
    }
}

async fn unaccepted(error: &io::Error) {
    tracing::error!(%error, "cannot accept the operator");
    sleep(PAUSE).await;
}

/// Serves a connection. Whoever takes too long, or says nothing that makes sense, is let go.
async fn served<F>(
    stream: impl Bytes + 'static,
    tasks: &TaskTracker,
    answer: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
) where
    F: Future<Output = Reply> + Send + 'static,
{
    let service = service_fn(move |request| {
        let answer = answer(request);
        async { Ok::<_, Infallible>(answer.await) }
    });
    let over = CancellationToken::new();
    // What HTTP/2 has begun ends with its connection, whatever ends that.
    let _ends = over.clone().drop_guard();
    let mut http = auto::Builder::new(Streams {
        tasks: tasks.clone(),
        over,
    });
    http.http1().timer(TokioTimer::new());
    http.http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(8);
    let _ = timeout(
        PATIENCE,
        http.serve_connection(TokioIo::new(stream), service),
    )
    .await;
}

/// Where HTTP/2 has its streams, as long as their connection lasts.
#[derive(Clone)]
struct Streams {
    tasks: TaskTracker,
    over: CancellationToken,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.tasks
            .spawn(self.over.clone().run_until_cancelled_owned(future));
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

    /// A call over HTTP/2 that is never answered ends with the door, and nothing of it is left.
    #[tokio::test(start_paused = true)]
    async fn whoever_still_waits_when_the_doors_close_is_let_go() {
        let (near, far) = tokio::io::duplex(1 << 16);
        let (doors, client) = (TaskTracker::new(), TaskTracker::new());
        let door = async {
            served(far, &doors, |_| std::future::pending()).await;
        };
        let executor = Streams {
            tasks: client.clone(),
            over: CancellationToken::new(),
        };
        let mut asked = None;
        let asking = async {
            let (mut sender, connection) = http2::handshake(executor, TokioIo::new(near))
                .await
                .unwrap();
            client.spawn(async { drop(connection.await) });
            let request = Request::get("http://admin/metrics")
                .body(Empty::<Bytes>::new())
                .unwrap();
            asked = Some(client.spawn(sender.send_request(request)));
            // The stream has a task of its own now.
            while doors.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = door => panic!("it waits"),
            () = asking => {}
        }
        doors.close();
        timeout(Duration::from_millis(1), doors.wait())
            .await
            .expect("nothing outlives the door");
        assert!(asked.unwrap().await.unwrap().is_err());
    }
}
