//! Makes certificates; the clock and the random source are arguments.

use std::net::IpAddr;
use std::net::Ipv4Addr;

use anyhow::Context;
use anyhow::bail;
use anyhow::ensure;
use rcgen::BasicConstraints;
use rcgen::CertificateParams;
use rcgen::DistinguishedName;
use rcgen::DnType;
use rcgen::ExtendedKeyUsagePurpose;
use rcgen::GeneralSubtree;
use rcgen::IsCa;
use rcgen::Issuer;
use rcgen::KeyIdMethod;
use rcgen::KeyPair;
use rcgen::KeyUsagePurpose;
use rcgen::NameConstraints;
use rcgen::PKCS_ECDSA_P256_SHA256;
use rcgen::SanType;
use rcgen::SerialNumber;
use time::Duration;
use time::OffsetDateTime;
use x509_parser::pem::parse_x509_pem;

/// How far back a certificate is valid, for peers whose clocks are behind.
const BACKDATE: Duration = Duration::minutes(1);

/// The moment of issue and the serial number (its first bit is cleared).
#[derive(Debug, Clone, Copy)]
pub(super) struct Stamp {
    pub(super) now: OffsetDateTime,
    pub(super) serial: u128,
}

/// A certificate and its private key (PKCS #8), in PEM.
#[derive(Debug)]
pub(super) struct Issued {
    pub(super) certificate: String,
    pub(super) key: String,
    /// The certificate is valid longer than the one that signed it.
    pub(super) outlives_signer: bool,
}

/// What to put into a certificate authority.
#[derive(Debug)]
pub(super) struct Authority {
    pub(super) days: u32,
    /// Domains whose names it may sign; all if empty.
    pub(super) permitted: Vec<String>,
    pub(super) stamp: Stamp,
}

/// Makes a self-signed authority with an EC P-256 key.
pub(super) fn authority(wanted: &Authority) -> anyhow::Result<Issued> {
    let mut params = base(wanted.days, wanted.stamp);
    let serial = wanted.stamp.serial & (u128::MAX >> 1);
    params
        .distinguished_name
        .push(DnType::CommonName, format!("Crossway Agent CA {serial}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![
        KeyUsagePurpose::DigitalSignature,
        KeyUsagePurpose::KeyCertSign,
        KeyUsagePurpose::CrlSign,
    ];
    if !wanted.permitted.is_empty() {
        let names = wanted.permitted.iter().cloned();
        params.name_constraints = Some(NameConstraints {
            permitted_subtrees: names.map(GeneralSubtree::DnsName).collect(),
            excluded_subtrees: Vec::new(),
        });
    }
    let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
    Ok(Issued {
        certificate: params.self_signed(&key)?.pem(),
        key: key.serialize_pem(),
        outlives_signer: false,
    })
}

fn base(days: u32, stamp: Stamp) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    let serial = stamp.serial & (u128::MAX >> 1);
    params.serial_number = Some(SerialNumber::from_slice(&serial.to_be_bytes()));
    params.not_before = stamp.now - BACKDATE;
    params.not_after = stamp.now + Duration::days(days.into());
    params.key_identifier_method = KeyIdMethod::Sha256;
    params.use_authority_key_identifier_extension = true;
    params
}

/// Whom a certificate is for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Kind<'a> {
    /// A server, reached as `<node>.server.<datacenter>.<domain>` through mesh gateways.
    Server { node: Option<&'a str> },
    /// A client agent.
    Client,
    /// A command line.
    Cli,
}

/// What to put into a certificate.
#[derive(Debug)]
pub(super) struct Leaf<'a> {
    pub(super) kind: Kind<'a>,
    pub(super) datacenter: &'a str,
    pub(super) domain: &'a str,
    pub(super) days: u32,
    /// Names that come before those of the kind.
    pub(super) dns_names: &'a [String],
    /// Addresses that come before 127.0.0.1.
    pub(super) addresses: &'a [IpAddr],
}

impl Leaf<'_> {
    fn kind_name(&self) -> &'static str {
        match self.kind {
            Kind::Server { .. } => "server",
            Kind::Client => "client",
            Kind::Cli => "cli",
        }
    }

    /// The files' name without extension.
    pub(super) fn file_stem(&self, number: u32) -> String {
        let (datacenter, kind, domain) = (self.datacenter, self.kind_name(), self.domain);
        format!("{datacenter}-{kind}-{domain}-{number}")
    }

    fn common_name(&self) -> String {
        format!("{}.{}.{}", self.kind_name(), self.datacenter, self.domain)
    }

    /// The subject alternative names: additional names, those of the kind, then the addresses likewise.
    fn names(&self) -> anyhow::Result<Vec<SanType>> {
        let common = self.common_name();
        let mut names = self.dns_names.to_vec();
        if let Kind::Server { node: Some(node) } = self.kind {
            ensure!(!node.is_empty(), "-node must not be empty");
            names.push(format!("{node}.{common}"));
        }
        names.push(common);
        names.push("localhost".to_owned());
        let mut all = Vec::new();
        for name in names {
            let text = name.clone().try_into();
            all.push(SanType::DnsName(
                text.with_context(|| format!("{name:?} is no DNS name"))?,
            ));
        }
        let local = IpAddr::from(Ipv4Addr::LOCALHOST);
        let addresses = self.addresses.iter().copied().map(SanType::IpAddress);
        all.extend(addresses);
        if !matches!(self.kind, Kind::Cli) {
            all.push(SanType::IpAddress(local));
        }
        Ok(all)
    }

    fn extended_key_usages(&self) -> Vec<ExtendedKeyUsagePurpose> {
        use ExtendedKeyUsagePurpose::ClientAuth;
        use ExtendedKeyUsagePurpose::ServerAuth;
        match self.kind {
            Kind::Server { .. } => vec![ServerAuth, ClientAuth],
            Kind::Client => vec![ClientAuth, ServerAuth],
            Kind::Cli => vec![ClientAuth],
        }
    }
}

/// An authority that signs.
pub(super) struct Signer {
    issuer: Issuer<'static, KeyPair>,
    not_after: OffsetDateTime,
}

impl Signer {
    /// An authority from its PEM certificate and key, as any tool made them.
    pub(super) fn new(certificate: &str, key: &str, now: OffsetDateTime) -> anyhow::Result<Self> {
        let key =
            KeyPair::from_pem(key).context("the key is no unencrypted private key in PEM form")?;
        let (_, pem) = parse_x509_pem(certificate.as_bytes())
            .map_err(|_| anyhow::anyhow!("the certificate is not in PEM form"))?;
        let parsed = pem.parse_x509().context("the certificate is malformed")?;
        if !parsed.is_ca() {
            bail!("the certificate is not that of an authority (basicConstraints CA)");
        }
        if parsed.public_key().subject_public_key.data != key.public_key_raw() {
            bail!("the key is not the private key of the certificate");
        }
        let not_after = parsed.validity().not_after.to_datetime();
        if not_after < now {
            bail!("the authority expired at {not_after}");
        }
        let issuer = Issuer::from_ca_cert_pem(certificate, key)
            .context("the certificate's algorithm is not supported")?;
        Ok(Self { issuer, not_after })
    }

    /// Signs a certificate with a new EC P-256 key.
    pub(super) fn issue(&self, leaf: &Leaf<'_>, stamp: Stamp) -> anyhow::Result<Issued> {
        let mut params = base(leaf.days, stamp);
        params
            .distinguished_name
            .push(DnType::CommonName, leaf.common_name());
        params.subject_alt_names = leaf.names()?;
        params.is_ca = IsCa::ExplicitNoCa;
        params.key_usages = vec![
            KeyUsagePurpose::DigitalSignature,
            KeyUsagePurpose::KeyEncipherment,
        ];
        params.extended_key_usages = leaf.extended_key_usages();
        let outlives_signer = params.not_after > self.not_after;
        let key = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256)?;
        Ok(Issued {
            certificate: params.signed_by(&key, &self.issuer)?.pem(),
            key: key.serialize_pem(),
            outlives_signer,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use x509_parser::extensions::GeneralName;
    use x509_parser::prelude::X509Certificate;

    fn stamp() -> Stamp {
        Stamp {
            now: OffsetDateTime::from_unix_timestamp(1_800_000_000).unwrap(),
            serial: u128::MAX - 7,
        }
    }

    fn ca(permitted: &[&str]) -> Issued {
        authority(&Authority {
            days: 1825,
            permitted: permitted.iter().map(|name| (*name).to_owned()).collect(),
            stamp: stamp(),
        })
        .unwrap()
    }

    fn leaf<'a>(kind: Kind<'a>) -> Leaf<'a> {
        Leaf {
            kind,
            datacenter: "dc1",
            domain: "consul",
            days: 365,
            dns_names: &[],
            addresses: &[],
        }
    }

    fn inspect<T>(pem: &str, look: impl FnOnce(&X509Certificate<'_>) -> T) -> T {
        let (_, pem) = parse_x509_pem(pem.as_bytes()).unwrap();
        look(&pem.parse_x509().unwrap())
    }

    fn names(pem: &str) -> Vec<String> {
        inspect(pem, |cert| {
            let names = cert.subject_alternative_name().unwrap().unwrap();
            let text = |name: &GeneralName<'_>| match name {
                GeneralName::DNSName(name) => (*name).to_owned(),
                GeneralName::IPAddress(bytes) => match *bytes {
                    [a, b, c, d] => Ipv4Addr::from([*a, *b, *c, *d]).to_string(),
                    other => format!("{other:?}"),
                },
                other => format!("{other}"),
            };
            names.value.general_names.iter().map(text).collect()
        })
    }

    #[test]
    fn each_kind_has_its_names_in_order() {
        let ca = ca(&[]);
        let signer = Signer::new(&ca.certificate, &ca.key, stamp().now).unwrap();
        let check = |wanted: &Leaf<'_>, cn: &str, expected: &[&str]| {
            let issued = signer.issue(wanted, stamp()).unwrap();
            assert_eq!(names(&issued.certificate), expected);
            let subject = inspect(&issued.certificate, |cert| cert.subject().to_string());
            assert_eq!(subject, format!("CN={cn}"));
        };
        let server = Kind::Server { node: Some("s1") };
        let own = [
            "s1.server.dc1.consul",
            "server.dc1.consul",
            "localhost",
            "127.0.0.1",
        ];
        check(&leaf(server), "server.dc1.consul", &own);
        check(
            &leaf(Kind::Server { node: None }),
            "server.dc1.consul",
            &own[1..],
        );
        let client = ["client.dc1.consul", "localhost", "127.0.0.1"];
        check(&leaf(Kind::Client), client[0], &client);
        check(
            &leaf(Kind::Cli),
            "cli.dc1.consul",
            &["cli.dc1.consul", "localhost"],
        );
        let more = Leaf {
            dns_names: &["a.example".to_owned(), "b.example".to_owned()],
            addresses: &["10.0.0.1".parse().unwrap()],
            ..leaf(server)
        };
        let expected = [
            "a.example",
            "b.example",
            own[0],
            own[1],
            own[2],
            "10.0.0.1",
            own[3],
        ];
        check(&more, "server.dc1.consul", &expected);
    }

    #[test]
    fn validity_and_serial_are_as_stamped() {
        let ca = ca(&["consul", "localhost"]);
        inspect(&ca.certificate, |cert| {
            let now = stamp().now.unix_timestamp();
            assert_eq!(cert.validity().not_before.timestamp(), now - 60);
            assert_eq!(cert.validity().not_after.timestamp(), now + 1825 * 86_400);
            assert_eq!(
                cert.raw_serial(),
                (stamp().serial & (u128::MAX >> 1)).to_be_bytes()
            );
            assert!(cert.name_constraints().unwrap().is_some());
            assert!(cert.is_ca());
        });
    }

    #[test]
    fn what_cannot_sign_is_refused_by_reason() {
        let (one, two) = (ca(&[]), ca(&[]));
        let refused = |cert: &str, key: &str, now| {
            let error = Signer::new(cert, key, now).err().unwrap();
            format!("{error:#}")
        };
        let now = stamp().now;
        assert!(refused(&one.certificate, &two.key, now).contains("not the private key"));
        assert!(refused("nonsense", &one.key, now).contains("not in PEM form"));
        assert!(refused(&one.certificate, "nonsense", now).contains("private key in PEM"));
        let later = now + Duration::days(2000);
        assert!(refused(&one.certificate, &one.key, later).contains("expired"));
        let signer = Signer::new(&one.certificate, &one.key, now).unwrap();
        let leaf = signer.issue(&leaf(Kind::Client), stamp()).unwrap();
        assert!(refused(&leaf.certificate, &leaf.key, now).contains("not that of an authority"));
    }

    #[test]
    fn a_certificate_that_outlives_its_authority_is_noticed() {
        let ca = ca(&[]);
        let signer = Signer::new(&ca.certificate, &ca.key, stamp().now).unwrap();
        let long = Leaf {
            days: 4000,
            ..leaf(Kind::Client)
        };
        assert!(signer.issue(&long, stamp()).unwrap().outlives_signer);
    }
}
