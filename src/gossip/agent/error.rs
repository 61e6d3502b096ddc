//! Why a pool cannot be started, joined or told something.

use std::fmt;
use std::io;
use std::path::PathBuf;

use crate::gossip::Target;
use crate::gossip::agent::exchange::StreamError;
use crate::gossip::agent::keyring_file::KeyringFileError;
use crate::gossip::serf;

/// Why an agent cannot be started or told something.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file with the keys.
    #[error(transparent)]
    Keyring(#[from] KeyringFileError),
    /// The file that remembers the members.
    #[error(
        "{path}: the gossip snapshot cannot be read or written: {reason}; make the file and its folder accessible for \
         this user, or delete the file: the members are learned again by a join"
    )]
    Snapshot {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// The core refuses what it is told.
    #[error(transparent)]
    Refused(#[from] serf::Error),
    /// The agent has been shut down.
    #[error("gossip: the agent has been shut down")]
    Stopped,
}

/// One address that could not be joined.
#[derive(Debug)]
pub struct JoinFailure {
    /// Where.
    pub target: Target,
    /// Why.
    pub reason: StreamError,
}

/// Nobody could be joined.
#[derive(Debug)]
pub struct JoinError {
    /// Why not, for each address in the order in which they were given.
    pub failures: Vec<JoinFailure>,
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [first, rest @ ..] = &*self.failures else {
            return f.write_str("gossip: there is no address to join");
        };
        write!(f, "gossip: nobody could be joined: {first}")?;
        rest.iter().try_for_each(|failure| write!(f, "; {failure}"))
    }
}

impl fmt::Display for JoinFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.target, self.reason)
    }
}

impl std::error::Error for JoinError {}
