//! Reads certificates and keys from PEM files; refuses what cannot work with the file's name.

use std::fs;
use std::io::ErrorKind;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use rustls::sign::CertifiedKey;
use x509_parser::prelude::FromDer;
use x509_parser::prelude::X509Certificate;

use crate::net::error::TlsError;
use crate::net::identity::certificate_dns_names;

/// The CA certificates of the configured files and directory.
pub(super) struct Roots {
    pub(super) store: Arc<RootCertStore>,
    /// Certificates that were left out, and why.
    pub(super) warnings: Vec<String>,
}

/// Reads the CA certificates; `None` when none are configured. Expired ones are left out while others remain.
pub(super) fn roots(
    files: &[PathBuf],
    directory: Option<&Path>,
    now: SystemTime,
) -> Result<Option<Roots>, TlsError> {
    let mut all: Vec<(&'static str, PathBuf)> =
        files.iter().map(|file| ("ca_file", file.clone())).collect();
    if let Some(directory) = directory {
        all.extend(
            files_of(directory)?
                .into_iter()
                .map(|file| ("ca_path", file)),
        );
    }
    if all.is_empty() {
        return Ok(None);
    }
    let mut store = RootCertStore::empty();
    let (mut warnings, mut last) = (Vec::new(), None);
    for (key, path) in all {
        for certificate in certificates(key, &path)? {
            if let Err(error) = check_dates(key, &path, &certificate, now) {
                warnings.push(error.to_string());
                last = Some(error);
                continue;
            }
            store
                .add(certificate)
                .map_err(|error| malformed(key, &path, &error))?;
        }
    }
    match last {
        Some(error) if store.is_empty() => Err(error),
        _ => Ok(Some(Roots {
            store: Arc::new(store),
            warnings,
        })),
    }
}

fn files_of(directory: &Path) -> Result<Vec<PathBuf>, TlsError> {
    let unreadable = |reason| TlsError::Read {
        key: "ca_path",
        path: directory.to_owned(),
        reason,
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    if files.is_empty() {
        return Err(unreadable(std::io::Error::new(
            ErrorKind::NotFound,
            "the directory holds no files",
        )));
    }
    Ok(files)
}

/// Reads the server's own certificate chain and key, and checks that they belong together and are valid now.
pub(super) fn own(cert: &Path, key: &Path, now: SystemTime) -> Result<Arc<CertifiedKey>, TlsError> {
    let chain = certificates("cert_file", cert)?;
    if let Some(leaf) = chain.first() {
        check_dates("cert_file", cert, leaf, now)?;
    }
    let private = private_key(key)?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    match CertifiedKey::from_der(chain, private, &provider) {
        Ok(certified) => Ok(Arc::new(certified)),
        Err(rustls::Error::InconsistentKeys(_)) => Err(TlsError::KeyMismatch {
            cert: cert.to_owned(),
            key: key.to_owned(),
        }),
        Err(rustls::Error::InvalidCertificate(error)) => Err(malformed("cert_file", cert, &error)),
        Err(error) => Err(malformed("key_file", key, &error)),
    }
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsError> {
    fs::read(path).map_err(|reason| TlsError::Read {
        key,
        path: path.to_owned(),
        reason,
    })
}

fn certificates(key: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let text = read(key, path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let all = all.map_err(|error| malformed(key, path, &error))?;
    if all.is_empty() {
        return Err(TlsError::NothingInFile {
            key,
            path: path.to_owned(),
            wanted: "certificate",
            hint: hint(&text),
        });
    }
    Ok(all)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read("key_file", path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
        rustls::pki_types::pem::Error::NoItemsFound => TlsError::NothingInFile {
            key: "key_file",
            path: path.to_owned(),
            wanted: "unencrypted private key",
            hint: hint(&text),
        },
        error => malformed("key_file", path, &error),
    })
}

/// What a PEM file that lacks the wanted thing seems to hold.
fn hint(text: &[u8]) -> &'static str {
    let text = String::from_utf8_lossy(text);
    if text.contains("ENCRYPTED") {
        "; it holds an encrypted key: decrypt it first"
    } else if text.contains("PRIVATE KEY-----") {
        "; it holds a private key: are the two files swapped?"
    } else if text.contains("CERTIFICATE-----") {
        "; it holds a certificate: are the two files swapped?"
    } else if text.trim().is_empty() {
        "; it is empty"
    } else {
        "; it is no PEM file: convert it, for example with `openssl x509 -inform der`"
    }
}

fn malformed(key: &'static str, path: &Path, reason: &dyn std::fmt::Display) -> TlsError {
    TlsError::Malformed {
        key,
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

fn check_dates(
    key: &'static str,
    path: &Path,
    der: &CertificateDer<'_>,
    now: SystemTime,
) -> Result<(), TlsError> {
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|error| malformed(key, path, &error))?;
    let validity = certificate.validity();
    let now = now.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    if validity.not_after.timestamp() < now {
        return Err(TlsError::Expired {
            key,
            path: path.to_owned(),
            not_after: validity.not_after.to_string(),
        });
    }
    if validity.not_before.timestamp() > now {
        return Err(TlsError::NotYetValid {
            key,
            path: path.to_owned(),
            not_before: validity.not_before.to_string(),
        });
    }
    Ok(())
}

/// The DNS names and the issuer of a certificate that was loaded before.
pub(super) fn names_and_issuer(der: &CertificateDer<'_>) -> (Vec<String>, String) {
    match X509Certificate::from_der(der) {
        Ok((_, certificate)) => (
            certificate_dns_names(&certificate),
            certificate.issuer().to_string(),
        ),
        Err(_) => (Vec::new(), "an unreadable name".to_owned()),
    }
}
