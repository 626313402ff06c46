//! Key under which per-address limits count a peer.

use std::net::IpAddr;

/// Returns the key of a peer in per-address limits: the IPv4 address, or the /64 prefix of an IPv6 address.
///
/// One IPv6 subscriber usually controls a whole /64. IPv4-mapped IPv6 addresses count as IPv4.
pub(super) fn ip_key(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(v6) => IpAddr::V6((u128::from(v6) & !u128::from(u64::MAX)).into()),
        v4 => v4,
    }
}
