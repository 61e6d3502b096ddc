//! Wrong certificates: one clear line in the log for each, and the server stays up.

use crate::hostile::all_ports;
use crate::hostile::check_alive;
use crate::support::certs::Authority;
use crate::support::certs::Pair;
use crate::support::server::Server;
use crate::support::server::eventually;
use rustix::process::Signal;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use serde_json::json;
use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// A TLS client that trusts `ca` and presents `own`; answers the server's certificate, or why the server ended it.
fn handshake(
    server: &Server,
    port: u16,
    alpn: &str,
    ca: &Path,
    own: Option<&Pair>,
) -> Result<Vec<u8>, String> {
    crossway::net::install_crypto_provider();
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(ca).unwrap())
        .unwrap();
    let builder = rustls::ClientConfig::builder().with_root_certificates(roots);
    let mut config = match own {
        Some(pair) => builder
            .with_client_auth_cert(
                vec![CertificateDer::from_pem_file(&pair.cert).unwrap()],
                PrivateKeyDer::from_pem_file(&pair.key).unwrap(),
            )
            .unwrap(),
        None => builder.with_no_client_auth(),
    };
    config.alpn_protocols = vec![alpn.as_bytes().to_vec()];
    let name = ServerName::try_from("server.dc1.consul").unwrap();
    let connection = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let tcp = TcpStream::connect((server.address, port)).unwrap();
    tcp.set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let mut stream = rustls::StreamOwned::new(connection, tcp);
    // In TLS 1.3 the server's refusal comes after the client is done.
    match stream.read(&mut [0; 64]) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
        Ok(n) if n > 0 => {}
        other => return Err(format!("{other:?}")),
    }
    let certificates = stream.conn.peer_certificates().ok_or("no certificate")?;
    Ok(certificates[0].to_vec())
}

fn with_authority(ca: &Authority, own: &Pair) -> Server {
    let mut config = all_ports();
    config["ca_file"] = json!(ca.file());
    config["cert_file"] = json!(own.cert);
    config["key_file"] = json!(own.key);
    Server::start(&config)
}

#[test]
fn each_wrong_client_certificate_gets_its_line_and_the_right_one_gets_in() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new(folder.path(), "ca");
    let other = Authority::new(folder.path(), "other");
    let own = ca.server("n1", "dc1");
    let server = with_authority(&ca, &own);
    let (good, foreign) = (
        ca.sign(&["client.dc1.consul"]),
        other.sign(&["client.dc1.consul"]),
    );
    let expired = ca.sign_for(&["client.dc1.consul"], (-5, -2));
    let early = ca.sign_for(&["client.dc1.consul"], (2, 5));
    let cases = [
        (None, "presented no certificate"),
        (Some(&foreign), "is not signed by any CA in ca_file"),
        (Some(&expired), "has expired"),
        (Some(&early), "is not valid yet"),
    ];
    for (port, alpn, line) in [
        (8300, "consul/rpc-single", "RPC connection refused"),
        (8501, "http/1.1", "HTTPS connection refused"),
    ] {
        for (own, reason) in &cases {
            for _ in 0..3 {
                handshake(&server, port, alpn, &ca.file(), *own).unwrap_err();
            }
            let said = eventually(reason, || {
                let lines = server.lines(" WARN ");
                let said = lines
                    .into_iter()
                    .filter(|l| l.contains(line) && l.contains(reason));
                let said: Vec<_> = said.collect();
                (!said.is_empty()).then_some(said)
            });
            assert_eq!(said.len(), 1, "{said:?}");
        }
        handshake(&server, port, alpn, &ca.file(), Some(&good)).unwrap();
    }
    // gRPC asks for no certificate, as in Consul; a client that does not trust ours says so with an alert.
    handshake(&server, 8503, "h2", &ca.file(), None).unwrap();
    for port in [8300, 8501, 8503] {
        let alpn = if port == 8300 {
            "consul/rpc-single"
        } else {
            "h2"
        };
        handshake(&server, port, alpn, &other.file(), Some(&good)).unwrap_err();
    }
    for line in ["RPC", "HTTPS", "gRPC"] {
        eventually(line, || {
            let lines = server.lines(" WARN ");
            let line = format!("{line} connection refused");
            lines
                .iter()
                .any(|l| l.contains(&line) && l.contains("TLS alert"))
                .then_some(())
        });
    }
    assert_eq!(server.get("/v1/status/leader").unwrap().0, 200);
    assert!(!server.log().contains("panicked"));
}

#[test]
fn a_renewed_certificate_serves_new_connections_after_a_signal() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new(folder.path(), "ca");
    let client = ca.sign(&["client.dc1.consul"]);
    let own = ca.server("n1", "dc1");
    let server = with_authority(&ca, &own);
    let ports = [
        (8300, "consul/rpc-single"),
        (8501, "http/1.1"),
        (8503, "h2"),
    ];
    let seen = |port, alpn| handshake(&server, port, alpn, &ca.file(), Some(&client)).unwrap();
    let before: Vec<_> = ports.iter().map(|(port, alpn)| seen(*port, alpn)).collect();
    // A broken file first: it is refused and the old certificate serves on.
    let good = std::fs::read(&own.cert).unwrap();
    std::fs::write(&own.cert, "no certificate").unwrap();
    server.signal(Signal::HUP);
    eventually("the refusal", || {
        server
            .log()
            .contains("configuration not reloaded")
            .then_some(())
    });
    let still: Vec<_> = ports.iter().map(|(port, alpn)| seen(*port, alpn)).collect();
    assert_eq!(still, before);
    std::fs::write(&own.cert, good).unwrap();
    let renewed = ca.server("n1", "dc1"); // The same files.
    assert_eq!(renewed.cert, own.cert);
    server.signal(Signal::HUP);
    eventually("the reload", || {
        server
            .log()
            .contains("configuration reloaded")
            .then_some(())
    });
    for ((port, alpn), old) in ports.iter().zip(before) {
        assert_ne!(seen(*port, alpn), old, "{port}");
    }
}

#[test]
fn a_server_does_not_start_with_certificates_that_cannot_work() {
    let folder = tempfile::tempdir().unwrap();
    let ca = Authority::new(folder.path(), "ca");
    let names = ["n1.server.dc1.consul", "server.dc1.consul", "localhost"];
    let good = ca.server("n1", "dc1");
    let mixed = Pair {
        cert: good.cert.clone(),
        key: ca.server("n2", "dc1").key,
    };
    for (own, remedy) in [
        (ca.sign_for(&names, (-5, -2)), "expired"),
        (ca.sign_for(&names, (2, 5)), "clock"),
        (ca.server("n9", "dc1"), "n1.server.dc1.consul"),
        (mixed, "key_file"),
    ] {
        let mut config = all_ports();
        config["ca_file"] = json!(ca.file());
        config["cert_file"] = json!(own.cert);
        config["key_file"] = json!(own.key);
        let mut server = Server::prepare(&config);
        server.spawn();
        let (code, _) = server.wait_for_end();
        let log = server.log();
        assert_eq!(code, Some(1), "{log}");
        assert!(log.contains(remedy), "{remedy}: {log}");
        assert!(!log.contains("panicked"), "{log}");
    }
    check_alive(&Server::start(&json!({})));
}
