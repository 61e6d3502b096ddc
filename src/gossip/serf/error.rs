//! Why a command is refused.

use crate::gossip::wire;
use crate::model::NodeName;

/// Why a command is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Something cannot be encoded, such as tags of more than 512 bytes.
    #[error(transparent)]
    Wire(#[from] wire::Error),
    /// An event, query or answer that is longer than the pool passes on.
    #[error("gossip: {what} '{name}' has {size} bytes, more than the limit of {limit}: send less")]
    TooLong {
        /// What is too long.
        what: &'static str,
        /// Its name.
        name: String,
        /// Bytes that it has.
        size: usize,
        /// Bytes that it may have.
        limit: usize,
    },
    /// Nobody waits for the answer any more.
    #[error("gossip: the answer to query '{0}' comes too late")]
    Late(String),
    /// No member has the name.
    #[error("gossip: no member is called '{0}': see `members` for their names")]
    UnknownMember(NodeName),
    /// A node that lives cannot force itself to leave.
    #[error("gossip: '{0}' is this agent: use `leave`")]
    Ourselves(NodeName),
    /// The agent leaves, or has left.
    #[error("gossip: this agent is leaving the pool: restart it to join again")]
    Leaving,
    /// So many queries wait for their answers that another one could not be told from them.
    #[error("gossip: {0} queries wait for answers already: try again later")]
    Busy(usize),
}
