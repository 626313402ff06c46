//! Where the other agent is, and how it is spoken to.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use attache::jws::Signer;
use attache::model::MessageId;
use attache::{Client, ClientBuilder, ClientSettings, Error, Http, Turn};
use http::Uri;
use tokio::time::Instant;

use super::approved::Approved;
use super::record::place;
use super::{BadRemote, RemoteSettings};
use crate::breaker::Breaker;
use crate::lineage::{Budget, Leave, Lineage, digest};
use crate::onward::{Errand, Onward};

/// How long a client is kept before the card is looked at again.
const KEPT: Duration = Duration::from_secs(300);

/// Another agent, found when it is first needed.
#[derive(Debug)]
pub(super) struct Peer {
    settings: RemoteSettings,
    builder: ClientBuilder,
    name: String,
    /// Its own name in lines of agents.
    me: MessageId,
    found: Mutex<Option<(Instant, Client)>>,
    approved: Approved,
    breaker: Breaker,
    onward: Onward,
}

impl Peer {
    pub(super) fn new(settings: RemoteSettings) -> Result<Self, BadRemote> {
        let wrong = |key, why: &str| BadRemote {
            key,
            why: why.to_owned(),
        };
        let no_place = "must begin with http:// or https:// and name a host";
        let url: Uri = settings.url.parse().map_err(|_| wrong("url", no_place))?;
        Http::check(&url).map_err(|error| wrong("url", error.message()))?;
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
        let breaker = Breaker::new(settings.breaker_failures, settings.breaker_pause);
        let name = digest(&settings.url);
        let approved = Approved::new(settings.pin.clone());
        let onward = Onward {
            forward_caller: settings.forward_caller,
            signer: None,
        };
        let (me, found) = (MessageId::random(), Mutex::default());
        Ok(Self {
            settings,
            builder,
            name,
            me,
            found,
            approved,
            breaker,
            onward,
        })
    }

    /// Signs for whom it calls.
    pub(super) fn signed_by(&mut self, signer: Signer) {
        self.onward.signer = Some(signer);
    }

    pub(super) fn onward(&self) -> &Onward {
        &self.onward
    }

    pub(super) fn settings(&self) -> &RemoteSettings {
        &self.settings
    }

    /// A name that tells nobody where it is.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The line that the agent behind is told of, with what is left of what whoever asks lets it cost.
    ///
    /// # Errors
    /// Why it may not be called, in words for whoever asked.
    pub(super) fn line(&self, turn: &Turn) -> Result<Lineage, String> {
        let said = Lineage::of(turn);
        if let Some(why) = said.refuses(&self.me) {
            return Err(why.to_owned());
        }
        let time = turn
            .time_left()
            .into_iter()
            .chain([self.settings.timeout])
            .min();
        let left = said.budget().within(Budget {
            time,
            ..Budget::default()
        });
        let leave = Leave {
            me: self.me.clone(),
            max_depth: self.settings.max_depth,
            left,
        };
        said.further(&self.settings.url, &leave)
    }

    pub(super) fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    /// A client for one turn, with what goes along with its message.
    pub(super) async fn client(&self, turn: &Turn, lineage: &Lineage) -> Result<Client, Error> {
        // The same for every try of the same turn, and for no other: some callers use one id for every message.
        let key = format!(
            "{}:{}:{}",
            turn.task_id(),
            place(turn),
            turn.message().message_id
        );
        let client = self
            .own_client()
            .await?
            .with_header("Idempotency-Key", &key)?;
        let errand = Errand {
            lineage: Some(lineage),
            time: self.settings.timeout,
        };
        self.onward.client(client, turn, errand)
    }

    /// A client for what is left to do for somebody after their turn.
    pub(super) async fn late_client(&self, caller: Option<&str>) -> Result<Client, Error> {
        self.onward.later(self.own_client().await?, caller)
    }

    /// A client for nobody's turn; the same one, with its connections, for a while.
    async fn own_client(&self) -> Result<Client, Error> {
        let kept = self
            .found()
            .as_ref()
            .filter(|(at, _)| at.elapsed() < KEPT)
            .cloned();
        if let Some((_, client)) = kept {
            return Ok(client);
        }
        let client = Box::pin(self.builder.discover(&self.settings.url)).await?;
        self.approved.look(client.card())?;
        *self.found() = Some((Instant::now(), client.clone()));
        Ok(client)
    }

    /// Looks at the card again before the next turn: it may have moved.
    pub(super) fn forget(&self) {
        *self.found() = None;
    }

    fn found(&self) -> MutexGuard<'_, Option<(Instant, Client)>> {
        // Only ever replaced whole, so a panic elsewhere spoils nothing.
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn client_settings(settings: &RemoteSettings) -> ClientSettings {
    let mut ours = ClientSettings::default();
    ours.choice.bindings = settings.binding.into_iter().map(Into::into).collect();
    ours.choice.only = settings.binding.is_some();
    ours.choice.version = settings.version.map(Into::into);
    ours.budgets.idle = settings.max_silence;
    ours.retries.attempts = settings.retries;
    ours.retries.keys_are_honoured = settings.idempotent;
    ours.chat_completions.clone_from(&settings.chat_completions);
    ours
}
