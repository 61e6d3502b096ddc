use super::*;
use crate::model::query::RegisterRequest;
use crate::model::{
    CheckStatus, FederationState, HealthCheck, KvEntry, NodeService, ServiceKind, Timestamp,
};
use std::collections::BTreeSet;
use std::sync::Arc;

fn register(node: &str, service: Option<NodeService>, checks: Vec<HealthCheck>) -> Command {
    Command::Register(Box::new(RegisterRequest {
        node: node.into(),
        address: "10.0.0.1".into(),
        datacenter: "dc1".into(),
        service,
        checks,
        ..RegisterRequest::default()
    }))
}

fn service(name: &str) -> NodeService {
    NodeService {
        service: name.into(),
        id: name.into(),
        port: 80,
        ..NodeService::default()
    }
}

fn sidecar(name: &str) -> NodeService {
    let mut s = service(&format!("{name}-sidecar-proxy"));
    s.kind = ServiceKind::ConnectProxy;
    s.proxy.destination_service_name = name.into();
    s
}

fn check(id: &str, service: &str, status: CheckStatus) -> HealthCheck {
    HealthCheck {
        check_id: id.into(),
        service_id: service.into(),
        status,
        ..HealthCheck::default()
    }
}

#[track_caller]
fn ok(state: &mut State, index: u64, command: &Command) -> BTreeSet<Topic> {
    let applied = state.apply(index, command);
    assert!(applied.result.is_ok(), "{:?}", applied.result);
    applied.topics
}

#[test]
fn the_same_registration_again_touches_nothing() {
    let mut state = State::default();
    let command = register(
        "n1",
        Some(service("web")),
        vec![check("c", "web", CheckStatus::Passing)],
    );
    assert!(!ok(&mut state, 5, &command).is_empty());
    let before = state.clone();
    assert_eq!(ok(&mut state, 6, &command), BTreeSet::new());
    assert_eq!(state.service_index("web"), 5);
    assert_eq!(state.nodes_index(), 5);
    assert_eq!(state.last_index(), 6);
    assert_eq!(before.indexes, state.indexes);
}

#[test]
fn a_check_wakes_its_own_service_and_kind_only() {
    let mut state = State::default();
    ok(&mut state, 1, &register("n1", Some(service("web")), vec![]));
    ok(&mut state, 2, &register("n1", Some(service("db")), vec![]));
    let topics = ok(
        &mut state,
        3,
        &register("n1", None, vec![check("c", "web", CheckStatus::Passing)]),
    );
    assert!(topics.contains(&Topic::Service("web".into())));
    assert!(!topics.contains(&Topic::Service("db".into())));
    assert!(!topics.contains(&Topic::Services));
    assert_eq!(
        (state.service_index("web"), state.service_index("db")),
        (3, 2)
    );
    let topics = ok(
        &mut state,
        4,
        &register(
            "n1",
            None,
            vec![check("serfHealth", "", CheckStatus::Critical)],
        ),
    );
    assert!(
        topics.contains(&Topic::Service("web".into()))
            && topics.contains(&Topic::Service("db".into()))
    );
    assert_eq!(state.check_service_nodes("WEB")[0].checks.len(), 2);
}

#[test]
fn the_last_instance_takes_its_row_with_it() {
    let mut state = State::default();
    ok(
        &mut state,
        1,
        &register(
            "n1",
            Some(sidecar("web")),
            vec![check("c", "web-sidecar-proxy", CheckStatus::Passing)],
        ),
    );
    assert_eq!(state.connect_names(), vec![Key::from("web")]);
    assert_eq!(state.connect_index("web"), 1);
    let gone = Command::Deregister {
        node: "N1".into(),
        service_id: "web-sidecar-proxy".into(),
        check_id: "".into(),
    };
    let topics = ok(&mut state, 2, &gone);
    assert!(topics.contains(&Topic::Connect("web".into())) && topics.contains(&Topic::AnyConnect));
    assert!(state.connect_names().is_empty());
    assert_eq!(state.service_index("web-sidecar-proxy"), 2);
    assert_eq!(state.checks().count(), 0);
    assert_eq!(ok(&mut state, 3, &gone), BTreeSet::new());
}

#[test]
fn a_refused_registration_changes_nothing() {
    let mut state = State::default();
    let bad = register("n1", None, vec![check("c", "web", CheckStatus::Passing)]);
    let applied = state.apply(1, &bad);
    assert_eq!(
        applied.result,
        Err(ApplyError::refused("Missing service registration"))
    );
    assert!(applied.topics.is_empty());
    assert_eq!(state.nodes().count(), 0);
}

#[test]
fn a_node_is_renamed_by_its_id_and_a_living_name_is_not_taken() {
    let named = |name: &str, id: &str, checks| {
        let mut c = match register(name, None, checks) {
            Command::Register(r) => *r,
            _ => unreachable!(),
        };
        c.id = id.into();
        Command::Register(Box::new(c))
    };
    let alive = || vec![check("serfHealth", "", CheckStatus::Passing)];
    let mut state = State::default();
    ok(&mut state, 1, &named("a", "11111111-aaaa", alive()));
    ok(&mut state, 2, &named("b", "11111111-aaaa", alive()));
    assert!(state.node("a").is_none());
    assert_eq!(state.node_by_id("11111111-AAAA").unwrap().node, "b");
    let stolen = state.apply(3, &named("B", "22222222-bbbb", vec![]));
    assert!(
        stolen
            .result
            .unwrap_err()
            .to_string()
            .contains("is reserved by node")
    );
    ok(
        &mut state,
        4,
        &named(
            "b",
            "11111111-aaaa",
            vec![check("serfHealth", "", CheckStatus::Critical)],
        ),
    );
    ok(&mut state, 5, &named("B", "22222222-bbbb", vec![]));
    assert_eq!(state.node("b").unwrap().id, "22222222-bbbb");
    assert!(state.node_by_id("11111111-aaaa").is_none());
}

fn put(key: &str, value: &str, modify_index: u64) -> KvEntry {
    KvEntry {
        key: Arc::from(key),
        value: value.into(),
        modify_index,
        ..KvEntry::default()
    }
}

#[test]
fn kv_compare_and_set_lists_and_indexes() {
    let mut state = State::default();
    ok(&mut state, 1, &Command::Kv(KvOp::Set(put("a/b", "1", 0))));
    ok(&mut state, 2, &Command::Kv(KvOp::Set(put("a/c/d", "1", 0))));
    ok(&mut state, 3, &Command::Kv(KvOp::Set(put("z", "1", 0))));
    assert_eq!(
        state
            .apply(4, &Command::Kv(KvOp::Cas(put("a/b", "2", 9))))
            .result,
        Ok(Outcome::Bool(false))
    );
    assert_eq!(
        state
            .apply(5, &Command::Kv(KvOp::Cas(put("a/b", "2", 1))))
            .result,
        Ok(Outcome::Bool(true))
    );
    assert_eq!(
        state.kv_keys("a/", "/"),
        (5, vec!["a/b".to_owned(), "a/c/".to_owned()])
    );
    assert_eq!(state.kv_list("a/c").0, 2);
    ok(
        &mut state,
        6,
        &Command::Kv(KvOp::DeleteTree(Arc::from("a/c"))),
    );
    assert_eq!(state.kv_list("a/c"), (6, vec![]));
    assert_eq!(state.kv_get("a/b").0, 5);
    assert_eq!(state.kv_get("none").0, 6);
}

#[test]
fn the_newer_record_of_a_datacenter_is_in_force() {
    let record = |at: i64| FederationState {
        datacenter: "DC2".into(),
        updated_at: Timestamp::from_unix(at, 0),
        ..FederationState::default()
    };
    let mut state = State::default();
    let upsert = |at| Command::Federation(FederationCommand::Upsert(record(at)));
    let offer = |at| Command::Federation(FederationCommand::Offer(record(at)));
    ok(&mut state, 1, &upsert(10));
    assert_eq!(state.apply(2, &offer(10)).result, Ok(Outcome::Bool(false)));
    assert_eq!(state.apply(3, &offer(20)).result, Ok(Outcome::Bool(true)));
    assert_eq!(
        state.federation_state("dc2").unwrap().updated_at,
        Timestamp::from_unix(20, 0)
    );
    assert_eq!(state.federation_states().len(), 1);
    ok(&mut state, 4, &upsert(20));
    assert!(state.federation_offers.is_empty());
    assert_eq!(state.federation_index(), 4);
    assert_eq!(
        state
            .replicated_federation_state("dc2")
            .unwrap()
            .create_index,
        1
    );
}

#[test]
fn a_snapshot_round_trips_and_damage_is_noticed() {
    let mut state = State::default();
    ok(
        &mut state,
        1,
        &register(
            "n1",
            Some(sidecar("web")),
            vec![check("c", "web-sidecar-proxy", CheckStatus::Passing)],
        ),
    );
    ok(&mut state, 2, &Command::Kv(KvOp::Set(put("k", "v", 0))));
    let dump = state.service_dump();
    ok(
        &mut state,
        3,
        &Command::Federation(FederationCommand::Upsert(FederationState {
            datacenter: "dc2".into(),
            mesh_gateways: dump,
            updated_at: Timestamp::from_unix(7, 9),
            ..FederationState::default()
        })),
    );
    let bytes = state.to_snapshot().unwrap();
    assert_eq!(State::from_snapshot(&bytes).unwrap(), state);
    for at in (0..bytes.len()).step_by(7) {
        let mut bad = bytes.clone();
        bad[at] ^= 0x40;
        assert!(State::from_snapshot(&bad).is_err(), "byte {at}");
    }
    assert!(State::from_snapshot(&bytes[..bytes.len() - 1]).is_err());
}

#[tokio::test]
async fn only_waiters_of_touched_topics_wake() {
    let store = Store::default();
    let mut web = store.watch([Topic::Service("web".into())]);
    let mut db = store.watch([
        Topic::Service("db".into()),
        Topic::KvPrefix(Arc::from("a/")),
    ]);
    let publish = |index, command: Command| {
        let mut state = (*store.latest()).clone();
        let applied = state.apply(index, &command);
        store.publish(state, &applied.topics);
    };
    publish(1, register("n1", Some(service("web")), vec![]));
    web.changed().await;
    assert!(futures_util::FutureExt::now_or_never(db.changed()).is_none());
    assert!(futures_util::FutureExt::now_or_never(web.changed()).is_none());
    publish(2, Command::Kv(KvOp::Set(put("a/b", "1", 0))));
    db.changed().await;
    store.publish_restored(State::default());
    web.changed().await;
    assert!(web.abandoned());
    assert_eq!(store.waiting(), 3);
    drop((web, db));
    assert_eq!(store.waiting(), 0);
}

#[test]
fn a_check_result_brings_nothing_back_and_a_reap_takes_the_empty_node_along() {
    let mut state = State::default();
    let result = |status| {
        Command::Check(CheckOp::Result {
            node: "N1".into(),
            check_id: "c".into(),
            status,
            output: "o".into(),
        })
    };
    let reap = |index| {
        Command::Check(CheckOp::Reap {
            node: "n1".into(),
            check_id: "c".into(),
            modify_index: index,
        })
    };
    let no = Ok(Outcome::Bool(false));
    assert_eq!(
        state.apply(1, &result(CheckStatus::Passing)).result,
        no.clone()
    );
    assert_eq!(state.nodes().count(), 0);
    let checks = vec![check("c", "web", CheckStatus::Critical)];
    ok(&mut state, 2, &register("n1", Some(service("web")), checks));
    ok(&mut state, 3, &register("n1", Some(service("db")), vec![]));
    ok(&mut state, 4, &result(CheckStatus::Passing));
    assert_eq!(state.check("n1", "c").unwrap().status, CheckStatus::Passing);
    assert_eq!(state.apply(5, &reap(4)).result, no.clone());
    let older = state.clone();
    ok(&mut state, 6, &result(CheckStatus::Critical));
    let changed = state.changed_checks(&older);
    assert_eq!(changed, [("n1".into(), "c".into())]);
    assert!(older.changed_checks(&older).is_empty());
    assert_eq!(state.apply(7, &reap(4)).result, no);
    ok(&mut state, 8, &reap(6));
    assert!(state.service("n1", "web").is_none());
    assert!(state.node("n1").is_some(), "db is still on it");
    let checks = vec![check("c", "db", CheckStatus::Critical)];
    ok(&mut state, 9, &register("n1", None, checks));
    ok(&mut state, 10, &reap(9));
    assert!(state.node("n1").is_none());
}

#[test]
fn removed_keys_do_not_pile_up_and_no_index_goes_back() {
    let mut state = State::default();
    let set = |key: &str| {
        Command::Kv(KvOp::Set(KvEntry {
            key: key.into(),
            ..KvEntry::default()
        }))
    };
    state.apply(1, &set("kept/a"));
    let mut before = 0;
    for at in 0..70_000u64 {
        let key = format!("gone/{at}");
        state.apply(2 * at + 2, &set(&key));
        state.apply(2 * at + 3, &Command::Kv(KvOp::Delete(key.as_str().into())));
        if at % 1000 == 0 {
            let index = state.kv_index("gone/");
            assert!(index >= before, "{index} after {before}");
            before = index;
        }
    }
    assert!(state.tombstones.len() < 10_000);
    let kept = state.kv_index("kept/");
    assert!(kept > 1 && kept <= state.kv_index(""));
    let restored = State::from_snapshot(&state.to_snapshot().unwrap()).unwrap();
    assert_eq!(restored.kv_index("kept/"), kept);
}
