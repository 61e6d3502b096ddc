//! What the TLS settings mean as rustls configurations.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use arc_swap::ArcSwap;
use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::SupportedProtocolVersion;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::pki_types::UnixTime;
use rustls::server::NoServerSessionStorage;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::sign::SingleCertAndKey;

use crate::net::alpn;
use crate::net::error::TlsError;
use crate::net::load;
use crate::net::server_name;
use crate::net::verify::ChainOnly;
use crate::net::verify::check_chain;

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
        self.current.store(Arc::new(Loaded::new(settings, now)?));
        Ok(())
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

impl TlsSettings {
    fn verify_incoming_rpc(&self) -> bool {
        self.verify_incoming || self.verify_incoming_rpc
    }

    fn verify_incoming_https(&self) -> bool {
        self.verify_incoming || self.verify_incoming_https
    }

    /// Refuses settings that need others.
    fn check(&self) -> Result<(), TlsError> {
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

    fn versions(&self) -> &'static [&'static SupportedProtocolVersion] {
        match self.min_version {
            TlsVersion::Tls12 => rustls::ALL_VERSIONS,
            TlsVersion::Tls13 => TLS13_ONLY,
        }
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

/// Whether a server asks its clients for a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ask {
    Never,
    /// A certificate that is presented is verified.
    Optional,
    Required,
}

/// What all configurations have in common.
struct Builder {
    provider: Arc<CryptoProvider>,
    versions: &'static [&'static SupportedProtocolVersion],
    roots: Option<Arc<RootCertStore>>,
    own: Option<Arc<CertifiedKey>>,
}

impl Builder {
    fn server(
        &self,
        own: &Arc<CertifiedKey>,
        ask: Ask,
        alpn: &[String],
    ) -> Result<Arc<ServerConfig>, TlsError> {
        let resolver = Arc::new(SingleCertAndKey::from(own.clone()));
        let mut config = ServerConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(self.versions)?
            .with_client_cert_verifier(self.client_verifier(ask)?)
            .with_cert_resolver(resolver);
        config.alpn_protocols = alpn.iter().map(|name| name.clone().into_bytes()).collect();
        if ask != Ask::Never {
            // A resumed session would skip the check whether the client's certificate is still valid.
            config.session_storage = Arc::new(NoServerSessionStorage {});
            config.send_tls13_tickets = 0;
        }
        Ok(Arc::new(config))
    }

    fn client_verifier(&self, ask: Ask) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
        let Some(roots) = self.roots.as_ref().filter(|_| ask != Ask::Never) else {
            return Ok(WebPkiClientVerifier::no_client_auth());
        };
        let builder =
            WebPkiClientVerifier::builder_with_provider(roots.clone(), self.provider.clone());
        let builder = match ask {
            Ask::Required => builder,
            _ => builder.allow_unauthenticated(),
        };
        let verifier = builder.build();
        Ok(verifier.map_err(|error| rustls::Error::General(error.to_string()))?)
    }

    fn client(
        &self,
        verifier: Arc<dyn ServerCertVerifier>,
        alpn: &str,
    ) -> Result<Arc<ClientConfig>, TlsError> {
        let builder = ClientConfig::builder_with_provider(self.provider.clone())
            .with_protocol_versions(self.versions)?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match &self.own {
            Some(own) => {
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own.clone())))
            }
            None => builder.with_no_client_auth(),
        };
        if !alpn.is_empty() {
            config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
        }
        Ok(Arc::new(config))
    }

    /// Peers with the same CA file would refuse a certificate that this CA did not sign.
    fn issuer_warning(&self, now: SystemTime) -> Option<String> {
        let (roots, own) = (self.roots.as_ref()?, self.own.as_ref()?);
        let (leaf, intermediates) = own.cert.split_first()?;
        let now = UnixTime::since_unix_epoch(now.duration_since(UNIX_EPOCH).unwrap_or_default());
        let error = check_chain(roots, &self.provider, leaf, intermediates, now).err()?;
        let (_, issuer) = load::names_and_issuer(leaf);
        Some(format!(
            "cert_file: our certificate, issued by {issuer:?}, does not verify with ca_file ({error}); peers with the same CA will refuse it: add the issuer to ca_file, or intermediates to cert_file"
        ))
    }
}
