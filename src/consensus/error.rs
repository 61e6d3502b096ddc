//! What can go wrong at start, and why a write was not done.

use crate::consensus::types::Peer;
use crate::store::ApplyError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::path::{Path, PathBuf};

/// Why consensus does not start, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is out of range.
    #[error("{key} = {value}: {problem}")]
    Config {
        /// The configuration key.
        key: &'static str,
        /// What was given.
        value: String,
        /// What is wrong with it and what to use.
        problem: String,
    },
    /// Another process works in this directory.
    #[error(
        "{} is in use by another process; stop that server, or give this one its own data_dir",
        path.display()
    )]
    Locked {
        /// The lock file.
        path: PathBuf,
    },
    /// The directory holds the state of another node.
    #[error(
        "{} belongs to node {found}, but this node is {ours}; give each server its own data_dir, or move the directory away to start empty",
        path.display()
    )]
    OtherNode {
        /// The database file.
        path: PathBuf,
        /// The node id in it.
        found: String,
        /// The node id configured.
        ours: String,
    },
    /// The directory or a file in it cannot be read or written.
    #[error("cannot {action} {}: {reason}; check data_dir, its owner and its free space", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's answer.
        reason: std::io::Error,
    },
    /// A file is damaged. Nothing was changed on disk.
    #[error(
        "{} is damaged: {detail}. Acknowledged writes may be in it, so it is not replaced. Restore the data directory from a backup, or move it away to start empty (a server of several then gets its state from its peers)",
        path.display()
    )]
    Damaged {
        /// The damaged file.
        path: PathBuf,
        /// What does not fit.
        detail: String,
    },
    /// A file was written by a newer version.
    #[error("{} has format {found}, this version reads up to {known}; install the version that wrote it", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its format.
        found: u64,
        /// The newest format known here.
        known: u64,
    },
    /// openraft does not start or stopped.
    #[error("raft: {0}")]
    Raft(String),
    /// Only the leader can do this.
    #[error("this server does not lead; ask the leader")]
    NotLeader,
    /// Leadership was not handed over.
    #[error("leadership is not handed over: {0}")]
    Transfer(String),
    /// Something did not happen in time; it may still happen.
    #[error("not in time: {0}")]
    Slow(&'static str),
    /// The handle was shut down.
    #[error("consensus is shut down")]
    Shutdown,
}

impl Error {
    pub(crate) fn config(
        key: &'static str,
        value: impl fmt::Display,
        problem: impl Into<String>,
    ) -> Self {
        Self::Config {
            key,
            value: value.to_string(),
            problem: problem.into(),
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Self {
        move |reason| Self::Io {
            action,
            path: path.to_owned(),
            reason,
        }
    }

    pub(crate) fn transfer(problem: impl fmt::Display) -> Self {
        Self::Transfer(problem.to_string())
    }

    pub(crate) fn damaged(path: &Path, detail: impl fmt::Display) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            detail: detail.to_string(),
        }
    }
}

/// Why a write was not acknowledged, or leadership not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum ProposeError {
    /// There is no leader just now; nothing was written.
    #[error("No cluster leader")]
    NoLeader,
    /// Another server leads; nothing was written. Ask it.
    #[error("node is not the leader; {leader} is")]
    NotLeader {
        /// Who leads.
        leader: Peer,
    },
    /// Another server leads and could not be reached; nothing was written.
    #[error("{reason}")]
    Unreached {
        /// Who could not be reached, and why.
        reason: String,
    },
    /// The state refuses the command; it changed nothing.
    #[error(transparent)]
    Refused(#[from] ApplyError),
    /// The command is larger than a log entry may be; nothing was written.
    #[error("the write has {size} bytes encoded, more than the limit of {limit}")]
    TooLarge {
        /// Its size in bytes.
        size: usize,
        /// The limit in bytes.
        limit: usize,
    },
    /// The disk does not take writes. A write that was under way may still take effect.
    #[error("the write was not acknowledged: {0}")]
    Storage(String),
    /// Leadership was lost, or no quorum answered in time: the write may or may not take effect.
    #[error("the write was not acknowledged in time; it may still take effect")]
    Unknown,
    /// No quorum of servers confirmed in time that this one leads.
    #[error("no quorum of servers answered")]
    NoQuorum,
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Shutdown,
}

impl ProposeError {
    /// Whether the same read would fail again at once: this server itself cannot go on.
    pub fn is_final(&self) -> bool {
        match self {
            Self::Storage(_) | Self::Shutdown | Self::Refused(_) | Self::TooLarge { .. } => true,
            Self::NoLeader
            | Self::NotLeader { .. }
            | Self::Unreached { .. }
            | Self::Unknown
            | Self::NoQuorum => false,
        }
    }
}
