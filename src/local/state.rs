//! What is registered with this server, its timers, and what the catalog does not know yet. Pure.

mod catalog;
mod configured;
mod timers;

pub use catalog::SyncOp;
pub use configured::Configured;
pub use timers::{Due, Run};

use crate::local::checks::plan::output_max;
use crate::local::checks::progress::tail;
use crate::local::checks::{Deadlines, Limits, Plan, Progress, Report, stagger};
use crate::local::config::Identity;
use crate::local::definition::CheckDefinition;
use crate::model::{CheckId, CheckStatus, HealthCheck, NodeName, NodeService, Secret, ServiceId};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How this server treats checks and their output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    /// Bounds of definitions.
    pub limits: Limits,
    /// About how long a change of output alone may wait; zero writes it at once.
    pub check_update_interval: Duration,
    /// Bytes of output kept when the definition does not say.
    pub output_max: usize,
    /// Whether output is thrown away.
    pub discard_output: bool,
}

/// Who registered something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// A configuration file: not kept in the data directory.
    Configuration,
    /// The HTTP interface.
    Request,
}

/// A service of this server.
#[derive(Debug, Clone)]
pub struct LocalService {
    /// The instance as callers see it.
    pub service: Arc<NodeService>,
    /// Token to write it with.
    pub token: Secret,
    /// Who registered it.
    pub source: Source,
}

/// A check of this server.
#[derive(Debug, Clone)]
pub struct LocalCheck {
    /// The check as callers see it.
    pub check: Arc<HealthCheck>,
    /// What was asked for.
    pub definition: Arc<CheckDefinition>,
    /// Who registered it.
    pub source: Source,
    plan: Arc<Plan>,
    progress: Progress,
    /// Tells a run of an earlier definition apart.
    generation: u64,
}

impl LocalCheck {
    /// Whether somebody reports its status.
    pub fn is_ttl(&self) -> bool {
        matches!(*self.plan, Plan::Ttl(_))
    }
}

/// Timers of checks.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    /// Run it.
    Run(CheckId),
    /// Nobody reported: make it critical.
    Expire(CheckId),
    /// It was critical for too long: remove its service.
    Reap(CheckId),
    /// Write the output that changed.
    Output(CheckId),
}

/// Why a change is refused, in Consul's words.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// A check names a service that is not registered here.
    #[error("ServiceID {:?} does not exist", .0.as_str())]
    NoService(ServiceId),
    /// An id that the catalog, which does not tell case apart, would take for another one.
    #[error(
        "ID {given:?} differs from the registered {registered:?} in case only; use that, or another ID"
    )]
    CaseOnly {
        /// What was asked for.
        given: String,
        /// What is registered.
        registered: String,
    },
    /// A report for a check that is none or that is run by this server.
    #[error("CheckID {:?} does not have associated TTL", .0.as_str())]
    NoTtl(CheckId),
}

/// A check on its way in: its definition, and the plan made of it.
#[derive(Debug, Clone)]
pub struct NewCheck {
    /// What was asked for, with its final id.
    pub definition: CheckDefinition,
    /// What has to be done.
    pub plan: Plan,
    /// Who registered it.
    pub source: Source,
}

/// A service on its way in, with its checks.
#[derive(Debug, Clone)]
pub struct NewService {
    /// The instance, with its final id.
    pub service: NodeService,
    /// Token to write it with.
    pub token: Secret,
    /// Its checks, with their final ids.
    pub checks: Vec<NewCheck>,
}

/// Everything registered with this server.
#[derive(Debug)]
pub struct LocalState {
    node: NodeName,
    rules: Rules,
    services: BTreeMap<ServiceId, LocalService>,
    checks: BTreeMap<CheckId, LocalCheck>,
    timers: Deadlines<Timer>,
    generation: u64,
    changed_services: BTreeSet<ServiceId>,
    changed_checks: BTreeSet<CheckId>,
    gone_services: BTreeSet<ServiceId>,
    gone_checks: BTreeSet<CheckId>,
}

impl LocalState {
    /// Nothing registered yet.
    pub fn new(identity: &Identity, rules: Rules) -> Self {
        Self {
            node: identity.node.clone(),
            rules,
            services: BTreeMap::new(),
            checks: BTreeMap::new(),
            timers: Deadlines::default(),
            generation: 0,
            changed_services: BTreeSet::new(),
            changed_checks: BTreeSet::new(),
            gone_services: BTreeSet::new(),
            gone_checks: BTreeSet::new(),
        }
    }

    /// Throws the output of reports away from now on, or keeps it.
    pub fn discard_output(&mut self, discard: bool) {
        self.rules.discard_output = discard;
    }

    /// All services, in id order.
    pub fn services(&self) -> impl Iterator<Item = &LocalService> {
        self.services.values()
    }

    /// One service.
    pub fn service(&self, id: &str) -> Option<&LocalService> {
        self.services.get(id)
    }

    /// All checks, in id order.
    pub fn checks(&self) -> impl Iterator<Item = &LocalCheck> {
        self.checks.values()
    }

    /// One check.
    pub fn check(&self, id: &str) -> Option<&LocalCheck> {
        self.checks.get(id)
    }

    /// Checks of one service, in id order.
    pub fn checks_of<'a>(&'a self, service: &'a str) -> impl Iterator<Item = &'a LocalCheck> {
        self.checks
            .values()
            .filter(move |check| check.check.service_id.as_str() == service)
    }

    /// Makes sure that the catalog can tell a new service and its checks from what is registered.
    ///
    /// # Errors
    /// An id differs from a registered one in case only.
    pub fn tell_apart<'a>(
        &self,
        service: Option<&ServiceId>,
        checks: impl IntoIterator<Item = &'a CheckId>,
    ) -> Result<(), Refused> {
        if let Some(given) = service {
            apart(given.as_str(), self.services.keys().map(ServiceId::as_str))?;
        }
        checks
            .into_iter()
            .try_for_each(|given| apart(given.as_str(), self.checks.keys().map(CheckId::as_str)))
    }

    /// Adds or replaces a service. Its checks keep their state and take over its name and tags.
    pub fn put_service(&mut self, service: NodeService, token: Secret, source: Source) {
        let service = Arc::new(service);
        let id = service.id.clone();
        self.gone_services.remove(&id);
        self.changed_services.insert(id.clone());
        let checks: Vec<CheckId> = self
            .checks_of(id.as_str())
            .map(|check| check.check.check_id.clone())
            .collect();
        for check in checks {
            if let Some(row) = self.checks.get_mut(&check) {
                let check = Arc::make_mut(&mut row.check);
                check.service_name = service.service.clone();
                check.service_tags = service.tags.clone();
            }
            self.changed_checks.insert(check);
        }
        let row = LocalService {
            service,
            token,
            source,
        };
        self.services.insert(id, row);
    }

    /// Removes a service and its checks. Returns the checks removed, or nothing if there is no such service.
    pub fn remove_service(&mut self, id: &ServiceId) -> Option<Vec<CheckId>> {
        self.services.remove(id)?;
        let checks: Vec<CheckId> = self
            .checks_of(id.as_str())
            .map(|check| check.check.check_id.clone())
            .collect();
        for check in &checks {
            self.forget_check(check);
        }
        self.changed_services.remove(id);
        self.gone_services.insert(id.clone());
        Some(checks)
    }

    /// Adds or replaces a check. One with the same id and service keeps its status, so that registering again does not
    /// flap.
    ///
    /// # Errors
    /// The service it names is not registered here.
    pub fn put_check(
        &mut self,
        new: NewCheck,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Result<(), Refused> {
        let NewCheck {
            definition,
            plan,
            source,
        } = new;
        let mut check = HealthCheck {
            node: self.node.clone(),
            check_id: definition.id.clone(),
            name: definition.name.clone(),
            status: definition.status.unwrap_or(CheckStatus::Critical),
            notes: definition.notes.clone(),
            service_id: definition.service_id.clone(),
            kind: plan.kind().to_owned(),
            ..HealthCheck::default()
        };
        if !definition.service_id.is_empty() {
            let Some(service) = self.services.get(&definition.service_id) else {
                return Err(Refused::NoService(definition.service_id));
            };
            check.service_name = service.service.service.clone();
            check.service_tags = service.service.tags.clone();
        }
        let id = definition.id.clone();
        let old = self.checks.get(&id);
        if let Some(old) = old.filter(|old| old.check.service_id == check.service_id) {
            check.status = old.check.status;
            check.output.clone_from(&old.check.output);
        }
        self.start_timers(&id, &plan, now, rng);
        let progress = Progress::new(
            definition.success_before_passing,
            definition.failures_before_critical,
        );
        self.generation += 1;
        let row = LocalCheck {
            check: Arc::new(check),
            definition: Arc::new(definition),
            source,
            plan: Arc::new(plan),
            progress,
            generation: self.generation,
        };
        self.checks.insert(id.clone(), row);
        // Registering again starts the clock anew: somebody cares for the service.
        self.timers.clear(&Timer::Reap(id.clone()));
        self.watch_critical(&id, now);
        self.gone_checks.remove(&id);
        self.changed_checks.insert(id);
        Ok(())
    }

    /// Removes a check. Returns whether there was one.
    pub fn remove_check(&mut self, id: &CheckId) -> bool {
        let removed = self.forget_check(id);
        if removed {
            self.gone_checks.insert(id.clone());
        }
        removed
    }

    fn forget_check(&mut self, id: &CheckId) -> bool {
        for timer in [Timer::Run, Timer::Expire, Timer::Reap, Timer::Output] {
            self.timers.clear(&timer(id.clone()));
        }
        self.changed_checks.remove(id);
        self.checks.remove(id).is_some()
    }

    /// Takes a service's report about itself.
    ///
    /// # Errors
    /// There is no such check, or this server runs it.
    pub fn report(
        &mut self,
        id: &CheckId,
        report: Report,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Result<(), Refused> {
        let ttl = match self.checks.get(id).map(|row| row.plan.clone()).as_deref() {
            Some(Plan::Ttl(ttl)) => *ttl,
            _ => return Err(Refused::NoTtl(id.clone())),
        };
        self.timers.set(Timer::Expire(id.clone()), now + ttl);
        let delay = self.output_delay(rng);
        self.apply(id, report, now, delay);
        Ok(())
    }

    /// Brings back a status that was reported before a restart and is good for `left` longer.
    pub fn restore_report(&mut self, id: &CheckId, report: Report, left: Duration, now: Instant) {
        if self.checks.get(id).is_some_and(LocalCheck::is_ttl) {
            self.timers.set(Timer::Expire(id.clone()), now + left);
            self.apply(id, report, now, Duration::ZERO);
        }
    }

    /// How long a change of output alone waits, as in Consul: half the interval and a random share of it.
    fn output_delay(&self, rng: &mut impl Rng) -> Duration {
        let interval = self.rules.check_update_interval;
        interval / 2 + stagger(interval, rng)
    }

    /// Takes a result or a report. A change of output alone is written after `delay`, any other at once.
    fn apply(&mut self, id: &CheckId, report: Report, now: Instant, delay: Duration) {
        let rules = self.rules;
        let Some(row) = self.checks.get_mut(id) else {
            return;
        };
        if !row.progress.counts(report.status) {
            return;
        }
        let max = match row.definition.run.output_max_size {
            0 => rules.output_max,
            _ => output_max(&row.definition.run),
        };
        let output = if rules.discard_output {
            ""
        } else {
            tail(&report.output, max)
        };
        let same_status = row.check.status == report.status;
        if same_status && row.check.output == output {
            return;
        }
        let check = Arc::make_mut(&mut row.check);
        check.status = report.status;
        check.output = output.to_owned();
        if same_status && !delay.is_zero() {
            self.timers
                .set_if_unset(Timer::Output(id.clone()), now + delay);
        } else {
            self.timers.clear(&Timer::Output(id.clone()));
            self.changed_checks.insert(id.clone());
        }
        self.watch_critical(id, now);
    }
}

/// Makes sure that the catalog can tell an id from the others.
fn apart<'a>(given: &str, mut others: impl Iterator<Item = &'a str>) -> Result<(), Refused> {
    match others.find(|id| *id != given && same_in_catalog(given, id)) {
        None => Ok(()),
        Some(registered) => Err(Refused::CaseOnly {
            given: given.to_owned(),
            registered: registered.to_owned(),
        }),
    }
}

/// Whether the catalog takes two ids for one.
fn same_in_catalog(a: &str, b: &str) -> bool {
    a.eq_ignore_ascii_case(b)
        || !(a.is_ascii() && b.is_ascii()) && a.to_lowercase() == b.to_lowercase()
}

#[cfg(test)]
mod tests;
