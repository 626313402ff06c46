//! Credentials of the card request, with `--card-auth`: never in plaintext over the network.

use attache::{ClientBuilder, Error, ErrorKind};

use super::{is_loopback, url_host};
use crate::redactor::is_credential;
use crate::settings::Settings;

/// Adds the bearer token and the credential parameters. An API key is not sent: its location is on the card.
pub(super) fn attach(
    mut builder: ClientBuilder,
    url: &str,
    settings: &Settings,
) -> Result<ClientBuilder, Error> {
    let refuse =
        |message: &'static str| Err(Error::new(ErrorKind::InvalidParams).with_message(message));
    if !url.starts_with("https://") && !is_loopback(&url_host(url)) {
        return refuse(
            "--card-auth sends credentials only over https://, or to a loopback address",
        );
    }
    let params: Vec<_> = settings
        .service_params
        .iter()
        .filter(|(name, _)| is_credential(name))
        .collect();
    if settings.bearer.is_none() && params.is_empty() {
        return refuse(
            "--card-auth has no credential: give --bearer, or --svc-param NAME:KEY for an API key",
        );
    }
    for (name, value) in params {
        builder = builder.header(name, value.expose())?;
    }
    match &settings.bearer {
        Some(token) => builder.bearer(token),
        None => Ok(builder),
    }
}
