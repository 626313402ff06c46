//! Test harness: in-memory webhooks without a network, and a dispatcher process on a store that outlives it. Tests run in
//! paused time.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::super::bodies::NotificationBodies;
use super::super::{PushDispatcher, PushSettings};
use crate::egress::{EgressPolicy, GuardedClient, LookupError, Network};
use crate::engine::tests::harness::{ManualClock, ScriptedAgent, call, engine_with};
use crate::engine::{Engine, InitialMessage, Settings};
use crate::model::{AuthenticationInfo, Message, PushConfig, Secret, Version};
use crate::rt::lock;
use crate::store::{DeliveryState, Head, IdempotencyKey, PushRegistration, Store};

/// Response of a webhook to one request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    Status(u16),
    RetryAfter(u16, &'static str),
    /// Reads the request and never responds.
    Hang,
    /// Refuses the connection.
    Refuse,
}

/// A request that a webhook received.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) at: Instant,
    pub(super) host: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
    /// Whether the webhook processed it: it responded with success, or its response was lost.
    pub(super) is_processed: bool,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

/// Webhooks by host. `inside.example` resolves to the private address `10.0.0.7`, all other hosts to public ones.
#[derive(Clone, Default)]
pub(super) struct Webhooks(Arc<WebhookState>);

#[derive(Default)]
struct WebhookState {
    received: Mutex<Vec<Received>>,
    /// Responses per host; the default is 204.
    replies: Mutex<Replies>,
    hosts: Mutex<Vec<String>>,
    changed: Notify,
    tasks: TaskTracker,
}

/// The next responses of a host, and the one that follows them.
type Replies = HashMap<String, (VecDeque<Reply>, Option<Reply>)>;

impl Webhooks {
    /// Queues responses of a host.
    pub(super) fn queue_replies(&self, host: &str, replies: &[Reply]) {
        self.replies()
            .entry(host.to_owned())
            .or_default()
            .0
            .extend(replies);
    }

    /// Sets the response after the queued ones; `None`: 204.
    pub(super) fn set_default_reply(&self, host: &str, reply: Option<Reply>) {
        self.replies().entry(host.to_owned()).or_default().1 = reply;
    }

    fn replies(&self) -> MutexGuard<'_, Replies> {
        self.0.replies.lock().unwrap()
    }

    fn reply(&self, host: &str) -> Reply {
        let mut replies = self.replies();
        let (queued, default) = replies.entry(host.to_owned()).or_default();
        queued
            .pop_front()
            .or(*default)
            .unwrap_or(Reply::Status(204))
    }

    pub(super) fn all(&self) -> Vec<Received> {
        self.0.received.lock().unwrap().clone()
    }

    /// Requests that a host processed, without repeated deliveries.
    pub(super) fn processed(&self, host: &str) -> Vec<Received> {
        let mut all = self.all();
        all.retain(|received| received.is_processed && received.host == host);
        all.dedup_by(|one, other| one.header("a2a-event-id") == other.header("a2a-event-id"));
        all
    }

    /// Waits until a host has received `count` requests in total.
    pub(super) async fn wait_for_requests(&self, host: &str, count: usize) -> Vec<Received> {
        let waited = timeout(Duration::from_secs(3 * 24 * 60 * 60), async {
            loop {
                let changed = self.0.changed.notified();
                let all: Vec<_> = self
                    .all()
                    .into_iter()
                    .filter(|one| one.host == host)
                    .collect();
                if all.len() >= count {
                    return all;
                }
                changed.await;
            }
        });
        waited
            .await
            .unwrap_or_else(|_| panic!("{host} received {:?}", self.all()))
    }

    async fn answer(
        self,
        host: String,
        request: Request<Incoming>,
    ) -> io::Result<Response<Full<Bytes>>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let reply = self.reply(&host);
        let is_processed = matches!(reply, Reply::Status(200..300) | Reply::Hang);
        let body = serde_json::from_slice(&body).unwrap();
        self.0.received.lock().unwrap().push(Received {
            at: Instant::now(),
            host,
            headers: head.headers,
            body,
            is_processed,
        });
        self.0.changed.notify_waiters();
        let response = Response::builder();
        let response = match reply {
            Reply::Status(status) => response
                .status(status)
                .header("location", "http://inside.example/"),
            Reply::RetryAfter(status, when) => response.status(status).header("retry-after", when),
            Reply::Refuse => return Err(io::ErrorKind::ConnectionReset.into()),
            Reply::Hang => std::future::pending().await,
        };
        Ok(response.body(Full::default()).unwrap())
    }
}

impl Network for Webhooks {
    type Stream = DuplexStream;

    async fn resolve(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        if name == "inside.example" {
            return Ok(vec![Ipv4Addr::new(10, 0, 0, 7).into()]);
        }
        // Each host has its own address, so that `connect` can tell which one is called.
        let mut hosts = self.0.hosts.lock().unwrap();
        let at = hosts
            .iter()
            .position(|host| host == name)
            .unwrap_or_else(|| {
                hosts.push(name.to_owned());
                hosts.len() - 1
            });
        Ok(vec![
            Ipv4Addr::new(93, 184, 215, u8::try_from(at).unwrap()).into(),
        ])
    }

    async fn dial(&self, address: SocketAddr) -> io::Result<DuplexStream> {
        let IpAddr::V4(v4) = address.ip() else {
            panic!("{address}")
        };
        let host = self.0.hosts.lock().unwrap()[usize::from(v4.octets()[3])].clone();
        if matches!(self.replies().get(&host), Some((queued, Some(Reply::Refuse))) if queued.is_empty())
        {
            return Err(io::ErrorKind::ConnectionRefused.into());
        }
        let (near, far) = duplex(1 << 16);
        let webhooks = self.clone();
        self.0.tasks.spawn(async move {
            let service = service_fn(move |request| webhooks.clone().answer(host.clone(), request));
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(far), service);
            let _ = served.await;
        });
        Ok(near)
    }
}

/// A server process. Store and webhooks outlive it.
pub(super) struct TestProcess {
    pub(super) engine: Engine,
    pub(super) push: PushDispatcher,
    stop: CancellationToken,
    tracker: TaskTracker,
}

pub(super) fn plain_http_policy() -> EgressPolicy {
    EgressPolicy {
        plain_http: true,
        ..EgressPolicy::default()
    }
}

impl TestProcess {
    pub(super) fn start(
        store: &Arc<dyn Store>,
        webhooks: &Webhooks,
        agent: &ScriptedAgent,
    ) -> Self {
        let settings = PushSettings {
            egress: plain_http_policy(),
            ..PushSettings::default()
        };
        Self::start_with(store, webhooks, agent, settings)
    }

    pub(super) fn start_with(
        store: &Arc<dyn Store>,
        webhooks: &Webhooks,
        agent: &ScriptedAgent,
        settings: PushSettings,
    ) -> Self {
        Self::start_with_bodies(
            store,
            webhooks,
            agent,
            settings,
            NotificationBodies::default(),
        )
    }

    pub(super) fn start_with_bodies(
        store: &Arc<dyn Store>,
        webhooks: &Webhooks,
        agent: &ScriptedAgent,
        settings: PushSettings,
        bodies: NotificationBodies,
    ) -> Self {
        let tracker = TaskTracker::new();
        let stop = CancellationToken::new();
        let engine = engine_with(
            store.clone(),
            agent.clone(),
            Settings::default(),
            ManualClock::starting_at(1_000),
        );
        let egress = GuardedClient::new(
            settings.egress.clone(),
            settings.max_deliveries_per_host,
            webhooks.clone(),
        );
        let push = PushDispatcher::with_egress(
            egress,
            bodies,
            engine.clone(),
            settings,
            None,
            tracker.clone(),
            stop.clone(),
        );
        let dispatcher = push.clone();
        let running = async move { match dispatcher.run().await {} };
        tracker.spawn(stop.clone().run_until_cancelled_owned(running));
        Self {
            engine,
            push,
            stop,
            tracker,
        }
    }

    /// Keeps the process a member of the cluster, until the token is cancelled or the process ends.
    pub(super) async fn join_cluster(&self) -> CancellationToken {
        let engine = self.engine.clone();
        let heartbeats = self.stop.child_token();
        let membership = async move { match engine.run_membership().await {} };
        let membership = heartbeats.clone().run_until_cancelled_owned(membership);
        self.tracker.spawn(membership);
        self.engine.wait_for_lease().await;
        heartbeats
    }

    /// Stops all workers at once, as a crash does.
    pub(super) async fn kill(self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Opens a task with a webhook that is registered in this protocol version.
    pub(super) async fn send(&self, text: &str, url: &str, version: Version) -> Head {
        self.send_with(None, text, url, version).await
    }

    pub(super) async fn send_with(
        &self,
        key: Option<IdempotencyKey>,
        text: &str,
        url: &str,
        version: Version,
    ) -> Head {
        let config = Some(Box::new(registration(url, version)));
        let message = InitialMessage {
            message: Message::user(text).into(),
            key,
            alias: None,
            config,
            failure: None,
            is_followed: false,
        };
        let accepted = self.engine.start(call(), message).await.unwrap();
        self.push.start_delivery(&accepted.head, &"hook".into());
        accepted.head
    }

    pub(super) async fn delivery_state(&self, head: &Head) -> DeliveryState {
        self.engine
            .find_webhook(head, &"hook".into())
            .await
            .unwrap()
            .unwrap()
            .delivery
            .state
    }

    /// Waits until no webhook has a worker.
    pub(super) async fn idle(&self) {
        while !lock(&self.push.0.workers).is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

pub(super) fn registration(url: &str, version: Version) -> PushRegistration {
    let credentials = Some(Secret::from("hunter2"));
    let config = PushConfig {
        id: Some("hook".into()),
        token: Some("t-1".into()),
        authentication: Some(AuthenticationInfo {
            scheme: "Bearer".to_owned(),
            credentials,
        }),
        ..PushConfig::new(url)
    };
    PushRegistration { config, version }
}

/// Captured log output.
#[derive(Clone, Default)]
pub(super) struct CapturedLog(Arc<Mutex<Vec<u8>>>);

impl CapturedLog {
    pub(super) fn subscriber(&self) -> impl tracing::Subscriber + use<> {
        let log = self.clone();
        tracing_subscriber::fmt()
            .with_ansi(false)
            .with_writer(move || log.clone())
            .finish()
    }

    pub(super) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl io::Write for CapturedLog {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
