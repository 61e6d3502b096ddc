//! A literal address: a host, and perhaps a port and the node that is expected there.

use crate::model::NodeName;
use std::fmt;
use std::net::IpAddr;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// Longest host name (RFC 1035, 2.3.4), in bytes.
const MAX_HOST: usize = 253;

/// Longest name of a node, in bytes; gossip allows no longer one.
const MAX_NODE: usize = 128;

/// `host`, `host:port`, `node/host` or `node/host:port`. Hosts are names, IPv4 and IPv6 addresses; IPv6 with a port needs
/// brackets and may have them without one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// The node that is expected there, if the text names one.
    pub node: Option<NodeName>,
    /// Where it is.
    pub host: Host,
    /// The port, if the text has one; never 0.
    pub port: Option<u16>,
}

/// Where a node is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name that DNS or the hosts file knows.
    Name(String),
}

/// Why a text is no address: what is wrong, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}; {remedy}")]
pub struct AddressError {
    /// What is wrong.
    pub what: String,
    /// What to do about it.
    pub remedy: String,
}

impl AddressError {
    fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            remedy: remedy.into(),
        }
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (node, rest) = match text.split_once('/') {
            Some((node, rest)) => (Some(node_name(node)?), rest),
            None => (None, text),
        };
        let (host, port) = split_port(rest)?;
        Ok(Self { node, host, port })
    }
}

fn node_name(text: &str) -> Result<NodeName, AddressError> {
    let visible = text.chars().all(|c| !c.is_control() && !c.is_whitespace());
    if text.is_empty() || text.len() > MAX_NODE || !visible {
        let what = format!(
            "the part before the slash is no node name of 1 to {MAX_NODE} visible characters"
        );
        return Err(AddressError::new(
            what,
            "write node/address, or the address alone",
        ));
    }
    Ok(NodeName::from(text))
}

/// An IPv6 address without brackets has no port: `2001:db8::1:8301` is a whole address.
fn split_port(text: &str) -> Result<(Host, Option<u16>), AddressError> {
    if let Some(rest) = text.strip_prefix('[') {
        let Some((inner, after)) = rest.split_once(']') else {
            return Err(AddressError::new(
                "the bracket is not closed",
                "write [2001:db8::1]:8301",
            ));
        };
        let ip: Ipv6Addr = inner.parse().map_err(|_| {
            let what = format!("{inner:?} in brackets is no IPv6 address");
            AddressError::new(what, "write [2001:db8::1]:8301")
        })?;
        let port = match (after, after.strip_prefix(':')) {
            ("", _) => None,
            (_, Some(digits)) => Some(port(digits)?),
            _ => {
                let what = format!("{after:?} follows the bracket");
                return Err(AddressError::new(what, "write [2001:db8::1]:8301"));
            }
        };
        return Ok((Host::Ip(ip.into()), port));
    }
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok((Host::Ip(ip), None));
    }
    match text.rsplit_once(':') {
        None => Ok((host(text)?, None)),
        Some((before, _)) if before.contains(':') => Err(AddressError::new(
            "this is no IPv6 address",
            "write an IPv6 address with a port as [2001:db8::1]:8301",
        )),
        Some((before, digits)) => Ok((host(before)?, Some(port(digits)?))),
    }
}

fn port(digits: &str) -> Result<u16, AddressError> {
    let plain = digits.bytes().all(|b| b.is_ascii_digit());
    match digits.parse::<u16>() {
        Ok(port) if port > 0 && plain => Ok(port),
        _ => Err(AddressError::new(
            format!("{digits:?} is no port"),
            "write a number from 1 to 65535 after the colon",
        )),
    }
}

fn host(text: &str) -> Result<Host, AddressError> {
    if let Ok(ip) = text.parse::<IpAddr>() {
        return Ok(Host::Ip(ip));
    }
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let labels = text.strip_suffix('.').unwrap_or(text).split('.');
    let named = labels
        .into_iter()
        .all(|label| (1..=63).contains(&label.len()));
    if text.len() > MAX_HOST || !named || !text.chars().all(fits) {
        return Err(AddressError::new(
            "this is neither an IP address nor a host name",
            "write an IP address or a host name of letters, digits, hyphens and dots, and a port after a colon if it needs one",
        ));
    }
    // 1.2.3 and 1.2.3.4.5 are mistyped addresses: DNS never answers them.
    let last = text.trim_end_matches('.').rsplit('.').next();
    if last.is_some_and(|label| label.bytes().all(|b| b.is_ascii_digit())) {
        return Err(AddressError::new(
            "this is no IPv4 address, and no host name ends with a number",
            "write four numbers from 0 to 255 with dots between them",
        ));
    }
    Ok(Host::Name(text.to_owned()))
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(node) = &self.node {
            write!(f, "{node}/")?;
        }
        match (&self.host, self.port) {
            (Host::Ip(IpAddr::V6(ip)), Some(port)) => write!(f, "[{ip}]:{port}"),
            (Host::Ip(ip), Some(port)) => write!(f, "{ip}:{port}"),
            (Host::Ip(ip), None) => write!(f, "{ip}"),
            (Host::Name(name), Some(port)) => write!(f, "{name}:{port}"),
            (Host::Name(name), None) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, shown: &str, port: Option<u16>) {
        let address: Address = text.parse().unwrap();
        assert_eq!((address.to_string().as_str(), address.port), (shown, port));
    }

    #[track_caller]
    fn refused(text: &str, part: &str) {
        let error = text.parse::<Address>().unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }

    /// Case C018: brackets are taken with and without a port, and an ambiguous colon is explained.
    #[test]
    fn twelve_spellings() {
        check("10.0.0.1", "10.0.0.1", None);
        check("10.0.0.1:8301", "10.0.0.1:8301", Some(8301));
        check("2001:db8::1", "2001:db8::1", None);
        check("[2001:db8::1]", "2001:db8::1", None);
        check("[2001:db8::1]:8301", "[2001:db8::1]:8301", Some(8301));
        check("gw.dc1.example:8443", "gw.dc1.example:8443", Some(8443));
        check("consul_server.", "consul_server.", None);
        refused("2001:db8::1::8301", "[2001:db8::1]:8301");
        refused("[10.0.0.1]:80", "no IPv6 address");
        refused("[2001:db8::1", "bracket is not closed");
        refused("[2001:db8::1]8301", "follows the bracket");
        refused("10.0.0.1:0", "is no port");
        refused("10.0.0.1:+80", "is no port");
        refused("10.0.0.1:70000", "is no port");
        refused("10.0.0", "no IPv4 address");
        refused("", "neither");
        refused("a b", "neither");
        refused(&"a".repeat(64), "neither");
    }

    #[test]
    fn a_node_may_be_named() {
        check("s1.dc1/10.0.0.1:8300", "s1.dc1/10.0.0.1:8300", Some(8300));
        let pseudo: Address = "*.dc1/192.0.2.2".parse().unwrap();
        assert_eq!(pseudo.node, Some(NodeName::from("*.dc1")));
        refused("/10.0.0.1", "no node name");
        refused(&format!("{}/10.0.0.1", "n".repeat(129)), "no node name");
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_an_address_that_reads_back_or_an_error(text in ".{0,60}") {
            if let Ok(address) = text.parse::<Address>() {
                proptest::prop_assert_eq!(address.to_string().parse::<Address>().unwrap(), address);
            }
        }
    }
}
