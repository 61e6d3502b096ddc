//! Leaving the datacenter on request.

use crate::api::Api;
use crate::api::error::Error;
use tokio_util::sync::CancellationToken;

/// The wish that this server leaves its datacenter in order, from whoever has it to the part that does it. Cloning it
/// shares it.
#[derive(Clone, Debug, Default)]
pub struct Departure {
    wanted: CancellationToken,
    done: CancellationToken,
}

impl Departure {
    /// Asks the server to leave and to stop; returns when it has left. It stops when that was answered.
    pub async fn ask(&self) {
        self.wanted.cancel();
        self.done.cancelled().await;
    }

    /// Returns when somebody asked.
    pub async fn wanted(&self) {
        self.wanted.cancelled().await;
    }

    /// Tells those who asked that the server has left.
    pub fn done(&self) {
        self.done.cancel();
    }
}

impl Api {
    /// Has this server leave its datacenter in order; it stops then.
    ///
    /// # Errors
    /// This server was put together without an agent.
    pub async fn agent_leave(&self) -> Result<(), Error> {
        self.agent()?.departure.ask().await;
        Ok(())
    }
}
