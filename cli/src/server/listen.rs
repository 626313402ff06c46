//! Where an agent may listen, and what to type when it cannot.

use std::error::Error as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, bail};

use crate::access;
use crate::config::{Config, ServerSection};

/// The addresses to listen on. One that others can reach has to be allowed where nobody is asked who they are.
pub(super) async fn resolve(
    config: &Config,
    asks: bool,
    folder: Option<&Path>,
) -> anyhow::Result<Vec<SocketAddr>> {
    let named = &config.server.listen;
    let addresses: Vec<_> = tokio::net::lookup_host(named)
        .await
        .with_context(|| format!("cannot listen on {named}"))?
        .collect();
    check(config, &addresses, asks, folder)?;
    Ok(addresses)
}

/// The address that is written there; `None` for a host that would have to be looked up.
///
/// # Errors
/// Nothing could listen there.
pub(super) fn parse_address(named: &str) -> anyhow::Result<Option<SocketAddr>> {
    if let Ok(address) = named.parse() {
        return Ok(Some(address));
    }
    let (host, port) = named.rsplit_once(':').unwrap_or((named, ""));
    let is_host = !host.is_empty() && !host.contains([':', '/', ' ', '[', ']']);
    match is_host && port.parse::<u16>().is_ok() {
        true => Ok(None),
        false => {
            bail!("cannot listen on {named}: write an address and a port, such as 127.0.0.1:41241")
        }
    }
}

/// Whether that may be listened on.
pub(super) fn check(
    config: &Config,
    addresses: &[SocketAddr],
    asks: bool,
    folder: Option<&Path>,
) -> anyhow::Result<()> {
    let section = &config.server;
    let named = &section.listen;
    if are_loopback(addresses) {
        return Ok(());
    }
    match (section.allow_anonymous, asks) {
        (true, false) => {
            eprintln!(
                "warning: whoever reaches {named} may use the agent: nobody is asked who they are"
            )
        }
        (true, true) => {
            eprintln!(
                "warning: whoever reaches {named} may use the agent: nobody has to say who they are"
            )
        }
        (false, true) => {}
        (false, false) => bail!(
            "others can reach {named}, and nobody would be asked who they are; make a key for those who may come: \
             {}, or say that anybody may: --allow-anonymous (or listen on 127.0.0.1)",
            access::add_key_command(folder, "")
        ),
    }
    let is_in_front = section
        .public_url
        .as_ref()
        .is_some_and(|url| url.starts_with("https://"));
    if asks && section.tls_cert.is_none() && !is_in_front {
        eprintln!(
            "warning: what callers show travels to {named} in the clear; serve over TLS: --tls-cert and --tls-key, or, \
             where something in front does, say so: --public-url https://…"
        );
    }
    Ok(())
}

/// The address for operators, if there is to be one. Their keys do not travel in the clear unless that is said.
pub(super) async fn resolve_admin(section: &ServerSection) -> anyhow::Result<Option<SocketAddr>> {
    let Some(named) = &section.admin_listen else {
        return Ok(None);
    };
    let mut addresses = tokio::net::lookup_host(named)
        .await
        .with_context(|| format!("cannot listen on {named}"))?;
    let address = addresses
        .next()
        .with_context(|| format!("{named} is no address"))?;
    check_admin(section, address)?;
    Ok(Some(address))
}

/// Whether operators may come there.
pub(super) fn check_admin(section: &ServerSection, address: SocketAddr) -> anyhow::Result<()> {
    let named = section.admin_listen.as_deref().unwrap_or_default();
    if !is_loopback(address.ip()) && section.tls_cert.is_none() && !section.admin_plain {
        bail!(
            "others can reach {named}, and keys of operators would go there in the clear; serve over TLS: --tls-cert and \
             --tls-key, or say that something in front does: server.admin_plain = true (or listen on 127.0.0.1)"
        );
    }
    Ok(())
}

/// Whether only this machine reaches them.
pub(super) fn are_loopback(addresses: &[SocketAddr]) -> bool {
    addresses.iter().all(|address| is_loopback(address.ip()))
}

fn is_loopback(ip: IpAddr) -> bool {
    ip.to_canonical().is_loopback()
}

/// Says why, and what to type.
pub(super) fn bind_error(address: &str, error: attache::Error) -> anyhow::Error {
    let cause = error
        .source()
        .and_then(|cause| cause.downcast_ref::<io::Error>());
    if cause.is_some_and(|cause| cause.kind() == io::ErrorKind::AddrInUse) {
        let host = address
            .rsplit_once(':')
            .map_or("127.0.0.1", |(host, _)| host);
        let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
        let again = with_free_port(words, host);
        return anyhow::anyhow!(
            "{address} is in use, perhaps by another attache; for a free port type: {again}"
        );
    }
    // What is wrong with a setting is not the address's fault.
    match cause.is_some() {
        true => anyhow::Error::new(error).context(format!("cannot listen on {address}")),
        false => error.into(),
    }
}

/// The command that was typed, but for any free port.
fn with_free_port(words: impl Iterator<Item = String>, host: &str) -> String {
    let mut again = Vec::new();
    let mut words = words;
    while let Some(word) = words.next() {
        if word == "--listen" {
            words.next();
        } else if !word.starts_with("--listen=") {
            again.push(word);
        }
    }
    again.extend(["--listen".to_owned(), format!("{host}:0")]);
    shell_words::join(again)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_to_type_is_the_one_that_was_typed() {
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
    fn what_cannot_be_listened_on_is_told_without_looking_it_up() {
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
    fn only_this_machine_is_private() {
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
