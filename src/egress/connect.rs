//! How connections are made: over TCP, or in whatever way there is.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tower_service::Service;

/// Makes connections.
#[derive(Clone)]
pub(crate) struct Connector(Arc<dyn Fn(Uri) -> Connecting + Send + Sync>);

type Connecting = Pin<Box<dyn Future<Output = Result<TokioIo<Pipe>, Failed>> + Send>>;
type Failed = Box<dyn std::error::Error + Send + Sync>;
/// A connection, whatever it is made of.
type Pipe = Box<dyn Both>;

impl Connector {
    /// Makes them as `connect` does.
    pub(crate) fn new<C, F, S, E>(connect: C) -> Self
    where
        C: Fn(Uri) -> F + Send + Sync + 'static,
        F: Future<Output = Result<S, E>> + Send + 'static,
        S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        E: Into<Failed>,
    {
        Self(Arc::new(move |uri| {
            let connecting = connect(uri);
            Box::pin(async move {
                let connected: Pipe = Box::new(connecting.await.map_err(Into::into)?);
                Ok(TokioIo::new(connected))
            })
        }))
    }

    /// Over TCP, to the host that the url names, within this time.
    pub(super) fn tcp(limit: Duration) -> Self {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(limit));
        connector.set_nodelay(true);
        Self::new(move |uri| {
            let connecting = connector.clone().call(uri);
            async move { connecting.await.map(TokioIo::into_inner) }
        })
    }
}

impl Service<Uri> for Connector {
    type Response = TokioIo<Pipe>;
    type Error = Failed;
    type Future = Connecting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Failed>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        (self.0)(uri)
    }
}

pub(crate) trait Both: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> Both for S {}

impl Connection for Pipe {
    fn connected(&self) -> Connected {
        Connected::new()
    }
}
