//! Crossway: federates datacenters through Envoy mesh gateways, and nothing else.
//!
//! One binary holds the xDS control plane of the gateways and the server behind it: a Raft-replicated catalog, health
//! checks, key/value store, config entries, federation states and a Connect CA, compatible with Consul's HTTP API, RPC
//! and configuration. Operators open one port per gateway, and every datacenter sees every other.
//!
//! # The one sentence
//!
//! **One log, one state, one watch; everything else is a function of the state.**
//!
//! A write goes through Raft into [`store::State`]. Every reader (an HTTP blocking query, an RPC, a leader's loop, an xDS
//! stream) waits on the same kind of [`store::Watch`] and computes its answer with a plain function. There is no event
//! publisher, no agent cache and no proxy-configuration manager.
//!
//! # The parts
//!
//! A module imports only modules above it; `tests/it/architecture.rs` holds the exact table and fails on any other import.
//!
//! | module | what it does |
//! | --- | --- |
//! | [`model`] | nouns and ids, as they stand on the wire |
//! | [`codec`] | the msgpack dialect of Go peers, in RPC and gossip |
//! | [`proto`] | generated protobuf code |
//! | [`net`] | TLS settings, ALPN names, listeners |
//! | [`gossip`] | members of a pool: memberlist and serf as pure cores, and the agent that runs them |
//! | [`store`] | the replicated state, its commands, topics and snapshots |
//! | [`rpc`] | port 8300: first byte and ALPN, yamux, net/rpc msgpack; client |
//! | [`discovery`] | where servers and gateways are: addresses, DNS, programs, Kubernetes, EC2; the retry loop of joining |
//! | [`consensus`] | Raft behind one handle; the only writer of the store |
//! | [`router`] | which servers exist, and gates over what all of them can do (pure) |
//! | [`ca`] | Connect CA: roots and leaf certificates, signed in the leader's task |
//! | [`federation`] | leader's loop that publishes the own gateways as a federation state |
//! | [`local`] | services and checks of this server, their runners, and the sync to the catalog |
//! | [`probe`] | leader's loop that runs the checks of nodes without an agent, such as gateways |
//! | [`reconcile`] | leader's loops that bring the members of the pool into the catalog and Raft |
//! | [`proxycfg`] | state and proxy to everything one Envoy needs, as plain data |
//! | [`xds`] | that data to resources, the protocol session, and its gRPC services |
//! | [`api`] | what the server can do, one function per verb, shared by all edges |
//! | [`http`], [`operator`] | the edges over `api` |
//! | [`bootstrap`] | Envoy's bootstrap for `connect envoy` |
//! | [`config`] | files and flags to one checked configuration |
//! | [`app`] | composition root: builds, starts and stops all of the above |
//! | [`cli`] | the commands |
//!
//! [`telemetry`] (logs, metrics) and [`hooks`] (the seam for other editions) are leaves that everyone may import.
//!
//! # The path of one change
//!
//! A gateway of another datacenter gets a new address; its record reaches this server:
//!
//! ```text
//!   FederationState.Apply --> api --> consensus --> State::apply --> Store::publish
//!                                                                        |  wakes the waiters of these topics only
//!                                                                        v
//!                                        xds: the view all gateways share is rebuilt once (proxycfg, generate: pure)
//!                                             each stream: session compares versions and sends what changed (pure)
//!                                                                        |
//!                                                                        v
//!                                                              Envoy: one EDS resource
//! ```
//!
//! A first change after quiet goes out at once; during bursts each stream waits a short hold-off, and always sends the
//! newest state. Acknowledgements never wait for that.
//!
//! # What holds everywhere
//!
//! * `store` reads no clock, no configuration and no random numbers: ids and times are in the command.
//! * `proxycfg`, `xds::session` and `xds::generate` have no tasks and no `async`.
//! * Only `consensus` publishes to the store; `http` knows no table.
//! * A resource is encoded once per server, whatever the number of streams, and its version is a hash of its content:
//!   equal on all servers and after restarts.
//! * Leader-only work is one function per module, started when leadership begins, cancelled **and joined** when it ends.
//! * Outside bytes are bounded before memory is taken for them. Bad input is answered with the key, the value and the
//!   remedy; it never ends the process.
//!
//! # Where to look
//!
//! * What does an Envoy get? [`proxycfg`], then `xds/generate`.
//! * Why did Envoy get this message now? `xds/session.rs`; its transcripts are in `tests/data/xds`.
//! * What does an HTTP path do? The route table in `http.rs`, then the method of the same name in `api`.
//! * What is in the Raft log? [`store::Command`].
//! * Which tasks run? [`app`].

pub mod api;
pub mod app;
pub mod bootstrap;
pub mod ca;
pub mod cli;
pub mod codec;
pub mod config;
pub mod consensus;
pub mod discovery;
pub mod federation;
pub mod gossip;
pub mod hooks;
pub mod http;
pub mod local;
pub mod model;
pub mod net;
pub mod operator;
pub mod probe;
pub mod proto;
pub mod proxycfg;
pub mod reconcile;
pub mod router;
pub mod rpc;
pub mod store;
pub mod telemetry;
pub mod xds;

#[cfg(feature = "testing")]
pub mod testing;
