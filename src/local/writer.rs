//! What this module and the prober need from consensus: one way to write.

use crate::consensus::{Consensus, ProposeError, Role};
use crate::store::{Command, Outcome};
use futures_util::future::BoxFuture;
use std::future::Future;

/// Why a write did not happen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WriteError {
    /// The state refused it: trying again brings the same answer.
    #[error("refused: {0}")]
    Refused(String),
    /// It could not be written now, for example because there is no leader.
    #[error("not written: {0}")]
    Unavailable(String),
}

/// Writes commands to the replicated state.
pub trait Writer: Clone + Send + Sync + 'static {
    /// Writes one command and waits until it is applied.
    ///
    /// # Errors
    /// [`WriteError`], with nothing changed when it says refused.
    fn write(&self, command: Command) -> impl Future<Output = Result<Outcome, WriteError>> + Send;

    /// Returns when writing became possible after this call. A writer that cannot tell never returns; those who wait try
    /// again after some time anyway.
    fn ready(&self) -> BoxFuture<'static, ()> {
        Box::pin(std::future::pending())
    }
}

impl Writer for Consensus {
    async fn write(&self, command: Command) -> Result<Outcome, WriteError> {
        match self.propose(command).await {
            Ok(written) => Ok(written.outcome),
            Err(error @ (ProposeError::Refused(_) | ProposeError::TooLarge { .. })) => {
                Err(WriteError::Refused(error.to_string()))
            }
            Err(error) => Err(WriteError::Unavailable(error.to_string())),
        }
    }

    fn ready(&self) -> BoxFuture<'static, ()> {
        let mut role = self.role();
        role.mark_unchanged();
        Box::pin(async move {
            while role.changed().await.is_ok() {
                let leads = match &*role.borrow_and_update() {
                    Role::Leader { .. } => true,
                    Role::Follower { leader } => leader.is_some(),
                    Role::Candidate | Role::Stopped { .. } => false,
                };
                if leads {
                    return;
                }
            }
            std::future::pending().await
        })
    }
}
