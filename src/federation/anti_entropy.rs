//! Publishes the datacenter's own mesh gateways.
//!
//! The record holds *all* mesh gateways, whatever their meta or health, and exists even when there is none. Two records
//! are the same if they differ only in times, indexes, check output and notes (C032), so a check that words its result
//! anew starts no replication.

use crate::federation::Context;
use crate::model::{FederationState, ServiceKind, Timestamp};
use crate::store::{Command, FederationCommand, State, Topic};
use std::time::{Duration, Instant, SystemTime};
use tracing::{debug, warn};

/// Writes are spent from a bucket of this many; a first change after quiet always goes at once.
const BURST: u32 = 5;

/// One more write may be made after each of these.
const REFILL: Duration = Duration::from_secs(5);

/// First and longest wait after a failed write.
const RETRY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The record to publish; `None` when the published one is true. Pure.
pub fn due(state: &State, datacenter: &str, now: Timestamp) -> Option<FederationState> {
    let published = state.replicated_federation_state(datacenter);
    let mut record = FederationState {
        datacenter: datacenter.into(),
        mesh_gateways: state.kind_dump(&ServiceKind::MeshGateway),
        updated_at: now,
        ..FederationState::default()
    };
    if let Some(old) = published {
        if old.same(&record) {
            return None;
        }
        // The owner's time never goes back, whatever its clock does: it decides which of two records is newer.
        record.updated_at = record.updated_at.max(old.updated_at.just_after());
    }
    Some(record)
}

/// How often records may be written. Pure: time is an argument.
#[derive(Debug)]
pub struct Pace {
    tokens: u32,
    refilled: Instant,
}

impl Pace {
    /// A full bucket.
    pub fn new(now: Instant) -> Self {
        Self {
            tokens: BURST,
            refilled: now,
        }
    }

    /// Takes a token, or tells when there will be one.
    pub fn take(&mut self, now: Instant) -> Result<(), Instant> {
        while self.tokens < BURST && now >= self.refilled + REFILL {
            self.tokens += 1;
            self.refilled += REFILL;
        }
        if self.tokens == BURST {
            self.refilled = now;
        }
        if self.tokens == 0 {
            return Err(self.refilled + REFILL);
        }
        self.tokens -= 1;
        Ok(())
    }
}

/// Follows the gateways for as long as this server leads.
#[expect(clippy::disallowed_methods, reason = "the shell reads the clocks")]
pub async fn run(context: Context) {
    let topics = [
        Topic::ServiceKind(ServiceKind::MeshGateway),
        Topic::FederationState(context.datacenter.clone()),
    ];
    let mut watch = context.consensus.store().watch(topics);
    let mut pace = Pace::new(Instant::now());
    let mut wait = RETRY.0;
    loop {
        let state = context.consensus.store().latest();
        let now = SystemTime::now().into();
        let Some(record) = due(&state, context.datacenter.as_str(), now) else {
            watch.changed().await;
            continue;
        };
        if let Err(until) = pace.take(Instant::now()) {
            tokio::time::sleep_until(until.into()).await;
            continue; // With the newest gateways.
        }
        let gateways = record.mesh_gateways.len();
        let command = Command::Federation(FederationCommand::Upsert(record));
        match context.consensus.propose(command).await {
            Ok(_) => {
                wait = RETRY.0;
                debug!(gateways, "own federation state written");
            }
            Err(error) => {
                warn!(%error, retry_in = ?wait, "own federation state not written");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RETRY.1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::query::RegisterRequest;
    use crate::model::{CheckStatus, HealthCheck, NodeService};

    fn gateway(output: &str, status: CheckStatus) -> Command {
        Command::Register(Box::new(RegisterRequest {
            node: "gw1".into(),
            address: "10.0.0.2".into(),
            service: Some(NodeService {
                kind: ServiceKind::MeshGateway,
                service: "mesh-gateway".into(),
                port: 8443,
                ..NodeService::default()
            }),
            checks: vec![HealthCheck {
                check_id: "c".into(),
                service_id: "mesh-gateway".into(),
                status,
                output: output.to_owned(),
                ..HealthCheck::default()
            }],
            ..RegisterRequest::default()
        }))
    }

    #[test]
    fn a_record_is_due_at_first_and_after_real_changes_only() {
        let mut state = State::default();
        let at = |s| Timestamp::from_unix(s, 0);
        let empty = due(&state, "dc1", at(5)).unwrap();
        assert!(empty.mesh_gateways.is_empty());
        state.apply(1, &Command::Federation(FederationCommand::Upsert(empty)));
        assert_eq!(due(&state, "dc1", at(6)), None);

        state.apply(2, &gateway("ok", CheckStatus::Passing));
        let record = due(&state, "dc1", at(7)).unwrap();
        assert_eq!(record.mesh_gateways.len(), 1);
        state.apply(3, &Command::Federation(FederationCommand::Upsert(record)));
        state.apply(4, &gateway("ok, in other words", CheckStatus::Passing));
        assert_eq!(due(&state, "dc1", at(8)), None);

        state.apply(5, &gateway("refused", CheckStatus::Critical));
        let late = due(&state, "dc1", at(1)).unwrap(); // The clock went back.
        assert!(late.updated_at > at(7));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "only differences count")]
    fn a_burst_is_paced_and_the_first_goes_at_once() {
        let start = Instant::now();
        let mut pace = Pace::new(start);
        for _ in 0..BURST {
            assert_eq!(pace.take(start), Ok(()));
        }
        assert_eq!(pace.take(start), Err(start + REFILL));
        assert_eq!(pace.take(start + REFILL), Ok(()));
        assert!(pace.take(start + REFILL).is_err());
        for _ in 0..BURST {
            assert_eq!(pace.take(start + REFILL * 60), Ok(()));
        }
    }
}
