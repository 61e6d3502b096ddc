//! Crossway: federates datacenters through Envoy mesh gateways.

pub mod api;
pub mod app;
pub mod bootstrap;
pub mod ca;
pub mod cli;
pub mod config;
pub mod consensus;
pub mod federation;
pub mod hooks;
pub mod http;
pub mod local;
pub mod model;
pub mod net;
pub mod operator;
pub mod probe;
pub mod proto;
pub mod proxycfg;
pub mod rpc;
pub mod store;
pub mod telemetry;
pub mod xds;

#[cfg(feature = "testing")]
pub mod testing;
