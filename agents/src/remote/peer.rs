//! The remote agent: discovery, client cache, circuit breaker and delegation limits.

use std::sync::Mutex;
use std::time::Duration;

use attache::jws::Signer;
use attache::model::MessageId;
use attache::{Client, ClientBuilder, ClientSettings, Error, Turn};
use tokio::time::Instant;

use super::card_pin::CardPin;
use super::task_link::message_index;
use super::{RemoteSettings, RemoteSettingsError};
use crate::caller_propagation::{CallerPropagation, OutgoingCall};
use crate::circuit_breaker::CircuitBreaker;
use crate::delegation_limits::{Budget, DelegationLimits};
use crate::lineage::{Lineage, hash_url};
use crate::lock::lock;
use crate::outgoing::{URL_RULE, invalid_header, parse_url};

/// Time after which the cached client is dropped and the agent card is read again.
const CLIENT_TTL: Duration = Duration::from_secs(300);

/// Remote agent, discovered at its first call.
#[derive(Debug)]
pub(super) struct RemotePeer {
    settings: RemoteSettings,
    builder: ClientBuilder,
    /// Hashed URL, for task metadata.
    peer_id: String,
    /// Random id of our agent in lineages.
    agent_id: MessageId,
    client_cache: Mutex<Option<CachedClient>>,
    card_pin: CardPin,
    breaker: CircuitBreaker,
    propagation: CallerPropagation,
}

#[derive(Debug)]
struct CachedClient {
    discovered_at: Instant,
    client: Client,
}

impl RemotePeer {
    pub(super) fn new(settings: RemoteSettings) -> Result<Self, RemoteSettingsError> {
        let invalid = |key, reason| RemoteSettingsError { key, reason };
        parse_url(&settings.url).map_err(|reason| invalid("url", reason))?;
        let mut builder = Client::builder().settings(client_settings(&settings));
        for (name, value) in &settings.headers {
            builder = builder
                .header(name, value.expose())
                .map_err(|_| invalid("headers", invalid_header(name)))?;
        }
        for origin in &settings.trust {
            builder = builder
                .trust(origin)
                .map_err(|_| invalid("trust", URL_RULE.to_owned()))?;
        }
        Ok(Self {
            builder,
            peer_id: hash_url(&settings.url),
            agent_id: MessageId::random(),
            client_cache: Mutex::default(),
            card_pin: CardPin::new(settings.pin.clone()),
            breaker: CircuitBreaker::new(settings.breaker_failures, settings.breaker_pause),
            propagation: CallerPropagation {
                forward_caller: settings.forward_caller,
                signer: None,
            },
            settings,
        })
    }

    /// Sets the key that signs delegation tokens.
    pub(super) fn set_signer(&mut self, signer: Signer) {
        self.propagation.signer = Some(signer);
    }

    pub(super) fn propagation(&self) -> &CallerPropagation {
        &self.propagation
    }

    pub(super) fn settings(&self) -> &RemoteSettings {
        &self.settings
    }

    /// Returns a stable id of the remote agent that does not disclose its URL.
    pub(super) fn peer_id(&self) -> &str {
        &self.peer_id
    }

    /// Returns the lineage for the remote task, with the remaining budget of this turn.
    ///
    /// # Errors
    /// The call would form a cycle or exceed the depth limit, or no budget is left. The message is for the caller.
    pub(super) fn child_lineage(&self, turn: &Turn) -> Result<Lineage, String> {
        let lineage = Lineage::from_turn(turn);
        if let Some(reason) = lineage.cycle_refusal(&self.agent_id) {
            return Err(reason.to_owned());
        }
        let time = turn
            .time_left()
            .into_iter()
            .chain([self.settings.timeout])
            .min();
        let remaining = lineage.budget().min(Budget {
            time,
            ..Budget::default()
        });
        let limits = DelegationLimits {
            agent_id: self.agent_id.clone(),
            max_depth: self.settings.max_depth,
            remaining,
        };
        lineage.extend(&self.settings.url, &limits)
    }

    pub(super) fn breaker(&self) -> &CircuitBreaker {
        &self.breaker
    }

    /// Returns a client for one turn, with idempotency key, trace context and delegation token.
    pub(super) async fn client(&self, turn: &Turn, lineage: &Lineage) -> Result<Client, Error> {
        // Constant over all attempts of one turn and unique to it: some callers use the same id for every message.
        let idempotency_key = format!(
            "{}:{}:{}",
            turn.task_id(),
            message_index(turn),
            turn.message().message_id
        );
        let client = self
            .cached_client()
            .await?
            .with_header("Idempotency-Key", &idempotency_key)?;
        let call = OutgoingCall {
            lineage: Some(lineage),
            timeout: self.settings.timeout,
        };
        self.propagation.client_for_turn(client, turn, call)
    }

    /// Returns a client that cancels a task on behalf of `caller` after the end of the turn.
    pub(super) async fn client_for_cancel(&self, caller: Option<&str>) -> Result<Client, Error> {
        self.propagation
            .client_for_caller(self.cached_client().await?, caller)
    }

    /// Returns the cached client with its connections, or discovers the agent.
    async fn cached_client(&self) -> Result<Client, Error> {
        let cached = lock(&self.client_cache)
            .as_ref()
            .filter(|cached| cached.discovered_at.elapsed() < CLIENT_TTL)
            .map(|cached| cached.client.clone());
        if let Some(client) = cached {
            return Ok(client);
        }
        let client = Box::pin(self.builder.discover(&self.settings.url)).await?;
        self.card_pin.verify(client.card())?;
        *lock(&self.client_cache) = Some(CachedClient {
            discovered_at: Instant::now(),
            client: client.clone(),
        });
        Ok(client)
    }

    /// Drops the cached client, so that the next turn reads the agent card again.
    pub(super) fn clear_client(&self) {
        *lock(&self.client_cache) = None;
    }
}

fn client_settings(settings: &RemoteSettings) -> ClientSettings {
    let mut client = ClientSettings::default();
    client.interface.bindings = settings.binding.into_iter().map(Into::into).collect();
    client.interface.only_listed = settings.binding.is_some();
    client.interface.version = settings.a2a_version.map(Into::into);
    client.v03_files = settings.v03_files.into();
    client.timeouts.idle = settings.max_silence;
    client.retries.max_retries = settings.retries;
    client.retries.idempotency_keys_supported = settings.idempotent;
    client
        .chat_completions
        .clone_from(&settings.chat_completions);
    client
}
