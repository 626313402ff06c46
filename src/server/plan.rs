//! What a server serves, put together: once when it is built, and again whenever that changes while it runs.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::body::Reading;
use super::browser::Browsers;
use super::card::{self, Card, Document};
use super::place::Place;
use super::routes::Routes;
#[cfg(feature = "jws")]
use super::seal::Seal;
use super::served::Served;
use super::settings::ServerSettings;
use crate::auth::{Access, Allowance, Meter};
use crate::engine::{Engine, Hire, Team};
use crate::model::{AgentCard, Error, Limits, Result};
use crate::push::Pushes;
use crate::service::{Budget, Directory, Offer, Places, Resident, Service};
use crate::wire::path::is_tenant;

/// What may change while a server runs.
pub(super) struct Plan {
    /// The first is the one at the root.
    pub(super) agents: Vec<Served>,
    pub(super) serving: Arc<ServerSettings>,
    pub(super) limits: Limits,
    pub(super) access: Option<Access>,
    pub(super) allowance: Option<Allowance>,
    pub(super) public_url: Option<String>,
    #[cfg(feature = "jws")]
    pub(super) signers: Vec<crate::jws::Signer>,
    #[cfg(feature = "jws")]
    pub(super) shown: Vec<crate::jws::Signer>,
}

/// What stays.
pub(super) struct Ground {
    pub(super) address: SocketAddr,
    pub(super) is_secure: bool,
    pub(super) engine: Engine,
    pub(super) pushes: Pushes,
    pub(super) places: Arc<Places>,
    pub(super) reading: Arc<Reading>,
    /// Its key is shown beside those of the cards.
    #[cfg(feature = "jws")]
    pub(super) push_signer: Option<crate::jws::Signer>,
    /// Cancelled when the server is to stop, and calls should go elsewhere.
    pub(super) leaving: CancellationToken,
    /// Cancelled when it takes no more of them.
    pub(super) drain: CancellationToken,
}

impl Plan {
    /// The agents, as the engine takes them.
    pub(super) fn hires(&self) -> Vec<Hire> {
        let hire = |served: &Served| {
            (
                served.namespace.clone(),
                served.agent.clone(),
                served.settings.clone(),
            )
        };
        self.agents.iter().map(hire).collect()
    }

    /// How many may read streams.
    pub(super) fn places(&self) -> Arc<Places> {
        Places::new(self.serving.most())
    }

    /// Where clients reach what listens there.
    ///
    /// # Errors
    /// Invalid: the public url is none.
    pub(super) fn root(&self, address: SocketAddr, is_secure: bool) -> Result<Place> {
        match &self.public_url {
            Some(url) => Place::public(url),
            None => Ok(Place::listening(address, is_secure)),
        }
    }

    /// What is served by it, to callers of the ground; `team` are its agents. Those who were served `before` and are no
    /// longer are there until what they have begun has ended.
    ///
    /// # Errors
    /// Invalid: something that cannot be so, with its name.
    pub(super) fn routes(
        self,
        ground: &Ground,
        team: &Team,
        before: Option<&Routes>,
    ) -> Result<Routes> {
        let root = self.root(ground.address, ground.is_secure)?;
        let browsers = Browsers::new(
            &self.serving.cors_origins,
            ground.address,
            self.public_url.as_deref(),
        );
        let allowed = self
            .allowance
            .as_ref()
            .or(self.access.as_ref().map(|access| access.allowed()))
            .cloned();
        let budget = allowed
            .as_ref()
            .map_or_else(Budget::default, |allowed| Budget {
                open: allowed.open_tasks,
                parked: allowed.parked_tasks,
                tenant_open: allowed.tenant_open_tasks,
                tenant_kept: allowed.tenant_tasks,
            });
        // What callers have used up stays used up, unless they may do something else now.
        let kept = before
            .filter(|before| before.allowed == allowed)
            .map(|before| before.meter.clone());
        let meter = kept.unwrap_or_else(|| {
            allowed
                .as_ref()
                .map(|allowed| Arc::new(Meter::new(allowed)))
        });
        #[cfg(feature = "jws")]
        let seal = {
            let is_public = self.public_url.is_some();
            Seal::new(
                self.signers,
                ground.push_signer.clone(),
                self.shown,
                &root,
                is_public,
            )?
        };
        #[cfg(feature = "jws")]
        let key_set = seal.key_set();
        #[cfg(not(feature = "jws"))]
        let key_set: Option<String> = None;
        let key_set = key_set
            .map(|keys| Document::new(keys.into_bytes(), &self.serving))
            .transpose()?;
        let (engine, keeps_tasks) = (&ground.engine, ground.engine.keeps_tasks());
        let (mut residents, mut cards) = (Vec::new(), Vec::new());
        for (at, served) in self.agents.into_iter().enumerate() {
            let tenant = (at > 0).then(|| served.name.to_string());
            let mut card = served.card;
            offer(&mut card, keeps_tasks);
            let describe = |card: &mut AgentCard| {
                if let Some(access) = &self.access {
                    access.describe(&served.name, card);
                }
            };
            describe(&mut card);
            let extended_card = served.extended_card.map(|mut extended| {
                offer(&mut extended, keeps_tasks);
                describe(&mut extended);
                card::complete(extended, &root, tenant.as_deref()).published()
            });
            let service = Service::new(
                engine.clone(),
                team.get(&served.namespace).cloned(),
                Offer::new(&card, extended_card, self.serving.modes()),
                self.limits.clone(),
                (ground.places.clone(), ground.pushes.clone()),
                (
                    self.serving.parked_stream_timeout,
                    self.serving.max_blocking,
                ),
            )
            .with_budget(budget);
            residents.push(Resident {
                name: served.name,
                namespace: served.namespace,
                service,
                tenants: served.tenants,
                leaving: None,
            });
            cards.push(Card::new(card, &root, tenant, &self.serving, |card| {
                #[cfg(feature = "jws")]
                seal.sign(card)?;
                let _ = card;
                Ok(())
            })?);
        }
        if let Some(before) = before {
            let names: Vec<_> = residents
                .iter()
                .map(|resident| resident.name.clone())
                .collect();
            residents.extend(before.directory.to_go(&names));
        }
        Ok(Routes {
            directory: Directory::new(residents),
            cards,
            key_set,
            root,
            is_public: self.public_url.is_some(),
            browsers,
            allowed,
            meter,
            access: self.access,
            settings: self.serving,
            reading: ground.reading.clone(),
            leaving: ground.leaving.clone(),
            drain: ground.drain.clone(),
        })
    }

    /// Says what of it cannot be so, before anything is begun. Two agents of one name would be one and the same, and a tenant of the first
    /// hides an agent of its name. A card for those who are known is for nobody where nobody is asked.
    ///
    /// # Errors
    /// Invalid: which.
    pub(super) fn check(&self) -> Result<()> {
        self.public_url.as_deref().map(Place::public).transpose()?;
        let agents = &self.agents;
        let first = agents.first().map_or(&[][..], |served| &served.tenants);
        for (at, served) in agents.iter().enumerate() {
            let taken = agents[..at].iter().any(|other| other.name == served.name);
            if taken || (at > 0 && (!is_tenant(&served.name) || first.contains(&served.name))) {
                let why = format!(
                    "`{}` is taken, or cannot be the name of an agent",
                    served.name
                );
                return Err(Error::invalid("name", why));
            }
            if agents[..at]
                .iter()
                .any(|other| other.namespace == served.namespace)
            {
                let why = format!("`{}` has the tasks of another agent", served.namespace);
                return Err(Error::invalid("namespace", why));
            }
            if self.access.is_none() && served.extended_card.is_some() {
                // 03 §6: it MUST be asked for by somebody who is known.
                let why = "is for callers who are known, and without `access` nobody is";
                return Err(Error::invalid("extended_card", why));
            }
            if let Some(wrong) = served.tenants.iter().find(|tenant| !is_tenant(tenant)) {
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
fn offer(card: &mut AgentCard, keeps_tasks: bool) {
    card.capabilities.streaming.get_or_insert(true);
    card.capabilities.push_notifications.get_or_insert(true);
    if !keeps_tasks {
        card.capabilities.streaming = Some(false);
        card.capabilities.push_notifications = Some(false);
    }
}
