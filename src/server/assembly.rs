//! Assembles a server from its configuration: engine, push dispatcher, and routes.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use uuid::Uuid;

use super::base_url::BaseUrl;
use super::body::BodyBudget;
use super::handle::{CurrentRoutes, ServerHandle};
use super::reloadable_config::ReloadableConfig;
#[cfg(feature = "jws")]
use super::signing;
use super::transport::TlsHandshake;
use crate::bus::{Bus, ClusterBus, LocalBus};
use crate::engine::{AgentRegistry, Engine, EngineConfig, Settings, SystemClock};
#[cfg(feature = "jws")]
use crate::jws::Signer;
use crate::model::Result;
use crate::push::{NotificationSigner, PushDispatcher, PushSettings};
use crate::rt::ByteBudget;
use crate::service::StreamLimiter;
use crate::store::Store;

/// Configuration that is fixed until a restart.
pub(super) struct StaticConfig {
    pub(super) store: Arc<dyn Store>,
    pub(super) settings: Settings,
    pub(super) push: PushSettings,
    #[cfg(feature = "jws")]
    pub(super) push_signer: Option<Signer>,
    pub(super) handshake: Option<Arc<dyn TlsHandshake>>,
}

/// Where a server accepts connections.
#[derive(Debug, Clone, Copy)]
pub(super) enum Endpoint {
    /// On a TCP address.
    Tcp(SocketAddr),
    /// From this process only. Connections appear to come from this address.
    InProcess(SocketAddr),
}

impl Endpoint {
    pub(super) fn address(self) -> SocketAddr {
        match self {
            Self::Tcp(address) | Self::InProcess(address) => address,
        }
    }
}

/// Parts of a server that a reload keeps.
pub(super) struct ServerRuntime {
    pub(super) endpoint: Endpoint,
    pub(super) uses_tls: bool,
    pub(super) engine: Engine,
    pub(super) push_dispatcher: PushDispatcher,
    pub(super) stream_limiter: Arc<StreamLimiter>,
    pub(super) body_budget: Arc<BodyBudget>,
    pub(super) outgoing: Arc<ByteBudget>,
    /// Signer of notifications. Its key is published with those of the cards.
    #[cfg(feature = "jws")]
    pub(super) push_signer: Option<Signer>,
    /// Cancelled when shutdown begins.
    pub(super) shutting_down: CancellationToken,
    /// Cancelled when the server drains.
    pub(super) drain: CancellationToken,
}

/// Assembled server that does not listen yet.
pub(super) struct AssembledServer {
    pub(super) base_url: BaseUrl,
    pub(super) handle: ServerHandle,
    pub(super) handshake: Option<Arc<dyn TlsHandshake>>,
    pub(super) tasks: TaskTracker,
    /// Cancels the background tasks and turns of the server.
    pub(super) stop: CancellationToken,
}

impl StaticConfig {
    /// Builds the server for an endpoint, and recovers the tasks in the store.
    ///
    /// # Errors
    /// Unavailable: the store failed. Invalid: a setting of `config`.
    pub(super) async fn assemble(
        self,
        config: ReloadableConfig,
        endpoint: Endpoint,
    ) -> Result<AssembledServer> {
        let tasks = TaskTracker::new();
        let stop = CancellationToken::new();
        let base_url = config.base_url(endpoint.address(), self.handshake.is_some())?;
        let bus = bus_for(&*self.store);
        let engine = Engine::new(EngineConfig {
            store: self.store,
            bus,
            agents: AgentRegistry::new(config.registrations()),
            clock: Arc::new(SystemClock),
            settings: self.settings,
            tracker: tasks.clone(),
            stop: stop.clone(),
        });
        engine.recover().await?;
        #[cfg(feature = "jws")]
        let signer = self
            .push_signer
            .clone()
            .map(|signer| signing::notification_signer(signer, &base_url));
        #[cfg(not(feature = "jws"))]
        let signer = None;
        let outgoing = config.outgoing_budget();
        let runtime = ServerRuntime {
            endpoint,
            uses_tls: self.handshake.is_some(),
            push_dispatcher: push_dispatcher(&engine, self.push, &outgoing, signer, &stop),
            engine,
            stream_limiter: config.stream_limiter(),
            body_budget: Arc::default(),
            outgoing,
            #[cfg(feature = "jws")]
            push_signer: self.push_signer,
            shutting_down: CancellationToken::new(),
            drain: CancellationToken::new(),
        };
        let agents = runtime.engine.agents();
        let routes = config.build_routes(&runtime, &agents, None)?;
        let current = Arc::new(CurrentRoutes::new(routes));
        let routes = Arc::downgrade(&current);
        runtime.push_dispatcher.set_revocation_check(move |caller| {
            let routes = routes.upgrade();
            routes.is_some_and(|routes| routes.get().admission.is_revoked(caller))
        });
        Ok(AssembledServer {
            base_url,
            handle: ServerHandle::new(runtime, current),
            handshake: self.handshake,
            tasks,
            stop,
        })
    }
}

/// Creates the bus: between the replicas of a shared store, or within this process.
fn bus_for(store: &dyn Store) -> Arc<dyn Bus> {
    match store.notifier() {
        Some(notifier) => {
            let (id, _) = Uuid::new_v4().as_u64_pair();
            Arc::new(ClusterBus::new(notifier, id))
        }
        None => Arc::new(LocalBus::default()),
    }
}

/// Creates the push dispatcher. Its tracker is its own: the drain of the server does not wait for
/// webhooks.
fn push_dispatcher(
    engine: &Engine,
    settings: PushSettings,
    outgoing: &Arc<ByteBudget>,
    signer: Option<NotificationSigner>,
    stop: &CancellationToken,
) -> PushDispatcher {
    if settings.egress.loopback {
        tracing::warn!("webhooks on loopback addresses are allowed; use this for development only");
    }
    let tasks = TaskTracker::new();
    let outgoing = Some(outgoing.clone());
    let stop = stop.child_token();
    PushDispatcher::new(engine.clone(), settings, outgoing, signer, tasks, stop)
}
