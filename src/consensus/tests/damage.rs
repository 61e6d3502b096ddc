//! Damaged directories: refused with the file's name, or whole. Never empty, never a lost write.

use super::*;
use std::fs;
use std::path::PathBuf;

const WRITES: usize = 40;

/// A directory with a log, snapshots and acknowledged writes, closed cleanly.
async fn filled() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let consensus = leader(config(Some(dir.path()))).await;
    for at in 0..WRITES {
        put(&consensus, &format!("k{at}"), "value").await;
        if at == WRITES / 2 {
            consensus.snapshot().await.unwrap();
        }
    }
    consensus.shutdown().await.unwrap();
    dir
}

fn database(dir: &Path) -> PathBuf {
    dir.join("raft/raft.db")
}

fn snapshot(dir: &Path) -> PathBuf {
    let files = fs::read_dir(dir.join("raft/snapshots")).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files.pop().unwrap()
}

async fn refusal(dir: &Path) -> Error {
    open_error(Consensus::open(config(Some(dir))).await)
}

#[tokio::test]
async fn each_damage_is_named() {
    type Harm = fn(&Path);
    let table: [(&str, &str, Harm); 8] = [
        ("empty database", "raft.db", |dir| {
            fs::write(database(dir), b"").unwrap();
        }),
        ("another file", "raft.db", |dir| {
            fs::write(database(dir), vec![b'x'; 100_000]).unwrap();
        }),
        ("cut database", "raft.db", |dir| {
            let bytes = fs::read(database(dir)).unwrap();
            fs::write(database(dir), &bytes[..bytes.len() / 2]).unwrap();
        }),
        ("missing database", "raft.db", |dir| {
            fs::remove_file(database(dir)).unwrap();
        }),
        ("empty snapshot", ".snap", |dir| {
            fs::write(snapshot(dir), b"").unwrap();
        }),
        ("cut snapshot", ".snap", |dir| {
            let bytes = fs::read(snapshot(dir)).unwrap();
            fs::write(snapshot(dir), &bytes[..bytes.len() - 1]).unwrap();
        }),
        ("flipped snapshot", ".snap", |dir| {
            let mut bytes = fs::read(snapshot(dir)).unwrap();
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
            fs::write(snapshot(dir), bytes).unwrap();
        }),
        ("unreadable place", "raft", |dir| {
            fs::remove_dir_all(dir.join("raft")).unwrap();
            fs::write(dir.join("raft"), b"a file").unwrap();
        }),
    ];
    for (what, file, harm) in table {
        let dir = filled().await;
        harm(dir.path());
        let error = refusal(dir.path()).await;
        let text = error.to_string();
        println!("{what}: {text}");
        assert!(text.contains(file), "{what}: {text}");
        // Twice: the refusal itself must not have changed what is refused.
        refusal(dir.path()).await;
    }
}

#[tokio::test]
async fn a_missing_snapshot_behind_a_purged_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let small = Config {
        snapshot_threshold: 16,
        trailing_logs: 0,
        ..config(Some(dir.path()))
    };
    let consensus = leader(small).await;
    for at in 0..60 {
        put(&consensus, &format!("k{at}"), "v").await;
    }
    consensus.snapshot().await.unwrap();
    consensus.shutdown().await.unwrap();
    for file in fs::read_dir(dir.path().join("raft/snapshots")).unwrap() {
        fs::remove_file(file.unwrap().path()).unwrap();
    }
    let error = refusal(dir.path()).await;
    assert!(matches!(error, Error::Damaged { .. }), "{error}");
}

/// Every page of the file is hit at some offset.
#[tokio::test]
async fn a_flipped_byte_anywhere_loses_nothing_silently() {
    let dir = filled().await;
    let whole = fs::read(database(dir.path())).unwrap();
    let (mut refused, mut fine) = (0, 0);
    for at in (0..whole.len()).step_by(whole.len() / 150) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x55;
        fs::write(database(dir.path()), &bytes).unwrap();
        match Consensus::open(config(Some(dir.path()))).await {
            Err(_) => refused += 1,
            Ok(consensus) => {
                for key in 0..WRITES {
                    let key = format!("k{key}");
                    assert!(get(&consensus, &key).is_some(), "{key} lost, byte {at}");
                }
                fine += 1;
                consensus.shutdown().await.unwrap();
            }
        }
    }
    println!("{refused} refused, {fine} in unused space");
    assert!(refused > 0);
}
