use super::*;
use crate::model::NodeService;
use crate::model::query::RegisterRequest;
use rand::SeedableRng;
use rand::rngs::SmallRng;

const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    prober: Prober,
    state: State,
    index: u64,
    now: Instant,
    rng: SmallRng,
}

impl Bench {
    fn new() -> Self {
        Self {
            prober: Prober::new(Settings::default()),
            state: State::default(),
            index: 0,
            now: tokio::time::Instant::now().into_std(),
            rng: SmallRng::seed_from_u64(3),
        }
    }

    fn apply(&mut self, command: &Command) {
        self.index += 1;
        let older = self.state.clone();
        self.state.apply(self.index, command).result.unwrap();
        for (node, check) in self.state.changed_checks(&older) {
            self.prober.look_at(&self.state, &node, &check, self.now);
        }
    }

    fn gateway(&mut self, node: &str, edit: impl FnOnce(&mut HealthCheck)) {
        let mut check = HealthCheck {
            check_id: "up".into(),
            service_id: "gw".into(),
            ..HealthCheck::default()
        };
        check.definition.tcp = "h:1".into();
        check.definition.interval = (10 * SECOND).into();
        edit(&mut check);
        self.apply(&Command::Register(Box::new(RegisterRequest {
            node: node.into(),
            address: "h".into(),
            service: Some(NodeService {
                id: "gw".into(),
                service: "gw".into(),
                ..NodeService::default()
            }),
            check: Some(check),
            ..RegisterRequest::default()
        })));
    }

    fn pass(&mut self, time: Duration) -> Due {
        self.now += time;
        self.prober.due(self.now)
    }

    /// Starts the only run due now, ends it with `status`, and applies what is to be written. Returns whether that was
    /// anything.
    fn run(&mut self, status: CheckStatus) -> bool {
        let due = self.prober.due(self.now);
        assert_eq!(due.runs.len(), 1);
        let report = Report {
            status,
            output: status.as_str().into(),
        };
        let write = self
            .prober
            .finished(&due.runs[0], report, self.now, &mut self.rng);
        let Some(write) = write else { return false };
        self.apply(&write.command);
        self.prober
            .written(&write, true, &self.state.clone(), self.now);
        true
    }

    fn until_next(&self) -> Duration {
        self.prober.next_deadline().unwrap() - self.now
    }

    fn event(&mut self, opened: bool) {
        let event = ProxyEvent {
            node: "GW1".into(),
            service_id: "gw".into(),
            opened,
        };
        self.prober.event(&event, self.now);
    }

    fn status(&self) -> CheckStatus {
        self.state.check("gw1", "up").unwrap().status
    }
}

#[test]
fn a_new_check_runs_at_once_and_then_at_its_interval() {
    let mut bench = Bench::new();
    bench.gateway("gw1", |_| ());
    assert!(bench.run(CheckStatus::Passing));
    assert_eq!(bench.status(), CheckStatus::Passing);
    for _ in 0..3 {
        let next = bench.until_next();
        assert!(next > 8 * SECOND && next <= 10 * SECOND, "{next:?}");
        bench.now += next;
        assert!(!bench.run(CheckStatus::Passing), "nothing new to write");
    }
}

#[test]
fn nodes_with_agents_and_checks_without_a_probe_are_not_run() {
    let mut bench = Bench::new();
    bench.gateway("gw1", |c| c.definition.tcp = String::new());
    assert!(bench.prober.is_empty());
    bench.gateway("gw1", |_| ());
    assert_eq!(bench.prober.len(), 1);
    bench.gateway("gw1", |c| {
        c.check_id = SERF_HEALTH.into();
        c.service_id = "".into();
    });
    assert!(bench.prober.is_empty(), "it has an agent now");
    bench.apply(&Command::Deregister {
        node: "gw1".into(),
        service_id: "".into(),
        check_id: SERF_HEALTH.into(),
    });
    assert_eq!(bench.prober.len(), 1);
    bench.apply(&Command::Deregister {
        node: "gw1".into(),
        service_id: "".into(),
        check_id: "".into(),
    });
    assert!(bench.prober.is_empty());
    assert_eq!(bench.prober.next_deadline(), None);
}

#[test]
fn streams_ask_for_runs_until_the_result_fits() {
    let mut bench = Bench::new();
    bench.gateway("gw1", |_| ());
    bench.run(CheckStatus::Critical);
    bench.event(true);
    bench.run(CheckStatus::Critical);
    assert_eq!(bench.until_next(), FOLLOW_UPS[0]);
    bench.now += FOLLOW_UPS[0];
    assert!(bench.run(CheckStatus::Passing));
    assert!(
        bench.until_next() > 8 * SECOND,
        "as expected: no more haste"
    );
    bench.event(false);
    for step in FOLLOW_UPS {
        bench.run(CheckStatus::Passing);
        assert_eq!(bench.until_next(), step);
        bench.now += step;
    }
    bench.run(CheckStatus::Passing);
    assert!(bench.until_next() > 8 * SECOND, "the listener lives on");
}

#[test]
fn an_event_during_a_run_asks_for_one_more() {
    let mut bench = Bench::new();
    bench.gateway("gw1", |_| ());
    let run = bench.pass(Duration::ZERO).runs.remove(0);
    bench.event(false);
    bench.event(true);
    assert!(bench.pass(Duration::ZERO).runs.is_empty());
    let now = bench.now;
    bench
        .prober
        .finished(&run, Report::default(), now, &mut bench.rng);
    assert_eq!(bench.pass(Duration::ZERO).runs.len(), 1);
}

#[test]
fn registering_again_as_critical_is_set_right_at_once() {
    let mut bench = Bench::new();
    bench.gateway("gw1", |_| ());
    bench.run(CheckStatus::Passing);
    bench.now += SECOND;
    bench.gateway("gw1", |_| ());
    assert_eq!(bench.status(), CheckStatus::Critical);
    assert!(bench.run(CheckStatus::Passing));
    assert_eq!(bench.status(), CheckStatus::Passing);
}

#[test]
fn what_stays_critical_goes_with_its_node() {
    let mut bench = Bench::new();
    bench.gateway("gw1", |c| {
        c.definition.deregister_critical_service_after = (90 * SECOND).into();
        c.definition.interval = (600 * SECOND).into();
    });
    bench.run(CheckStatus::Critical);
    assert!(bench.pass(89 * SECOND).writes.is_empty());
    let write = bench.pass(SECOND).writes.remove(0);
    // The gateway came back between reading and writing: nothing is removed.
    let stale = bench.state.clone();
    bench.gateway("gw1", |c| {
        c.definition.deregister_critical_service_after = (90 * SECOND).into();
        c.definition.interval = (600 * SECOND).into();
        c.status = CheckStatus::Passing;
    });
    bench.apply(&write.command);
    assert!(bench.state.service("gw1", "gw").is_some());
    bench.state = stale;
    bench.apply(&write.command);
    assert!(bench.state.node("gw1").is_none());
    assert!(bench.prober.is_empty());
}

#[test]
fn a_failed_write_is_tried_again_soon() {
    let mut bench = Bench::new();
    bench.gateway("gw1", |_| ());
    let run = bench.pass(Duration::ZERO).runs.remove(0);
    let report = Report {
        status: CheckStatus::Passing,
        output: String::new(),
    };
    let now = bench.now;
    let write = bench.prober.finished(&run, report, now, &mut bench.rng);
    bench
        .prober
        .written(&write.unwrap(), false, &bench.state.clone(), now);
    assert_eq!(bench.until_next(), RETRY);
    bench.now += RETRY;
    assert!(bench.run(CheckStatus::Passing));
}
