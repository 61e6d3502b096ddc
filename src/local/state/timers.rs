//! Timers: runs, expiry, removal of what stays critical, and output that waits.

use crate::local::checks::progress::expired_output;
use crate::local::checks::{Plan, Probe, Report, stagger};
use crate::local::state::{LocalState, Timer};
use crate::model::{CheckId, CheckStatus, ServiceId};
use rand::Rng;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A run to start.
#[derive(Debug, Clone)]
pub struct Run {
    /// The check.
    pub id: CheckId,
    /// Comes back with the report, so that one of an earlier definition is told apart.
    pub generation: u64,
    plan: Arc<Plan>,
}

impl Run {
    /// What to do, and how long it may take.
    pub fn probe(&self) -> Option<(&Probe, Duration)> {
        match &*self.plan {
            Plan::Probe { probe, timeout, .. } => Some((probe, *timeout)),
            Plan::Ttl(_) => None,
        }
    }
}

/// What the passing of time brought.
#[derive(Debug, Default)]
pub struct Due {
    /// Checks to run now.
    pub runs: Vec<Run>,
    /// Services that were critical for too long; they are still registered.
    pub expired_services: BTreeSet<ServiceId>,
}

impl LocalState {
    /// When something happens next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Until when the last report about a check counts; nothing once it expired.
    pub fn report_counts_until(&self, id: &CheckId) -> Option<Instant> {
        self.timers.get(&Timer::Expire(id.clone()))
    }

    /// Lets time pass.
    pub fn due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Run(id) => due.runs.extend(self.checks.get(&id).map(|row| Run {
                    id,
                    generation: row.generation,
                    plan: row.plan.clone(),
                })),
                Timer::Expire(id) => self.expire(&id, now),
                Timer::Reap(id) => due
                    .expired_services
                    .extend(self.checks.get(&id).map(|row| row.check.service_id.clone())),
                Timer::Output(id) => {
                    self.changed_checks.insert(id);
                }
            }
        }
        due
    }

    /// Takes the result of a run and plans the next one.
    pub fn finished(&mut self, run: &Run, report: Report, now: Instant, rng: &mut impl Rng) {
        let current = self.checks.get(&run.id);
        if current.is_none_or(|row| row.generation != run.generation) {
            return;
        }
        if let Plan::Probe { interval, .. } = &*run.plan {
            self.timers.set(Timer::Run(run.id.clone()), now + *interval);
        }
        let delay = self.output_delay(rng);
        self.apply(&run.id, report, now, delay);
    }

    pub(super) fn start_timers(
        &mut self,
        id: &CheckId,
        plan: &Plan,
        now: Instant,
        rng: &mut impl Rng,
    ) {
        match plan {
            Plan::Ttl(ttl) => {
                self.timers.clear(&Timer::Run(id.clone()));
                self.timers.set(Timer::Expire(id.clone()), now + *ttl);
            }
            Plan::Probe { interval, .. } => {
                self.timers.clear(&Timer::Expire(id.clone()));
                self.timers
                    .set(Timer::Run(id.clone()), now + stagger(*interval, rng));
            }
        }
    }

    /// A service that waits for a report is told critical once; the next report starts the clock again.
    fn expire(&mut self, id: &CheckId, now: Instant) {
        let Some(row) = self.checks.get(id) else {
            return;
        };
        let report = Report {
            status: CheckStatus::Critical,
            output: expired_output(&row.check.output),
        };
        self.apply(id, report, now, Duration::ZERO);
    }

    /// Starts or stops the clock after which a critical check takes its service along.
    pub(super) fn watch_critical(&mut self, id: &CheckId, now: Instant) {
        let Some(row) = self.checks.get(id) else {
            return;
        };
        let timer = Timer::Reap(id.clone());
        let after = row.definition.run.deregister_critical_service_after;
        let wanted = row.check.status == CheckStatus::Critical
            && !row.check.service_id.is_empty()
            && after.0 > 0;
        if wanted {
            let after = after.to_std().max(self.rules.limits.min_deregister_after);
            self.timers.set_if_unset(timer, now + after);
        } else {
            self.timers.clear(&timer);
        }
    }
}
