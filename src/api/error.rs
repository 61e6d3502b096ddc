//! Why a verb fails. The texts are those that Consul's clients match on.

use crate::consensus::ProposeError;
use crate::model::Datacenter;
use crate::store::ApplyError;

/// A failed verb. Unless said otherwise nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The request is wrong in itself, or the state refuses it.
    #[error("{0}")]
    Refused(String),
    /// The cluster has no leader, or this server could not reach it in time. The caller may retry.
    #[error("No cluster leader")]
    NoLeader,
    /// The leader could not be reached in time; the text says why. Nothing was written.
    #[error("{0}")]
    Unreached(String),
    /// Nobody knows this datacenter.
    #[error("No path to datacenter")]
    NoPath(Datacenter),
    /// The leader has not yet caught up with what an earlier leader acknowledged.
    #[error("Not ready to serve consistent reads")]
    NotReady,
    /// The write may or may not have happened: its outcome was lost.
    #[error("{0}")]
    Internal(String),
}

impl Error {
    /// A refusal with this text.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::Refused(text.into())
    }
}

impl From<ApplyError> for Error {
    fn from(error: ApplyError) -> Self {
        Self::Refused(error.to_string())
    }
}

impl From<ProposeError> for Error {
    fn from(error: ProposeError) -> Self {
        match error {
            ProposeError::NoLeader | ProposeError::NotLeader { .. } => Self::NoLeader,
            ProposeError::Unreached { reason } => Self::Unreached(reason),
            ProposeError::Refused(refusal) => refusal.into(),
            ProposeError::TooLarge { .. } => Self::Refused(error.to_string()),
            ProposeError::NoQuorum => Self::NotReady,
            ProposeError::Storage(_) | ProposeError::Unknown | ProposeError::Shutdown => {
                Self::Internal(error.to_string())
            }
        }
    }
}
