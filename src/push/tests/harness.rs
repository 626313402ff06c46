//! What the tests are made of: webhooks without a network, an engine on a store that outlives it, time that is held.

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

use super::super::*;
use crate::egress::{EgressPolicy, GuardedClient, Network};
use crate::engine::tests::harness::{ManualClock, ScriptedAgent, call, engine_with};
use crate::engine::{InitialMessage, Settings};
use crate::model::{AuthenticationInfo, Message, PushConfig, Secret, Version};
use crate::store::{DeliveryState, IdempotencyKey, PushRegistration, Store};

/// What a webhook does with a request.
#[derive(Debug, Clone, Copy)]
pub(super) enum Reply {
    Status(u16),
    RetryAfter(u16, &'static str),
    /// Takes it, and never says so.
    Hang,
    /// Takes no connection.
    Refuse,
}

/// What a webhook got.
#[derive(Debug, Clone)]
pub(super) struct Received {
    pub(super) at: Instant,
    pub(super) host: String,
    pub(super) headers: HeaderMap,
    pub(super) body: Value,
    pub(super) taken: bool,
}

impl Received {
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
    }
}

/// Webhooks, by host: `10.0.0.7` is behind `inside.example`, everything else is public.
#[derive(Clone, Default)]
pub(super) struct Webhooks(Arc<State>);

#[derive(Default)]
struct State {
    received: Mutex<Vec<Received>>,
    /// What each host does next; then, and always without one, it answers 204.
    replies: Mutex<Replies>,
    hosts: Mutex<Vec<String>>,
    news: Notify,
    tasks: TaskTracker,
}

/// The next ones, and then always.
type Replies = HashMap<String, (VecDeque<Reply>, Option<Reply>)>;

impl Webhooks {
    pub(super) fn next(&self, host: &str, replies: &[Reply]) {
        self.replies()
            .entry(host.to_owned())
            .or_default()
            .0
            .extend(replies);
    }

    /// From now on always this, or well.
    pub(super) fn always(&self, host: &str, reply: Option<Reply>) {
        self.replies().entry(host.to_owned()).or_default().1 = reply;
    }

    fn replies(&self) -> MutexGuard<'_, Replies> {
        self.0.replies.lock().unwrap()
    }

    fn reply(&self, host: &str) -> Reply {
        let mut replies = self.replies();
        let (next, always) = replies.entry(host.to_owned()).or_default();
        next.pop_front().or(*always).unwrap_or(Reply::Status(204))
    }

    pub(super) fn all(&self) -> Vec<Received> {
        self.0.received.lock().unwrap().clone()
    }

    /// What a host has taken, without repetitions.
    pub(super) fn taken(&self, host: &str) -> Vec<Received> {
        let mut all = self.all();
        all.retain(|received| received.taken && received.host == host);
        all.dedup_by(|one, other| one.header("a2a-event-id") == other.header("a2a-event-id"));
        all
    }

    /// Waits until a host has got so many requests in all.
    pub(super) async fn got(&self, host: &str, number: usize) -> Vec<Received> {
        let waited = timeout(Duration::from_secs(3 * 24 * 60 * 60), async {
            loop {
                let news = self.0.news.notified();
                let all: Vec<_> = self
                    .all()
                    .into_iter()
                    .filter(|one| one.host == host)
                    .collect();
                if all.len() >= number {
                    return all;
                }
                news.await;
            }
        });
        waited
            .await
            .unwrap_or_else(|_| panic!("{host} got {:?}", self.all()))
    }

    async fn answer(
        self,
        host: String,
        request: Request<Incoming>,
    ) -> io::Result<Response<Full<Bytes>>> {
        let (head, body) = request.into_parts();
        let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
        let reply = self.reply(&host);
        let taken = matches!(reply, Reply::Status(200..300) | Reply::Hang);
        let body = serde_json::from_slice(&body).unwrap();
        self.0.received.lock().unwrap().push(Received {
            at: Instant::now(),
            host,
            headers: head.headers,
            body,
            taken,
        });
        self.0.news.notify_waiters();
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

    async fn resolve(&self, name: &str, _: u16) -> io::Result<Vec<IpAddr>> {
        if name == "inside.example" {
            return Ok(vec![Ipv4Addr::new(10, 0, 0, 7).into()]);
        }
        // An address stands for a host, so that who is dialled is known.
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
        if matches!(self.replies().get(&host), Some((next, Some(Reply::Refuse))) if next.is_empty())
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

/// A process: what it was given outlives it.
pub(super) struct TestProcess {
    pub(super) engine: Engine,
    pub(super) push: PushDispatcher,
    stop: CancellationToken,
    tracker: TaskTracker,
}

pub(super) fn open() -> EgressPolicy {
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
            egress: open(),
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
        let (tracker, stop) = (TaskTracker::new(), CancellationToken::new());
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
            engine.clone(),
            settings,
            None,
            (tracker.clone(), stop.clone()),
        );
        let delivering = push.clone();
        let delivering = async move { match delivering.run().await {} };
        tracker.spawn(stop.clone().run_until_cancelled_owned(delivering));
        Self {
            engine,
            push,
            stop,
            tracker,
        }
    }

    /// Ends at once, in the middle of whatever it does.
    pub(super) async fn kill(self) {
        self.stop.cancel();
        self.tracker.close();
        self.tracker.wait().await;
    }

    /// Opens a task with a webhook in this version.
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
        let config = Some(Box::new(registered(url, version)));
        let opening = InitialMessage {
            message: Message::user(text).into(),
            key,
            alias: None,
            config,
            failure: None,
            is_followed: false,
        };
        let accepted = self.engine.start(call(), opening).await.unwrap();
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
        while !self.push.0.active().workers.is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    }
}

pub(super) fn registered(url: &str, version: Version) -> PushRegistration {
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

/// What was logged.
#[derive(Clone, Default)]
pub(super) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
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

impl io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
