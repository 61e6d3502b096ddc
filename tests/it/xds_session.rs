//! The xDS session against transcripts (`tests/data/xds/*.txt`) and against a small model of a client.
//!
//! A transcript is a conversation: commands, `----`, and what the session did. `UPDATE=1` rewrites what follows the
//! dashes; read the difference before you believe it.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop the test.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossway::proto::envoy::config::cluster::v3::Cluster;
use crossway::proto::envoy::config::cluster::v3::cluster::{ClusterDiscoveryType, DiscoveryType};
use crossway::proto::envoy::config::core::v3::Locality;
use crossway::proto::envoy::config::endpoint::v3::{ClusterLoadAssignment, LocalityLbEndpoints};
use crossway::proto::envoy::config::listener::v3::Listener;
use crossway::proto::envoy::config::route::v3::RouteConfiguration;
use crossway::proto::envoy::service::discovery::v3::{DeltaDiscoveryResponse, DiscoveryResponse};
use crossway::xds::frame::Deframer;
use crossway::xds::resources::{ProxyResources, Resource, ResourceType, Version};
use crossway::xds::session::{Note, Outbox, Protocol, Request, Response, Session};
use crossway::xds::status;
use crossway::xds::wire::{DeltaRequest, ErrorDetail, SotwRequest};
use prost::Message;

#[expect(clippy::disallowed_methods, reason = "an arbitrary start of time")]
fn start() -> Instant {
    Instant::now()
}

fn kind(label: &str) -> ResourceType {
    let found = ResourceType::ALL.into_iter().find(|k| k.label() == label);
    found.unwrap_or_else(|| panic!("no type {label:?}"))
}

/// `name=content`, for clusters also `dns:name=content`, for listeners also `name=content>route`.
fn resource(kind: ResourceType, text: &str) -> Resource {
    let (text, dns) = match text.strip_prefix("dns:") {
        Some(rest) => (rest, true),
        None => (text, false),
    };
    let (name, rest) = text.split_once('=').unwrap();
    let (content, child) = match rest.split_once('>') {
        Some((content, child)) => (content, Some(child)),
        None => (rest, None),
    };
    let name = name.to_owned();
    let resource = match kind {
        ResourceType::Cluster => Resource::cluster(&Cluster {
            name,
            alt_stat_name: content.to_owned(),
            cluster_discovery_type: Some(ClusterDiscoveryType::Type(if dns {
                DiscoveryType::StrictDns as i32
            } else {
                DiscoveryType::Eds as i32
            })),
            ..Default::default()
        }),
        ResourceType::Endpoint => Resource::endpoints(&ClusterLoadAssignment {
            cluster_name: name,
            endpoints: vec![LocalityLbEndpoints {
                locality: Some(Locality {
                    zone: content.to_owned(),
                    ..Default::default()
                }),
                ..Default::default()
            }],
            ..Default::default()
        }),
        ResourceType::Listener => {
            let message = Listener {
                name: name.clone(),
                stat_prefix: content.to_owned(),
                ..Default::default()
            };
            Resource::new(kind, name, &message)
        }
        ResourceType::Route | ResourceType::Secret => {
            let message = RouteConfiguration {
                name: name.clone(),
                request_headers_to_remove: vec![content.to_owned()],
                ..Default::default()
            };
            Resource::new(kind, name, &message)
        }
    };
    resource.with_children_of(child)
}

trait WithChild {
    fn with_children_of(self, child: Option<&str>) -> Self;
}

impl WithChild for Resource {
    fn with_children_of(self, child: Option<&str>) -> Self {
        match child {
            Some(child) => self.with_children([Arc::from(child)]),
            None => self,
        }
    }
}

/// Plays one transcript.
struct Player {
    now: Instant,
    session: Session,
    resources: ProxyResources,
    contents: BTreeMap<Version, String>,
    nonces: BTreeMap<ResourceType, u32>,
}

impl Player {
    fn new() -> Self {
        Self {
            now: start(),
            session: Session::new(Protocol::Delta, None),
            resources: ProxyResources::default(),
            contents: BTreeMap::new(),
            nonces: BTreeMap::new(),
        }
    }

    fn play(&mut self, line: &str) -> String {
        let (command, rest) = line.split_once(' ').unwrap_or((line, ""));
        let outbox = match command {
            "session" => {
                let mut words = rest.split(' ');
                let protocol = match words.next() {
                    Some("sotw") => Protocol::Sotw,
                    _ => Protocol::Delta,
                };
                let only = words
                    .next()
                    .map(|word| kind(word.strip_prefix("only=").unwrap()));
                self.session = Session::new(protocol, only);
                self.nonces.clear();
                Ok(Outbox::default())
            }
            "set" => {
                self.set(rest);
                Ok(Outbox::default())
            }
            "offer" => Ok(self.session.offer(&Arc::new(self.resources.clone()))),
            "tick" => {
                self.now += Duration::from_secs(rest.trim_end_matches('s').parse().unwrap());
                Ok(self.session.tick(self.now))
            }
            "memory" => return self.memory(),
            "status" => return self.status(kind(rest)),
            _ => {
                let request = self.request(command, rest);
                self.session.on_request(self.now, request)
            }
        };
        match outbox {
            Ok(outbox) => self.print(&outbox),
            Err(violation) => format!("error {violation}\n"),
        }
    }

    /// `set cds a=1 b=2`: replaces the resources of one type.
    fn set(&mut self, rest: &str) {
        let mut words = rest.split_whitespace();
        let kind = kind(words.next().unwrap());
        let mut list = Vec::new();
        for word in words {
            let resource = resource(kind, word);
            let content = word.split_once('=').unwrap().1.split('>').next().unwrap();
            self.contents.insert(resource.version(), content.to_owned());
            list.push(resource);
        }
        let set = match kind {
            ResourceType::Cluster => &mut self.resources.clusters,
            ResourceType::Endpoint => &mut self.resources.endpoints,
            ResourceType::Listener => &mut self.resources.listeners,
            ResourceType::Route => &mut self.resources.routes,
            ResourceType::Secret => &mut self.resources.secrets,
        };
        *set = set.evolve(list).0;
    }

    /// `ask cds sub=a unsub=b init=c=1 names=d nonce=x`, `ack cds ...`, `nack cds ... because TEXT`.
    fn request(&self, command: &str, rest: &str) -> Request {
        let (rest, text) = rest.split_once(" because ").unwrap_or((rest, "refused"));
        let mut words = rest.split_whitespace();
        let type_url = match words.next() {
            None | Some("none") => String::new(),
            Some(url) if url.contains('/') => url.to_owned(),
            Some(label) => kind(label).url().to_owned(),
        };
        let of = ResourceType::from_url(&type_url);
        let last = of.and_then(|kind| self.nonces.get(&kind));
        let mut delta = DeltaRequest {
            type_url: type_url.clone(),
            ..Default::default()
        };
        let mut sotw = SotwRequest {
            type_url,
            ..Default::default()
        };
        if command != "ask" {
            delta.response_nonce = format!("{:08x}", last.unwrap());
        }
        for word in words {
            let (key, value) = word.split_once('=').unwrap();
            let list = value.split(',').filter(|name| !name.is_empty());
            let list: Vec<String> = list.map(str::to_owned).collect();
            match key {
                "sub" => delta.resource_names_subscribe = list,
                "unsub" => delta.resource_names_unsubscribe = list,
                "names" => sotw.resource_names = list,
                "nonce" => delta.response_nonce = value.to_owned(),
                "init" => {
                    let (name, content) = value.split_once('=').unwrap();
                    let of = of.unwrap();
                    let version = resource(of, &format!("{name}={content}")).version();
                    let version = if content == "?" {
                        "7".to_owned()
                    } else {
                        version.to_string()
                    };
                    delta
                        .initial_resource_versions
                        .insert(name.to_owned(), version);
                }
                other => panic!("no key {other:?}"),
            }
        }
        if command == "nack" {
            let message = text.to_owned();
            delta.error_detail = Some(ErrorDetail { code: 13, message });
        }
        sotw.response_nonce.clone_from(&delta.response_nonce);
        sotw.error_detail.clone_from(&delta.error_detail);
        match self.session.protocol() {
            Protocol::Delta => Request::Delta(delta),
            Protocol::Sotw => Request::Sotw(sotw),
        }
    }

    fn print(&mut self, outbox: &Outbox) -> String {
        let mut out = String::new();
        for note in &outbox.notes {
            match note {
                Note::Accepted(kind) => writeln!(out, "note accepted {}", kind.label()),
                Note::Stale(kind) => writeln!(out, "note stale {}", kind.label()),
                Note::UnknownType(url) => writeln!(out, "note unknown type {url}"),
                Note::Refused {
                    kind,
                    culprits,
                    detail,
                    repeated,
                } => {
                    let names: Vec<_> = culprits
                        .iter()
                        .map(|(name, version)| format!("{name}={}", self.contents[version]))
                        .collect();
                    let again = if *repeated { " (repeated)" } else { "" };
                    let label = kind.label();
                    writeln!(
                        out,
                        "note refused {label} [{}] {detail}{again}",
                        names.join(" ")
                    )
                }
            }
            .unwrap();
        }
        for response in &outbox.responses {
            assert!(response.nonce > self.nonces.values().copied().max().unwrap_or(0));
            self.nonces.insert(response.kind, response.nonce);
            let words = self.words(response);
            let label = response.kind.label();
            writeln!(out, "send {label} #{}:{}", response.nonce, words.concat()).unwrap();
        }
        out
    }

    /// What the client reads.
    fn words(&self, response: &Response) -> Vec<String> {
        let mut deframer = Deframer::new(usize::MAX);
        for piece in &response.pieces {
            deframer.push(piece.clone());
        }
        let message = deframer.next_message().unwrap().unwrap();
        deframer.end().unwrap();
        if self.session.protocol() == Protocol::Sotw {
            let message = DiscoveryResponse::decode(message).unwrap();
            assert_eq!(message.type_url, response.kind.url());
            let words = message.resources.iter().map(|any| {
                assert_eq!(any.type_url, response.kind.url());
                let version = Version::of(&any.value);
                let name = name_of(response.kind, &any.value);
                let content = self
                    .contents
                    .get(&version)
                    .map_or("(empty)", String::as_str);
                format!(" {name}={content}")
            });
            return words.collect();
        }
        let message = DeltaDiscoveryResponse::decode(message).unwrap();
        assert_eq!(message.type_url, response.kind.url());
        let mut words = Vec::new();
        for resource in &message.resources {
            let version: Version = resource.version.parse().unwrap();
            let any = resource.resource.as_ref().unwrap();
            assert_eq!(Version::of(&any.value), version);
            assert_eq!(name_of(response.kind, &any.value), resource.name);
            words.push(format!(" {}={}", resource.name, self.contents[&version]));
        }
        words.extend(
            message
                .removed_resources
                .iter()
                .map(|name| format!(" -{name}")),
        );
        words
    }

    fn memory(&self) -> String {
        let deviations = |kind| self.session.of(kind).ledger.deviations();
        let total: usize = ResourceType::ALL.into_iter().map(deviations).sum();
        format!("{total} deviations\n")
    }

    fn status(&self, kind: ResourceType) -> String {
        let mut out = String::new();
        let content = |version| match version {
            Some(version) => self.contents.get(&version).map_or("?", String::as_str),
            None => "-",
        };
        for status in status::resources(&self.session, kind) {
            let wanted = content(status.wanted.map(|resource| resource.version()));
            let held = content(status.held);
            write!(
                out,
                "{} wanted {wanted} held {held} {:?}",
                status.name, status.progress
            )
            .unwrap();
            if let Some(refusal) = status.refusal {
                write!(out, ": {}", refusal.detail).unwrap();
            }
            out.push('\n');
        }
        let summary = status::of_type(&self.session, kind).unwrap_or_default();
        writeln!(out, "{} of {} acknowledged", summary.acked, summary.wanted).unwrap();
        out
    }
}

fn name_of(kind: ResourceType, body: &[u8]) -> String {
    match kind {
        ResourceType::Cluster => Cluster::decode(body).unwrap().name,
        ResourceType::Endpoint => ClusterLoadAssignment::decode(body).unwrap().cluster_name,
        ResourceType::Listener => Listener::decode(body).unwrap().name,
        ResourceType::Route | ResourceType::Secret => {
            RouteConfiguration::decode(body).unwrap().name
        }
    }
}

#[test]
fn transcripts() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/xds");
    let mut played = 0;
    for file in fs::read_dir(folder).unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "txt") {
            transcript(&path);
            played += 1;
        }
    }
    assert!(played > 5);
}

fn transcript(path: &Path) {
    let text = fs::read_to_string(path).unwrap();
    let mut player = Player::new();
    let mut out = String::new();
    for block in text.trim_end().split("\n\n") {
        let (commands, _) = block.split_once("\n----").unwrap_or((block, ""));
        let mut got = String::new();
        for line in commands.lines().filter(|line| !line.starts_with('#')) {
            got += &player.play(line);
        }
        out += commands;
        if !commands.lines().all(|line| line.starts_with('#')) {
            out += "\n----\n";
            out += if got.is_empty() { "nothing\n" } else { &got };
        } else {
            out += "\n";
        }
        out.push('\n');
    }
    let out = format!("{}\n", out.trim_end());
    if std::env::var_os("UPDATE").is_some() {
        fs::write(path, out).unwrap();
    } else {
        similar(path, &text, &out);
    }
}

#[track_caller]
fn similar(path: &Path, expected: &str, got: &str) {
    for (number, (e, g)) in expected.lines().zip(got.lines()).enumerate() {
        assert_eq!(g, e, "{}:{}", path.display(), number + 1);
    }
    assert_eq!(got, expected, "{}", path.display());
}

mod model;
