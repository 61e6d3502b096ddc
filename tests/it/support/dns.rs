//! A DNS server with a few names, and how Envoy is told to use it.

use super::server::loopback;
use serde_json::Value;
use serde_json::json;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::Mutex;

/// Answers questions about its names until the test process ends.
pub(crate) struct Dns {
    address: SocketAddr,
    names: Arc<Mutex<BTreeMap<String, Vec<IpAddr>>>>,
}

impl Dns {
    pub(crate) fn start() -> Self {
        Self::start_at(0)
    }

    /// One that a `resolv.conf` can name.
    pub(crate) fn start_on_port_53() -> Self {
        Self::start_at(53)
    }

    /// Where it is.
    pub(crate) fn ip(&self) -> IpAddr {
        self.address.ip()
    }

    fn start_at(port: u16) -> Self {
        let socket = UdpSocket::bind((loopback(), port)).unwrap();
        let address = socket.local_addr().unwrap();
        let names = Arc::new(Mutex::new(BTreeMap::new()));
        let shared = Arc::clone(&names);
        std::thread::spawn(move || {
            let mut buffer = [0; 1500];
            while let Ok((length, peer)) = socket.recv_from(&mut buffer) {
                let reply = answer(&buffer[..length], &shared.lock().unwrap());
                if let Some(reply) = reply {
                    let _ = socket.send_to(&reply, peer);
                }
            }
        });
        Self { address, names }
    }

    /// Gives a name its addresses.
    pub(crate) fn set(&self, name: &str, addresses: &[IpAddr]) {
        let mut names = self.names.lock().unwrap();
        names.insert(name.to_owned(), addresses.to_vec());
    }

    /// Makes an Envoy ask this server.
    pub(crate) fn install(&self, bootstrap: &mut Value) {
        bootstrap["typed_dns_resolver_config"] = json!({
            "name": "envoy.network.dns_resolver.cares",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
                "resolvers": [{"socket_address":
                    {"address": self.address.ip().to_string(), "port_value": self.address.port()}}],
                "dns_resolver_options": {"no_default_search_domain": true},
            },
        });
    }
}

/// The reply to one question (RFC 1035, 4.1): the addresses of the family that it asks for, or "no such name".
fn answer(query: &[u8], names: &BTreeMap<String, Vec<IpAddr>>) -> Option<Vec<u8>> {
    let mut at = 12;
    let mut labels = Vec::new();
    while let Some(length) = query.get(at).map(|b| usize::from(*b)).filter(|l| *l > 0) {
        labels.push(String::from_utf8_lossy(query.get(at + 1..=at + length)?).to_lowercase());
        at += 1 + length;
    }
    let question = query.get(12..at + 5)?;
    let kind = u16::from_be_bytes([query[at + 1], query[at + 2]]);
    let found = names.get(&labels.join("."));
    let records: Vec<Vec<u8>> = found
        .into_iter()
        .flatten()
        .filter_map(|address| match (address, kind) {
            (IpAddr::V4(ip), 1) => Some(ip.octets().to_vec()),
            (IpAddr::V6(ip), 28) => Some(ip.octets().to_vec()),
            _ => None,
        })
        .collect();
    let code = if found.is_some() { 0 } else { 3 };
    let mut reply = query.get(..2)?.to_vec();
    reply.extend([0x85, 0x80 | code, 0, 1, 0]);
    reply.extend([u8::try_from(records.len()).unwrap(), 0, 0, 0, 0]);
    reply.extend(question);
    for record in records {
        reply.extend([0xc0, 12]);
        reply.extend(kind.to_be_bytes());
        reply.extend([0, 1, 0, 0, 0, 1, 0, u8::try_from(record.len()).unwrap()]);
        reply.extend(record);
    }
    Some(reply)
}
