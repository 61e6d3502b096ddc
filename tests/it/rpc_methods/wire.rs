//! Calls with bytes of our choice, and replies in a form that can be compared.

use std::net::SocketAddr;
use std::path::Path;
use std::time::SystemTime;

use crossway::codec;
use crossway::codec::Scanner;
use crossway::codec::Value;
use crossway::net::Stream;
use crossway::net::Tls;
use crossway::net::TlsSettings;
use crossway::rpc::ClientError;
use crossway::rpc::Security;
use crossway::rpc::Session;
use crossway::rpc::Target;
use serde_json::Value as Json;
use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::io::AsyncWriteExt;

use crate::support::server::PATIENCE;

/// The TLS of whoever has this certificate in `folder`, as `tls cert create` names it.
pub(super) fn tls(folder: &Path, stem: &str) -> Tls {
    let settings = TlsSettings {
        ca_files: vec![folder.join("consul-agent-ca.pem")],
        cert_file: Some(folder.join(format!("{stem}.pem"))),
        key_file: Some(folder.join(format!("{stem}-key.pem"))),
        verify_server_hostname: true,
        domain: "consul".into(),
        ..TlsSettings::default()
    };
    Tls::load(settings, SystemTime::now()).unwrap()
}

/// A session with the server at `address`, through ALPN and yamux.
pub(super) async fn session(address: SocketAddr, tls: &Tls) -> Session {
    let target = Target {
        address,
        datacenter: "dc1".into(),
        node: "n1".into(),
        security: Security::Native {
            sni: Some("server.dc1.consul".into()),
        },
        multiplexed: true,
    };
    Session::connect(&target, tls, PATIENCE).await.unwrap()
}

/// A call with JSON as its argument: the reply, or the text of the error.
pub(super) async fn call(session: &Session, method: &str, body: &Json) -> Result<Value, String> {
    let body = codec::to_vec(&Value::from_json(body).unwrap()).unwrap();
    match session.call(method, &body, PATIENCE).await {
        Ok(reply) => Ok(codec::from_slice(&reply).unwrap()),
        Err(ClientError::Remote(text)) => Err(text),
        Err(_) => Err("the stream ended".into()),
    }
}

/// The ways in: native TLS with either protocol, and TLS behind type byte 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    AlpnMulti,
    AlpnSingle,
    ByteMulti,
    ByteSingle,
}

impl Way {
    pub(super) const ALL: [Self; 4] = [
        Self::AlpnMulti,
        Self::AlpnSingle,
        Self::ByteMulti,
        Self::ByteSingle,
    ];

    fn is_multi(self) -> bool {
        matches!(self, Self::AlpnMulti | Self::ByteMulti)
    }
}

/// A stream for RPC on a connection of its own.
pub(super) struct Raw {
    stream: Stream,
    multi: bool,
    opened: bool,
    /// What was read of the stream but belongs to later values.
    rest: Vec<u8>,
}

impl Raw {
    pub(super) async fn connect(address: SocketAddr, tls: &Tls, way: Way) -> Self {
        let mut tcp = Stream::connect(address).await.unwrap();
        let name = "server.dc1.consul";
        let stream = match way {
            Way::AlpnMulti => {
                let client = tls.named_client(name, "consul/rpc-multi").unwrap();
                Stream::connect_tls(tcp, client).await.unwrap()
            }
            Way::AlpnSingle => {
                let client = tls.named_client(name, "consul/rpc-single").unwrap();
                Stream::connect_tls(tcp, client).await.unwrap()
            }
            Way::ByteMulti | Way::ByteSingle => {
                tcp.write_all(&[3]).await.unwrap();
                let client = tls.lan_client("dc1", address.ip()).unwrap();
                let mut stream = Stream::connect_tls(tcp, client).await.unwrap();
                let byte = if way.is_multi() { 4 } else { 0 };
                stream.write_all(&[byte]).await.unwrap();
                stream
            }
        };
        Self {
            stream,
            multi: way.is_multi(),
            opened: false,
            rest: Vec::new(),
        }
    }

    /// Sends bytes, in the frames that the recorded client used where there is yamux.
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        let mut out = Vec::new();
        if self.multi {
            if !self.opened {
                out.extend_from_slice(&[0, 1, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]); // Window update that opens stream 1.
                self.opened = true;
            }
            out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1]);
            out.extend_from_slice(&u32::try_from(bytes.len()).unwrap().to_be_bytes());
        }
        out.extend_from_slice(bytes);
        self.stream.write_all(&out).await.unwrap();
        self.stream.flush().await.unwrap();
    }

    /// The bytes of the next value.
    pub(super) async fn next(&mut self) -> Vec<u8> {
        let mut scanner = Scanner::default();
        loop {
            let end = scanner.advance(&self.rest, usize::MAX).unwrap();
            if let Some(end) = end {
                let rest = self.rest.split_off(end);
                return std::mem::replace(&mut self.rest, rest);
            }
            let more = tokio::time::timeout(PATIENCE, self.more()).await;
            more.expect("an answer in time");
        }
    }

    async fn more(&mut self) {
        if !self.multi {
            let mut part = [0; 4096];
            let read = self.stream.read(&mut part).await.unwrap();
            assert_ne!(read, 0, "the stream ended");
            self.rest.extend_from_slice(&part[..read]);
            return;
        }
        let mut head = [0; 12];
        self.stream.read_exact(&mut head).await.unwrap();
        let length = u32::from_be_bytes([head[8], head[9], head[10], head[11]]);
        if head[1] == 0 {
            let mut data = vec![0; length as usize];
            self.stream.read_exact(&mut data).await.unwrap();
            self.rest.extend_from_slice(&data);
        }
    }
}

/// The header of a request.
pub(super) fn header(method: &str, seq: u64) -> Vec<u8> {
    let header = json!({ "ServiceMethod": method, "Seq": seq });
    codec::to_vec(&Value::from_json(&header).unwrap()).unwrap()
}

/// A config entry request as it travels: a blob in which the kind stands before the rest. A proxy-defaults entry is a
/// blob once more.
pub(crate) fn config_request(op: &str, kind: &str, entry: &Json) -> Json {
    let bytes = |json: &Json| codec::to_vec(&Value::from_json(json).unwrap()).unwrap();
    let entry = match kind {
        "proxy-defaults" => json!({ "hex": hex(&bytes(entry)) }),
        _ => entry.clone(),
    };
    let rest = json!({"Op": op, "Datacenter": "dc1", "Entry": entry, "Token": ""});
    let blob = [codec::to_vec(kind).unwrap(), bytes(&rest)].concat();
    json!({ "hex": hex(&blob) })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// A reply as JSON, with what differs from run to run made equal: Raft indexes and times. Blobs are opened.
pub(super) fn shown(value: &Value) -> Json {
    match value {
        Value::Map(pairs) => pairs
            .iter()
            .map(|(key, value)| {
                let key = key.as_str().unwrap().to_owned();
                let value = match (key.as_str(), value) {
                    (
                        "Index" | "CreateIndex" | "ModifyIndex" | "PrimaryModifyIndex",
                        Value::Uint(1..),
                    ) => json!("index"),
                    (_, value) => shown(value),
                };
                (key, value)
            })
            .collect(),
        Value::Array(items) => items.iter().map(shown).collect(),
        Value::Raw(raw) if raw.len() == 15 && raw[0] == 1 => {
            let zero = raw[1..13].iter().all(|byte| *byte == 0);
            json!(if zero { "no time" } else { "a time" })
        }
        Value::Raw(raw) => opened(raw).unwrap_or_else(|| value.to_json()),
        other => other.to_json(),
    }
}

/// The values in a row that a blob of a config entry holds.
fn opened(raw: &[u8]) -> Option<Json> {
    let (mut rest, mut values) = (raw, Vec::new());
    while !rest.is_empty() {
        values.push(codec::take::<Value>(&mut rest).ok()?);
    }
    let is_blob = values.iter().any(|value| matches!(value, Value::Map(_)));
    is_blob.then(|| json!({ "blob": values.iter().map(shown).collect::<Vec<_>>() }))
}
