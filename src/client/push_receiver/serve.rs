//! Minimal HTTP/1.1 server for a receiver that is not part of another server.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::PushReceiver;

/// Maximum number of concurrent connections.
const MAX_CONNECTIONS: usize = 64;
/// Maximum time to receive the head of a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Delay after a failed accept, for example without free file descriptors.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);

impl PushReceiver {
    /// Serves HTTP/1.1 on this listener until the future is dropped. Then all connections are closed.
    pub async fn serve(self, listener: TcpListener) {
        let receiver = Arc::new(self);
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let _stop = stop.clone().drop_guard();
        let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let Ok(permit) = permits.clone().acquire_owned().await else {
                return;
            };
            let Ok((stream, _)) = listener.accept().await else {
                sleep(ACCEPT_BACKOFF).await;
                continue;
            };
            let receiver = receiver.clone();
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_TIMEOUT)
                .serve_connection(
                    TokioIo::new(stream),
                    service_fn(move |request| {
                        let receiver = receiver.clone();
                        async move { Ok::<_, Infallible>(receiver.handle(request).await) }
                    }),
                );
            tasks.spawn(stop.clone().run_until_cancelled_owned(async move {
                // The peer may close the connection at any time.
                let _ = connection.await;
                drop(permit);
            }));
        }
    }
}
