//! Name resolution and TCP connections.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::Diagnostic;
use super::DiagnosticStep::{Connect, Resolve};
use crate::reference::is_loopback;

/// Time limit of a name lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of addresses that are tried.
const MAX_ADDRESSES: usize = 8;

/// Host and port of a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NetworkTarget {
    host: String,
    port: u16,
}

impl NetworkTarget {
    pub(super) fn from_url(url: &str) -> Option<Self> {
        // gRPC interfaces may have no scheme.
        let with_scheme = if url.contains("://") {
            url.to_owned()
        } else {
            format!("https://{url}")
        };
        let uri: http::Uri = with_scheme.parse().ok()?;
        let default_port = if uri.scheme_str() == Some("http") {
            80
        } else {
            443
        };
        let host = uri.host()?.trim_matches(['[', ']']).to_owned();
        Some(Self {
            host,
            port: uri.port_u16().unwrap_or(default_port),
        })
    }
}

/// Resolves the name and connects to its addresses.
pub(super) async fn examine(target: &NetworkTarget) -> Vec<Diagnostic> {
    let host = &target.host;
    let lookup = timeout(LOOKUP_TIMEOUT, lookup_host((host.as_str(), target.port))).await;
    let mut addresses: Vec<SocketAddr> = match lookup {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => {
            return vec![
                Diagnostic::failed(Resolve, format!("{host} does not resolve: {error}"))
                    .hint("check the name for typing errors, and the DNS of this machine"),
            ];
        }
        Err(_) => {
            return vec![
                Diagnostic::failed(Resolve, format!("no answer for {host} from the DNS server"))
                    .hint("check the network and the DNS of this machine"),
            ];
        }
    };
    addresses.dedup();
    addresses.truncate(MAX_ADDRESSES);
    if addresses.is_empty() {
        return vec![Diagnostic::failed(
            Resolve,
            format!("{host} has no address"),
        )];
    }
    let resolved = if host.parse::<IpAddr>().is_ok() {
        Diagnostic::ok(Resolve, format!("{host} is an address"))
    } else {
        Diagnostic::ok(Resolve, format!("{host} is {}", listed(&addresses)))
    };
    vec![resolved, connect(target, &addresses).await]
}

fn listed(addresses: &[SocketAddr]) -> String {
    let addresses = addresses.iter().map(|address| address.ip().to_string());
    addresses.collect::<Vec<_>>().join(", ")
}

/// Connects to every address: clients try the others only after a delay.
async fn connect(target: &NetworkTarget, addresses: &[SocketAddr]) -> Diagnostic {
    let mut connected = Vec::new();
    let mut failed = Vec::new();
    for address in addresses {
        let start = Instant::now();
        match timeout(CONNECT_TIMEOUT, TcpStream::connect(address)).await {
            Ok(Ok(_)) => connected.push(format!("{address} in {} ms", start.elapsed().as_millis())),
            Ok(Err(error)) => failed.push((*address, error.kind(), error.to_string())),
            Err(_) => failed.push((
                *address,
                std::io::ErrorKind::TimedOut,
                format!("no answer within {} s", CONNECT_TIMEOUT.as_secs()),
            )),
        }
    }
    let reasons = failed
        .iter()
        .map(|(address, _, reason)| format!("{address}: {reason}"));
    let reasons = reasons.collect::<Vec<_>>().join("; ");
    match (connected.is_empty(), failed.first()) {
        (false, None) => Diagnostic::ok(Connect, connected.join(", ")),
        (false, Some(_)) => {
            let message = format!("{}; but not {reasons}", connected.join(", "));
            // Servers on this machine often listen on one of its loopback addresses only.
            if is_loopback(&target.host) {
                Diagnostic::ok(Connect, message)
            } else {
                Diagnostic::warning(Connect, message).hint(
                    "clients that try the other address first are slow; correct the DNS entry",
                )
            }
        }
        (true, Some((_, std::io::ErrorKind::ConnectionRefused, _))) => {
            let port = target.port;
            let start = if is_loopback(&target.host) {
                ", or start one: attache demo"
            } else {
                ""
            };
            Diagnostic::failed(Connect, reasons).hint(format!(
                "nothing listens on port {port}; check the port and that the agent is running{start}"
            ))
        }
        (true, _) => Diagnostic::failed(Connect, reasons)
            .hint("a firewall may drop the connection; check the address and the network"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_the_port_of_their_scheme() {
        let target = |url| {
            NetworkTarget::from_url(url).map(|target| format!("{} {}", target.host, target.port))
        };
        for (url, expected) in [
            ("https://a.example/x", "a.example 443"),
            ("http://a.example", "a.example 80"),
            ("http://[::1]:8080/", "::1 8080"),
            ("a.example:50051", "a.example 50051"),
        ] {
            assert_eq!(target(url).as_deref(), Some(expected), "{url}");
        }
    }
}
