//! Builders and helpers for tests; nothing in production imports it.

pub mod config;
pub mod fuzz;
pub mod gossip;
pub mod xds;
