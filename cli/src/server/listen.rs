//! Listen addresses: resolution, safety checks and errors.

use std::error::Error as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, bail};
use attache::Exposure;

use crate::access;
use crate::config::{Config, ServerSection};

/// Resolves and checks the listen address. A server that other machines can reach requires authentication or
/// `--allow-anonymous`.
pub(super) async fn resolve(
    config: &Config,
    has_authentication: bool,
    folder: Option<&Path>,
) -> anyhow::Result<Vec<SocketAddr>> {
    let named = &config.server.listen;
    let addresses: Vec<_> = tokio::net::lookup_host(named)
        .await
        .with_context(|| format!("cannot listen on {named}"))?
        .collect();
    check(config, &addresses, has_authentication, folder)?;
    Ok(addresses)
}

/// Parses a listen address without DNS; `None` for a host name.
///
/// # Errors
/// The text is not an address with a port.
pub(super) fn parse_address(named: &str) -> anyhow::Result<Option<SocketAddr>> {
    if let Ok(address) = named.parse() {
        return Ok(Some(address));
    }
    let (host, port) = named.rsplit_once(':').unwrap_or((named, ""));
    let is_host = !host.is_empty() && !host.contains([':', '/', ' ', '[', ']']);
    if is_host && port.parse::<u16>().is_ok() {
        return Ok(None);
    }
    bail!("cannot listen on {named}: expected an address and a port, such as 127.0.0.1:41241")
}

/// Checks that the server may be served on these addresses: if other machines can reach it, authentication or
/// `--allow-anonymous` is required. Warns of anonymous callers and of credentials without TLS.
pub(super) fn check(
    config: &Config,
    addresses: &[SocketAddr],
    has_authentication: bool,
    folder: Option<&Path>,
) -> anyhow::Result<()> {
    let section = &config.server;
    let lost = access::find_lost_keys(config, has_authentication, folder);
    let Some(exposure) = exposure(config, addresses)? else {
        if let Some(lost) = lost {
            eprintln!("warning: {lost}; to serve without keys: auth.keys = false");
        }
        return Ok(());
    };
    let reason = describe(&exposure, &section.listen);
    match (section.allow_anonymous, has_authentication) {
        (true, false) => {
            eprintln!("warning: {reason} and use the agents: callers are not authenticated");
        }
        (true, true) => {
            eprintln!("warning: {reason} and use the agents: authentication is optional");
        }
        (false, true) => {}
        (false, false) if let Some(lost) = lost => bail!(
            "{reason}, and {lost}; restore keys.json from a backup: attache restore <ARCHIVE>, or create a key: {}, or \
             allow anonymous callers: --allow-anonymous",
            access::add_key_command(folder, "")
        ),
        (false, false) => bail!(
            "{reason}, and callers are not authenticated; create a key: {}, or allow anonymous callers: \
             --allow-anonymous, or {}",
            access::add_key_command(folder, ""),
            remedy(&exposure)
        ),
    }
    warn_of_plaintext(section, addresses, has_authentication);
    Ok(())
}

/// Returns why other machines can reach the server on these addresses; `None` if they cannot.
///
/// # Errors
/// `public_url` is invalid.
pub(super) fn exposure(
    config: &Config,
    addresses: &[SocketAddr],
) -> anyhow::Result<Option<Exposure>> {
    let public_url = config.server.public_url.as_deref();
    Ok(Exposure::find(
        addresses,
        public_url,
        &config.server_settings,
    )?)
}

/// Describes an exposure. The listen address is `named` as the operator wrote it.
fn describe(exposure: &Exposure, named: &str) -> String {
    match exposure {
        Exposure::Listener(_) => format!("other machines can reach {named}"),
        Exposure::PublicUrl(_) | Exposure::TrustedProxy(_) => exposure.to_string(),
    }
}

/// How to make the server reachable from this machine only.
fn remedy(exposure: &Exposure) -> &'static str {
    match exposure {
        Exposure::Listener(_) => "listen on 127.0.0.1",
        Exposure::PublicUrl(_) => "remove public_url",
        Exposure::TrustedProxy(_) => "remove trusted_proxies",
    }
}

/// Warns if credentials are sent to the listen address without TLS.
fn warn_of_plaintext(section: &ServerSection, addresses: &[SocketAddr], has_authentication: bool) {
    let has_tls_proxy = section
        .public_url
        .as_ref()
        .is_some_and(|url| url.starts_with("https://"));
    let has_tls = section.tls_cert.is_some() || has_tls_proxy;
    if has_authentication && !has_tls && !are_loopback(addresses) {
        eprintln!(
            "warning: credentials are sent to {} in plaintext; serve over TLS: --tls-cert and --tls-key, or give \
             the URL of a TLS proxy: --public-url https://…",
            section.listen
        );
    }
}

/// Resolves and checks the address of the admin API, if there is one.
pub(super) async fn resolve_admin(section: &ServerSection) -> anyhow::Result<Option<SocketAddr>> {
    let Some(named) = &section.admin_listen else {
        return Ok(None);
    };
    let mut addresses = tokio::net::lookup_host(named)
        .await
        .with_context(|| format!("cannot listen on {named}"))?;
    let address = addresses
        .next()
        .with_context(|| format!("{named} has no address"))?;
    check_admin(section, address)?;
    Ok(Some(address))
}

/// Checks the address of the admin API: one that other machines can reach requires TLS or `server.admin_plain`.
pub(super) fn check_admin(section: &ServerSection, address: SocketAddr) -> anyhow::Result<()> {
    let named = section.admin_listen.as_deref().unwrap_or_default();
    if !is_loopback(address.ip()) && section.tls_cert.is_none() && !section.admin_plain {
        bail!(
            "other machines can reach {named}, and operator keys would be sent in plaintext; serve over TLS: \
             --tls-cert and --tls-key, or set server.admin_plain = true behind a TLS proxy, or listen on 127.0.0.1"
        );
    }
    Ok(())
}

/// Checks the limit on connections of the admin API.
pub(super) fn check_admin_connections(section: &ServerSection) -> anyhow::Result<()> {
    if section.admin_max_connections == 0 {
        bail!("server.admin_max_connections is 0; it must be at least 1");
    }
    Ok(())
}

/// Whether all addresses are loopback addresses.
pub(super) fn are_loopback(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| is_loopback(address.ip()))
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Converts a bind error. If the port is in use, the message has a command with a free port.
pub(super) fn bind_error(address: &str, error: attache::Error) -> anyhow::Error {
    let cause = error
        .source()
        .and_then(|cause| cause.downcast_ref::<io::Error>());
    if cause.is_some_and(|cause| cause.kind() == io::ErrorKind::AddrInUse) {
        let host = address
            .rsplit_once(':')
            .map_or("127.0.0.1", |(host, _)| host);
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let command = with_free_port(words, host);
        return anyhow::anyhow!(
            "{address} is in use, perhaps by another attache; to use a free port: {command}"
        );
    }
    // Without an I/O error the cause is a setting, not the address.
    if cause.is_some() {
        anyhow::Error::new(error).context(format!("cannot listen on {address}"))
    } else {
        error.into()
    }
}

/// The command line with `--listen` on a free port.
fn with_free_port(words: impl Iterator<Item = String>, host: &str) -> String {
    let mut command = Vec::new();
    let mut words = words;
    while let Some(word) = words.next() {
        if word == "--listen" {
            words.next();
        } else if !word.starts_with("--listen=") {
            command.push(word);
        }
    }
    command.extend(["--listen".to_owned(), format!("{host}:0")]);
    shell_words::join(command)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_suggested_command_keeps_the_other_arguments() {
        let again =
            |typed: &[&str]| with_free_port(typed.iter().map(|&word| word.to_owned()), "localhost");
        assert_eq!(
            again(&["attache", "demo"]),
            "attache demo --listen localhost:0"
        );
        assert_eq!(
            again(&[
                "./my attache",
                "serve",
                "--listen",
                "x:1",
                "--exec",
                "wc -w",
                "--listen=x:1"
            ]),
            "'./my attache' serve --exec 'wc -w' --listen localhost:0"
        );
    }

    #[test]
    fn invalid_listen_addresses_are_refused_without_dns() {
        for named in [
            "",
            "80",
            "localhost",
            "localhost:",
            "host:x",
            "host:70000",
            ":80",
            "[::1]",
            "http://a:80",
            "::1",
        ] {
            assert!(parse_address(named).is_err(), "{named}");
        }
        assert_eq!(parse_address("agents.example:80").unwrap(), None);
        assert_eq!(parse_address("[::1]:80").unwrap(), "[::1]:80".parse().ok());
    }

    #[test]
    fn loopback_addresses_are_recognized() {
        for (address, private) in [
            ("127.0.0.1", true),
            ("127.9.9.9", true),
            ("::1", true),
            ("::ffff:127.0.0.1", true),
            ("0.0.0.0", false),
            ("::", false),
            ("10.0.0.1", false),
            ("::ffff:10.0.0.1", false),
        ] {
            assert_eq!(is_loopback(address.parse().unwrap()), private, "{address}");
        }
    }
}
