//! Two nodes claim one name: the others decide who has it.

use std::time::Instant;

use bytes::Bytes;
use rand::RngCore;

use crate::gossip::serf::Output;
use crate::gossip::serf::Serf;
use crate::gossip::serf::query::Pending;
use crate::gossip::serf::query::Purpose;
use crate::gossip::serf::query::QueryParams;
use crate::gossip::serf::respond::CONFLICT;
use crate::gossip::serf::respond::INTERNAL;
use crate::gossip::swim::Node;

impl Serf {
    /// Another node claims a name; if it is ours, the others are asked where they know it.
    pub(super) fn meet_conflict(&mut self, now: Instant, existing: &Node, rng: &mut dyn RngCore) {
        let ours = self.name();
        if existing.name != *ours || !self.config.resolve_conflicts || self.conflict_pending() {
            return;
        }
        let params = QueryParams {
            name: format!("{INTERNAL}{CONFLICT}"),
            payload: Bytes::copy_from_slice(ours.as_str().as_bytes()),
            ..QueryParams::default()
        };
        let purpose = Purpose::Conflict {
            answers: 0,
            for_us: 0,
        };
        if let Err(error) = self.ask(now, params, purpose, rng) {
            tracing::error!("gossip: cannot ask the others about our name: {error}");
        }
    }

    fn conflict_pending(&self) -> bool {
        let conflict = |pending: &Pending| matches!(pending.purpose, Purpose::Conflict { .. });
        self.pending.values().any(conflict)
    }

    /// What the others said decides: we need more than half of them.
    pub(super) fn decide_conflict(&mut self, answers: usize, for_us: usize) {
        if for_us > answers / 2 {
            tracing::info!("gossip: {for_us} of {answers} members know this agent by its name");
            return;
        }
        tracing::error!(
            "gossip: only {for_us} of {answers} members know this agent by its name: it gives way to the other. \
             Give it another name, or remove its data directory if it moved"
        );
        self.outputs.push_back(Output::ConflictLost);
    }
}
