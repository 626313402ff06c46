//! Where the other agent is, and how it is spoken to.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use attache::jws::Signer;
use attache::model::MessageId;
use attache::{Client, ClientBuilder, ClientSettings, Error, HttpClient, Turn};
use http::Uri;
use tokio::time::Instant;

use super::card_pin::CardPin;
use super::task_link::message_index;
use super::{RemoteSettings, RemoteSettingsError};
use crate::caller_propagation::{CallerPropagation, OutgoingCall};
use crate::circuit_breaker::CircuitBreaker;
use crate::lineage::{Budget, DelegationLimits, Lineage, digest};

/// How long a client is kept before the card is looked at again.
const CLIENT_TTL: Duration = Duration::from_secs(300);

/// Another agent, found when it is first needed.
#[derive(Debug)]
pub(super) struct RemotePeer {
    settings: RemoteSettings,
    builder: ClientBuilder,
    name: String,
    /// Its own name in lines of agents.
    agent_id: MessageId,
    client_cache: Mutex<Option<(Instant, Client)>>,
    card_pin: CardPin,
    breaker: CircuitBreaker,
    propagation: CallerPropagation,
}

impl RemotePeer {
    pub(super) fn new(settings: RemoteSettings) -> Result<Self, RemoteSettingsError> {
        let wrong = |key, why: &str| RemoteSettingsError {
            key,
            why: why.to_owned(),
        };
        let no_place = "must begin with http:// or https:// and name a host";
        let url: Uri = settings.url.parse().map_err(|_| wrong("url", no_place))?;
        HttpClient::check(&url).map_err(|error| wrong("url", error.message()))?;
        let mut builder = Client::builder().settings(client_settings(&settings));
        for (name, value) in &settings.headers {
            let added = builder.header(name, value.expose());
            builder = added
                .map_err(|_| wrong("headers", &format!("`{name}` cannot be sent as a header")))?;
        }
        for origin in &settings.trust {
            builder = builder
                .trust(origin)
                .map_err(|_| wrong("trust", no_place))?;
        }
        let breaker = CircuitBreaker::new(settings.breaker_failures, settings.breaker_pause);
        let name = digest(&settings.url);
        let card_pin = CardPin::new(settings.pin.clone());
        let propagation = CallerPropagation {
            forward_caller: settings.forward_caller,
            signer: None,
        };
        let (agent_id, client_cache) = (MessageId::random(), Mutex::default());
        Ok(Self {
            settings,
            builder,
            name,
            agent_id,
            client_cache,
            card_pin,
            breaker,
            propagation,
        })
    }

    /// Signs for whom it calls.
    pub(super) fn set_signer(&mut self, signer: Signer) {
        self.propagation.signer = Some(signer);
    }

    pub(super) fn propagation(&self) -> &CallerPropagation {
        &self.propagation
    }

    pub(super) fn settings(&self) -> &RemoteSettings {
        &self.settings
    }

    /// A name that tells nobody where it is.
    pub(super) fn peer_id(&self) -> &str {
        &self.name
    }

    /// The line that the agent behind is told of, with what is left of what whoever asks lets it cost.
    ///
    /// # Errors
    /// Why it may not be called, in words for whoever asked.
    pub(super) fn child_lineage(&self, turn: &Turn) -> Result<Lineage, String> {
        let lineage = Lineage::from_turn(turn);
        if let Some(why) = lineage.cycle_refusal(&self.agent_id) {
            return Err(why.to_owned());
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
        let leave = DelegationLimits {
            agent_id: self.agent_id.clone(),
            max_depth: self.settings.max_depth,
            remaining,
        };
        lineage.extend(&self.settings.url, &leave)
    }

    pub(super) fn breaker(&self) -> &CircuitBreaker {
        &self.breaker
    }

    /// A client for one turn, with what goes along with its message.
    pub(super) async fn client(&self, turn: &Turn, lineage: &Lineage) -> Result<Client, Error> {
        // The same for every try of the same turn, and for no other: some callers use one id for every message.
        let key = format!(
            "{}:{}:{}",
            turn.task_id(),
            message_index(turn),
            turn.message().message_id
        );
        let client = self
            .cached_client()
            .await?
            .with_header("Idempotency-Key", &key)?;
        let errand = OutgoingCall {
            lineage: Some(lineage),
            time: self.settings.timeout,
        };
        self.propagation.client(client, turn, errand)
    }

    /// A client for what is left to do for somebody after their turn.
    pub(super) async fn client_for_cancel(&self, caller: Option<&str>) -> Result<Client, Error> {
        self.propagation
            .attach_caller(self.cached_client().await?, caller)
    }

    /// A client for nobody's turn; the same one, with its connections, for a while.
    async fn cached_client(&self) -> Result<Client, Error> {
        let kept = self
            .client_cache()
            .as_ref()
            .filter(|(at, _)| at.elapsed() < CLIENT_TTL)
            .cloned();
        if let Some((_, client)) = kept {
            return Ok(client);
        }
        let client = Box::pin(self.builder.discover(&self.settings.url)).await?;
        self.card_pin.verify(client.card())?;
        *self.client_cache() = Some((Instant::now(), client.clone()));
        Ok(client)
    }

    /// Looks at the card again before the next turn: it may have moved.
    pub(super) fn clear_client(&self) {
        *self.client_cache() = None;
    }

    fn client_cache(&self) -> MutexGuard<'_, Option<(Instant, Client)>> {
        // Only ever replaced whole, so a panic elsewhere spoils nothing.
        self.client_cache
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

fn client_settings(settings: &RemoteSettings) -> ClientSettings {
    let mut ours = ClientSettings::default();
    ours.interface.bindings = settings.binding.into_iter().map(Into::into).collect();
    ours.interface.only_listed = settings.binding.is_some();
    ours.interface.version = settings.version.map(Into::into);
    ours.timeouts.idle = settings.max_silence;
    ours.retries.max_retries = settings.retries;
    ours.retries.idempotency_keys_supported = settings.idempotent;
    ours.chat_completions.clone_from(&settings.chat_completions);
    ours
}
