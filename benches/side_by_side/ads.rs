//! K gateways as an Envoy would behave: one connection and one ADS stream each, everything acknowledged.
//!
//! The messages are written and read by hand: v2 and v3 share their field numbers, and decoding a response fully would
//! cost more than the servers under test.

use crate::http::find;
use crate::server::{Kind, Server, Usage, instance};
use bytes::{Buf, BufMut, Bytes};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;
use tonic::Status;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};

#[derive(Clone, Copy, Default)]
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;
    fn encoder(&mut self) -> Self {
        Self
    }
    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn encode(&mut self, item: Bytes, dst: &mut EncodeBuf<'_>) -> Result<(), Status> {
        dst.put(item);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;
    fn decode(&mut self, src: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        let len = src.remaining();
        Ok(Some(src.copy_to_bytes(len)))
    }
}

#[derive(Default)]
struct Shared {
    marker: Mutex<Vec<u8>>,
    seen: Mutex<Vec<(usize, Instant)>>,
    bytes: AtomicU64,
    ready: AtomicUsize,
    errors: Mutex<Vec<String>>,
}

/// All streams of a run.
pub struct Fleet {
    shared: Arc<Shared>,
    tasks: tokio::task::JoinSet<()>,
    count: usize,
}

/// Medians over the rounds: milliseconds, CPU seconds and bytes.
#[derive(Clone, Default)]
pub struct Round {
    pub p50: f64,
    pub p99: f64,
    pub cpu: f64,
    pub bytes_per_stream: f64,
}

impl Fleet {
    /// Opens all streams and waits until each has clusters, endpoints and listeners.
    pub async fn connect(kind: Kind, server: &Server, count: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let mut tasks = tokio::task::JoinSet::new();
        for at in 0..count {
            let (shared, addr) = (shared.clone(), server.grpc.clone());
            tasks.spawn(async move {
                if let Err(e) = stream(kind, at, addr, &shared).await {
                    shared.errors.lock().unwrap().push(e);
                }
            });
        }
        let start = Instant::now();
        while shared.ready.load(Ordering::SeqCst) < count {
            assert!(
                start.elapsed() < Duration::from_secs(600),
                "{} of {count} streams in sync; errors: {:?}",
                shared.ready.load(Ordering::SeqCst),
                shared.errors.lock().unwrap().first()
            );
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        Self {
            shared,
            tasks,
            count,
        }
    }

    /// Waits until nothing has been sent for a while.
    pub async fn settle(&self) {
        let mut last = u64::MAX;
        loop {
            tokio::time::sleep(Duration::from_millis(1200)).await;
            let now = self.shared.bytes.load(Ordering::SeqCst);
            if now == last {
                return;
            }
            last = now;
        }
    }

    /// Changes one instance's address `rounds` times; the first round warms up and is not counted.
    pub async fn rounds(&self, server: &Server, rounds: usize) -> Round {
        let mut http = server.client();
        let (mut latencies, mut cpu, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
        for round in 0..=rounds {
            let ip = format!("10.{}.77.{}", 200 + round / 200, 1 + round % 200);
            *self.shared.marker.lock().unwrap() = ip.clone().into_bytes();
            self.shared.seen.lock().unwrap().clear();
            let (cpu0, bytes0) = (
                server.usage().cpu_seconds,
                self.shared.bytes.load(Ordering::SeqCst),
            );
            let own0 = Usage::of("self").cpu_seconds;
            let body = instance(0, 0, 0, &ip);
            let t0 = Instant::now();
            let (status, _) =
                tokio::task::block_in_place(|| http.send("PUT", "/v1/catalog/register", &body))
                    .unwrap();
            assert_eq!(status, 200);
            while self.shared.seen.lock().unwrap().len() < self.count {
                assert!(
                    t0.elapsed() < Duration::from_secs(180),
                    "a change did not arrive everywhere"
                );
                tokio::time::sleep(Duration::from_micros(500)).await;
            }
            if std::env::var("BENCH_TRACE").is_ok_and(|v| v == "1") {
                println!(
                    "  all after {:.1} ms; CPU until then: server {:.0} ms, client {:.0} ms",
                    t0.elapsed().as_secs_f64() * 1e3,
                    (server.usage().cpu_seconds - cpu0) * 1e3,
                    (Usage::of("self").cpu_seconds - own0) * 1e3
                );
            }
            let arrived: Vec<f64> = self
                .shared
                .seen
                .lock()
                .unwrap()
                .iter()
                .map(|(_, at)| at.duration_since(t0).as_secs_f64() * 1e3)
                .collect();
            self.settle().await;
            if round > 0 {
                latencies.extend(arrived);
                cpu.push(server.usage().cpu_seconds - cpu0);
                bytes.push(
                    (self.shared.bytes.load(Ordering::SeqCst) - bytes0) as f64 / self.count as f64,
                );
            }
        }
        let errors = self.shared.errors.lock().unwrap();
        assert!(errors.is_empty(), "{:?}", errors.first());
        Round {
            p50: percentile(&mut latencies, 0.5),
            p99: percentile(&mut latencies, 0.99),
            cpu: cpu.iter().sum::<f64>() / cpu.len().max(1) as f64,
            bytes_per_stream: percentile(&mut bytes, 0.5),
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        self.tasks.abort_all();
    }
}

pub fn percentile(values: &mut [f64], p: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = ((values.len() as f64 - 1.0) * p).round().max(0.0) as usize;
    values.get(at).copied().unwrap_or(f64::NAN)
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Type {
    Cds,
    Eds,
    Lds,
}

fn url(kind: Kind, of: Type) -> &'static str {
    match (kind, of) {
        (Kind::Consul, Type::Cds) => "type.googleapis.com/envoy.api.v2.Cluster",
        (Kind::Consul, Type::Eds) => "type.googleapis.com/envoy.api.v2.ClusterLoadAssignment",
        (Kind::Consul, Type::Lds) => "type.googleapis.com/envoy.api.v2.Listener",
        (Kind::Crossway, Type::Cds) => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
        (Kind::Crossway, Type::Eds) => {
            "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
        }
        (Kind::Crossway, Type::Lds) => "type.googleapis.com/envoy.config.listener.v3.Listener",
    }
}

async fn stream(kind: Kind, at: usize, addr: String, shared: &Shared) -> Result<(), String> {
    let text = |e: &dyn std::fmt::Debug| format!("stream {at}: {e:?}");
    let channel = tonic::transport::Endpoint::from_shared(format!("http://{addr}"))
        .map_err(|e| text(&e))?
        .tcp_nodelay(true)
        .initial_stream_window_size(1 << 20)
        .initial_connection_window_size(2 << 20)
        .connect()
        .await
        .map_err(|e| text(&e))?;
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(usize::MAX);
    grpc.ready().await.map_err(|e| text(&e))?;
    let (tx, rx) = mpsc::unbounded_channel::<Bytes>();
    let path = match kind {
        Kind::Consul => {
            "/envoy.service.discovery.v2.AggregatedDiscoveryService/StreamAggregatedResources"
        }
        Kind::Crossway => {
            "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources"
        }
    };
    let mut client = Client {
        kind,
        id: format!("gw-{at}"),
        tx,
        first: true,
        names: BTreeSet::new(),
        eds: (Vec::new(), Vec::new()),
        have: BTreeSet::new(),
    };
    client.request(Type::Cds, &[], &[], &[]);
    client.request(Type::Lds, &[], &[], &[]);
    let requests = tokio_stream::wrappers::UnboundedReceiverStream::new(rx);
    let mut responses = grpc
        .streaming(tonic::Request::new(requests), path.parse().unwrap(), Raw)
        .await
        .map_err(|e| text(&e))?
        .into_inner();
    let mut last_marker = Vec::new();
    loop {
        let message = match responses.message().await {
            Ok(Some(message)) => message,
            Ok(None) => return Err(format!("stream {at} ended")),
            Err(status) => return Err(text(&status)),
        };
        let now = Instant::now();
        shared
            .bytes
            .fetch_add(message.len() as u64, Ordering::Relaxed);
        let of = client.on_response(&message);
        if of == Some(Type::Eds) {
            let marker = shared.marker.lock().unwrap().clone();
            if !marker.is_empty() && marker != last_marker && find(&message, &marker).is_some() {
                shared.seen.lock().unwrap().push((at, now));
                last_marker = marker;
            }
        }
        if of.is_some_and(|of| client.have.insert(of)) && client.have.len() == 3 {
            shared.ready.fetch_add(1, Ordering::SeqCst);
        }
    }
}

struct Client {
    kind: Kind,
    id: String,
    tx: mpsc::UnboundedSender<Bytes>,
    first: bool,
    names: BTreeSet<Vec<u8>>,
    /// Version and nonce of the newest EDS response (state of the world needs both to change names).
    eds: (Vec<u8>, Vec<u8>),
    have: BTreeSet<Type>,
}

impl Client {
    fn request(&mut self, of: Type, version: &[u8], names: &[Vec<u8>], nonce: &[u8]) {
        let delta = self.kind == Kind::Crossway;
        let (node_tag, names_tag, url_tag, nonce_tag) =
            if delta { (1, 3, 2, 6) } else { (2, 3, 4, 5) };
        let mut out = Vec::new();
        if !delta && !version.is_empty() {
            field(1, version, &mut out);
        }
        if std::mem::take(&mut self.first) {
            let mut node = Vec::new();
            field(1, self.id.as_bytes(), &mut node);
            field(2, b"mesh-gateway", &mut node);
            field(node_tag, &node, &mut out);
        }
        for name in names {
            field(names_tag, name, &mut out);
        }
        field(url_tag, url(self.kind, of).as_bytes(), &mut out);
        if !nonce.is_empty() {
            field(nonce_tag, nonce, &mut out);
        }
        let _ = self.tx.send(out.into());
    }

    fn on_response(&mut self, message: &[u8]) -> Option<Type> {
        let (mut version, mut type_url, mut nonce) = (&message[..0], &message[..0], &message[..0]);
        fields(message, |tag, value| match tag {
            1 => version = value,
            4 => type_url = value,
            5 => nonce = value,
            _ => {}
        });
        let all = [Type::Cds, Type::Eds, Type::Lds];
        let of = all
            .into_iter()
            .find(|of| url(self.kind, *of).as_bytes() == type_url)?;
        if self.kind == Kind::Crossway {
            self.request(of, &[], &[], nonce);
            if of == Type::Cds {
                let added = self.learn(message);
                if !added.is_empty() {
                    self.request(Type::Eds, &[], &added, &[]);
                }
            }
            return Some(of);
        }
        match of {
            Type::Eds => {
                self.eds = (version.to_vec(), nonce.to_vec());
                let names: Vec<Vec<u8>> = self.names.iter().cloned().collect();
                self.request(of, version, &names, nonce);
            }
            _ => self.request(of, version, &[], nonce),
        }
        if of == Type::Cds && !self.learn(message).is_empty() {
            let names: Vec<Vec<u8>> = self.names.iter().cloned().collect();
            let (version, nonce) = self.eds.clone();
            self.request(Type::Eds, &version, &names, &nonce);
        }
        Some(of)
    }

    /// Remembers the clusters of a CDS response; answers the new ones.
    fn learn(&mut self, message: &[u8]) -> Vec<Vec<u8>> {
        let mut added = Vec::new();
        let delta = self.kind == Kind::Crossway;
        fields(message, |tag, resource| {
            if tag != 2 {
                return;
            }
            let mut name = Vec::new();
            fields(resource, |tag, value| match (delta, tag) {
                (true, 3) => name = value.to_vec(),
                (false, 2) => fields(value, |tag, text| {
                    if tag == 1 && name.is_empty() {
                        name = text.to_vec();
                    }
                }),
                _ => {}
            });
            if self.names.insert(name.clone()) {
                added.push(name);
            }
        });
        added
    }
}

fn varint(mut value: u64, out: &mut Vec<u8>) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn field(tag: u64, value: &[u8], out: &mut Vec<u8>) {
    varint(tag << 3 | 2, out);
    varint(value.len() as u64, out);
    out.extend_from_slice(value);
}

/// Calls `each` for every length-delimited field.
fn fields<'a>(bytes: &'a [u8], mut each: impl FnMut(u64, &'a [u8])) {
    let mut at = 0;
    let read = |at: &mut usize| {
        let (mut value, mut shift) = (0u64, 0);
        while let Some(byte) = bytes.get(*at) {
            *at += 1;
            value |= u64::from(byte & 0x7f) << shift;
            shift += 7;
            if byte & 0x80 == 0 || shift > 63 {
                break;
            }
        }
        value
    };
    while at < bytes.len() {
        let key = read(&mut at);
        match key & 7 {
            0 => {
                read(&mut at);
            }
            1 => at += 8,
            5 => at += 4,
            2 => {
                let len = read(&mut at) as usize;
                let Some(value) = bytes.get(at..at + len) else {
                    return;
                };
                each(key >> 3, value);
                at += len;
            }
            _ => return,
        }
    }
}
