//! Addresses in flags: `host:port`, `[v6]:port`, or an IP address alone.

use std::fmt;
use std::net::IpAddr;

/// A host (possibly empty) and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostPort {
    /// IP address without brackets, or a name.
    pub(crate) host: String,
    /// TCP port.
    pub(crate) port: u16,
}

impl HostPort {
    /// The IP address, if the host is one.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

/// Why a text is no address.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum AddressError {
    #[error(
        "Error parsing address {0:?}: not an IP address; a name needs its port too, as in name:8443"
    )]
    NotIp(String),
    #[error("Error parsing address {0:?}: the port must be a number from 1 to 65535")]
    Port(String),
    #[error("Missing \"=\" in argument: {0}; write -bind-address name=address:port")]
    MissingEquals(String),
    #[error("-bind-address {0:?} has no name before the \"=\"")]
    MissingName(String),
    #[error("-bind-address {0:?} has no address: give the IP address to bind, 0.0.0.0 for all")]
    MissingBind(String),
}

/// `text` as host and port; without a port it must be an IP address and gets `default_port`.
pub(crate) fn parse(text: &str, default_port: u16) -> Result<HostPort, AddressError> {
    if let Ok(ip) = text.trim_matches(['[', ']']).parse::<IpAddr>() {
        return Ok(HostPort {
            host: ip.to_string(),
            port: default_port,
        });
    }
    let (host, port) = text
        .rsplit_once(':')
        .ok_or_else(|| AddressError::NotIp(text.to_owned()))?;
    let port = match port.parse() {
        Ok(port) if port != 0 => port,
        _ => return Err(AddressError::Port(text.to_owned())),
    };
    let bracketed = host.strip_prefix('[').and_then(|h| h.strip_suffix(']'));
    if bracketed.is_none() && host.contains(':') {
        return Err(AddressError::NotIp(text.to_owned()));
    }
    Ok(HostPort {
        host: bracketed.unwrap_or(host).to_owned(),
        port,
    })
}

/// `<name>=<address>[:<port>]`.
pub(crate) fn parse_bind(
    text: &str,
    default_port: u16,
) -> Result<(String, HostPort), AddressError> {
    let (name, address) = text
        .split_once('=')
        .ok_or_else(|| AddressError::MissingEquals(text.to_owned()))?;
    if name.is_empty() {
        return Err(AddressError::MissingName(text.to_owned()));
    }
    let address = parse(address, default_port)?;
    if address.host.is_empty() {
        return Err(AddressError::MissingBind(text.to_owned()));
    }
    Ok((name.to_owned(), address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let got = parse(text, 443)
            .map(|address| address.to_string())
            .map_err(|error| error.to_string());
        match expected {
            Ok(address) => assert_eq!(got.as_deref(), Ok(address)),
            Err(part) => assert!(got.as_ref().is_err_and(|e| e.contains(part)), "{got:?}"),
        }
    }

    #[test]
    fn addresses() {
        check("10.0.0.1", Ok("10.0.0.1:443"));
        check("10.0.0.1:8443", Ok("10.0.0.1:8443"));
        check("::1", Ok("[::1]:443"));
        check("[::1]", Ok("[::1]:443"));
        check("[::1]:8443", Ok("[::1]:8443"));
        check("gw.example.com:443", Ok("gw.example.com:443"));
        check(":8443", Ok(":8443"));
        check(
            "gw.example.com",
            Err("Error parsing address \"gw.example.com\": not an IP address"),
        );
        check("10.0.0.1:0", Err("1 to 65535"));
        check("10.0.0.1:99999", Err("1 to 65535"));
        check("fe80::1:x:8443", Err("not an IP address"));
        check("", Err("not an IP address"));
    }

    #[test]
    fn binds() {
        let (name, address) = parse_bind("lan=0.0.0.0:8443", 443).unwrap();
        assert_eq!(
            (name.as_str(), address.to_string().as_str()),
            ("lan", "0.0.0.0:8443")
        );
        let error = |text| parse_bind(text, 443).unwrap_err().to_string();
        assert!(error("0.0.0.0:8443").starts_with("Missing \"=\" in argument: 0.0.0.0:8443"));
        assert!(error("=0.0.0.0").contains("no name"));
        assert!(error("lan=:443").contains("no address"));
    }

    proptest::proptest! {
        /// What is accepted reads the same when it is printed and read again.
        #[test]
        fn any_text_is_an_address_or_an_error(text in "[\\[\\]a-f0-9.:=x-]{0,24}") {
            if let Ok(address) = parse(&text, 443) {
                proptest::prop_assert_eq!(parse(&address.to_string(), 443), Ok(address));
            }
        }
    }
}
