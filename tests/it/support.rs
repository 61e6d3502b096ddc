//! What the integration tests share.
#![allow(dead_code)] // Each test uses its part.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout
)]
#![allow(clippy::disallowed_methods)] // Tests wait with deadlines of the real clock.

pub(crate) mod agent;
pub(crate) mod certs;
pub(crate) mod cluster;
pub(crate) mod dns;
pub(crate) mod gateway;
pub(crate) mod gateways;
pub(crate) mod gossip;
pub(crate) mod http;
pub(crate) mod linear;
pub(crate) mod mesh;
pub(crate) mod peers;
pub(crate) mod raft;
pub(crate) mod serf;
pub(crate) mod server;
pub(crate) mod stand_in;
pub(crate) mod trio;
pub(crate) mod xds;
