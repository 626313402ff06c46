//! From an address to a client: reads the card, and takes the first way of talking that we know.

use std::sync::Arc;
use std::time::Duration;

use ::http::uri::Authority;
use ::http::{Method, StatusCode, Uri};
use tokio::time::timeout;

use super::http::Ask;
use super::rest::below;
use super::{Client, spoken};
use crate::model::{AgentCard, AgentInterface, Binding, Error, ErrorKind, Result, Version};
use crate::wire;
use crate::wire::card::{WELL_KNOWN, read_card};
use crate::wire::errors::read_rest;

/// How long it may take to get a card.
const CARD_TIMEOUT: Duration = Duration::from_secs(30);

impl Client {
    /// Reads the card of the agent at this url, and makes a client of the first of its interfaces that we speak.
    /// [`card`](Self::card) gives the card.
    ///
    /// # Errors
    /// Of the connection; no card at either well-known name; a card without an interface that we speak.
    pub async fn discover(url: &str) -> Result<Self> {
        let reader = Self::new(url, Binding::HttpJson, Version::V1)?;
        let fetched = timeout(CARD_TIMEOUT, reader.fetch_card()).await;
        let card = fetched.map_err(|_| ErrorKind::DeadlineExceeded)??;
        let interface = card.supported_interfaces.iter().find(|one| spoken(one).is_some());
        let interface = interface.ok_or_else(|| unusable("the card names no interface that we speak"))?;
        let client = Self::from_interface(&AgentInterface {
            url: absolute(interface, &reader.url),
            ..interface.clone()
        })?;
        Ok(Self { egress: reader.egress, card: Some(Arc::new(card)), home: Some(reader.url), ..client })
    }

    async fn fetch_card(&self) -> Result<AgentCard> {
        for path in WELL_KNOWN {
            let (method, url) = (Method::GET, below(&self.url, path)?);
            let ask = Ask { method, url, accept: "application/json", body: None, after: None };
            let answer = self.exchange(ask).await?;
            if answer.status() == StatusCode::NOT_FOUND {
                continue;
            }
            let failure = |status, body: &[u8]| read_rest(status, &String::from_utf8_lossy(body));
            let body = answer.read(failure).await?;
            return read_card(&body).map_err(wire::peers_fault);
        }
        Err(unusable(&format!("no card at {}", WELL_KNOWN.join(" or "))))
    }
}

/// The url of an interface; some cards leave out the host, and one kind of server leaves out everything.
fn absolute(interface: &AgentInterface, card: &Uri) -> String {
    let (url, host) = (interface.url.as_str(), card.authority().map_or("", Authority::as_str));
    match url {
        _ if interface.binding() == Some(Binding::Grpc) => url.to_owned(),
        "" => format!("http://{host}/a2a"),
        path if path.starts_with('/') => format!("http://{host}{path}"),
        url => url.to_owned(),
    }
}

fn unusable(what: &str) -> Error {
    Error::new(ErrorKind::InvalidAgentResponse).with_message(format!("Invalid agent response: {what}"))
}
