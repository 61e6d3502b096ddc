//! Membership of a pool of agents, compatible on the wire with memberlist and serf as Consul 1.8 uses them.
//!
//! ```text
//! UDP, or framed TCP through mesh gateways        TCP, or TLS through mesh gateways
//!        \-> wire::packet                                \-> wire::stream
//!               wire::message: ping, ack, suspect, alive, dead ...    push/pull of all states
//!                      \-> user message: wire::serf: join, leave, events, queries
//! ```
//!
//! [`wire`] turns bytes into messages and back; [`swim`] decides who is there, and tells the others; [`serf`] adds who
//! leaves on purpose, events, queries, keys and [coordinates](coordinate); [`tags`] is what a node says about itself, and
//! [`server_tags`] what Consul's servers mean by it. [`transport`] is the seam to the network, and [`udp_tcp`] the plain
//! network; [`agent`] is the task that runs all of it, with [`Gossip`] as its handle. Everything else here is pure: no
//! clock, no random source, no I/O.

pub mod agent;
pub mod coordinate;
pub mod member;
pub mod own_tags;
pub mod serf;
pub mod server_tags;
pub mod swim;
pub mod tags;
mod target;
pub mod transport;
pub mod udp_tcp;
pub mod wire;

pub use agent::Admission;
pub use agent::Config;
pub use agent::Gossip;
pub use coordinate::Coordinate;
pub use member::Member;
pub use member::MemberStatus;
pub use own_tags::Advertised;
pub use own_tags::Scope;
pub use server_tags::ServerTags;
pub use tags::Tags;
pub use target::Target;
pub use transport::Inbox;
pub use transport::Transport;
pub use udp_tcp::UdpTcp;
