//! What the TLS settings mean as rustls configurations.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

use arc_swap::ArcSwap;
use rustls::ClientConfig;
use rustls::ServerConfig;
use rustls::client::WebPkiServerVerifier;
use rustls::pki_types::ServerName;
use rustls::sign::CertifiedKey;

use crate::net::alpn;
use crate::net::build::Ask;
use crate::net::build::Builder;
use crate::net::error::TlsError;
use crate::net::load;
use crate::net::server_name;
use crate::net::settings::TlsSettings;
use crate::net::verify::ChainOnly;

/// The TLS configurations in force. [`Tls::reload`] replaces them for connections made from then on.
#[derive(Debug)]
pub struct Tls {
    current: ArcSwap<Loaded>,
}

/// A way to dial: the configuration and the name to verify (and to send as SNI, unless it is an address).
#[derive(Debug, Clone)]
pub struct TlsClient {
    /// Verifies the server and presents our certificate.
    pub config: Arc<ClientConfig>,
    /// What the server is called.
    pub name: ServerName<'static>,
}

#[derive(Debug, Default)]
struct Loaded {
    settings: TlsSettings,
    warnings: Vec<String>,
    own: Option<Arc<CertifiedKey>>,
    native: Option<Arc<ServerConfig>>,
    upgrade: Option<Arc<ServerConfig>>,
    insecure: Option<Arc<ServerConfig>>,
    https: Option<Arc<ServerConfig>>,
    grpc: Option<Arc<ServerConfig>>,
    chain_only: Option<Arc<ClientConfig>>,
    /// By ALPN name; the empty name is without ALPN.
    named: HashMap<String, Arc<ClientConfig>>,
}

impl Tls {
    /// No TLS at all.
    pub fn disabled() -> Self {
        Self {
            current: ArcSwap::default(),
        }
    }

    /// Reads the files and builds every configuration. `now` judges the validity of our own certificates.
    ///
    /// # Errors
    /// Names the key and file that cannot be used and what to do, see [`TlsError`].
    pub fn load(settings: TlsSettings, now: SystemTime) -> Result<Self, TlsError> {
        let loaded = Loaded::new(settings, now)?;
        Ok(Self {
            current: ArcSwap::from_pointee(loaded),
        })
    }

    /// Reads the files again; connections that exist stay as they are.
    ///
    /// # Errors
    /// As [`Tls::load`]; everything stays as it was then.
    pub fn reload(&self, settings: TlsSettings, now: SystemTime) -> Result<(), TlsError> {
        self.adopt(Self::load(settings, now)?);
        Ok(())
    }

    /// Uses what `newer` has loaded, for connections made from then on.
    pub fn adopt(&self, newer: Self) {
        self.current.store(newer.current.into_inner());
    }

    /// What is odd but no reason to refuse the configuration: to be logged at start.
    pub fn warnings(&self) -> Vec<String> {
        self.current.load().warnings.clone()
    }

    /// Whether there is a CA and a certificate: native TLS is served, other datacenters can be reached.
    pub fn is_mutual(&self) -> bool {
        self.current.load().native.is_some()
    }

    /// Whether RPC without TLS or without a certificate is refused.
    pub fn verifies_incoming_rpc(&self) -> bool {
        self.current.load().settings.verify_incoming_rpc()
    }

    /// Whether RPC inside the datacenter goes over TLS.
    pub fn dials_with_tls(&self) -> bool {
        let settings = &self.current.load().settings;
        settings.verify_outgoing || settings.verify_server_hostname
    }

    /// This server's datacenter, for the rules on server certificates.
    pub fn datacenter(&self) -> String {
        self.current.load().settings.datacenter.clone()
    }

    /// The DNS domain of certificate names.
    pub fn domain(&self) -> String {
        self.current.load().settings.domain.clone()
    }

    /// Server side of native TLS on the RPC port: a client certificate is required, ALPN decides.
    pub fn native_server(&self) -> Option<Arc<ServerConfig>> {
        self.current.load().native.clone()
    }

    /// Server side of type byte 3: a client certificate is required if incoming RPC is verified, else optional.
    pub fn upgrade_server(&self) -> Option<Arc<ServerConfig>> {
        self.current.load().upgrade.clone()
    }

    /// Server side of type byte 7: never asks for a certificate.
    pub fn insecure_server(&self) -> Option<Arc<ServerConfig>> {
        self.current.load().insecure.clone()
    }

    /// Server side of HTTPS (ALPN h2 and http/1.1).
    pub fn https_server(&self) -> Option<Arc<ServerConfig>> {
        self.current.load().https.clone()
    }

    /// Server side of gRPC over TLS (ALPN h2). As in Consul it asks for no certificate: proxies use tokens.
    pub fn grpc_server(&self) -> Option<Arc<ServerConfig>> {
        self.current.load().grpc.clone()
    }

    /// Dials a server by name with one ALPN protocol: what goes through mesh gateways.
    ///
    /// # Errors
    /// Without a CA and an own certificate, or when `name` cannot be a server name.
    pub fn named_client(&self, name: &str, alpn: &str) -> Result<TlsClient, TlsError> {
        let loaded = self.current.load();
        if loaded.own.is_none() {
            return Err(TlsError::NotConfigured("ca_file, cert_file and key_file"));
        }
        loaded.named(name, alpn)
    }

    /// Dials a server by name, with our certificate if there is one; no ALPN when `alpn` is empty. For tools.
    ///
    /// # Errors
    /// Without a CA, or when `name` cannot be a server name.
    pub fn tool_client(&self, name: &str, alpn: &str) -> Result<TlsClient, TlsError> {
        self.current.load().named(name, alpn)
    }

    /// Dials a server of the own datacenter after type byte 3: by the name `server.<datacenter>.<domain>` with
    /// `verify_server_hostname`, else whatever its certificate is called.
    ///
    /// # Errors
    /// Without a CA, or when the datacenter cannot be part of a server name.
    pub fn lan_client(&self, datacenter: &str, address: IpAddr) -> Result<TlsClient, TlsError> {
        let loaded = self.current.load();
        if loaded.settings.verify_server_hostname {
            let name = server_name("", datacenter, &loaded.settings.domain);
            return loaded.named(&name, "");
        }
        let config = loaded.chain_only.clone();
        Ok(TlsClient {
            config: config.ok_or(TlsError::NotConfigured("ca_file or ca_path"))?,
            name: ServerName::from(address), // An address is never sent as SNI.
        })
    }

    /// Checks that our certificate has the names by which servers of other datacenters reach this one.
    /// The wildcard `*.server.<datacenter>.<domain>` stands for any node whose name has no dot.
    ///
    /// # Errors
    /// Names what is missing, what is there, and the command that makes a good certificate.
    pub fn check_server_names(&self) -> Result<(), TlsError> {
        let loaded = self.current.load();
        let leaf = loaded.own.as_ref().and_then(|own| own.cert.first());
        let leaf = leaf.ok_or(TlsError::NotConfigured("cert_file and key_file"))?;
        let TlsSettings {
            node,
            datacenter,
            domain,
            ..
        } = &loaded.settings;
        let (found, _) = load::names_and_issuer(leaf);
        let any = server_name("", datacenter, domain);
        let this = server_name(node, datacenter, domain);
        let wildcard = format!("*.{any}");
        let has = |wanted: &str| found.iter().any(|name| name.eq_ignore_ascii_case(wanted));
        let mut missing = Vec::new();
        if !has(&this) && (node.contains('.') || !has(&wildcard)) {
            missing.push(this);
        }
        if !has(&any) {
            missing.push(any);
        }
        if missing.is_empty() {
            return Ok(());
        }
        Err(TlsError::MissingNames {
            path: loaded.settings.cert_file.clone().unwrap_or_default(),
            missing,
            found,
            node: node.clone(),
            datacenter: datacenter.clone(),
        })
    }
}

impl Loaded {
    fn new(settings: TlsSettings, now: SystemTime) -> Result<Self, TlsError> {
        settings.check()?;
        let roots = load::roots(&settings.ca_files, settings.ca_path.as_deref(), now)?;
        let own = match (&settings.cert_file, &settings.key_file) {
            (Some(cert), Some(key)) => Some(load::own(cert, key, now)?),
            _ => None,
        };
        let mut loaded = Self {
            settings,
            own,
            ..Self::default()
        };
        let builder = Builder {
            provider: Arc::new(rustls::crypto::aws_lc_rs::default_provider()),
            versions: loaded.settings.versions(),
            roots: roots.as_ref().map(|roots| roots.store.clone()),
            own: loaded.own.clone(),
        };
        loaded.build_servers(&builder)?;
        loaded.build_clients(&builder)?;
        loaded.warnings = roots.map(|roots| roots.warnings).unwrap_or_default();
        loaded.warnings.extend(builder.issuer_warning(now));
        Ok(loaded)
    }

    fn build_servers(&mut self, builder: &Builder) -> Result<(), TlsError> {
        let Some(own) = &self.own else {
            return Ok(());
        };
        let asked = |required: bool| match required {
            true => Ask::Required,
            false => Ask::Optional,
        };
        let names = alpn::ALL.iter().map(|name| (*name).to_owned());
        let names: Vec<_> = names.chain(self.settings.extra_alpn.clone()).collect();
        if builder.roots.is_some() {
            self.native = Some(builder.server(own, Ask::Required, &names)?);
        }
        let rpc = asked(self.settings.verify_incoming_rpc());
        self.upgrade = Some(builder.server(own, rpc, &[])?);
        self.insecure = Some(builder.server(own, Ask::Never, &[])?);
        let https = match self.settings.verify_incoming_https() {
            true => Ask::Required,
            false => Ask::Never, // A browser would ask its user for a certificate.
        };
        let web = ["h2".to_owned(), "http/1.1".to_owned()];
        self.https = Some(builder.server(own, https, &web)?);
        self.grpc = Some(builder.server(own, Ask::Never, &["h2".to_owned()])?);
        Ok(())
    }

    fn build_clients(&mut self, builder: &Builder) -> Result<(), TlsError> {
        let Some(roots) = &builder.roots else {
            return Ok(());
        };
        let webpki =
            WebPkiServerVerifier::builder_with_provider(roots.clone(), builder.provider.clone())
                .build()
                .map_err(|error| rustls::Error::General(error.to_string()))?;
        let chain = ChainOnly::new(roots.clone(), builder.provider.clone(), webpki.clone());
        self.chain_only = Some(builder.client(Arc::new(chain), "")?);
        let extra = self.settings.extra_alpn.iter().map(String::as_str);
        for name in alpn::ALL.into_iter().chain(extra).chain([""]) {
            let config = builder.client(webpki.clone(), name)?;
            self.named.insert(name.to_owned(), config);
        }
        Ok(())
    }

    fn named(&self, name: &str, alpn: &str) -> Result<TlsClient, TlsError> {
        let config = match self.named.get(alpn) {
            Some(config) => config.clone(),
            None => {
                let base = self.named.get("");
                let base = base.ok_or(TlsError::NotConfigured("ca_file or ca_path"))?;
                let mut config = ClientConfig::clone(base);
                config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
                Arc::new(config)
            }
        };
        let name = ServerName::try_from(name.to_owned())
            .map_err(|_| TlsError::ServerName(name.to_owned()))?;
        Ok(TlsClient { config, name })
    }
}
