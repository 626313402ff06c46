//! What a server serves, put together: once when it is built, and again whenever that changes while it runs.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::base_url::BaseUrl;
use super::body::BodyBudget;
use super::card::{self, Document, PublishedCard};
use super::cors::OriginPolicy;
use super::hosted_agent::HostedAgent;
use super::routes::Routes;
use super::settings::ServerSettings;
#[cfg(feature = "jws")]
use super::signing::CardSigning;
use crate::auth::{Access, CallLimiter, CallerLimits};
use crate::engine::{AgentRegistration, AgentSet, Engine};
use crate::model::{AgentCard, Error, Limits, Result};
use crate::push::PushDispatcher;
use crate::service::{
    AgentEntry, Capabilities, Directory, Service, ServiceOptions, StreamLimiter, TaskQuota,
};
use crate::wire::path::is_tenant;

/// What may change while a server runs.
pub(super) struct ReloadableConfig {
    /// The first is the one index the root.
    pub(super) agents: Vec<HostedAgent>,
    pub(super) settings: Arc<ServerSettings>,
    pub(super) limits: Limits,
    pub(super) access: Option<Access>,
    pub(super) caller_limits: Option<CallerLimits>,
    pub(super) public_url: Option<String>,
    #[cfg(feature = "jws")]
    pub(super) signers: Vec<crate::jws::Signer>,
    #[cfg(feature = "jws")]
    pub(super) published_keys: Vec<crate::jws::Signer>,
}

/// What stays.
pub(super) struct ServerRuntime {
    pub(super) address: SocketAddr,
    pub(super) uses_tls: bool,
    pub(super) engine: Engine,
    pub(super) push_dispatcher: PushDispatcher,
    pub(super) stream_limiter: Arc<StreamLimiter>,
    pub(super) body_budget: Arc<BodyBudget>,
    /// Its key is shown beside those of the cards.
    #[cfg(feature = "jws")]
    pub(super) push_signer: Option<crate::jws::Signer>,
    /// Cancelled when the server is to stop, and calls should go elsewhere.
    pub(super) shutting_down: CancellationToken,
    /// Cancelled when it takes no more of them.
    pub(super) drain: CancellationToken,
}

impl ReloadableConfig {
    /// The agents, as the engine takes them.
    pub(super) fn agent_configs(&self) -> Vec<AgentRegistration> {
        let registration = |hosted: &HostedAgent| AgentRegistration {
            name: hosted.namespace.clone(),
            agent: hosted.agent.clone(),
            settings: hosted.settings.clone(),
        };
        self.agents.iter().map(registration).collect()
    }

    /// How many may read streams.
    pub(super) fn stream_limiter(&self) -> Arc<StreamLimiter> {
        StreamLimiter::new(self.settings.stream_limits())
    }

    /// Where clients reach what listens there.
    ///
    /// # Errors
    /// Invalid: the public url is none.
    pub(super) fn base_url(&self, address: SocketAddr, uses_tls: bool) -> Result<BaseUrl> {
        match &self.public_url {
            Some(url) => BaseUrl::parse(url),
            None => Ok(BaseUrl::from_address(address, uses_tls)),
        }
    }

    /// What is hosted by it, to callers of the ground; `agents` are its agents. Those who were hosted `before` and are no
    /// longer are there until what they have begun has ended.
    ///
    /// # Errors
    /// Invalid: something that cannot be so, with its name.
    pub(super) fn build_routes(
        self,
        runtime: &ServerRuntime,
        agents: &AgentSet,
        previous: Option<&Routes>,
    ) -> Result<Routes> {
        let base_url = self.base_url(runtime.address, runtime.uses_tls)?;
        let origin_policy = OriginPolicy::new(
            &self.settings.cors_origins,
            runtime.address,
            self.public_url.as_deref(),
        );
        let caller_limits = self
            .caller_limits
            .as_ref()
            .or(self.access.as_ref().map(|access| access.caller_limits()))
            .cloned();
        let quota = caller_limits
            .as_ref()
            .map_or_else(TaskQuota::default, |caller_limits| TaskQuota {
                open: caller_limits.open_tasks,
                waiting: caller_limits.waiting_tasks,
                tenant_open: caller_limits.tenant_open_tasks,
                tenant_total: caller_limits.tenant_tasks,
            });
        // What callers have used up stays used up, unless they may do something else now.
        let reused = previous
            .filter(|previous| previous.caller_limits == caller_limits)
            .map(|previous| previous.call_limiter.clone());
        let call_limiter = reused.unwrap_or_else(|| {
            caller_limits
                .as_ref()
                .map(|caller_limits| Arc::new(CallLimiter::new(caller_limits)))
        });
        #[cfg(feature = "jws")]
        let signing = {
            let has_public_url = self.public_url.is_some();
            CardSigning::new(
                self.signers,
                runtime.push_signer.clone(),
                self.published_keys,
                &base_url,
                has_public_url,
            )?
        };
        #[cfg(feature = "jws")]
        let key_set = signing.key_set();
        #[cfg(not(feature = "jws"))]
        let key_set: Option<String> = None;
        let key_set = key_set
            .map(|keys| Document::new(keys.into_bytes(), &self.settings))
            .transpose()?;
        let (engine, keeps_tasks) = (&runtime.engine, runtime.engine.keeps_tasks());
        let (mut entries, mut cards) = (Vec::new(), Vec::new());
        for (index, hosted) in self.agents.into_iter().enumerate() {
            let tenant = (index > 0).then(|| hosted.name.to_string());
            let mut card = hosted.card;
            declare_capabilities(&mut card, keeps_tasks);
            let describe = |card: &mut AgentCard| {
                if let Some(access) = &self.access {
                    access.describe(&hosted.name, card);
                }
            };
            describe(&mut card);
            let extended_card = hosted.extended_card.map(|mut extended| {
                declare_capabilities(&mut extended, keeps_tasks);
                describe(&mut extended);
                card::with_default_interfaces(extended, &base_url, tenant.as_deref())
                    .with_default_skill()
            });
            let service = Service::new(
                engine.clone(),
                agents.get(&hosted.namespace).cloned(),
                runtime.push_dispatcher.clone(),
                ServiceOptions {
                    capabilities: Capabilities::new(
                        &card,
                        extended_card,
                        self.settings.enforced_modes(),
                    ),
                    limits: self.limits.clone(),
                    quota,
                    stream_limiter: runtime.stream_limiter.clone(),
                    waiting_stream_timeout: self.settings.waiting_stream_timeout,
                    max_blocking_wait: self.settings.max_blocking_wait,
                },
            );
            entries.push(AgentEntry {
                name: hosted.name,
                namespace: hosted.namespace,
                service,
                tenants: hosted.tenants,
                draining: None,
            });
            cards.push(PublishedCard::new(
                card,
                &base_url,
                tenant,
                &self.settings,
                |card| {
                    #[cfg(feature = "jws")]
                    signing.sign(card)?;
                    let _ = card;
                    Ok(())
                },
            )?);
        }
        if let Some(previous) = previous {
            let names: Vec<_> = entries.iter().map(|agent| agent.name.clone()).collect();
            entries.extend(previous.directory.draining_entries(&names));
        }
        Ok(Routes {
            directory: Directory::new(entries),
            cards,
            key_set,
            base_url,
            has_public_url: self.public_url.is_some(),
            origin_policy,
            caller_limits,
            call_limiter,
            access: self.access,
            settings: self.settings,
            body_budget: runtime.body_budget.clone(),
            shutting_down: runtime.shutting_down.clone(),
            drain: runtime.drain.clone(),
        })
    }

    /// Says what of it cannot be so, before anything is begun. Two agents of one name would be one and the same, and a tenant of the first
    /// hides an agent of its name. A card for those who are known is for nobody where nobody is asked.
    ///
    /// # Errors
    /// Invalid: which.
    pub(super) fn validate(&self) -> Result<()> {
        self.public_url.as_deref().map(BaseUrl::parse).transpose()?;
        let agents = &self.agents;
        let first = agents.first().map_or(&[][..], |hosted| &hosted.tenants);
        for (index, hosted) in agents.iter().enumerate() {
            let is_duplicate = agents[..index]
                .iter()
                .any(|other| other.name == hosted.name);
            if is_duplicate
                || (index > 0 && (!is_tenant(&hosted.name) || first.contains(&hosted.name)))
            {
                let reason = format!(
                    "`{}` is taken, or cannot be the name of an agent",
                    hosted.name
                );
                return Err(Error::invalid("name", reason));
            }
            if agents[..index]
                .iter()
                .any(|other| other.namespace == hosted.namespace)
            {
                let reason = format!("`{}` has the tasks of another agent", hosted.namespace);
                return Err(Error::invalid("namespace", reason));
            }
            if self.access.is_none() && hosted.extended_card.is_some() {
                // 03 §6: it MUST be asked for by somebody who is known.
                let reason = "is for callers who are known, and without `access` nobody is";
                return Err(Error::invalid("extended_card", reason));
            }
            if let Some(wrong) = hosted.tenants.iter().find(|tenant| !is_tenant(tenant)) {
                return Err(Error::invalid(
                    "tenants",
                    format!("`{wrong}` cannot be the name of a tenant"),
                ));
            }
        }
        Ok(())
    }
}

/// Where no task is kept there is nothing to follow.
fn declare_capabilities(card: &mut AgentCard, keeps_tasks: bool) {
    card.capabilities.streaming.get_or_insert(true);
    card.capabilities.push_notifications.get_or_insert(true);
    if !keeps_tasks {
        card.capabilities.streaming = Some(false);
        card.capabilities.push_notifications = Some(false);
    }
}
