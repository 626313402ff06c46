//! Credentials for a card that is not public: only where the user says so, and never in the clear.

use attache::{ClientBuilder, Error, ErrorKind};

use super::{is_loopback, url_host};
use crate::redactor::is_credential;
use crate::settings::Settings;

/// With what the user gave. No card says yet where it goes, so a key goes nowhere.
pub(super) fn attach(
    mut builder: ClientBuilder,
    url: &str,
    settings: &Settings,
) -> Result<ClientBuilder, Error> {
    let refused = |why: &'static str| Err(Error::new(ErrorKind::InvalidParams).with_message(why));
    if !url.starts_with("https://") && !is_loopback(&url_host(url)) {
        return refused("--card-auth sends credentials over https:// alone, or on this machine");
    }
    let params: Vec<_> = settings
        .service_params
        .iter()
        .filter(|(name, _)| is_credential(name))
        .collect();
    if settings.bearer.is_none() && params.is_empty() {
        return refused(
            "--card-auth has nothing to send: give --bearer, or --svc-param NAME:KEY for a key",
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
