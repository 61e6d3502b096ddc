use super::*;
use crate::local::config::{Config, Identity};
use crate::local::definition::{CheckDefinition, ServiceDefinition};
use crate::model::CheckStatus;
use crate::store::{Command, Outcome};
use parking_lot::Mutex;
use serde_json::json;
use std::sync::Arc;
use tokio::sync::Notify;

const RETRY: Duration = Duration::from_millis(600);

/// Applies commands to a store at once, or refuses all while it is down.
#[derive(Clone, Default)]
struct Direct {
    store: Store,
    index: Arc<Mutex<u64>>,
    down: Arc<Mutex<bool>>,
    up: Arc<Notify>,
    failures: Arc<Notify>,
}

impl Writer for Direct {
    async fn write(&self, command: Command) -> Result<Outcome, WriteError> {
        if *self.down.lock() {
            self.failures.notify_one();
            return Err(WriteError::Unavailable("no leader".into()));
        }
        let mut index = self.index.lock();
        *index += 1;
        let mut state = (*self.store.latest()).clone();
        let applied = state.apply(*index, &command);
        self.store.publish(state, &applied.topics);
        let refused = |e: crate::store::ApplyError| WriteError::Refused(e.to_string());
        applied.result.map_err(refused)
    }

    fn ready(&self) -> BoxFuture<'static, ()> {
        let mut notified = Box::pin(self.up.clone().notified_owned());
        notified.as_mut().enable();
        notified
    }
}

struct Running {
    local: Local,
    writer: Direct,
    shutdown: CancellationToken,
    task: tokio::task::JoinHandle<()>,
}

fn start(data_dir: Option<&std::path::Path>) -> Running {
    let mut config = Config::new(Identity {
        node: "n1".into(),
        datacenter: "dc1".into(),
        address: "127.0.0.1".into(),
        ..Identity::default()
    });
    config.data_dir = data_dir.map(Into::into);
    config.retry_interval = RETRY;
    let (local, problems) = Local::open(config).unwrap();
    assert!(problems.is_empty());
    let (writer, shutdown) = (Direct::default(), CancellationToken::new());
    let task = tokio::spawn(run(
        local.clone(),
        writer.clone(),
        writer.store.clone(),
        shutdown.clone(),
    ));
    Running {
        local,
        writer,
        shutdown,
        task,
    }
}

impl Running {
    async fn until(&self, what: &str, holds: impl Fn(&crate::store::State) -> bool) {
        let mut watch =
            self.writer
                .store
                .watch([Topic::Node("n1".into()), Topic::Nodes, Topic::Checks]);
        let wait = async {
            while !holds(&self.writer.store.latest()) {
                watch.changed().await;
            }
        };
        let waited = tokio::time::timeout(Duration::from_secs(20), wait).await;
        assert!(waited.is_ok(), "{what}");
    }

    /// A write has failed and the loop knows it.
    async fn failed(&self) {
        self.writer.failures.notified().await;
        for _ in 0..10 {
            tokio::task::yield_now().await;
        }
    }

    async fn stop(self) {
        self.shutdown.cancel();
        self.task.await.unwrap();
    }
}

fn web() -> ServiceDefinition {
    let value = json!({"Name": "web", "Check": {"CheckID": "c", "TTL": "900ms"}});
    ServiceDefinition::parse(&value).unwrap()
}

fn status(state: &crate::store::State) -> Option<CheckStatus> {
    state.check("n1", "c").map(|check| check.status)
}

#[tokio::test]
async fn changes_reach_the_catalog_at_once_and_reports_expire() {
    let running = start(None);
    running.local.register_service(web(), false).await.unwrap();
    let begun = tokio::time::Instant::now();
    running
        .until("registered", |s| s.service("n1", "web").is_some())
        .await;
    running
        .local
        .report(&"c".into(), CheckStatus::Passing, "ok".into())
        .unwrap();
    running
        .until("passing", |s| status(s) == Some(CheckStatus::Passing))
        .await;
    assert!(
        begun.elapsed() < Duration::from_millis(800),
        "{:?}",
        begun.elapsed()
    );
    running
        .until("expired", |s| status(s) == Some(CheckStatus::Critical))
        .await;
    assert!(begun.elapsed() >= Duration::from_millis(900));
    running
        .local
        .deregister_service(&"web".into())
        .await
        .unwrap();
    running
        .until("gone", |s| s.service("n1", "web").is_none())
        .await;
    running.stop().await;
}

#[tokio::test]
async fn what_somebody_else_removes_comes_back() {
    let running = start(None);
    running.local.register_service(web(), false).await.unwrap();
    running.until("registered", |s| status(s).is_some()).await;
    let begun = tokio::time::Instant::now();
    let remove = Command::Deregister {
        node: "n1".into(),
        service_id: "web".into(),
        check_id: Default::default(),
    };
    running.writer.write(remove).await.unwrap();
    running.until("back", |s| status(s).is_some()).await;
    assert!(begun.elapsed() < 3 * COMPARE_PAUSE);
    running.stop().await;
}

#[tokio::test]
async fn without_a_leader_it_waits_and_a_leader_ends_the_wait() {
    let running = start(None);
    *running.writer.down.lock() = true;
    running.local.register_service(web(), false).await.unwrap();
    running.failed().await;
    *running.writer.down.lock() = false;
    let begun = tokio::time::Instant::now();
    running.until("retried", |s| status(s).is_some()).await;
    assert!(begun.elapsed() > RETRY / 2, "{:?}", begun.elapsed());
    *running.writer.down.lock() = true;
    running
        .local
        .deregister_service(&"web".into())
        .await
        .unwrap();
    running.failed().await;
    *running.writer.down.lock() = false;
    let begun = tokio::time::Instant::now();
    running.writer.up.notify_waiters();
    running.until("at once", |s| status(s).is_none()).await;
    assert!(begun.elapsed() < RETRY / 2, "{:?}", begun.elapsed());
    running.stop().await;
}

#[tokio::test]
async fn registrations_and_reports_survive_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let running = start(Some(dir.path()));
    running.local.register_service(web(), false).await.unwrap();
    let alone = json!({"Name": "alone", "TTL": "1h"});
    let alone = CheckDefinition::parse(&alone).unwrap();
    running.local.register_check(alone).await.unwrap();
    running
        .local
        .report(&"alone".into(), CheckStatus::Warning, "hm".into())
        .unwrap();
    running.stop().await;

    let again = start(Some(dir.path()));
    let check = |id: &str| {
        let checks = again.local.checks();
        let found = checks.into_iter().find(|c| c.check.check_id == *id);
        found.unwrap().check
    };
    assert_eq!(check("alone").status, CheckStatus::Warning);
    assert_eq!(check("alone").output, "hm");
    assert_eq!(check("c").status, CheckStatus::Critical);
    assert_eq!(check("c").service_id, "web");
    again.until("synced", |s| status(s).is_some()).await;
    again.local.deregister_service(&"web".into()).await.unwrap();
    // What a configuration file defines takes the place of what was kept.
    let file = json!({"Name": "alone", "TTL": "2h"});
    let file = CheckDefinition::parse(&file).unwrap();
    let configured = again.local.judge(vec![], vec![file]).unwrap();
    again.local.configure(configured).await.unwrap();
    again.stop().await;
    let third = start(Some(dir.path()));
    assert!(third.local.services().is_empty() && third.local.checks().is_empty());
    third.stop().await;
}

#[tokio::test]
async fn an_id_that_differs_in_case_only_is_refused() {
    let running = start(None);
    running.local.register_service(web(), false).await.unwrap();
    for value in [
        json!({"Name": "WEB"}),
        json!({"Name": "other", "Check": {"CheckID": "C", "TTL": "1s"}}),
    ] {
        let other = ServiceDefinition::parse(&value).unwrap();
        let error = running.local.register_service(other, false).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains("case only"), "{error}");
    }
    let check = CheckDefinition::parse(&json!({"Name": "C", "TTL": "1s"})).unwrap();
    assert!(running.local.register_check(check).await.is_err());
    assert_eq!(running.local.services().len(), 1);
    running.stop().await;
}

#[test]
fn comparisons_get_rarer_with_every_doubling() {
    let minute = Duration::from_secs(60);
    for (nodes, factor) in [(0, 1), (128, 1), (129, 2), (256, 2), (257, 3), (1024, 4)] {
        assert_eq!(scaled(minute, nodes), minute * factor, "{nodes}");
    }
}
