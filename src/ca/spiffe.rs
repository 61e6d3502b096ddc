//! SPIFFE ids and the names made of them. Pure.

use std::fmt;
use std::str::FromStr;

/// `<cluster id>.consul`, lower case: the name of everything that one federation's CA vouches for. The suffix is
/// constant and does not follow the `domain` setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TrustDomain(String);

impl TrustDomain {
    /// The trust domain of a cluster id.
    pub fn of(cluster_id: &str) -> Self {
        Self(format!("{}.consul", cluster_id.to_lowercase()))
    }

    /// The first eight characters: what certificate names carry of it.
    fn short(&self) -> &str {
        self.0.get(..8).unwrap_or(&self.0)
    }

    /// The URI of the CA itself.
    pub fn uri(&self) -> String {
        format!("spiffe://{}", self.0)
    }

    /// Common name of a root certificate; `uid` makes it unique.
    pub fn root_common_name(&self, uid: &str) -> String {
        format!("pri-{uid}.consul.ca.{}.consul", self.short())
    }

    /// Common name of a service's certificate: at most 64 bytes, the longest that X.509 allows.
    pub fn service_common_name(&self, service: &str) -> String {
        let plain: String = service
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect();
        let tail = format!(".svc.default.{}.consul", self.short());
        let room = 64usize.saturating_sub(tail.len());
        format!("{}{tail}", plain.get(..room).unwrap_or(&plain))
    }
}

impl fmt::Display for TrustDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who a service certificate is for: `spiffe://<trust domain>/ns/<ns>/dc/<dc>/svc/<service>`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceUri {
    /// The trust domain, as written.
    pub trust_domain: String,
    /// Always `default` in this edition.
    pub namespace: String,
    /// The datacenter that signs it.
    pub datacenter: String,
    /// The service.
    pub service: String,
}

/// Text that is no service's SPIFFE id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not of the form spiffe://TRUST-DOMAIN/ns/NAMESPACE/dc/DATACENTER/svc/SERVICE")]
pub struct SpiffeError(pub String);

impl fmt::Display for ServiceUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "spiffe://{}/ns/{}/dc/{}/svc/{}",
            self.trust_domain,
            escape(&self.namespace),
            escape(&self.datacenter),
            escape(&self.service)
        )
    }
}

impl FromStr for ServiceUri {
    type Err = SpiffeError;

    fn from_str(text: &str) -> Result<Self, SpiffeError> {
        let bad = || SpiffeError(text.to_owned());
        let rest = text.strip_prefix("spiffe://").ok_or_else(bad)?;
        let parts: Vec<&str> = rest.split('/').collect();
        let [trust_domain, "ns", ns, "dc", dc, "svc", svc] = parts.as_slice() else {
            return Err(bad());
        };
        let uri = Self {
            trust_domain: (*trust_domain).to_owned(),
            namespace: unescape(ns).ok_or_else(bad)?,
            datacenter: unescape(dc).ok_or_else(bad)?,
            service: unescape(svc).ok_or_else(bad)?,
        };
        let empty = uri.trust_domain.is_empty() || uri.service.is_empty();
        if empty { Err(bad()) } else { Ok(uri) }
    }
}

/// Percent-encodes what a URL path segment may not hold (RFC 3986, `pchar`).
fn escape(segment: &str) -> String {
    let mut out = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        let plain = byte.is_ascii_alphanumeric() || b"-._~$&+=:@".contains(&byte);
        if plain {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
    out
}

fn unescape(segment: &str) -> Option<String> {
    let mut out = Vec::with_capacity(segment.len());
    let mut bytes = segment.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let pair = [bytes.next()?, bytes.next()?];
        let pair = std::str::from_utf8(&pair).ok()?;
        out.push(u8::from_str_radix(pair, 16).ok()?);
    }
    String::from_utf8(out).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_those_of_recorded_certificates() {
        let td = TrustDomain::of("9E48060B-9d38-e3ad-1e26-48fea5e8fa6e");
        assert_eq!(
            td.to_string(),
            "9e48060b-9d38-e3ad-1e26-48fea5e8fa6e.consul"
        );
        assert_eq!(
            td.service_common_name("web"),
            "web.svc.default.9e48060b.consul"
        );
        assert_eq!(
            td.root_common_name("135togx"),
            "pri-135togx.consul.ca.9e48060b.consul"
        );
        assert_eq!(td.service_common_name(&"x".repeat(99)).len(), 64);
    }

    #[test]
    fn other_uris_are_refused() {
        for bad in [
            "spiffe://td/ns/default/dc/dc1/svc/",
            "spiffe://td/agent/client/dc/dc1/id/n1",
            "https://td/ns/default/dc/dc1/svc/web",
            "spiffe:///ns/default/dc/dc1/svc/web",
            "spiffe://td/ns/default/dc/dc1/svc/a/b",
            "spiffe://td/ns/default/dc/dc1/svc/%zz",
        ] {
            assert!(bad.parse::<ServiceUri>().is_err(), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn every_name_survives(service in ".{1,40}", dc in "[a-z0-9_-]{1,10}") {
            let uri = ServiceUri {
                trust_domain: "td.consul".to_owned(),
                namespace: "default".to_owned(),
                datacenter: dc,
                service,
            };
            prop_assert_eq!(uri.to_string().parse::<ServiceUri>().unwrap(), uri);
        }
    }
}
