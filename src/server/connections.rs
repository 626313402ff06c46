//! The accept loop: takes connections, serves HTTP/1 and HTTP/2 on them, drains at the end.

use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::rt::Executor;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::routes::Routes;

/// How long a caller may take to send the head of a request.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long calls and turns may take to end when the server is to stop.
const GRACE: Duration = Duration::from_secs(10);
/// How long to wait when there are no more file descriptors: some will come free.
const PAUSE: Duration = Duration::from_millis(100);

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
    let server = Connections { routes: Arc::new(routes), http: http(&tasks), tasks, stop };
    let graceful = GracefulShutdown::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            biased;
            () = &mut shutdown => break,
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => server.take(stream, &graceful),
                Err(error) => refused(&error).await,
            },
        }
    }
    drop(listener);
    server.drain(graceful).await;
}

struct Connections {
    routes: Arc<Routes>,
    http: Builder<OnTracker>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Connections {
    fn take(&self, stream: TcpStream, graceful: &GracefulShutdown) {
        // Answers are written whole: waiting for more to send with them only makes them late.
        let _ = stream.set_nodelay(true);
        let routes = self.routes.clone();
        let service = service_fn(move |request| {
            let routes = routes.clone();
            async move { Ok::<_, Infallible>(routes.answer(request).await) }
        });
        let connection = self.http.serve_connection(TokioIo::new(stream), service).into_owned();
        let connection = graceful.watch(connection);
        self.tasks.spawn(self.stop.clone().run_until_cancelled_owned(async move {
            if let Err(error) = connection.await {
                tracing::debug!(error, "connection ended early");
            }
        }));
    }

    async fn drain(self, graceful: GracefulShutdown) {
        self.tasks.close();
        let drained = async {
            graceful.shutdown().await;
            self.tasks.wait().await;
        };
        tokio::select! {
            () = drained => {}
            () = sleep(GRACE) => tracing::warn!("calls or turns dropped after the grace period"),
        }
        self.stop.cancel();
        self.tasks.wait().await;
    }
}

fn http(tasks: &TaskTracker) -> Builder<OnTracker> {
    let mut http = Builder::new(OnTracker(tasks.clone()));
    http.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIMEOUT).pipeline_flush(true);
    http.http2().timer(TokioTimer::new());
    http
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
