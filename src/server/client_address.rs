//! Address of the client of a request, also behind trusted proxies.

use std::net::{IpAddr, SocketAddr};

use http::HeaderMap;
use http::header::HeaderName;

use super::settings::ServerSettings;

/// Addresses of the client and the proxies before the last one, in this order.
const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Returns the address of the client: that of the peer, unless the peer is a trusted proxy.
///
/// Each proxy appends the address of its own peer to `X-Forwarded-For`. Read from the end, the first
/// address that is not a trusted proxy is therefore the client; the client chose all before it.
pub(super) fn client_ip(settings: &ServerSettings, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let mut client = peer.to_canonical();
    if !settings.is_trusted_proxy(client) {
        return client;
    }
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let entries = lines.flat_map(|line| line.as_bytes().rsplit(|byte| *byte == b','));
    for entry in entries {
        let Some(address) = std::str::from_utf8(entry).ok().and_then(parse_entry) else {
            break;
        };
        client = address;
        if !settings.is_trusted_proxy(client) {
            break;
        }
    }
    client
}

/// Parses an address, with or without a port.
fn parse_entry(text: &str) -> Option<IpAddr> {
    let text = text.trim();
    let ip = text.trim_matches(['[', ']']).parse().ok();
    let ip = ip.or_else(|| text.parse().ok().map(|address: SocketAddr| address.ip()));
    ip.map(|ip: IpAddr| ip.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn d06_client_is_the_last_address_that_no_trusted_proxy_has() {
        let settings = ServerSettings {
            trusted_proxies: vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            ..ServerSettings::default()
        };
        let client = |peer: &str, lines: &[&str]| {
            let headers = lines
                .iter()
                .map(|line| (X_FORWARDED_FOR, line.parse().unwrap()))
                .collect();
            client_ip(&settings, peer.parse().unwrap(), &headers).to_string()
        };
        for (peer, lines, expected) in [
            // A peer that is not a proxy may claim any address.
            ("192.0.2.7", &["198.51.100.1"][..], "192.0.2.7"),
            ("10.0.0.1", &[], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            ("::ffff:10.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            // The client has sent a header of its own.
            ("10.0.0.1", &["127.0.0.1, 198.51.100.1"], "198.51.100.1"),
            ("10.0.0.1", &["127.0.0.1", "198.51.100.1"], "198.51.100.1"),
            // Two proxies.
            (
                "::1",
                &["192.0.2.7, 198.51.100.1, 10.0.0.1"],
                "198.51.100.1",
            ),
            // A client on the machine of the proxy.
            ("10.0.0.1", &["::1"], "::1"),
            ("10.0.0.1", &["198.51.100.1:4711"], "198.51.100.1"),
            ("10.0.0.1", &["[2001:db8::1]:4711"], "2001:db8::1"),
            ("10.0.0.1", &["[2001:db8::1]"], "2001:db8::1"),
            // Not an address: as if the header ended there.
            ("10.0.0.1", &["198.51.100.1, unknown"], "10.0.0.1"),
            ("10.0.0.1", &["198.51.100.1, unknown, ::1"], "::1"),
            ("10.0.0.1", &[""], "10.0.0.1"),
        ] {
            assert_eq!(client(peer, lines), expected, "{peer} {lines:?}");
        }
    }
}
