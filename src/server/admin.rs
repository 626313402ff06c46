//! The other door: what the operator says to a running server, over a socket that only its owner can open.
//!
//! HTTP/1 over a Unix socket, one caller after the other. `GET /healthz`, `GET /metrics`; `POST /reload` takes in what has changed outside,
//! such as keys and certificates. Whoever can open the socket is the operator: no credential of a caller leads here.

use std::convert::Infallible;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::{Method, Request, StatusCode};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{UnixListener, UnixStream};
use tokio::time::{sleep, timeout};

use super::Server;
use super::reply::{Reply, not_allowed, plain, whole};

/// How long one caller may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait when nobody can be accepted.
const PAUSE: Duration = Duration::from_millis(100);

type Reload = Arc<dyn Fn() -> Result<(), Box<dyn std::error::Error + Send + Sync>> + Send + Sync>;

/// Where the operator reaches a running server.
#[derive(Clone)]
pub struct Admin {
    folder: PathBuf,
    reload: Reload,
}

impl Admin {
    /// At the socket `admin/socket` below this folder. The folder `admin` is for its owner alone.
    pub fn below(folder: impl AsRef<Path>) -> Self {
        Self { folder: folder.as_ref().join("admin"), reload: Arc::new(|| Ok(())) }
    }

    /// Does this when it is told that something has changed. It may say why it cannot: only the operator hears it.
    #[must_use]
    pub fn on_reload<F, E>(mut self, reload: F) -> Self
    where
        F: Fn() -> Result<(), E> + Send + Sync + 'static,
        E: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        self.reload = Arc::new(move || reload().map_err(Into::into));
        self
    }

    /// Where the socket is.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.folder.join("socket")
    }

    /// Takes the socket. A server that has none serves nevertheless: another may have the same folder, or its name may be too
    /// long for a socket.
    pub(super) async fn bind(self) -> Option<Door> {
        let socket = self.socket();
        let bound = self.take().await;
        bound.inspect_err(|error| tracing::warn!(%error, ?socket, "no admin socket: restart to reload")).ok()
    }

    async fn take(self) -> io::Result<Door> {
        match DirBuilder::new().mode(0o700).create(&self.folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        // Also where somebody has made it before us: nobody else looks in.
        fs::set_permissions(&self.folder, std::os::unix::fs::PermissionsExt::from_mode(0o700))?;
        let socket = self.socket();
        if UnixStream::connect(&socket).await.is_ok() {
            return Err(io::Error::new(io::ErrorKind::AddrInUse, "another server has the same folder"));
        }
        // Left by one that was ended before it could clean up.
        let _ = fs::remove_file(&socket);
        Ok(Door { listener: UnixListener::bind(&socket)?, socket, reload: self.reload })
    }
}

/// A socket that is listened on; gone when dropped.
pub(super) struct Door {
    listener: UnixListener,
    socket: PathBuf,
    reload: Reload,
}

impl Door {
    pub(super) async fn serve(&self) -> Infallible {
        loop {
            match self.listener.accept().await {
                // Whoever takes too long, or says nothing that makes sense, is let go.
                Ok((stream, _)) => drop(timeout(PATIENCE, self.answer_all(stream)).await),
                Err(error) => {
                    tracing::error!(%error, "cannot accept the operator");
                    sleep(PAUSE).await;
                }
            }
        }
    }

    async fn answer_all(&self, stream: UnixStream) -> Result<(), hyper::Error> {
        let service =
            service_fn(
                |request: Request<Incoming>| async move { Ok::<_, Infallible>(self.answer(&request)) },
            );
        http1::Builder::new().serve_connection(TokioIo::new(stream), service).await
    }

    fn answer(&self, request: &Request<Incoming>) -> Reply {
        match (request.method(), request.uri().path()) {
            (&Method::GET, "/healthz") => plain(StatusCode::OK, "ok\n"),
            (&Method::POST, "/reload") => match (self.reload)() {
                Ok(()) => plain(StatusCode::OK, "reloaded\n"),
                Err(error) => {
                    tracing::error!(cause = &*error as &dyn std::error::Error, "cannot reload");
                    let text = format!("{error}\n").into_bytes();
                    whole(StatusCode::INTERNAL_SERVER_ERROR, "text/plain; charset=utf-8", text.into())
                }
            },
            #[cfg(feature = "metrics")]
            (&Method::GET, "/metrics") => match crate::metrics::text() {
                Some(text) => whole(StatusCode::OK, crate::metrics::MEDIA_TYPE, text.into()),
                None => plain(StatusCode::NOT_FOUND, "nothing is counted\n"),
            },
            (_, "/healthz" | "/metrics") => not_allowed("GET"),
            (_, "/reload") => not_allowed("POST"),
            _ => plain(StatusCode::NOT_FOUND, "no such thing\n"),
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.socket);
    }
}

impl Server {
    /// Lets the operator reach it while it runs.
    #[must_use]
    pub fn admin(mut self, admin: Admin) -> Self {
        self.admin = Some(admin);
        self
    }
}
