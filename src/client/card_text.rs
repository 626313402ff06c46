//! A card as it was received: whoever checks its signature, or shows it, needs every byte of it.

use ::http::StatusCode;

use super::Client;
use super::http::Ask;
use crate::model::{Error, ErrorKind, Result};
use crate::wire;
use crate::wire::errors::read_rest;

impl Client {
    /// Fetches the card at the url of this client itself, as text; [`wire::card::read_card`] reads it.
    ///
    /// # Errors
    /// Of the connection; [`ErrorKind::TaskNotFound`] when there is nothing at that url.
    pub async fn card_text(&self) -> Result<String> {
        let ask = Ask::get(self.way.url.clone(), "application/json");
        let answer = self.exchange(ask).await?;
        if matches!(answer.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Err(Error::new(ErrorKind::TaskNotFound).with_message("there is no card at this url"));
        }
        let failure = |status, body: &[u8]| read_rest(status, &String::from_utf8_lossy(body));
        let body = answer.read(failure).await?;
        String::from_utf8(body).map_err(|_| wire::peers_fault(ErrorKind::Parse.into()))
    }
}
