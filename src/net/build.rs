//! Builds rustls configurations from the same few parts.

use std::sync::Arc;
use std::time::SystemTime;
use std::time::UNIX_EPOCH;

use rustls::ClientConfig;
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::SupportedProtocolVersion;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::UnixTime;
use rustls::server::NoServerSessionStorage;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::CertifiedKey;
use rustls::sign::SingleCertAndKey;

use crate::net::error::TlsError;
use crate::net::load;
use crate::net::verify::check_chain;

/// Whether a server asks its clients for a certificate.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ask {
    Never,
    /// A certificate that is presented is verified.
    Optional,
    Required,
}

/// What all configurations have in common.
pub(super) struct Builder {
    pub(super) provider: Arc<CryptoProvider>,
    pub(super) versions: &'static [&'static SupportedProtocolVersion],
    pub(super) roots: Option<Arc<RootCertStore>>,
    pub(super) own: Option<Arc<CertifiedKey>>,
}

impl Builder {
    pub(super) fn server(
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

    pub(super) fn client(
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
    pub(super) fn issuer_warning(&self, now: SystemTime) -> Option<String> {
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
