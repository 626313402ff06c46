//! The accept loop: takes connections, serves HTTP/1 and HTTP/2 on them, drains at the end.

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::rt::Executor;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::io::Io;
use super::routes::Routes;
use super::settings::ServerSettings;

/// How long to wait when there are no more file descriptors: some will come free.
const PAUSE: Duration = Duration::from_millis(100);
/// How often a silent HTTP/2 peer is asked whether it is there, and how long it may take to say so.
const PING: Duration = Duration::from_secs(20);

/// Serves until `shutdown` is ready, then drains. Whatever is left after the grace period is dropped.
pub(super) async fn serve(
    listener: TcpListener,
    routes: Routes,
    tasks: TaskTracker,
    stop: CancellationToken,
    shutdown: impl Future<Output = ()>,
) {
    // Also when this future is dropped: nothing outlives it.
    let _stop = stop.clone().drop_guard();
    let places = Arc::new(Semaphore::new(routes.settings.max_connections.min(Semaphore::MAX_PERMITS)));
    let server = Connections::new(routes, tasks, stop);
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            (place, accepted) = accept(&places, &listener) => match accepted {
                Ok((stream, peer)) => {
                    // Answers are written whole: waiting for more to send with them only makes them late.
                    let _ = stream.set_nodelay(true);
                    server.take(stream, peer, place, graceful.watcher());
                }
                Err(error) => refused(&error).await,
            },
        }
    }
    drop(listener);
    server.drain(graceful).await;
}

type Place = Option<tokio::sync::OwnedSemaphorePermit>;

/// The next connection, once there is room for it.
async fn accept(
    places: &Arc<Semaphore>,
    listener: &TcpListener,
) -> (Place, io::Result<(TcpStream, SocketAddr)>) {
    let place = places.clone().acquire_owned().await.ok();
    (place, listener.accept().await)
}

/// Where connections are served, wherever they come from.
pub(super) struct Connections {
    routes: Arc<Routes>,
    http: Arc<Http>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Connections {
    pub(super) fn new(routes: Routes, tasks: TaskTracker, stop: CancellationToken) -> Self {
        let http = Arc::new(Http::new(&tasks, &routes.settings));
        Self { routes: Arc::new(routes), http, tasks, stop }
    }

    pub(super) fn take<S>(&self, stream: S, peer: SocketAddr, place: Place, watcher: Watcher)
    where
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
    {
        let (routes, http) = (self.routes.clone(), self.http.clone());
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(async move {
            let _place = place;
            let settings = &routes.settings;
            let opened = timeout(settings.header_timeout, Io::open(stream, settings.write_timeout)).await;
            // Whoever says nothing is told nothing.
            if let Ok(Ok((io, is_http2))) = opened {
                http.serve(io, is_http2, (routes, peer), watcher).await;
            }
        }));
    }

    async fn drain(self, graceful: GracefulShutdown) {
        self.tasks.close();
        // Those who read streams go first, and come again elsewhere.
        self.routes.drain.cancel();
        let drained = async {
            graceful.shutdown().await;
            self.tasks.wait().await;
        };
        tokio::select! {
            () = drained => {}
            () = sleep(self.routes.settings.shutdown_grace) => {
                tracing::warn!("calls or turns dropped after the grace period");
            }
        }
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

/// The two ways to speak HTTP. Which one is known before either is set up: a connection that might become both costs
/// half as much memory again.
struct Http {
    one: http1::Builder,
    two: http2::Builder<OnTracker>,
}

impl Http {
    fn new(tasks: &TaskTracker, settings: &ServerSettings) -> Self {
        let mut one = http1::Builder::new();
        one.timer(TokioTimer::new()).header_read_timeout(settings.header_timeout).pipeline_flush(true);
        one.max_header_size(settings.max_header_bytes);
        let mut two = http2::Builder::new(OnTracker(tasks.clone()));
        two.timer(TokioTimer::new()).keep_alive_interval(PING).keep_alive_timeout(PING);
        two.max_concurrent_streams(settings.max_concurrent_calls);
        two.max_header_list_size(u32::try_from(settings.max_header_bytes).unwrap_or(u32::MAX));
        Self { one, two }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
        &self,
        io: Io<S>,
        is_http2: bool,
        (routes, peer): (Arc<Routes>, SocketAddr),
        watcher: Watcher,
    ) {
        let service = service_fn(move |request| {
            let routes = routes.clone();
            async move { Ok::<_, Infallible>(routes.answer(peer, request).await) }
        });
        let io = TokioIo::new(io);
        let ended = match is_http2 {
            true => watcher.watch(self.two.serve_connection(io, service)).await,
            false => watcher.watch(self.one.serve_connection(io, service)).await,
        };
        if let Err(error) = ended {
            tracing::debug!(error = &error as &dyn std::error::Error, "connection ended early");
        }
    }
}

/// A caller who left before being served is nobody's trouble; anything else may pass.
async fn refused(error: &io::Error) {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    if !matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset) {
        tracing::error!(%error, "cannot accept connections");
        sleep(PAUSE).await;
    }
}

/// Lets HTTP/2 start its streams where everything else runs.
#[derive(Clone)]
struct OnTracker(TaskTracker);

impl<F> Executor<F> for OnTracker
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
