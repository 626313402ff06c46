//! Configuration that a reload replaces, and the routes built from it.

use std::net::SocketAddr;
use std::sync::Arc;

use super::admission::Admission;
use super::assembly::{Endpoint, ServerRuntime};
use super::base_url::BaseUrl;
use super::body_decoder::{BodyDecoder, DecoderLimits};
use super::card::{self, CardAccess, PublishedCard};
use super::cors::OriginPolicy;
use super::document::Document;
use super::exposure::{Exposure, ExposureError};
use super::hosted_agent::HostedAgent;
use super::routes::Routes;
use super::settings::ServerSettings;
#[cfg(feature = "jws")]
use super::signing::CardSigning;
use crate::auth::{Access, CallLimiter, CallerLimits};
use crate::engine::{AgentRegistration, AgentSet};
use crate::hooks::{Hook, HookChain};
#[cfg(feature = "jws")]
use crate::jws::Signer;
use crate::model::{AgentCard, Error, Limits, Result};
use crate::rt::ByteBudget;
use crate::service::{
    AgentEntry, Capabilities, Directory, Service, ServiceOptions, StreamLimiter, TaskQuota,
};
use crate::wire::path::is_tenant;

/// Configuration that a reload replaces.
pub(super) struct ReloadableConfig {
    /// Agents, the root agent first.
    pub(super) agents: Vec<HostedAgent>,
    pub(super) settings: Arc<ServerSettings>,
    pub(super) limits: Limits,
    pub(super) access: Option<Access>,
    /// Whether an exposed server may serve without `access`.
    pub(super) allow_anonymous: bool,
    pub(super) caller_limits: Option<CallerLimits>,
    /// In the order of their declaration.
    pub(super) hooks: Vec<Hook>,
    pub(super) public_url: Option<String>,
    /// Keys that sign cards.
    #[cfg(feature = "jws")]
    pub(super) signers: Vec<Signer>,
    /// Further keys of the key set.
    #[cfg(feature = "jws")]
    pub(super) published_keys: Vec<Signer>,
}

impl ReloadableConfig {
    /// Returns the agents in the form that the engine registers.
    pub(super) fn registrations(&self) -> Vec<AgentRegistration> {
        let registration = |hosted: &HostedAgent| AgentRegistration {
            name: hosted.namespace.clone(),
            agent: hosted.agent.clone(),
            settings: hosted.settings.clone(),
            hooks: HookChain::new(&hosted.name, &self.hooks),
        };
        self.agents.iter().map(registration).collect()
    }

    /// Creates the limiter of concurrent streams. A reload keeps it.
    pub(super) fn stream_limiter(&self) -> Arc<StreamLimiter> {
        StreamLimiter::new(self.settings.stream_limits())
    }

    /// Creates the budget of outgoing data. A reload keeps it.
    pub(super) fn outgoing_budget(&self) -> Arc<ByteBudget> {
        ByteBudget::new(self.settings.outgoing_limits())
    }

    /// Returns the public URL, or the URL of the listening address.
    ///
    /// # Errors
    /// Invalid `public_url`.
    pub(super) fn base_url(&self, address: SocketAddr, uses_tls: bool) -> Result<BaseUrl> {
        match &self.public_url {
            Some(url) => BaseUrl::parse(url),
            None => Ok(BaseUrl::from_address(address, uses_tls)),
        }
    }

    /// Checks that callers are authenticated, or anonymous callers are allowed explicitly, if other
    /// machines can reach the server.
    ///
    /// # Errors
    /// Invalid `access`, with an [`ExposureError`]. Invalid `public_url`.
    pub(super) fn check_exposure(&self, endpoint: Endpoint) -> Result<()> {
        let Endpoint::Tcp(address) = endpoint else {
            return Ok(());
        };
        if self.access.is_some() || self.allow_anonymous {
            return Ok(());
        }
        match Exposure::find(&[address], self.public_url.as_deref(), &self.settings)? {
            Some(exposure) => Err(ExposureError { exposure }.into()),
            None => Ok(()),
        }
    }

    /// Builds the routes. `agents` are the registered agents of this configuration.
    ///
    /// Agents of `previous` that are not in this configuration stay as draining agents while they
    /// have running tasks.
    ///
    /// # Errors
    /// Invalid, with the name of the setting.
    pub(super) fn build_routes(
        self,
        runtime: &ServerRuntime,
        agents: &AgentSet,
        previous: Option<&Routes>,
    ) -> Result<Routes> {
        let base_url = self.base_url(runtime.endpoint.address(), runtime.uses_tls)?;
        let origin_policy = OriginPolicy::new(
            &self.settings.cors_origins,
            runtime.endpoint.address(),
            self.public_url.as_deref(),
        );
        let caller_limits = self.effective_caller_limits();
        let call_limiter = call_limiter(&caller_limits, previous);
        let limits_loopback = caller_limits.limit_loopback || self.is_behind_proxy()?;
        #[cfg(feature = "jws")]
        let signing = self.card_signing(runtime, &base_url)?;
        #[cfg(feature = "jws")]
        let key_set = signing.key_set();
        #[cfg(not(feature = "jws"))]
        let key_set: Option<String> = None;
        let key_set = key_set
            .map(|keys| Document::new(keys.into_bytes(), &self.settings))
            .transpose()?;
        let builder = AgentBuilder {
            runtime,
            agents,
            settings: &self.settings,
            limits: &self.limits,
            access: self.access.as_ref(),
            quota: task_quota(&caller_limits),
            hooks: &self.hooks,
            base_url: &base_url,
            #[cfg(feature = "jws")]
            signing: &signing,
        };
        let (mut entries, mut cards) = builder.build_all(self.agents)?;
        if let Some(previous) = previous {
            keep_modification_times(&entries, &mut cards, previous);
            let names: Vec<_> = entries.iter().map(|entry| entry.name.clone()).collect();
            entries.extend(previous.admission.directory.draining_entries(&names));
        }
        Ok(Routes {
            admission: Admission {
                directory: Directory::new(entries),
                access: self.access,
                caller_limits,
                call_limiter,
                limits_loopback,
                settings: self.settings.clone(),
                body_budget: runtime.body_budget.clone(),
                outgoing: runtime.outgoing.clone(),
                #[cfg(feature = "grpc")]
                stream_limiter: runtime.stream_limiter.clone(),
                body_decoder: body_decoder(self.settings.decoder_limits(), previous),
                limits: self.limits,
            },
            cards,
            key_set,
            base_url,
            has_public_url: self.public_url.is_some(),
            origin_policy,
            settings: self.settings,
            shutting_down: runtime.shutting_down.clone(),
            drain: runtime.drain.clone(),
        })
    }

    #[cfg(feature = "jws")]
    fn card_signing(&self, runtime: &ServerRuntime, base_url: &BaseUrl) -> Result<CardSigning> {
        CardSigning::new(
            self.signers.clone(),
            runtime.push_signer.clone(),
            self.published_keys.clone(),
            base_url,
            self.public_url.is_some(),
        )
    }

    /// Returns the limits of the server, or else those of its access control, or the default.
    fn effective_caller_limits(&self) -> CallerLimits {
        let of_access = || self.access.as_ref().map(Access::caller_limits);
        let limits = self.caller_limits.as_ref().or_else(of_access);
        limits.cloned().unwrap_or_default()
    }

    /// Whether a loopback peer can be a proxy, which forwards calls of other machines.
    ///
    /// # Errors
    /// Invalid `public_url`.
    fn is_behind_proxy(&self) -> Result<bool> {
        let exposure = Exposure::find(&[], self.public_url.as_deref(), &self.settings)?;
        Ok(exposure.is_some())
    }

    /// Validates the configuration: unique agent names and namespaces, valid tenant names,
    /// `extended_card` only with `access`, hooks, the public URL, and the limits on connections.
    ///
    /// # Errors
    /// Invalid, with the name of the setting.
    pub(super) fn validate(&self) -> Result<()> {
        self.public_url.as_deref().map(BaseUrl::parse).transpose()?;
        validate_hooks(&self.hooks, &self.agents)?;
        self.settings.validate_connections()?;
        self.settings.validate_memory()?;
        self.settings.validate_bindings()?;
        for (index, hosted) in self.agents.iter().enumerate() {
            let earlier = &self.agents[..index];
            validate_name(&hosted.name, earlier)?;
            if earlier
                .iter()
                .any(|other| other.namespace == hosted.namespace)
            {
                let reason = format!("`{}` is used by another agent", hosted.namespace);
                return Err(Error::invalid("namespace", reason));
            }
            if self.access.is_none() && hosted.extended_card.is_some() {
                // 03 §6: clients MUST authenticate to get it.
                let reason = "requires `access`: only authenticated callers get it";
                return Err(Error::invalid("extended_card", reason));
            }
            if self.access.is_none() && hosted.card_options.access == CardAccess::Authenticated {
                let reason = "`authenticated` requires `access`: no caller could read the card";
                return Err(Error::invalid("card_access", reason));
            }
            if let Some(tenant) = hosted.tenants.iter().find(|tenant| !is_tenant(tenant)) {
                let reason = format!("`{tenant}` is not a valid tenant name");
                return Err(Error::invalid("tenants", reason));
            }
        }
        Ok(())
    }
}

/// Validates hooks: unique names, and filters that name existing agents.
fn validate_hooks(hooks: &[Hook], agents: &[HostedAgent]) -> Result<()> {
    for (index, hook) in hooks.iter().enumerate() {
        let name = hook.name();
        if name.is_empty() || hooks[..index].iter().any(|other| other.name() == name) {
            let reason = format!("`{name}` is empty or used by another hook");
            return Err(Error::invalid("hooks.name", reason));
        }
        let is_unknown = |name: &&String| !agents.iter().any(|agent| *agent.name == ***name);
        if let Some(unknown) = hook.agent_names().iter().find(is_unknown) {
            let reason = format!("of `{name}` name `{unknown}`, which is not an agent");
            return Err(Error::invalid("hooks.agents", reason));
        }
    }
    Ok(())
}

/// Validates the name of an agent, given the agents before it.
///
/// Agents below the root are addressed as tenants of the root. Their names must be valid tenant
/// names, and not tenants of the root agent.
fn validate_name(name: &Arc<str>, earlier: &[HostedAgent]) -> Result<()> {
    let invalid = |reason: String| Err(Error::invalid("name", reason));
    if earlier.iter().any(|other| other.name == *name) {
        return invalid(format!("`{name}` is used by another agent"));
    }
    let Some(root) = earlier.first() else {
        return Ok(());
    };
    if !is_tenant(name) {
        return invalid(format!("`{name}` is not a valid agent name"));
    }
    if root.tenants.contains(name) {
        return invalid(format!("`{name}` is a tenant of the root agent"));
    }
    Ok(())
}

/// Returns the limiter of `previous` if its limits are the same, so that a reload keeps the counts.
fn call_limiter(limits: &CallerLimits, previous: Option<&Routes>) -> Arc<CallLimiter> {
    match previous.map(|previous| &previous.admission) {
        Some(admission) if admission.caller_limits == *limits => admission.call_limiter.clone(),
        _ => Arc::new(CallLimiter::new(limits)),
    }
}

/// Keeps `Last-Modified` of the cards that a reload does not change.
fn keep_modification_times(entries: &[AgentEntry], cards: &mut [PublishedCard], previous: &Routes) {
    for (entry, card) in entries.iter().zip(cards) {
        let index = previous.admission.directory.position(&entry.name);
        if let Some(earlier) = index.and_then(|index| previous.cards.get(index)) {
            card.keep_modification_times(earlier);
        }
    }
}

/// Returns the decoder of `previous` if its limits are the same.
fn body_decoder(limits: DecoderLimits, previous: Option<&Routes>) -> Arc<BodyDecoder> {
    match previous.map(|previous| &previous.admission.body_decoder) {
        Some(decoder) if decoder.limits() == limits => decoder.clone(),
        _ => Arc::new(BodyDecoder::new(limits)),
    }
}

fn task_quota(limits: &CallerLimits) -> TaskQuota {
    TaskQuota {
        open: limits.open_tasks,
        waiting: limits.waiting_tasks,
        tenant_open: limits.tenant_open_tasks,
        tenant_total: limits.tenant_tasks,
    }
}

/// Builder of the service and the card of each agent.
struct AgentBuilder<'a> {
    runtime: &'a ServerRuntime,
    agents: &'a AgentSet,
    settings: &'a ServerSettings,
    limits: &'a Limits,
    access: Option<&'a Access>,
    quota: TaskQuota,
    hooks: &'a [Hook],
    base_url: &'a BaseUrl,
    #[cfg(feature = "jws")]
    signing: &'a CardSigning,
}

impl AgentBuilder<'_> {
    /// Builds all agents. The first one is the root agent.
    fn build_all(&self, hosted: Vec<HostedAgent>) -> Result<(Vec<AgentEntry>, Vec<PublishedCard>)> {
        let mut entries = Vec::with_capacity(hosted.len());
        let mut cards = Vec::with_capacity(hosted.len());
        for (index, hosted) in hosted.into_iter().enumerate() {
            let (entry, card) = self.build(hosted, index == 0)?;
            entries.push(entry);
            cards.push(card);
        }
        Ok((entries, cards))
    }

    fn build(&self, hosted: HostedAgent, is_root: bool) -> Result<(AgentEntry, PublishedCard)> {
        let tenant = (!is_root).then(|| hosted.name.to_string());
        let card = self.complete_card(&hosted.name, hosted.card);
        let extended_card = hosted.extended_card.map(|extended| {
            let mut extended = self.complete_card(&hosted.name, extended);
            // Clients of 0.3 compare it with the public card.
            extended.capabilities.extended_agent_card = Some(true);
            let tenant = tenant.as_deref();
            card::with_default_interfaces(extended, self.base_url, tenant, self.settings)
                .with_default_skill()
        });
        let modes = self.settings.enforced_modes();
        let service = Service::new(
            self.runtime.engine.clone(),
            self.agents.get(&hosted.namespace).cloned(),
            self.runtime.push_dispatcher.clone(),
            ServiceOptions {
                capabilities: Capabilities::new(&card, extended_card, modes)
                    .with_required_text(hosted.requires_text),
                limits: *self.limits,
                quota: self.quota,
                stream_limiter: self.runtime.stream_limiter.clone(),
                outgoing: self.runtime.outgoing.clone(),
                waiting_stream_timeout: self.settings.waiting_stream_timeout,
                max_blocking_wait: self.settings.max_blocking_wait,
                hooks: HookChain::new(&hosted.name, self.hooks),
            },
        );
        let entry = AgentEntry {
            name: hosted.name,
            namespace: hosted.namespace,
            service,
            tenants: hosted.tenants,
            draining: None,
        };
        let sign = |card: &mut AgentCard| self.sign(card);
        let options = hosted.card_options;
        let card = PublishedCard::new(card, self.base_url, tenant, options, self.settings, sign)?;
        Ok((entry, card))
    }

    /// Declares capabilities and security schemes in a card.
    fn complete_card(&self, name: &str, mut card: AgentCard) -> AgentCard {
        declare_capabilities(&mut card, self.runtime.engine.keeps_tasks());
        if let Some(access) = self.access {
            access.describe(name, &mut card);
        }
        card
    }

    #[cfg(feature = "jws")]
    fn sign(&self, card: &mut AgentCard) -> Result<()> {
        self.signing.sign(card)
    }

    #[cfg(not(feature = "jws"))]
    fn sign(&self, _: &mut AgentCard) -> Result<()> {
        Ok(())
    }
}

/// Declares streaming, push notifications and the history of states, unless the card says otherwise. A
/// store that keeps no tasks has none of them.
fn declare_capabilities(card: &mut AgentCard, keeps_tasks: bool) {
    card.capabilities.streaming.get_or_insert(true);
    card.capabilities.push_notifications.get_or_insert(true);
    card.capabilities
        .state_transition_history
        .get_or_insert(true);
    if !keeps_tasks {
        card.capabilities.streaming = Some(false);
        card.capabilities.push_notifications = Some(false);
        card.capabilities.state_transition_history = Some(false);
    }
}
