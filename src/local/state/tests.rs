use super::*;
use crate::local::checks::{Limits, Report};
use crate::local::definition::ServiceDefinition;
use crate::store::State;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde_json::{Value, json};

const SECOND: Duration = Duration::from_secs(1);

struct Bench {
    state: LocalState,
    catalog: State,
    identity: Identity,
    start: Instant,
    rng: SmallRng,
    index: u64,
}

impl Bench {
    fn new() -> Self {
        let identity = Identity {
            node: "n1".into(),
            address: "127.0.0.1".into(),
            datacenter: "dc1".into(),
            ..Identity::default()
        };
        let rules = Rules {
            limits: Limits::default(),
            check_update_interval: 300 * SECOND,
            output_max: 4096,
            discard_output: false,
        };
        Self {
            state: LocalState::new(&identity, rules),
            catalog: State::default(),
            identity,
            start: tokio::time::Instant::now().into_std(),
            rng: SmallRng::seed_from_u64(7),
            index: 0,
        }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + Duration::from_secs(seconds)
    }

    fn service(&mut self, value: &Value, at: u64) {
        let now = self.at(at);
        let definition = ServiceDefinition::parse(value).unwrap();
        let id = definition.service.id.clone();
        self.state
            .put_service(definition.service, Secret::default(), Source::Request);
        for (n, mut check) in definition.checks.into_iter().enumerate() {
            check.id = format!("{id}:{n}").into();
            check.service_id = id.clone();
            let new = NewCheck {
                plan: check.plan(Limits::default()).unwrap(),
                definition: check,
                source: Source::Request,
            };
            self.state.put_check(new, now, &mut self.rng).unwrap();
        }
    }

    fn report(&mut self, id: &str, status: CheckStatus, output: &str, at: u64) {
        let now = self.at(at);
        let report = Report {
            status,
            output: output.into(),
        };
        self.state
            .report(&id.into(), report, now, &mut self.rng)
            .unwrap();
    }

    /// Writes everything to the catalog and says how many writes it took.
    fn push(&mut self) -> usize {
        let ops = self.state.take_changes();
        for op in &ops {
            self.index += 1;
            let applied = self.catalog.apply(self.index, &op.command(&self.identity));
            applied.result.unwrap();
        }
        ops.len()
    }

    fn status(&self, id: &str) -> CheckStatus {
        self.state.check(id).unwrap().check.status
    }
}

fn web() -> Value {
    json!({"Name": "web", "Port": 80, "Tags": ["a"], "Checks": [{"TTL": "10s"}]})
}

#[test]
fn a_registration_is_one_write_and_then_nothing_is_left() {
    let mut bench = Bench::new();
    bench.service(&web(), 0);
    assert_eq!(bench.push(), 1);
    let stored = bench.catalog.check("n1", "web:0").unwrap();
    assert_eq!(
        (stored.service_name.as_str(), stored.kind.as_str()),
        ("web", "ttl")
    );
    bench.state.compare(&bench.catalog.clone());
    assert!(!bench.state.has_changes());
}

#[test]
fn nobody_reporting_makes_it_critical_once() {
    let mut bench = Bench::new();
    bench.service(&web(), 0);
    bench.report("web:0", CheckStatus::Passing, "fine", 1);
    bench.push();
    let (early, late) = (bench.at(10), bench.at(11));
    bench.state.due(early);
    assert_eq!(bench.status("web:0"), CheckStatus::Passing);
    bench.state.due(late);
    assert_eq!(bench.status("web:0"), CheckStatus::Critical);
    assert_eq!(
        bench.state.check("web:0").unwrap().check.output,
        "TTL expired (last output before timeout follows): fine"
    );
    assert_eq!(bench.push(), 1);
    assert_eq!(bench.state.next_deadline(), None);
}

#[test]
fn output_alone_waits_a_status_does_not() {
    let mut bench = Bench::new();
    bench.service(&web(), 0);
    bench.report("web:0", CheckStatus::Passing, "one", 1);
    assert_eq!(bench.push(), 1);
    for at in 2..9 {
        bench.report("web:0", CheckStatus::Passing, &format!("at {at}"), at);
        assert_eq!(bench.push(), 0);
        // A comparison meanwhile does not write the waiting output either.
        bench.state.compare(&bench.catalog.clone());
        assert!(!bench.state.has_changes());
    }
    bench.report("web:0", CheckStatus::Warning, "two", 10);
    assert_eq!(bench.push(), 1);
    for at in (11..=465).step_by(2) {
        bench.report("web:0", CheckStatus::Warning, "three", at);
        bench.state.due(bench.start + Duration::from_secs(at));
    }
    assert_eq!(bench.push(), 1, "after 150 to 450 seconds");
    assert_eq!(bench.catalog.check("n1", "web:0").unwrap().output, "three");
}

#[test]
fn runs_follow_each_other_and_old_results_are_dropped() {
    let mut bench = Bench::new();
    let probe = json!({"Name": "web", "Checks": [{"TCP": "h:1", "Interval": "10s"}]});
    bench.service(&probe, 0);
    let first = bench.state.next_deadline().unwrap();
    assert!(first < bench.at(10));
    let due = bench.state.due(first);
    assert_eq!(due.runs.len(), 1);
    assert_eq!(bench.state.next_deadline(), None, "not while it runs");
    bench.service(&probe, 3);
    let ok = Report {
        status: CheckStatus::Passing,
        output: "ok".into(),
    };
    let now = bench.at(4);
    bench
        .state
        .finished(&due.runs[0], ok.clone(), now, &mut bench.rng);
    assert_eq!(
        bench.status("web:0"),
        CheckStatus::Critical,
        "an earlier definition"
    );
    let at = bench.state.next_deadline().unwrap();
    let run = bench.state.due(at).runs.remove(0);
    bench.state.finished(&run, ok, at, &mut bench.rng);
    assert_eq!(bench.status("web:0"), CheckStatus::Passing);
    assert_eq!(bench.state.next_deadline(), Some(at + 10 * SECOND));
}

#[test]
fn what_stays_critical_goes_but_never_within_a_minute() {
    let mut bench = Bench::new();
    let value = json!({"Name": "web",
        "Checks": [{"TTL": "10s", "DeregisterCriticalServiceAfter": "20s"}]});
    bench.service(&value, 0);
    let gone = |bench: &mut Bench, at| {
        let now = bench.at(at);
        bench.state.due(now).expired_services.into_iter().next()
    };
    assert_eq!(gone(&mut bench, 59), None);
    bench.report("web:0", CheckStatus::Passing, "", 59);
    assert_eq!(gone(&mut bench, 65), None, "it recovered");
    assert_eq!(gone(&mut bench, 70), None, "expired");
    assert_eq!(gone(&mut bench, 129), None);
    assert_eq!(gone(&mut bench, 130), Some("web".into()));
}

#[test]
fn strangers_on_the_node_go_and_the_servers_own_rows_stay() {
    let mut bench = Bench::new();
    bench.service(&web(), 0);
    bench.push();
    let own = |service: &str, check: &str| {
        let service = NodeService {
            id: service.into(),
            service: service.into(),
            ..NodeService::default()
        };
        let check = HealthCheck {
            check_id: check.into(),
            ..HealthCheck::default()
        };
        SyncOp::Service(Arc::new(service), vec![Arc::new(check)])
    };
    for (service, check) in [("consul", "serfHealth"), ("stranger", "strange")] {
        bench.index += 1;
        let command = own(service, check).command(&bench.identity);
        bench.catalog.apply(bench.index, &command).result.unwrap();
    }
    bench.state.compare(&bench.catalog.clone());
    assert_eq!(
        bench.state.take_changes(),
        [
            SyncOp::RemoveService("stranger".into()),
            SyncOp::RemoveCheck("strange".into())
        ]
    );
}

#[test]
fn tags_follow_the_catalog_where_that_is_allowed() {
    let mut bench = Bench::new();
    let mut value = web();
    value["EnableTagOverride"] = true.into();
    bench.service(&value, 0);
    bench.push();
    let mut changed = NodeService::clone(bench.catalog.service("n1", "web").unwrap());
    changed.tags = vec!["b".into()];
    let command = SyncOp::Service(Arc::new(changed), vec![]).command(&bench.identity);
    bench.catalog.apply(90, &command).result.unwrap();
    bench.state.compare(&bench.catalog.clone());
    assert_eq!(bench.state.service("web").unwrap().service.tags, ["b"]);
    bench.index = 91;
    bench.push();
    assert_eq!(bench.catalog.service("n1", "web").unwrap().tags, ["b"]);
}

#[test]
fn a_removed_service_takes_its_checks_and_a_failed_write_comes_back() {
    let mut bench = Bench::new();
    bench.service(&web(), 0);
    bench.push();
    bench.state.remove_service(&"web".into()).unwrap();
    let ops = bench.state.take_changes();
    assert_eq!(ops, [SyncOp::RemoveService("web".into())]);
    bench.state.not_written(&ops[0]);
    assert!(bench.state.has_changes());
    bench.service(&web(), 1);
    assert!(matches!(
        bench.state.take_changes()[..],
        [SyncOp::Service(..)]
    ));
    bench.state.not_written(&ops[0]);
    assert!(!bench.state.has_changes(), "it is registered again");
    assert_eq!(bench.state.next_deadline(), Some(bench.at(11)));
}

/// Registering, reporting, expiring and comparing ten thousand TTL checks: measured at well under a tenth of the bound in
/// a debug build, which only guards against work that grows with the square.
#[test]
fn ten_thousand_ttl_checks_cost_little() {
    let mut bench = Bench::new();
    let started = tokio::time::Instant::now();
    for n in 0..10_000 {
        let value = json!({"Name": "web", "ID": format!("web{n}"), "Checks": [{"TTL": "10s"}]});
        let mut definition = ServiceDefinition::parse(&value).unwrap();
        let mut check = definition.checks.remove(0);
        check.id = format!("c{n}").into();
        let new = NewCheck {
            plan: check.plan(Limits::default()).unwrap(),
            definition: check,
            source: Source::Request,
        };
        bench
            .state
            .put_check(new, bench.start, &mut bench.rng)
            .unwrap();
    }
    let reported = tokio::time::Instant::now();
    for n in 0..10_000 {
        bench.report(&format!("c{n}"), CheckStatus::Passing, "", 5);
    }
    let pushed = tokio::time::Instant::now();
    bench.push();
    let expired = tokio::time::Instant::now();
    let late = bench.at(15);
    bench.state.due(late);
    assert_eq!(bench.status("c9999"), CheckStatus::Critical);
    let end = tokio::time::Instant::now();
    let took = [
        reported - started,
        pushed - reported,
        expired - pushed,
        end - expired,
    ];
    assert!(end - started < 60 * SECOND, "{took:?}");
    if std::env::var_os("CROSSWAY_SHOW_TIMES").is_some() {
        panic!("register, report, write, expire: {took:?}");
    }
}
