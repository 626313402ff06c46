//! Classification of IP addresses: public internet or special-purpose.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Returns the IPv4 address inside a mapped or NAT64 IPv6 address, else the address itself.
pub(super) fn canonical_address(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V6(v6) => embedded_ipv4(v6).map_or(address, IpAddr::V4),
        IpAddr::V4(_) => address,
    }
}

/// Returns the IPv4 address inside a mapped address or one of the NAT64 prefix 64:ff9b::/96.
fn embedded_ipv4(address: Ipv6Addr) -> Option<Ipv4Addr> {
    let translated = || match address.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => {
            Some(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)))
        }
        _ => None,
    };
    address.to_ipv4_mapped().or_else(translated)
}

/// Whether an address belongs to the public internet. Unknown ranges do not.
pub(super) fn is_public(address: IpAddr) -> bool {
    match canonical_address(address) {
        IpAddr::V4(v4) => !SPECIAL_V4
            .iter()
            .any(|(net, bits)| is_in_network(v4.to_bits(), net.to_bits(), *bits)),
        IpAddr::V6(v6) => is_public_v6(v6),
    }
}

fn is_in_network(address: u32, net: u32, bits: u32) -> bool {
    (address ^ net) >> (32 - bits) == 0
}

/// IANA special-purpose registry of IPv4, and multicast.
const SPECIAL_V4: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 31, 196, 0), 24),
    (Ipv4Addr::new(192, 52, 193, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(192, 175, 48, 0), 24),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// Whether an IPv6 address is global unicast (2000::/3), without the ranges that embed IPv4 addresses or are reserved.
fn is_public_v6(address: Ipv6Addr) -> bool {
    let [first, second, ..] = address.segments();
    let is_reserved = match first {
        // 2001::/23: protocol assignments, Teredo, benchmarks, overlays; 2001:db8::/32: documentation.
        0x2001 => second < 0x200 || second == 0xdb8,
        // 6to4.
        0x2002 => true,
        // 3fff::/20: documentation.
        0x3fff => second < 0x1000,
        _ => false,
    };
    first & 0xe000 == 0x2000 && !is_reserved
}
