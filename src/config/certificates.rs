//! What the rules need to know of PEM certificates: names, issuer, validity, and whether a key fits.

use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;
use x509_parser::prelude::X509Certificate;

/// Facts of one certificate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Certificate {
    /// Subject in RFC 4514 form.
    pub subject: String,
    /// Issuer in RFC 4514 form.
    pub issuer: String,
    /// DNS names (subject alternative names), as they stand.
    pub dns_names: Vec<String>,
    /// Whether it may sign others.
    pub is_ca: bool,
    /// First second of validity, Unix time.
    pub not_before: i64,
    /// Last second of validity, Unix time.
    pub not_after: i64,
    /// [`Self::not_before`] for people.
    pub not_before_text: String,
    /// [`Self::not_after`] for people.
    pub not_after_text: String,
}

impl Certificate {
    /// Whether a name is among the DNS names; a wildcard stands for exactly one label (RFC 6125).
    #[must_use]
    pub fn covers(&self, name: &str) -> bool {
        let name = name.to_lowercase();
        let parent = name.split_once('.').map(|(_, parent)| parent);
        self.dns_names
            .iter()
            .map(|san| san.to_lowercase())
            .any(|san| {
                san == name
                    || san
                        .strip_prefix("*.")
                        .is_some_and(|suffix| Some(suffix) == parent)
            })
    }
}

/// The first certificate of a PEM text: the one that a server shows.
///
/// # Errors
/// Why there is none.
pub fn leaf(pem: &str) -> Result<Certificate, String> {
    let first = all(pem)?.into_iter().next();
    first.ok_or_else(|| "no CERTIFICATE block".to_owned())
}

/// Every certificate of a PEM text, at least one.
///
/// # Errors
/// Why one cannot be read.
pub fn all(pem: &str) -> Result<Vec<Certificate>, String> {
    let ders = CertificateDer::pem_slice_iter(pem.as_bytes());
    let list: Vec<Certificate> = ders
        .map(|der| {
            der.map_err(|error| error.to_string())
                .and_then(|der| facts(&der))
        })
        .collect::<Result<_, _>>()?;
    if list.is_empty() {
        Err("no CERTIFICATE block".to_owned())
    } else {
        Ok(list)
    }
}

fn facts(der: &[u8]) -> Result<Certificate, String> {
    let (_, parsed) = X509Certificate::from_der(der).map_err(|error| error.to_string())?;
    let names = parsed
        .subject_alternative_name()
        .map_err(|error| error.to_string())?;
    let dns = names.iter().flat_map(|names| &names.value.general_names);
    let validity = parsed.validity();
    Ok(Certificate {
        subject: parsed.subject().to_string(),
        issuer: parsed.issuer().to_string(),
        dns_names: dns
            .filter_map(|name| match name {
                GeneralName::DNSName(dns) => Some((*dns).to_owned()),
                _ => None,
            })
            .collect(),
        is_ca: parsed.is_ca(),
        not_before: validity.not_before.timestamp(),
        not_after: validity.not_after.timestamp(),
        not_before_text: validity.not_before.to_string(),
        not_after_text: validity.not_after.to_string(),
    })
}

/// Whether a PEM private key belongs to the first certificate of a PEM text.
///
/// # Errors
/// Why it does not.
pub fn key_fits(cert: &str, key: &str) -> Result<(), String> {
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).map_err(|error| error.to_string())?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(cert.as_bytes()).collect();
    let chain = chain.map_err(|error| error.to_string())?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    rustls::sign::CertifiedKey::from_der(chain, key, &provider)
        .map(|_| ())
        .map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wildcard_stands_for_one_label() {
        let certificate = Certificate {
            dns_names: vec!["*.Server.dc1.consul".to_owned()],
            ..Certificate::default()
        };
        assert!(certificate.covers("N1.server.dc1.consul"));
        assert!(!certificate.covers("server.dc1.consul"));
        assert!(!certificate.covers("a.b.server.dc1.consul"));
    }
}
