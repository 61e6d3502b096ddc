//! Certificates for tests, in files of a temporary folder.
#![allow(clippy::unwrap_used)] // Test code: a failed step should stop the test.

use std::fs;
use std::path::Path;
use std::path::PathBuf;

use rcgen::BasicConstraints;
use rcgen::CertificateParams;
use rcgen::DnType;
use rcgen::ExtendedKeyUsagePurpose;
use rcgen::IsCa;
use rcgen::Issuer;
use rcgen::KeyPair;
use rcgen::KeyUsagePurpose;
use time::Duration;
use time::OffsetDateTime;

/// A certificate authority and the folder with everything it signed.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
    name: String,
}

/// The files of one certificate.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    pub(crate) cert: PathBuf,
    pub(crate) key: PathBuf,
}

impl Authority {
    /// Makes an authority, whose certificate is `<name>.pem`.
    pub(crate) fn new(folder: &Path, name: &str) -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![
            KeyUsagePurpose::KeyCertSign,
            KeyUsagePurpose::DigitalSignature,
        ];
        (params.not_before, params.not_after) = days(-1, 10);
        let cert = params.self_signed(&key).unwrap();
        fs::write(folder.join(format!("{name}.pem")), cert.pem()).unwrap();
        Self {
            issuer: Issuer::new(params, key),
            folder: folder.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The file with the authority's certificate.
    pub(crate) fn file(&self) -> PathBuf {
        self.folder.join(format!("{}.pem", self.name))
    }

    /// A certificate with these DNS names, valid now.
    pub(crate) fn sign(&self, names: &[&str]) -> Pair {
        self.sign_for(names, (-1, 10))
    }

    /// A certificate that is valid from and to so many days from now.
    pub(crate) fn sign_for(&self, names: &[&str], (from, to): (i64, i64)) -> Pair {
        let key = KeyPair::generate().unwrap();
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let stem = format!(
            "{}-{}-{from}-{to}",
            self.name,
            names.join("+").replace('*', "any")
        );
        let mut params = CertificateParams::new(names).unwrap();
        params.extended_key_usages = vec![
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
        ];
        (params.not_before, params.not_after) = days(from, to);
        let cert = params.signed_by(&key, &self.issuer).unwrap();
        let pair = Pair {
            cert: self.folder.join(format!("{stem}.pem")),
            key: self.folder.join(format!("{stem}-key.pem")),
        };
        fs::write(&pair.cert, cert.pem()).unwrap();
        fs::write(&pair.key, key.serialize_pem()).unwrap();
        pair
    }

    /// The certificate of server `node` of `datacenter`, as `tls cert create` makes it.
    pub(crate) fn server(&self, node: &str, datacenter: &str) -> Pair {
        let any = format!("server.{datacenter}.consul");
        self.sign(&[&format!("{node}.{any}"), &any, "localhost"])
    }
}

fn days(from: i64, to: i64) -> (OffsetDateTime, OffsetDateTime) {
    let now = OffsetDateTime::now_utc();
    (now + Duration::days(from), now + Duration::days(to))
}
