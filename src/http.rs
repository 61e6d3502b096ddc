//! The HTTP API: JSON, headers and error texts over `api`.
//!
//! ```text
//!   listener -> serve (limits, TLS, HTTP/1.1 or h2) -> service (table, access, body, panics, gzip) -> a handler
//!   handler:  Request -> api verb -> Answer -> json view -> Reply
//! ```
//!
//! Paths are matched as Go's `ServeMux` does: a path that ends with `/` takes everything below it. The routes are data
//! ([`table::Route`]), one table per noun; to add an endpoint is to add a row.
//!
//! Absent on purpose: no decisions about state, leaders or datacenters; those are `api`'s.

pub mod agent;
pub mod cache;
pub mod catalog;
pub mod config_entry;
pub mod connect;
mod conversation;
pub mod coordinate;
pub mod decode;
pub mod error;
pub mod health;
pub mod internal;
pub mod json;
pub mod kv;
pub mod operator;
pub mod path;
pub mod reply;
pub mod request;
pub mod serve;
pub mod service;
pub mod snapshot;
pub mod status;
pub mod table;

pub use error::HttpError;
pub use reply::Reply;
pub use request::Request;
pub use serve::{Server, Settings, TlsSource};
pub use table::{Route, Verb};

/// The rows of every noun, in one table.
pub fn routes() -> Vec<&'static Route> {
    let tables: [&'static [Route]; 11] = [
        agent::ROUTES,
        status::ROUTES,
        catalog::ROUTES,
        health::ROUTES,
        config_entry::ROUTES,
        connect::ROUTES,
        coordinate::ROUTES,
        internal::ROUTES,
        kv::ROUTES,
        operator::ROUTES,
        snapshot::ROUTES,
    ];
    tables.into_iter().flatten().collect()
}
