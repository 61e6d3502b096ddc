//! Case C022: whether a server's certificate can carry federation.

use super::BASE;
use super::load;
use rcgen::BasicConstraints;
use rcgen::CertificateParams;
use rcgen::DnType;
use rcgen::IsCa;
use rcgen::Issuer;
use rcgen::KeyPair;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// A CA and one certificate of it as files.
struct Certificates {
    dir: TempDir,
}

impl Certificates {
    fn new(names: &[&str], change: impl Fn(&mut CertificateParams)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, text: String| fs::write(dir.path().join(name), text).unwrap();
        let ca_key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::new(Vec::new()).unwrap();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, "Test CA");
        write("ca.pem", ca.self_signed(&ca_key).unwrap().pem());
        let issuer = Issuer::new(ca, ca_key);
        let key = KeyPair::generate().unwrap();
        let mut leaf = CertificateParams::new(
            names
                .iter()
                .map(|name| (*name).to_owned())
                .collect::<Vec<_>>(),
        )
        .unwrap();
        change(&mut leaf);
        write("cert.pem", leaf.signed_by(&key, &issuer).unwrap().pem());
        write("key.pem", key.serialize_pem());
        Self { dir }
    }

    fn hcl(&self) -> String {
        let file = |key: &str, name: &str| format!("{key} = {:?}\n", self.dir.path().join(name));
        let files = file("ca_file", "ca.pem")
            + &file("cert_file", "cert.pem")
            + &file("key_file", "key.pem");
        let switches = "verify_incoming = true\nverify_server_hostname = true\nconnect { enabled = true enable_mesh_gateway_wan_federation = true }\n";
        format!("{BASE}node_name = \"n1\"\n{files}{switches}")
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }
}

/// What is said of a certificate with these names: problems or warnings.
fn said(names: &[&str]) -> Result<String, String> {
    let loaded = load(&Certificates::new(names, |_| {}).hcl());
    loaded
        .map(|loaded| loaded.warnings.to_string())
        .map_err(|problems| problems.to_string())
}

#[test]
fn federation_needs_the_servers_own_name() {
    assert_eq!(
        said(&["n1.server.dc1.consul", "server.dc1.consul"]).as_deref(),
        Ok("0 errors occurred:")
    );
    let wildcard = said(&["*.server.dc1.consul"]).unwrap();
    assert!(
        wildcard.contains("lacks the name server.dc1.consul"),
        "{wildcard}"
    );
    let none = said(&["server.dc1.consul"]).unwrap_err();
    for wanted in [
        "lacks the name n1.server.dc1.consul",
        "it has: server.dc1.consul",
        "crossway tls cert create -server -dc dc1 -node n1",
    ] {
        assert!(none.contains(wanted), "{wanted}\n{none}");
    }
}

#[test]
fn a_certificate_brings_the_xds_port_with_tls() {
    let certificates = Certificates::new(&["n1.server.dc1.consul", "server.dc1.consul"], |_| {});
    let config = load(&certificates.hcl()).unwrap().config;
    assert_eq!(config.ports.grpc_tls, Some(8503));
    assert!(
        config.tls.verify_outgoing
            && config.tls.verify_incoming_rpc
            && config.tls.verify_incoming_https
    );
    assert_eq!(config.addresses.grpc_tls[0].to_string(), "127.0.0.1:8503");
}

#[test]
fn a_dotted_node_name_needs_its_own_certificate() {
    // A wildcard stands for one label (case C006).
    let certificates = Certificates::new(&["*.server.dc1.consul", "server.dc1.consul"], |_| {});
    let hcl = certificates.hcl().replace("\"n1\"", "\"a.b\"");
    let problems = load(&hcl).unwrap_err().to_string();
    assert!(
        problems.contains("lacks the name a.b.server.dc1.consul"),
        "{problems}"
    );
    let certificates = Certificates::new(&["a.b.server.dc1.consul", "server.dc1.consul"], |_| {});
    let warnings = load(&certificates.hcl().replace("\"n1\"", "\"a.b\""))
        .unwrap()
        .warnings
        .to_string();
    assert!(
        warnings.contains("servers of Consul 1.8 in other datacenters cannot send gossip to it"),
        "{warnings}"
    );
}

#[test]
fn expired_foreign_and_mismatched_files_are_named() {
    let names = ["n1.server.dc1.consul", "server.dc1.consul"];
    let expired = Certificates::new(&names, |leaf| {
        leaf.not_after = rcgen::date_time_ymd(2020, 1, 1)
    });
    let future = Certificates::new(&names, |leaf| {
        leaf.not_before = rcgen::date_time_ymd(2999, 1, 1)
    });
    for (certificates, wanted) in [
        (&expired, "expired on Jan"),
        (&future, "is not valid before Jan"),
    ] {
        let problems = load(&certificates.hcl()).unwrap_err().to_string();
        assert!(problems.contains(wanted), "{problems}");
    }
    let good = Certificates::new(&names, |_| {});
    fs::copy(expired.path().join("key.pem"), good.path().join("key.pem")).unwrap();
    let problems = load(&good.hcl()).unwrap_err().to_string();
    assert!(
        problems.contains("key_file does not fit cert_file"),
        "{problems}"
    );
    fs::write(good.path().join("ca.pem"), "nothing").unwrap();
    let problems = load(&good.hcl()).unwrap_err().to_string();
    assert!(
        problems.contains("ca_file holds no certificate"),
        "{problems}"
    );
    fs::copy(good.path().join("cert.pem"), good.path().join("ca.pem")).unwrap();
    let problems = load(&good.hcl()).unwrap_err().to_string();
    assert!(
        problems.contains("ca_file holds no CA certificate")
            && problems.contains("was not issued by"),
        "{problems}"
    );
    // Without verification it is the operator's business: a public certificate for HTTPS, say.
    let other = Certificates::new(&names, |_| {});
    fs::copy(other.path().join("ca.pem"), good.path().join("ca.pem")).unwrap();
    fs::copy(other.path().join("key.pem"), good.path().join("key.pem")).unwrap();
    fs::copy(other.path().join("cert.pem"), good.path().join("cert.pem")).unwrap();
    assert!(load(&good.hcl()).is_ok());
    let foreign = rcgen::generate_simple_self_signed(vec!["n1".to_owned()]).unwrap();
    fs::write(good.path().join("cert.pem"), foreign.cert.pem()).unwrap();
    fs::write(
        good.path().join("key.pem"),
        foreign.signing_key.serialize_pem(),
    )
    .unwrap();
    let hcl = good.hcl();
    let plain: String = hcl
        .lines()
        .filter(|line| !line.contains("verify_") && !line.contains("connect"))
        .map(|line| format!("{line}\n"))
        .collect();
    let warnings = load(&plain).unwrap().warnings.to_string();
    assert!(warnings.contains("was not issued by"), "{warnings}");
}
