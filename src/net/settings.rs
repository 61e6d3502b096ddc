//! The TLS part of the configuration, before any file is read.

use std::path::PathBuf;
use std::str::FromStr;

use rustls::SupportedProtocolVersion;

use crate::net::error::TlsError;

static TLS13_ONLY: &[&SupportedProtocolVersion] = &[&rustls::version::TLS13];

/// Oldest TLS version that is offered (`tls_min_version`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TlsVersion {
    /// TLS 1.2.
    #[default]
    Tls12,
    /// TLS 1.3.
    Tls13,
}

impl FromStr for TlsVersion {
    type Err = TlsError;

    fn from_str(text: &str) -> Result<Self, TlsError> {
        match text {
            "" | "tls10" | "tls11" | "tls12" => Ok(Self::Tls12),
            "tls13" => Ok(Self::Tls13),
            other => Err(TlsError::Version(other.to_owned())),
        }
    }
}

/// The TLS part of the configuration; names are those of Consul's keys.
#[derive(Debug, Clone, Default)]
pub struct TlsSettings {
    /// `ca_file`: PEM files with CA certificates that peers are verified with.
    pub ca_files: Vec<PathBuf>,
    /// `ca_path`: a directory of such files.
    pub ca_path: Option<PathBuf>,
    /// `cert_file`: our own certificate, followed by intermediates.
    pub cert_file: Option<PathBuf>,
    /// `key_file`: the private key of `cert_file`.
    pub key_file: Option<PathBuf>,
    /// `verify_incoming`: RPC and HTTPS clients must have a certificate of the CA.
    pub verify_incoming: bool,
    /// `verify_incoming_rpc`: the same for RPC alone.
    pub verify_incoming_rpc: bool,
    /// `verify_incoming_https`: the same for HTTPS alone.
    pub verify_incoming_https: bool,
    /// `verify_outgoing`: use TLS for RPC inside the datacenter.
    pub verify_outgoing: bool,
    /// `verify_server_hostname`: and insist on the name `server.<datacenter>.<domain>`.
    pub verify_server_hostname: bool,
    /// `tls_min_version`.
    pub min_version: TlsVersion,
    /// `domain`, with or without the dot at its end.
    pub domain: String,
    /// `datacenter` of this server.
    pub datacenter: String,
    /// `node_name` of this server.
    pub node: String,
    /// ALPN names of an edition's own protocols on the RPC port.
    pub extra_alpn: Vec<String>,
}

impl TlsSettings {
    pub(super) fn verify_incoming_rpc(&self) -> bool {
        self.verify_incoming || self.verify_incoming_rpc
    }

    pub(super) fn verify_incoming_https(&self) -> bool {
        self.verify_incoming || self.verify_incoming_https
    }

    /// Refuses settings that need others.
    pub(super) fn check(&self) -> Result<(), TlsError> {
        let has_ca = !self.ca_files.is_empty() || self.ca_path.is_some();
        let needs = |setting, set: bool, missing, there: bool| {
            if set && !there {
                return Err(TlsError::Incomplete { setting, missing });
            }
            Ok(())
        };
        needs(
            "cert_file",
            self.cert_file.is_some(),
            "key_file",
            self.key_file.is_some(),
        )?;
        needs(
            "key_file",
            self.key_file.is_some(),
            "cert_file",
            self.cert_file.is_some(),
        )?;
        for (setting, set) in [
            ("verify_incoming", self.verify_incoming),
            ("verify_incoming_rpc", self.verify_incoming_rpc),
            ("verify_incoming_https", self.verify_incoming_https),
        ] {
            needs(setting, set, "ca_file or ca_path", has_ca)?;
            needs(setting, set, "cert_file", self.cert_file.is_some())?;
        }
        needs(
            "verify_outgoing",
            self.verify_outgoing,
            "ca_file or ca_path",
            has_ca,
        )?;
        needs(
            "verify_server_hostname",
            self.verify_server_hostname,
            "ca_file or ca_path",
            has_ca,
        )
    }

    pub(super) fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        match self.min_version {
            TlsVersion::Tls12 => rustls::ALL_VERSIONS,
            TlsVersion::Tls13 => TLS13_ONLY,
        }
    }
}
