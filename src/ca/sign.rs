//! Makes keys and certificates. Pure: times, serial numbers and unique names are arguments; only keys are random.

use crate::ca::Error;
use crate::ca::spiffe::TrustDomain;
use crate::model::Timestamp;
use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rcgen::{
    BasicConstraints, Certificate, CertificateParams, CertificateSigningRequestParams,
    DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair,
    KeyUsagePurpose, PublicKey, PublicKeyData, SanType, SerialNumber,
};
use rustls::pki_types::PrivateKeyDer;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use std::time::Duration;
use time::OffsetDateTime;

/// How far the start of every certificate lies in the past, so that a peer whose clock is behind accepts it (C088).
pub const BACKDATE: Duration = Duration::from_secs(600);

/// Lifetime of a root: ten years.
pub const ROOT_TTL: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// A certificate with its private key, both as PEM text.
pub struct Signed {
    /// The certificate.
    pub certificate: Certificate,
    /// Its private key, `EC PRIVATE KEY`.
    pub private_key_pem: String,
    /// First moment at which it is valid.
    pub not_before: Timestamp,
    /// Last moment at which it is valid.
    pub not_after: Timestamp,
}

/// A new EC P-256 key as PEM of the kind `EC PRIVATE KEY` (RFC 5915), which Consul's clients expect.
pub fn generate_key() -> Result<String, Error> {
    let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)
        .map_err(|_| Error::Crypto("cannot generate an EC P-256 key".to_owned()))?;
    let der = key
        .private_key()
        .as_der()
        .map_err(|_| Error::Crypto("cannot encode an EC P-256 key".to_owned()))?;
    Ok(pem("EC PRIVATE KEY", der.as_ref()))
}

/// Reads a private key from PEM text.
pub fn parse_key(text: &str) -> Result<KeyPair, Error> {
    use rustls::pki_types::pem::PemObject;
    let der = PrivateKeyDer::from_pem_slice(text.as_bytes())
        .map_err(|e| Error::Crypto(format!("the CA's private key is not PEM: {e}")))?;
    KeyPair::try_from(&der)
        .map_err(|e| Error::Crypto(format!("the CA's private key is not usable: {e}")))
}

/// A self-signed root for a trust domain.
pub fn root(
    trust_domain: &TrustDomain,
    uid: &str,
    serial: u64,
    now: Timestamp,
) -> Result<Signed, Error> {
    let private_key_pem = generate_key()?;
    let key = parse_key(&private_key_pem)?;
    let mut params = base_params(&trust_domain.uri(), serial, now, ROOT_TTL)?;
    params.distinguished_name = common_name(&trust_domain.root_common_name(uid));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    params.key_identifier_method = KeyIdMethod::PreSpecified(key_id(&key));
    let (not_before, not_after) = (params.not_before.into(), params.not_after.into());
    let certificate = params.self_signed(&key).map_err(signing)?;
    Ok(Signed {
        certificate,
        private_key_pem,
        not_before,
        not_after,
    })
}

/// The signer of a root that [`root`] made: its certificate and key as PEM.
pub fn issuer(root_pem: &str, key_pem: &str) -> Result<Issuer<'static, KeyPair>, Error> {
    let key = parse_key(key_pem)?;
    Issuer::from_ca_cert_pem(root_pem, key)
        .map_err(|e| Error::Crypto(format!("the CA's root certificate is not usable: {e}")))
}

/// What a leaf certificate says.
pub struct LeafRequest<'a> {
    /// Whom it is for: its key, and the only URI in it.
    pub csr: &'a Csr,
    /// Its common name.
    pub common_name: &'a str,
    /// Unique under the issuer.
    pub serial: u64,
    /// The present.
    pub now: Timestamp,
    /// How long it is valid from now on.
    pub ttl: Duration,
}

/// A request to sign a key for a URI.
pub struct Csr {
    key: PublicKey,
    /// The one URI in it.
    pub uri: String,
}

impl Csr {
    /// Reads a request and checks that its sender has the key.
    ///
    /// # Errors
    /// [`Error::Invalid`]: it is no request, or does not name exactly one URI.
    pub fn parse(pem: &str) -> Result<Self, Error> {
        let bad = |problem: String| Error::Invalid(format!("CSR: {problem}"));
        let read = CertificateSigningRequestParams::from_pem(pem);
        let read = read.map_err(|error| bad(error.to_string()))?;
        let names = read.params.subject_alt_names.iter();
        let uris: Vec<_> = names
            .filter_map(|name| match name {
                SanType::URI(uri) => Some(uri.to_string()),
                _ => None,
            })
            .collect();
        match <[String; 1]>::try_from(uris) {
            Ok([uri]) => Ok(Self {
                key: read.public_key,
                uri,
            }),
            Err(uris) => Err(bad(format!("it must name one URI, not {}", uris.len()))),
        }
    }
}

/// A new key and the request to sign it for `uri`, both as PEM text.
pub fn request(uri: &str) -> Result<(String, String), Error> {
    let private_key_pem = generate_key()?;
    let key = parse_key(&private_key_pem)?;
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![uri_name(uri)?];
    params.distinguished_name = DistinguishedName::new();
    let request = params.serialize_request(&key).map_err(signing)?;
    let request = request.pem().map_err(signing)?;
    Ok((private_key_pem, request))
}

/// A leaf for the key of a request, signed by `issuer`.
pub fn leaf(issuer: &Issuer<'_, KeyPair>, request: &LeafRequest<'_>) -> Result<Leaf, Error> {
    let key = &request.csr.key;
    let mut params = base_params(&request.csr.uri, request.serial, request.now, request.ttl)?;
    params.distinguished_name = common_name(request.common_name);
    params.is_ca = IsCa::ExplicitNoCa;
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyEncipherment,
        KeyUsagePurpose::DataEncipherment,
        KeyUsagePurpose::KeyAgreement,
    ];
    params.extended_key_usages = vec![
        ExtendedKeyUsagePurpose::ClientAuth,
        ExtendedKeyUsagePurpose::ServerAuth,
    ];
    params.key_identifier_method = KeyIdMethod::PreSpecified(key_id(key));
    let (not_before, not_after) = (params.not_before.into(), params.not_after.into());
    let certificate = params.signed_by(key, issuer).map_err(signing)?;
    Ok(Leaf {
        certificate,
        not_before,
        not_after,
    })
}

/// A certificate for somebody else's key.
pub struct Leaf {
    /// The certificate.
    pub certificate: Certificate,
    /// First moment at which it is valid.
    pub not_before: Timestamp,
    /// Last moment at which it is valid.
    pub not_after: Timestamp,
}

fn uri_name(uri: &str) -> Result<SanType, Error> {
    let name = uri.try_into();
    let name = name.map_err(|_| Error::Crypto(format!("{uri:?} cannot stand in a certificate")))?;
    Ok(SanType::URI(name))
}

fn base_params(
    uri: &str,
    serial: u64,
    now: Timestamp,
    ttl: Duration,
) -> Result<CertificateParams, Error> {
    let mut params = CertificateParams::default();
    let start = moment(now)? - BACKDATE;
    params.not_before = start;
    params.not_after = start + BACKDATE + ttl;
    params.serial_number = Some(SerialNumber::from(serial));
    params.subject_alt_names = vec![uri_name(uri)?];
    params.use_authority_key_identifier_extension = true;
    Ok(params)
}

/// Whole seconds: certificates hold no more.
fn moment(at: Timestamp) -> Result<OffsetDateTime, Error> {
    OffsetDateTime::from_unix_timestamp(at.unix_seconds()).map_err(|_| {
        Error::Crypto(format!(
            "the clock's time {at} cannot stand in a certificate"
        ))
    })
}

fn common_name(name: &str) -> DistinguishedName {
    let mut dn = DistinguishedName::new();
    dn.push(DnType::CommonName, name);
    dn
}

fn signing(error: rcgen::Error) -> Error {
    Error::Crypto(format!("signing failed: {error}"))
}

/// Key identifier as the reference makes it: all of the SHA-256 of the public key's DER form.
pub fn key_id(key: &impl PublicKeyData) -> Vec<u8> {
    Sha256::digest(key.subject_public_key_info()).to_vec()
}

/// Colon-separated SHA-1 of a certificate's DER: the id of a root.
pub fn root_id(certificate: &Certificate) -> String {
    colon_hex(&Sha1::digest(certificate.der()))
}

/// Bytes as `aa:bb:…`.
pub fn colon_hex(bytes: &[u8]) -> String {
    let pairs: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    pairs.join(":")
}

fn pem(label: &str, der: &[u8]) -> String {
    let text = STANDARD.encode(der);
    let mut out = format!("-----BEGIN {label}-----\n");
    for at in (0..text.len()).step_by(64) {
        let end = text.len().min(at + 64);
        out.push_str(text.get(at..end).unwrap_or_default());
        out.push('\n');
    }
    out.push_str(&format!("-----END {label}-----\n"));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::prelude::*;

    fn fixture() -> (Signed, Leaf) {
        let td = TrustDomain::of("11111111-2222-3333-4444-555555555555");
        let now = Timestamp::from_unix(1_800_000_000, 5);
        let root = root(&td, "abcdefgh", 7, now).unwrap();
        let issuer = issuer(&root.certificate.pem(), &root.private_key_pem).unwrap();
        let (_, csr) = request("spiffe://td/ns/default/dc/dc1/svc/web").unwrap();
        let csr = Csr::parse(&csr).unwrap();
        assert_eq!(csr.uri, "spiffe://td/ns/default/dc/dc1/svc/web");
        let request = LeafRequest {
            csr: &csr,
            common_name: "web.svc.default.11111111.consul",
            serial: 9,
            now,
            ttl: Duration::from_secs(3600),
        };
        let leaf = leaf(&issuer, &request).unwrap();
        (root, leaf)
    }

    #[test]
    fn a_leaf_chains_to_its_root_and_both_are_backdated() {
        let (root, leaf) = fixture();
        let (_, ca) = X509Certificate::from_der(root.certificate.der()).unwrap();
        let (_, end) = X509Certificate::from_der(leaf.certificate.der()).unwrap();
        end.verify_signature(Some(ca.public_key())).unwrap();
        ca.verify_signature(None).unwrap();
        for cert in [&ca, &end] {
            assert_eq!(cert.validity().not_before.timestamp(), 1_800_000_000 - 600);
        }
        assert_eq!(end.validity().not_after.timestamp(), 1_800_000_000 + 3600);
        assert_eq!(end.issuer(), ca.subject());
        assert_eq!(
            (ca.raw_serial_as_string(), end.raw_serial_as_string()),
            ("07".into(), "09".into())
        );
        assert!(ca.is_ca() && !end.is_ca());
    }

    #[test]
    fn key_identifiers_are_full_sha256_and_link_leaf_to_root() {
        let (root, leaf) = fixture();
        let (_, end) = X509Certificate::from_der(leaf.certificate.der()).unwrap();
        let authority = end
            .iter_extensions()
            .find_map(|e| match e.parsed_extension() {
                ParsedExtension::AuthorityKeyIdentifier(a) => a.key_identifier.clone(),
                _ => None,
            })
            .unwrap();
        let key = parse_key(&root.private_key_pem).unwrap();
        assert_eq!(authority.0, key_id(&key).as_slice());
        assert_eq!(authority.0.len(), 32);
        assert!(
            root.private_key_pem
                .starts_with("-----BEGIN EC PRIVATE KEY-----\n")
        );
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let (_, good) = request("spiffe://td/ns/default/dc/dc1/svc/web").unwrap();
        let middle = good.len() / 2;
        let other = if good.as_bytes()[middle] == b'A' {
            "B"
        } else {
            "A"
        };
        let changed = [&good[..middle], other, &good[middle + 1..]].concat();
        for bad in ["", "x", &changed, &good[..middle]] {
            assert!(matches!(Csr::parse(bad), Err(Error::Invalid(_))), "{bad}");
        }
    }
}
