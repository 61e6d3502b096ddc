//! How long a request waits for a leader, and when it tries again.

use crate::api::Api;
use crate::api::error::Error;
use crate::consensus::Role;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

/// A failed try is repeated after up to this part of the hold time, so that those who failed together do not come back
/// together; a change of leadership ends the pause.
const PART: u32 = 16;

/// One request's patience, from now on.
pub(crate) struct Patience {
    /// When it ends.
    pub(crate) deadline: Instant,
    hold: Duration,
    role: watch::Receiver<Role>,
}

impl Api {
    pub(crate) fn patience(&self) -> Patience {
        let hold = self.settings().hold;
        Patience {
            deadline: Instant::now() + hold,
            hold,
            role: self.consensus().role(),
        }
    }
}

impl Patience {
    /// The role now; the next pause ends when it changes.
    pub(crate) fn role(&mut self) -> Role {
        self.role.borrow_and_update().clone()
    }

    /// Waits until another try makes sense: a leader that is known is tried again soon, an unknown one has to appear.
    ///
    /// # Errors
    /// `problem`, when the time is up or this server stops.
    pub(crate) async fn pause(&mut self, problem: Error) -> Result<(), Error> {
        let known = match &*self.role.borrow() {
            Role::Leader { .. } => true,
            Role::Follower { leader } => leader.is_some(),
            Role::Candidate => false,
            Role::Stopped { .. } => return Err(problem),
        };
        let until = match known {
            true => Instant::now() + (self.hold / PART).mul_f64(rand::random()),
            false => self.deadline,
        };
        if until >= self.deadline {
            return match timeout_at(self.deadline, self.role.changed()).await {
                Ok(Ok(())) => Ok(()),
                _ => Err(problem),
            };
        }
        tokio::select! {
            changed = self.role.changed() => changed.map_err(|_| problem),
            () = sleep_until(until) => Ok(()),
        }
    }
}
