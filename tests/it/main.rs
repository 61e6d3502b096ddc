//! The integration tests: one target, because each further one links another large binary.

mod architecture;
mod bootstrap;
mod cli;
mod support;
mod xds_session;
