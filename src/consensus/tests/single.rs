//! One server: election, batches, restart, snapshots, full disk.

use super::*;
use crate::consensus::disk::{Change, Disk, is_full, lock_dir, open_backend};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

#[tokio::test]
async fn a_single_server_leads_at_once() {
    for on_disk in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let path = on_disk.then(|| dir.path());
        let start = Instant::now();
        let consensus = leader(config(path)).await;
        put(&consensus, "a", "1").await;
        let took = start.elapsed();
        println!("open to first write, disk {on_disk}: {took:?}");
        assert!(took < Duration::from_millis(300), "{took:?}");
        assert_eq!(consensus.leader().unwrap().node, "n1");
        assert_eq!(consensus.last_contact(), Some(Duration::ZERO));
        consensus.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn proposals_share_an_entry_and_a_refusal_stays_alone() {
    let consensus = leader(config(None)).await;
    let mut tasks = Vec::new();
    for at in 0..300 {
        let consensus = consensus.clone();
        tasks.push(tokio::spawn(async move {
            let command = if at % 10 == 3 {
                refused()
            } else {
                set(&format!("k{at}"), "v")
            };
            (at, consensus.propose(command).await)
        }));
    }
    let mut indexes = std::collections::BTreeSet::new();
    for task in tasks {
        let (at, result) = task.await.unwrap();
        if at % 10 == 3 {
            assert!(is_refusal(&result), "{at}: {result:?}");
            continue;
        }
        let written = result.unwrap();
        assert!(done(&written));
        let state = consensus.store().latest();
        let entry = state.kv.get(&*format!("k{at}")).unwrap();
        assert_eq!(entry.modify_index, written.index);
        indexes.insert(written.index);
    }
    assert!(
        indexes.len() < 100,
        "{} entries for 300 proposals",
        indexes.len()
    );
}

#[tokio::test]
async fn a_restart_has_the_whole_state_before_it_leads() {
    let dir = tempfile::tempdir().unwrap();
    let mut last = 0;
    for round in 0..4 {
        let consensus = Consensus::open(config(Some(dir.path()))).await.unwrap();
        assert!(consensus.store().latest().last_index() >= last);
        for old in 0..round {
            assert_eq!(get(&consensus, &format!("k{old}")).as_deref(), Some("v"));
        }
        wait_leader(&consensus).await;
        last = put(&consensus, &format!("k{round}"), "v").await.index;
        if round % 2 == 1 {
            assert!(consensus.snapshot().await.unwrap() >= last);
        }
        consensus.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn snapshots_come_by_themselves_and_the_log_is_purged() {
    let dir = tempfile::tempdir().unwrap();
    let small = || Config {
        snapshot_threshold: 16,
        trailing_logs: 4,
        ..config(Some(dir.path()))
    };
    let consensus = leader(small()).await;
    for at in 0..100 {
        put(&consensus, &format!("k{at}"), "v").await;
    }
    consensus.snapshot().await.unwrap();
    let stats = consensus.stats();
    assert!(stats.last_snapshot_index > 80, "{stats:?}");
    consensus.shutdown().await.unwrap();
    let consensus = Consensus::open(small()).await.unwrap();
    assert_eq!(consensus.store().latest().kv.len(), 100);
    consensus.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_directory_serves_one_server_of_one_node() {
    let dir = tempfile::tempdir().unwrap();
    let consensus = leader(config(Some(dir.path()))).await;
    let second = open_error(Consensus::open(config(Some(dir.path()))).await);
    assert!(matches!(second, Error::Locked { .. }), "{second}");
    consensus.shutdown().await.unwrap();
    let mut other = config(Some(dir.path()));
    other.node_id = "0b000000-0000-4000-8000-000000000002".into();
    let other = open_error(Consensus::open(other).await);
    assert!(matches!(other, Error::OtherNode { .. }), "{other}");
    assert!(other.to_string().contains(NODE), "{other}");
}

#[tokio::test]
async fn a_new_address_is_written_into_the_membership() {
    let dir = tempfile::tempdir().unwrap();
    leader(config(Some(dir.path())))
        .await
        .shutdown()
        .await
        .unwrap();
    let mut moved = config(Some(dir.path()));
    moved.address = "127.0.0.2:8300".to_owned();
    let consensus = leader(moved).await;
    let moved = timeout(PATIENCE, async {
        while consensus.peers()[0].peer.address != "127.0.0.2:8300" {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    moved.await.unwrap();
    assert_eq!(consensus.peers().len(), 1);
}

#[tokio::test]
async fn many_confirmations_and_a_barrier() {
    let consensus = leader(config(None)).await;
    let index = put(&consensus, "a", "1").await.index;
    let asks = (0..200).map(|_| consensus.verify_leader());
    for answer in futures_util::future::join_all(asks).await {
        answer.unwrap();
    }
    assert!(consensus.barrier().await.unwrap() >= index);
}

#[tokio::test]
async fn after_a_shutdown_every_call_ends() {
    let consensus = leader(config(None)).await;
    let other = consensus.clone();
    consensus.shutdown().await.unwrap();
    wait_role(&other, |role| matches!(role, Role::Stopped { .. })).await;
    assert_eq!(
        other.propose(Command::Noop).await,
        Err(ProposeError::Shutdown)
    );
    assert_eq!(other.verify_leader().await, Err(ProposeError::Shutdown));
    other.snapshot().await.unwrap_err();
}

#[tokio::test]
async fn bad_settings_name_the_key() {
    let mut bad = config(None);
    bad.raft_multiplier = 11;
    let error = open_error(Consensus::open(bad).await).to_string();
    assert!(error.starts_with("raft_multiplier = 11"), "{error}");
    let mut bad = config(None);
    bad.node_id = "n1".into();
    let error = open_error(Consensus::open(bad).await).to_string();
    assert!(error.starts_with("node_id = n1"), "{error}");
    let mut large = set("a", "");
    if let Command::Kv(KvOp::Set(entry)) = &mut large {
        entry.value = vec![0; 9 << 20];
    }
    let consensus = leader(config(None)).await;
    let error = consensus.propose(large).await.unwrap_err();
    assert!(matches!(error, ProposeError::TooLarge { .. }), "{error}");
}

/// A file that is full while the switch is on.
#[derive(Debug)]
struct Filling(redb::backends::FileBackend);

static FULL: AtomicBool = AtomicBool::new(false);

impl redb::StorageBackend for Filling {
    fn len(&self) -> std::io::Result<u64> {
        self.0.len()
    }
    fn read(&self, offset: u64, out: &mut [u8]) -> std::io::Result<()> {
        self.0.read(offset, out)
    }
    fn set_len(&self, len: u64) -> std::io::Result<()> {
        self.0.set_len(len)
    }
    fn sync_data(&self) -> std::io::Result<()> {
        self.0.sync_data()
    }
    fn write(&self, offset: u64, data: &[u8]) -> std::io::Result<()> {
        if FULL.load(Ordering::SeqCst) {
            return Err(std::io::ErrorKind::StorageFull.into());
        }
        self.0.write(offset, data)
    }
}

#[test]
fn a_full_disk_loses_nothing_and_recovers() {
    let dir = tempfile::tempdir().unwrap();
    let opener = |path: &Path| {
        let file = std::fs::File::options().read(true).write(true).open(path)?;
        open_backend(Filling(redb::backends::FileBackend::new(file)?))
    };
    let lock = lock_dir(dir.path()).unwrap();
    let disk = Disk::open(dir.path(), lock, &NODE.into(), true, opener).unwrap();
    let one = |index| [Change::Append(vec![(index, vec![1; 10])])];
    disk.write(&one(0), None).unwrap();
    FULL.store(true, Ordering::SeqCst);
    let error = crate::consensus::disk::io_error(disk.write(&one(1), None).unwrap_err());
    assert!(is_full(&error), "{error:?}");
    FULL.store(false, Ordering::SeqCst);
    disk.reopen().unwrap();
    disk.write(&one(1), None).unwrap();
    let stored: Vec<u64> = disk.records(0..9).unwrap().iter().map(|r| r.0).collect();
    assert_eq!(stored, [0, 1]);
}

/// Run by hand: `cargo test --release --lib consensus::tests::single::speed -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn speed() {
    use std::io::Write;
    let root = std::env::current_dir().unwrap().join("target");
    let dir = tempfile::tempdir_in(root).unwrap();
    let median = |mut took: Vec<Duration>| {
        took.sort();
        (took[took.len() / 2], took[took.len() * 99 / 100])
    };
    let consensus = leader(config(Some(dir.path()))).await;
    for _ in 0..3 {
        let mut file = std::fs::File::create(dir.path().join("x")).unwrap();
        let raw = (0..500).map(|_| {
            let start = Instant::now();
            file.write_all(&[7; 4096]).unwrap();
            file.sync_data().unwrap();
            start.elapsed()
        });
        let raw = median(raw.collect());
        let mut took = Vec::new();
        for at in 0..1000 {
            let start = Instant::now();
            put(&consensus, &format!("k{at}"), &"v".repeat(128)).await;
            took.push(start.elapsed());
        }
        let took = median(took);
        let ratio = took.0.as_secs_f64() / raw.0.as_secs_f64();
        println!("fdatasync {raw:?}, one writer {took:?}: {ratio:.2}x");
    }
    for writers in [16, 64, 256] {
        let start = Instant::now();
        let tasks: Vec<_> = (0..writers)
            .map(|writer| {
                let consensus = consensus.clone();
                tokio::spawn(async move {
                    for at in 0..20_000 / writers {
                        put(&consensus, &format!("{writer}/{at}"), &"v".repeat(128)).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.unwrap();
        }
        let rate = 20_000.0 / start.elapsed().as_secs_f64();
        println!("{writers} writers: {rate:.0} writes/s");
    }
}
