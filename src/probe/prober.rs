//! Which checks to run when, and what of their results to write. Pure.

use crate::local::checks::plan::output_max;
use crate::local::checks::progress::tail;
use crate::local::checks::{DEFAULT_OUTPUT_MAX, Deadlines, Limits, Plan, Probe, Report, stagger};
use crate::model::check::SERF_HEALTH;
use crate::model::{
    CheckId, CheckStatus, HealthCheck, HealthCheckDefinition, Index, NodeName, ServiceId,
};
use crate::probe::ProxyEvent;
use crate::store::{CheckOp, Command, Key, State};
use rand::Rng;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// When to look again after a stream opened or ended, as long as the result is not the one to expect.
const FOLLOW_UPS: [Duration; 4] = [
    Duration::from_millis(100),
    Duration::from_millis(300),
    Duration::from_secs(1),
    Duration::from_secs(3),
];

/// How long after a failed write the check is run again.
const RETRY: Duration = Duration::from_secs(1);

/// How the leader treats the checks it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Bounds of definitions.
    pub limits: Limits,
    /// About how long a change of output alone may wait; zero writes it at once. Default 5 m, as on agents.
    pub check_update_interval: Duration,
    /// Bytes of output kept when the definition does not say. Default 4096.
    pub output_max: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            check_update_interval: Duration::from_secs(300),
            output_max: DEFAULT_OUTPUT_MAX,
        }
    }
}

/// A check: node, then id.
type At = (Key, Key);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Timer {
    /// Run it.
    Run(At),
    /// It was critical for too long: remove its service.
    Reap(At),
    /// Write the output that changed.
    Output(At),
}

/// What happens with a check just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing: a timer runs.
    Idle,
    /// It runs. With `again`, something happened meanwhile that asks for one more run.
    Running { again: bool },
}

#[derive(Debug)]
struct Tracked {
    node: NodeName,
    check_id: CheckId,
    service_id: ServiceId,
    definition: HealthCheckDefinition,
    plan: Arc<Plan>,
    /// Tells a run of an earlier definition apart.
    generation: u64,
    /// As the catalog has it, or as a write under way makes it.
    status: CheckStatus,
    output: String,
    modify_index: Index,
    /// Whether a write is under way: until it is done the catalog shows what was before.
    writing: bool,
    phase: Phase,
    /// After a stream opened (true) or ended: the status to expect, and the next of the follow-ups.
    follow: Option<(bool, usize)>,
}

/// A run to start.
#[derive(Debug, Clone)]
pub struct Run {
    at: At,
    generation: u64,
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

/// A write to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Write {
    at: At,
    /// The command.
    pub command: Command,
}

/// What the passing of time brought.
#[derive(Debug, Default)]
pub struct Due {
    /// Checks to run now.
    pub runs: Vec<Run>,
    /// Writes to do now.
    pub writes: Vec<Write>,
}

/// All checks that the leader runs.
#[derive(Debug)]
pub struct Prober {
    settings: Settings,
    tracked: BTreeMap<At, Tracked>,
    timers: Deadlines<Timer>,
    generation: u64,
}

impl Prober {
    /// Nothing to run yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            tracked: BTreeMap::new(),
            timers: Deadlines::default(),
            generation: 0,
        }
    }

    /// How many checks it runs.
    pub fn len(&self) -> usize {
        self.tracked.len()
    }

    /// Whether it runs none.
    pub fn is_empty(&self) -> bool {
        self.tracked.is_empty()
    }

    /// When something happens next.
    pub fn next_deadline(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Looks at every check of the catalog; for the first time, and after a snapshot replaced the state.
    pub fn look_at_all(&mut self, state: &State, now: Instant) {
        let mut nodes: BTreeSet<Key> = state
            .checks()
            .map(|check| Key::of(check.node.shared()))
            .collect();
        nodes.extend(self.tracked.keys().map(|at| at.0.clone()));
        for node in nodes {
            self.look(state, &node, now);
        }
    }

    /// Looks at the checks of one node, which may have changed.
    pub fn look(&mut self, state: &State, node: &Key, now: Instant) {
        let has_agent = state.check(node.as_str(), SERF_HEALTH).is_some();
        let checks = match has_agent {
            true => Vec::new(),
            false => state.checks_on(node.as_str()),
        };
        let mut wanted = BTreeSet::new();
        for check in checks {
            let at = (node.clone(), Key::of(check.check_id.shared()));
            if self.take(&at, &check, now) {
                wanted.insert(at);
            }
        }
        for at in self.on_node(node) {
            if !wanted.contains(&at) {
                self.forget(&at);
            }
        }
    }

    /// Looks at one check that may have changed, or at all of its node if it tells whether the node has an agent.
    pub fn look_at(&mut self, state: &State, node: &Key, check: &Key, now: Instant) {
        if *check == Key::from(SERF_HEALTH) {
            return self.look(state, node, now);
        }
        let at = (node.clone(), check.clone());
        let has_agent = state.check(node.as_str(), SERF_HEALTH).is_some();
        let wanted = match state.check(node.as_str(), check.as_str()) {
            Some(check) if !has_agent => self.take(&at, check, now),
            _ => false,
        };
        if !wanted {
            self.forget(&at);
        }
    }

    fn on_node(&self, node: &Key) -> Vec<At> {
        self.tracked
            .range((node.clone(), Key::from(""))..)
            .take_while(|(at, _)| at.0 == *node)
            .map(|(at, _)| at.clone())
            .collect()
    }

    /// Takes a check as the catalog has it. Returns whether it is one to run.
    fn take(&mut self, at: &At, check: &Arc<HealthCheck>, now: Instant) -> bool {
        let known = self.tracked.get_mut(at);
        if let Some(row) = known.filter(|row| row.definition == check.definition) {
            row.modify_index = check.modify_index;
            row.service_id = check.service_id.clone();
            if !row.writing && (row.status != check.status || row.output != check.output) {
                // Somebody else wrote it, for example a gateway that registered again.
                let status_changed = row.status != check.status;
                row.status = check.status;
                row.output.clone_from(&check.output);
                if status_changed {
                    self.run_now(at, now);
                    self.watch_critical(at, now);
                }
            }
            return true;
        }
        let Ok(plan @ Plan::Probe { .. }) = Plan::of(&check.definition, self.settings.limits)
        else {
            return false;
        };
        self.forget(at);
        self.generation += 1;
        let row = Tracked {
            node: check.node.clone(),
            check_id: check.check_id.clone(),
            service_id: check.service_id.clone(),
            definition: check.definition.clone(),
            plan: Arc::new(plan),
            generation: self.generation,
            status: check.status,
            output: check.output.clone(),
            modify_index: check.modify_index,
            writing: false,
            phase: Phase::Idle,
            follow: None,
        };
        self.tracked.insert(at.clone(), row);
        self.timers.set(Timer::Run(at.clone()), now);
        self.watch_critical(at, now);
        true
    }

    fn forget(&mut self, at: &At) {
        if self.tracked.remove(at).is_none() {
            return;
        }
        for timer in [Timer::Run, Timer::Reap, Timer::Output] {
            self.timers.clear(&timer(at.clone()));
        }
    }

    fn run_now(&mut self, at: &At, now: Instant) {
        match self.tracked.get_mut(at).map(|row| &mut row.phase) {
            Some(Phase::Running { again }) => *again = true,
            Some(Phase::Idle) => self.timers.set(Timer::Run(at.clone()), now),
            None => {}
        }
    }

    /// A stream opened or ended: runs the checks of that proxy at once.
    pub fn event(&mut self, event: &ProxyEvent, now: Instant) {
        for at in self.on_node(&Key::of(event.node.shared())) {
            let Some(row) = self.tracked.get_mut(&at) else {
                continue;
            };
            if row.service_id.is_empty() || row.service_id == event.service_id {
                row.follow = Some((event.opened, 0));
                self.run_now(&at, now);
            }
        }
    }

    /// Lets time pass.
    pub fn due(&mut self, now: Instant) -> Due {
        let mut due = Due::default();
        while let Some(timer) = self.timers.pop_due(now) {
            match timer {
                Timer::Run(at) => {
                    if let Some(row) = self.tracked.get_mut(&at) {
                        row.phase = Phase::Running { again: false };
                        let (generation, plan) = (row.generation, row.plan.clone());
                        due.runs.push(Run {
                            at,
                            generation,
                            plan,
                        });
                    }
                }
                Timer::Output(at) => due.writes.extend(self.write(&at)),
                Timer::Reap(at) => due.writes.extend(self.reap(&at, now)),
            }
        }
        due
    }

    fn reap(&mut self, at: &At, now: Instant) -> Option<Write> {
        let row = self.tracked.get(at)?;
        let command = Command::Check(CheckOp::Reap {
            node: row.node.clone(),
            check_id: row.check_id.clone(),
            modify_index: row.modify_index,
        });
        // Should the check have changed meanwhile, it is looked at again.
        self.timers.set(Timer::Reap(at.clone()), now + RETRY);
        Some(Write {
            at: at.clone(),
            command,
        })
    }

    fn write(&mut self, at: &At) -> Option<Write> {
        let row = self.tracked.get_mut(at)?;
        row.writing = true;
        self.timers.clear(&Timer::Output(at.clone()));
        Some(Write {
            at: at.clone(),
            command: Command::Check(CheckOp::Result {
                node: row.node.clone(),
                check_id: row.check_id.clone(),
                status: row.status,
                output: row.output.clone(),
            }),
        })
    }

    /// Takes the result of a run: plans the next one, and says what to write.
    pub fn finished(
        &mut self,
        run: &Run,
        report: Report,
        now: Instant,
        rng: &mut impl Rng,
    ) -> Option<Write> {
        let settings = self.settings;
        let row = self.tracked.get_mut(&run.at)?;
        if row.generation != run.generation {
            return None;
        }
        let next = next_run(row, report.status, rng);
        row.phase = Phase::Idle;
        self.timers.set(Timer::Run(run.at.clone()), now + next);
        let max = match row.definition.output_max_size {
            0 => settings.output_max,
            _ => output_max(&row.definition),
        };
        let output = tail(&report.output, max);
        let same_status = row.status == report.status;
        if same_status && row.output == output {
            return None;
        }
        row.status = report.status;
        row.output = output.to_owned();
        self.watch_critical(&run.at, now);
        let wait = settings.check_update_interval;
        if same_status && !wait.is_zero() {
            let at = now + wait / 2 + stagger(wait, rng);
            self.timers.set_if_unset(Timer::Output(run.at.clone()), at);
            return None;
        }
        self.write(&run.at)
    }

    /// A write ended. A failed one is made up for by a run soon.
    pub fn written(&mut self, write: &Write, done: bool, state: &State, now: Instant) {
        if let Some(row) = self.tracked.get_mut(&write.at) {
            row.writing = false;
        }
        self.look(state, &write.at.0, now);
        if !done && self.tracked.contains_key(&write.at) {
            self.timers.set(Timer::Run(write.at.clone()), now + RETRY);
        }
    }

    /// Starts or stops the clock after which a critical check takes its service along.
    fn watch_critical(&mut self, at: &At, now: Instant) {
        let Some(row) = self.tracked.get(at) else {
            return;
        };
        let timer = Timer::Reap(at.clone());
        let after = row.definition.deregister_critical_service_after;
        let wanted =
            row.status == CheckStatus::Critical && !row.service_id.is_empty() && after.0 > 0;
        if wanted {
            let after = after
                .to_std()
                .max(self.settings.limits.min_deregister_after);
            self.timers.set_if_unset(timer, now + after);
        } else {
            self.timers.clear(&timer);
        }
    }
}

/// Time until the next run: at once when something happened meanwhile, soon after a stream opened or ended, else the
/// interval, shortened by up to a tenth so that checks that began together do not stay together.
fn next_run(row: &mut Tracked, status: CheckStatus, rng: &mut impl Rng) -> Duration {
    if row.phase == (Phase::Running { again: true }) {
        return Duration::ZERO;
    }
    let interval = match &*row.plan {
        Plan::Probe { interval, .. } => *interval,
        Plan::Ttl(ttl) => *ttl,
    };
    if let Some((opened, step)) = row.follow {
        let expected = opened == (status != CheckStatus::Critical);
        if let Some(soon) = FOLLOW_UPS.get(step).filter(|_| !expected) {
            row.follow = Some((opened, step + 1));
            return interval.min(*soon);
        }
        row.follow = None;
    }
    interval - stagger(interval / 10, rng)
}

#[cfg(test)]
mod tests;
