//! TLS of the HTTP client: roots, client certificate, and the switched-off check.

use crate::cli::client::settings::TlsSettings;
use crate::net::AnyCertificate;
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject;
use std::path::Path;
use std::path::PathBuf;
use std::sync::Arc;

/// Where distributions keep the public CAs, for a server behind a publicly signed certificate.
const SYSTEM_BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Why the TLS files cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TlsError {
    #[error("cannot read {what} {path:?}: {cause}. Check {flag}")]
    File {
        what: &'static str,
        path: PathBuf,
        cause: String,
        flag: &'static str,
    },
    #[error("{0} needs {1} too: a client certificate and its key go together")]
    Pair(&'static str, &'static str),
    #[error("the client certificate cannot be used: {0}. Check -client-cert and -client-key")]
    Certificate(String),
    #[error("TLS cannot be set up: {0}")]
    Setup(String),
}

/// The client side of TLS as `settings` ask for it.
pub(crate) fn client_config(settings: &TlsSettings) -> Result<ClientConfig, TlsError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .map_err(|error| TlsError::Setup(error.to_string()))?;
    let builder = if settings.verify {
        builder.with_root_certificates(roots(settings)?)
    } else {
        builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate::new(provider)))
    };
    match (&settings.client_cert, &settings.client_key) {
        (None, None) => Ok(builder.with_no_client_auth()),
        (Some(_), None) => Err(TlsError::Pair("-client-cert", "-client-key")),
        (None, Some(_)) => Err(TlsError::Pair("-client-key", "-client-cert")),
        (Some(cert), Some(key)) => builder
            .with_client_auth_cert(
                certificates(cert, "the client certificate", "-client-cert")?,
                private_key(key)?,
            )
            .map_err(|error| TlsError::Certificate(error.to_string())),
    }
}

fn roots(settings: &TlsSettings) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    if let Some(file) = &settings.ca_file {
        store.add_parsable_certificates(certificates(file, "the CA file", "-ca-file")?);
    }
    if let Some(folder) = &settings.ca_path {
        for file in pem_files(folder)? {
            store.add_parsable_certificates(certificates(&file, "the CA file", "-ca-path")?);
        }
    }
    if settings.ca_file.is_none() && settings.ca_path.is_none() {
        let bundle = SYSTEM_BUNDLES.iter().map(Path::new).find(|p| p.exists());
        let parsed = bundle.map(|p| certificates(p, "the system's CA bundle", "-ca-file"));
        store.add_parsable_certificates(parsed.transpose()?.unwrap_or_default());
    }
    Ok(store)
}

/// The files in `folder`, in order of their names.
pub(crate) fn pem_files(folder: &Path) -> Result<Vec<PathBuf>, TlsError> {
    let failed = |error: std::io::Error| TlsError::File {
        what: "the folder",
        path: folder.to_owned(),
        cause: error.to_string(),
        flag: "-ca-path",
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn certificates(
    path: &Path,
    what: &'static str,
    flag: &'static str,
) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let failed = |cause: String| TlsError::File {
        what,
        path: path.to_owned(),
        cause,
        flag,
    };
    let parsed: Result<Vec<_>, _> = CertificateDer::pem_file_iter(path)
        .map_err(|error| failed(error.to_string()))?
        .collect();
    let parsed = parsed.map_err(|error| failed(error.to_string()))?;
    if parsed.is_empty() {
        return Err(failed("no certificate in PEM form".to_owned()));
    }
    Ok(parsed)
}

fn private_key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    PrivateKeyDer::from_pem_file(path).map_err(|error| TlsError::File {
        what: "the client key",
        path: path.to_owned(),
        cause: error.to_string(),
        flag: "-client-key",
    })
}
