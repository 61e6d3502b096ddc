//! What is wrong with TLS, in words that name the file or the peer and what to do about it.

use std::path::PathBuf;

use rustls::CertificateError;

/// Why the TLS configuration cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A configured file or directory cannot be read.
    #[error("{key}: cannot read {path:?}: {reason}; check the path and its permissions")]
    Read {
        /// The configuration key.
        key: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        reason: std::io::Error,
    },
    /// A PEM file holds nothing of the kind it is configured for.
    #[error("{key}: {path:?} holds no {wanted} in PEM form{hint}")]
    NothingInFile {
        /// The configuration key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What it should hold.
        wanted: &'static str,
        /// What it holds instead, where that can be told; begins with "; ".
        hint: &'static str,
    },
    /// A certificate or key cannot be parsed or used.
    #[error("{key}: {path:?} is not usable: {reason}")]
    Malformed {
        /// The configuration key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with its content.
        reason: String,
    },
    /// The private key belongs to another certificate.
    #[error(
        "key_file: {key:?} is not the private key of the certificate in cert_file {cert:?}; configure the pair that was created together"
    )]
    KeyMismatch {
        /// The certificate's file.
        cert: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// The certificate is not valid any more.
    #[error(
        "{key}: the certificate in {path:?} expired at {not_after}; create a new one and configure it"
    )]
    Expired {
        /// The configuration key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// End of its validity.
        not_after: String,
    },
    /// The certificate is not valid yet.
    #[error(
        "{key}: the certificate in {path:?} is valid from {not_before} on only; check this machine's clock"
    )]
    NotYetValid {
        /// The configuration key.
        key: &'static str,
        /// The file.
        path: PathBuf,
        /// Begin of its validity.
        not_before: String,
    },
    /// A setting makes no sense without another one.
    #[error("{setting} is set but {missing} is not; set {missing} too, or unset {setting}")]
    Incomplete {
        /// The key that is set.
        setting: &'static str,
        /// The key that it needs.
        missing: &'static str,
    },
    /// The own certificate lacks names that peers in other datacenters verify.
    #[error("cert_file: the certificate in {path:?} lacks the DNS name {} (it has: {}); create one with `crossway tls cert create -server -node {node} -dc {datacenter}`", missing.join(" and "), list(found))]
    MissingNames {
        /// The certificate's file.
        path: PathBuf,
        /// The names that are not there.
        missing: Vec<String>,
        /// The names that are.
        found: Vec<String>,
        /// The server's node name.
        node: String,
        /// The server's datacenter.
        datacenter: String,
    },
    /// Something needs TLS, which is not configured.
    #[error("TLS is needed but not configured; set {0}")]
    NotConfigured(&'static str),
    /// A name that cannot be a TLS server name.
    #[error("{0:?} cannot be a TLS server name; use a DNS name")]
    ServerName(String),
    /// What rustls refuses for another reason.
    #[error("TLS: {0}")]
    Rustls(#[from] rustls::Error),
    /// A TLS version that does not exist or is refused as unsafe.
    #[error(
        "tls_min_version: {0:?} is not a version; use tls12 or tls13 (tls10 and tls11 mean tls12, the oldest that is offered)"
    )]
    Version(String),
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}

/// Says why a TLS handshake failed, from the point of view of an operator who can change configuration files.
pub fn describe_handshake(error: &std::io::Error) -> String {
    let Some(tls) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<rustls::Error>())
    else {
        return match error.kind() {
            std::io::ErrorKind::UnexpectedEof => {
                "the peer closed the connection during the TLS handshake".to_owned()
            }
            _ => error.to_string(),
        };
    };
    match tls {
        rustls::Error::InvalidCertificate(reason) => describe_certificate(reason),
        rustls::Error::NoCertificatesPresented => {
            "the peer presented no certificate; it needs cert_file and key_file signed by our CA"
                .to_owned()
        }
        rustls::Error::AlertReceived(alert) => format!(
            "the peer refused the handshake with the TLS alert {alert:?}; look at its log, and check that each side's certificate is signed by a CA in the other's ca_file"
        ),
        rustls::Error::NoApplicationProtocol => {
            "the peer offers no ALPN protocol that we serve".to_owned()
        }
        rustls::Error::InvalidMessage(_) => {
            "the peer does not speak TLS, or speaks a version that is too old".to_owned()
        }
        other => other.to_string(),
    }
}

fn describe_certificate(reason: &CertificateError) -> String {
    match reason {
        CertificateError::UnknownIssuer => {
            "the peer's certificate is not signed by any CA in ca_file or ca_path; all datacenters must share one CA, or list each other's".to_owned()
        }
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
            format!("the peer's certificate has expired, or this machine's clock is wrong: {reason}")
        }
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
            format!("the peer's certificate is not valid yet, or a clock is wrong: {reason}")
        }
        CertificateError::BadSignature => {
            "the peer's certificate carries a signature that its CA did not make: two CAs of the same name?".to_owned()
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            format!("the peer's certificate is not for this use (extended key usage): {reason}")
        }
        CertificateError::NotValidForNameContext { expected, presented } => format!(
            "the peer's certificate lacks the name {} (it has: {}); create it with that name, or dial the right server",
            expected.to_str(),
            list(presented),
        ),
        other => format!("the peer's certificate is not acceptable: {other}"),
    }
}
