//! Who a peer is, by the names in its verified certificate.

use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::prelude::X509Certificate;

/// The DNS names of a peer's verified certificate, in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PeerIdentity {
    dns_names: Vec<String>,
}

impl PeerIdentity {
    /// The identity that these subject alternative names (DNS) stand for.
    pub fn new<I: IntoIterator<Item = S>, S: AsRef<str>>(dns_names: I) -> Self {
        let lower = |name: S| name.as_ref().trim_end_matches('.').to_ascii_lowercase();
        Self {
            dns_names: dns_names.into_iter().map(lower).collect(),
        }
    }

    /// Reads the names of a certificate in DER. One that cannot be read has none; rustls verified it before.
    pub fn from_der(der: &[u8]) -> Self {
        let Ok((_, certificate)) = X509Certificate::from_der(der) else {
            return Self::default();
        };
        Self::new(certificate_dns_names(&certificate))
    }

    /// The DNS names, in lower case and in the certificate's order.
    pub fn dns_names(&self) -> &[String] {
        &self.dns_names
    }

    /// Whether this is a server of `datacenter`: the certificate names `server.<datacenter>.<domain>`.
    pub fn is_server_of(&self, datacenter: &str, domain: &str) -> bool {
        self.server_datacenters(domain)
            .any(|name| name.eq_ignore_ascii_case(datacenter))
    }

    /// Whether this is a server of any datacenter.
    pub fn is_server(&self, domain: &str) -> bool {
        self.server_datacenters(domain).next().is_some()
    }

    /// The datacenters that the certificate names as `server.<datacenter>.<domain>`.
    pub fn server_datacenters<'a>(
        &'a self,
        domain: &str,
    ) -> impl Iterator<Item = &'a str> + use<'a> {
        let suffix = format!(".{}", domain.trim_matches('.').to_ascii_lowercase());
        self.dns_names.iter().filter_map(move |name| {
            let datacenter = name.strip_prefix("server.")?.strip_suffix(&suffix)?;
            (!datacenter.is_empty() && !datacenter.contains('.')).then_some(datacenter)
        })
    }
}

/// The DNS subject alternative names of a certificate.
pub(super) fn certificate_dns_names(certificate: &X509Certificate<'_>) -> Vec<String> {
    let Ok(Some(names)) = certificate.subject_alternative_name() else {
        return Vec::new();
    };
    let dns = names
        .value
        .general_names
        .iter()
        .filter_map(|name| match name {
            GeneralName::DNSName(name) => Some((*name).to_owned()),
            _ => None,
        });
    dns.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_known_by_its_server_name() {
        let peer = PeerIdentity::new(["S1.server.dc1.consul", "Server.DC1.consul.", "localhost"]);
        assert!(peer.is_server("consul"));
        assert!(peer.is_server_of("dc1", "consul."));
        assert!(!peer.is_server_of("dc2", "consul"));
        assert!(!peer.is_server("corp.example"));
    }

    #[test]
    fn nodes_wildcards_and_clients_are_no_servers() {
        for name in [
            "s1.server.dc1.consul",
            "*.server.dc1.consul",
            "client.dc1.consul",
            "server.consul",
            "server..consul",
            "xserver.dc1.consul",
            "server.dc1.evil.consul",
        ] {
            assert!(!PeerIdentity::new([name]).is_server("consul"), "{name}");
        }
    }
}
