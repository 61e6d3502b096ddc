//! Services and checks registered with *this* server: their definitions, their runners, and their way into the catalog.
//!
//! ```text
//!   HTTP, files --> definition (parse, validate) --> Local --+--> files (data directory)
//!                                                            |
//!   checks::run (TCP, HTTP) --- Report ---> state (pure) <---+
//!                                             |  what differs from the catalog
//!                                             v
//!                              run: Writer::propose(Register | Deregister)
//! ```
//!
//! [`state`] decides: it holds services, checks, timers and what still has to be written; it knows neither clock nor
//! files. [`agent`] is the shell that answers callers and [`sync`] the loop that runs checks and writes to the catalog. One
//! task and one ordered set of deadlines serve all checks; a TCP or HTTP check costs a task only while it runs.
//!
//! The catalog rows of this server's node follow this state, except `serfHealth` and the service `consul`, which
//! belong to whoever knows that the server is alive.
//!
//! Absent on purpose: no JSON views, no access rules, no other node's rows.

pub mod agent;
pub mod checks;
pub mod config;
pub mod definition;
pub mod files;
pub mod state;
pub mod sync;
pub mod writer;

pub use agent::{Error, Local};
pub use config::{Config, Identity};
pub use definition::{CheckDefinition, DefinitionError, ServiceDefinition};
pub use sync::run;
pub use writer::{WriteError, Writer};
