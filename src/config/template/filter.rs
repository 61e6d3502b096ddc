//! Choosing and ordering interfaces by an attribute.

use crate::config::host::Interface;
use crate::config::host::is_local;
use crate::config::host::is_private;
use ipnet::IpNet;
use regex::Regex;
use std::cmp::Ordering;
use std::net::IpAddr;

/// One test of `include` or `exclude`. Several values are separated by `|`.
pub(super) enum Filter {
    Name(Box<Regex>),
    Address(Box<Regex>),
    Networks(Vec<IpNet>),
    Flags(Vec<String>),
    Types(Vec<String>),
    Rfcs(Vec<u32>),
    Sizes(Vec<u8>),
}

impl Filter {
    pub(super) fn new(by: &str, value: &str) -> Result<Self, String> {
        let regex = || {
            let built = regex::RegexBuilder::new(value).size_limit(1 << 20).build();
            built
                .map(Box::new)
                .map_err(|_| format!("{value:?} is not a regular expression"))
        };
        let words = || {
            value
                .split('|')
                .map(|word| word.trim().to_lowercase())
                .collect::<Vec<_>>()
        };
        fn parsed<T: std::str::FromStr>(words: &[String], what: &str) -> Result<Vec<T>, String> {
            words
                .iter()
                .map(|w| w.parse().map_err(|_| format!("{w:?} is not a {what}")))
                .collect()
        }
        match by.to_lowercase().as_str() {
            "name" => regex().map(Self::Name),
            "address" => regex().map(Self::Address),
            "network" => parsed(&words(), "network such as 10.0.0.0/8").map(Self::Networks),
            "flag" | "flags" => Ok(Self::Flags(words())),
            "type" => Ok(Self::Types(words())),
            "rfc" => parsed(&words(), "number of an RFC").map(Self::Rfcs),
            "size" => parsed(&words(), "prefix length").map(Self::Sizes),
            _ => Err(format!(
                "{by:?} cannot be filtered; name, address, network, flags, type, rfc and size can"
            )),
        }
    }

    pub(super) fn matches(&self, i: &Interface) -> bool {
        match self {
            Self::Name(regex) => regex.is_match(&i.name),
            Self::Address(regex) => regex.is_match(&i.addr.to_string()),
            Self::Networks(nets) => nets.iter().any(|net| net.contains(&i.addr)),
            Self::Flags(flags) => flags.iter().all(|flag| has_flag(i, flag)),
            Self::Types(types) => types.iter().any(|t| has_type(i, t)),
            Self::Rfcs(rfcs) => rfcs.iter().any(|rfc| in_rfc(i.addr, *rfc)),
            Self::Sizes(sizes) => sizes.contains(&i.prefix),
        }
    }
}

fn has_flag(i: &Interface, flag: &str) -> bool {
    let link_local = match i.addr {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    };
    match flag {
        "up" => i.up,
        "loopback" => i.addr.is_loopback(),
        "forwardable" => !is_local(i.addr),
        "global unicast" => !i.addr.is_loopback() && !link_local && !i.addr.is_multicast(),
        "link-local unicast" => link_local,
        "multicast" => i.addr.is_multicast(),
        _ => false,
    }
}

fn has_type(i: &Interface, name: &str) -> bool {
    match name {
        "ip" => true,
        "ipv4" => i.addr.is_ipv4(),
        "ipv6" => i.addr.is_ipv6(),
        _ => false,
    }
}

/// Networks of the RFCs that go-sockaddr's documentation names.
fn in_rfc(addr: IpAddr, rfc: u32) -> bool {
    let within = |nets: &[&str]| {
        nets.iter()
            .any(|net| net.parse::<IpNet>().is_ok_and(|net| net.contains(&addr)))
    };
    match rfc {
        1112 => within(&["224.0.0.0/4"]),
        1122 => within(&["0.0.0.0/8", "127.0.0.0/8"]),
        1918 => within(&["10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16"]),
        2544 => within(&["198.18.0.0/15"]),
        3927 => within(&["169.254.0.0/16"]),
        3849 => within(&["2001:db8::/32"]),
        4193 => within(&["fc00::/7"]),
        4291 => within(&["::/128", "::1/128", "fe80::/10", "ff00::/8"]),
        5737 => within(&["192.0.2.0/24", "198.51.100.0/24", "203.0.113.0/24"]),
        6598 => within(&["100.64.0.0/10"]),
        6890 => is_private(addr) || is_local(addr),
        _ => false,
    }
}

/// The value of an attribute as text.
pub(super) fn attribute(i: &Interface, by: &str) -> Result<String, String> {
    match by.to_lowercase().as_str() {
        "address" | "string" | "host" => Ok(i.addr.to_string()),
        "name" => Ok(i.name.clone()),
        "network" => IpNet::new(i.addr, i.prefix)
            .map(|net| net.trunc().to_string())
            .map_err(|e| e.to_string()),
        "mask_bits" | "size" => Ok(i.prefix.to_string()),
        "type" => Ok(if i.addr.is_ipv4() { "IPv4" } else { "IPv6" }.to_owned()),
        _ => Err(format!(
            "{by:?} is not an attribute here; address, name, network, mask_bits and type are"
        )),
    }
}

/// Sorts by attributes separated by commas; `-` before one turns its order round.
pub(super) fn sort(list: &mut [Interface], by: &str) -> Result<(), String> {
    let mut orders = Vec::new();
    for name in by.split(',').map(str::trim) {
        let (turned, name) = name
            .strip_prefix('-')
            .map_or((false, name), |name| (true, name));
        orders.push((turned, order(name.trim_start_matches('+'))?));
    }
    list.sort_by(|a, b| {
        orders
            .iter()
            .fold(Ordering::Equal, |so_far, (turned, compare)| {
                let next = compare(a, b);
                so_far.then(if *turned { next.reverse() } else { next })
            })
    });
    Ok(())
}

fn order(name: &str) -> Result<fn(&Interface, &Interface) -> Ordering, String> {
    match name.to_lowercase().as_str() {
        "address" => Ok(|a, b| a.addr.cmp(&b.addr)),
        "default" => Ok(|a, b| b.default_route.cmp(&a.default_route)),
        "name" => Ok(|a, b| a.name.cmp(&b.name)),
        "private" => Ok(|a, b| is_private(b.addr).cmp(&is_private(a.addr))),
        "size" => Ok(|a, b| b.prefix.cmp(&a.prefix)),
        "type" => Ok(|a, b| a.addr.is_ipv6().cmp(&b.addr.is_ipv6())),
        _ => Err(format!(
            "{name:?} is not an order here; address, default, name, private, size and type are"
        )),
    }
}
