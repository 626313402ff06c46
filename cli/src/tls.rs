//! TLS settings of the client: trusted authorities and the client certificate.

use attache::ClientTls;

use crate::error::{CliError, CliResult};
use crate::settings::Settings;

/// Builds the TLS configuration from `--ca`, `--cert`, `--key` and `--insecure`.
pub(crate) fn client_tls(settings: &Settings) -> CliResult<ClientTls> {
    let refused = |error: attache::Error| CliError::usage(error.message().to_owned());
    let mut tls = ClientTls::new();
    if let Some(file) = &settings.ca {
        tls = tls.authority(&read("--ca", file)?).map_err(refused)?;
    }
    match (&settings.cert, &settings.key) {
        (None, None) => {}
        (Some(cert), Some(key)) => {
            tls = tls
                .certificate(&read("--cert", cert)?, &read("--key", key)?)
                .map_err(refused)?;
        }
        _ => return Err(CliError::usage("--cert and --key must be given together")),
    }
    Ok(if settings.insecure {
        tls.insecure()
    } else {
        tls
    })
}

fn read(flag: &str, file: &str) -> CliResult<Vec<u8>> {
    std::fs::read(file).map_err(|error| CliError::usage(format!("{flag} {file}: {error}")))
}
