//! Key under which per-address limits count a client.

use std::net::IpAddr;

use crate::model::ClientAddress;

/// Returns the key of a client in per-address limits: the IPv4 address, or the /64 prefix of an IPv6 address.
///
/// IPv4-mapped IPv6 addresses count as IPv4.
pub(crate) fn ip_key(client: IpAddr) -> ClientAddress {
    ClientAddress::from_ipv6(match client {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    })
}
