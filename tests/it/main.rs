//! The integration tests: one target, because each further one links another large binary.
#![allow(clippy::too_many_lines, clippy::type_complexity)] // A test tells one story; a table of cases is its own type.

mod agent_api;
mod architecture;
mod bootstrap;
mod checks;
mod cli;
mod config;
mod crash;
mod discovery;
mod envoy;
mod envoy_delivery;
mod envoy_loss;
mod envoy_refusal;
mod envoy_registration;
mod forwarding;
mod fuzz;
mod gossip_network;
mod gossip_peers;
mod gossip_sim;
mod gossip_wire;
mod hostile;
mod http_api;
mod operations;
mod probe;
mod raft;
mod reload;
mod rpc_methods;
mod rpc_wire;
mod settings;
mod support;
mod tls_cli;
mod tls_settings;
mod xds_golden;
mod xds_grpc;
mod xds_peers;
mod xds_session;
