//! Where other servers and gateways are: from literal addresses, DNS names, programs and cloud inventories.
//!
//! ```text
//!   text --Source::parse (pure)--> Source --resolve (asks DNS, a program, Kubernetes, EC2)--> addresses
//!                                             ^                                                  |
//!                                             +---- retry_join: again, until a pool is joined <--+
//!                                             +---- watch: again, for the life of the process <--+
//! ```
//!
//! Everything that can change is asked anew on every attempt: a name that resolves to other addresses tomorrow is
//! followed without a restart. LAN, WAN and the gateways of the primary datacenter use the same code.
//!
//! Pure: [`source`], [`address`], [`words`], [`schedule`], and the halves of [`kubernetes`] and [`aws`] that make
//! requests and read answers. Shells: [`resolve`], [`retry`], [`watch`], `exec`, `fetch` and the `client` files.

pub mod address;
pub mod aws;
pub mod exec;
mod fetch;
pub mod kubernetes;
pub mod providers;
pub mod resolve;
pub mod retry;
pub mod schedule;
pub mod source;
pub mod watch;
pub mod words;

pub use address::Address;
pub use resolve::Environment;
pub use resolve::Found;
pub use resolve::Resolution;
pub use resolve::resolve;
pub use retry::Exhausted;
pub use retry::Joined;
pub use retry::RetryJoin;
pub use retry::retry_join;
pub use schedule::Schedule;
pub use source::Source;
pub use source::SourceError;
pub use watch::watch;

/// Why a source gave no address, or not all of them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{source_label}: {reason}")]
pub struct Error {
    /// The source as it was configured, without secrets.
    pub source_label: String,
    /// What went wrong and what to do about it.
    pub reason: String,
}
