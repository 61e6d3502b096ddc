//! kill -9 and full disks: the test binary runs itself as the server process.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop the test.
#![allow(clippy::print_stdout, clippy::disallowed_methods)] // The child talks on stdout; the parent keeps deadlines.

use crossway::consensus::{Config, Consensus, Role};
use crossway::model::KvEntry;
use crossway::store::{Command, KvOp};
use rand::Rng;
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// Tells the child what to do; absent in an ordinary test run.
const JOB: &str = "CROSSWAY_CRASH_JOB";
const DIR: &str = "CROSSWAY_CRASH_DIR";
const NODE: &str = "0a000000-0000-4000-8000-000000000001";
const PATIENCE: Duration = Duration::from_secs(30);

fn config(dir: &Path) -> Config {
    Config {
        data_dir: Some(dir.to_owned()),
        bootstrap: true,
        // Small, so that snapshots and purges are under way when the kill comes.
        snapshot_threshold: 64,
        trailing_logs: 16,
        ..Config::new(NODE.into(), "n1".into(), "127.0.0.1:8300")
    }
}

fn set(key: &str, value: Vec<u8>) -> Command {
    Command::Kv(KvOp::Set(KvEntry {
        key: key.into(),
        value,
        ..KvEntry::default()
    }))
}

fn say(line: std::fmt::Arguments<'_>) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").unwrap();
    out.flush().unwrap();
}

/// Not a test by itself: what the child process runs.
#[test]
fn child() {
    let (Ok(job), Ok(dir)) = (std::env::var(JOB), std::env::var(DIR)) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let dir = Path::new(&dir);
        match job.as_str() {
            "fill" => fill(dir).await,
            prefix => write_for_ever(dir, prefix).await,
        }
    });
}

async fn lead(config: Config) -> Consensus {
    let consensus = Consensus::open(config).await.unwrap();
    consensus.role().wait_for(Role::is_leader).await.unwrap();
    consensus
}

async fn write_for_ever(dir: &Path, prefix: &str) {
    let consensus = lead(config(dir)).await;
    let writers = (0..4).map(|writer| {
        let consensus = consensus.clone();
        async move {
            for n in 0.. {
                let key = format!("{prefix}/{writer}/{n}");
                let written = consensus.propose(set(&key, key.as_bytes().to_vec()));
                let index = written.await.unwrap().index;
                say(format_args!("ACK {key} {index}"));
            }
        }
    });
    futures_util::future::join_all(writers).await;
}

/// Writes until the disk is full, reads meanwhile, and ends after a write succeeded again.
async fn fill(dir: &Path) {
    let consensus = lead(Config {
        snapshot_threshold: 1 << 20,
        ..config(dir)
    })
    .await;
    let mut failed = false;
    for n in 0.. {
        let key = format!("fill/{n}");
        match consensus.propose(set(&key, vec![7; 16 << 10])).await {
            Ok(written) => {
                say(format_args!("ACK {key} {}", written.index));
                if failed {
                    break;
                }
            }
            Err(error) if !failed => {
                failed = true;
                let readable = consensus.store().latest().kv_get("fill/0").1.is_some();
                say(format_args!("FULL {readable} {error}"));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(20)).await,
        }
    }
    consensus.shutdown().await.unwrap();
    say(format_args!("END"));
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn run(mut command: std::process::Command, job: &str, dir: &Path) -> Server {
    let child = command
        .args(["crash::child", "--exact", "--nocapture", "--test-threads=1"])
        .env(JOB, job)
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    Server(child)
}

fn this_binary() -> std::process::Command {
    std::process::Command::new(std::env::current_exe().unwrap())
}

/// Collects `ACK key index`. A line that the kill cut short was not acknowledged.
fn acknowledged(text: &str, acks: &mut BTreeMap<String, u64>) -> usize {
    let mut count = 0;
    for line in text.split_inclusive('\n').filter(|l| l.ends_with('\n')) {
        // The test harness writes its own text before the first line.
        let Some((_, ack)) = line.trim_end().split_once("ACK ") else {
            continue;
        };
        let (key, index) = ack.split_once(' ').unwrap();
        acks.insert(key.to_owned(), index.parse().unwrap());
        count += 1;
    }
    count
}

#[test]
fn thirty_kills_lose_no_acknowledged_write() {
    let dir = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (mut acks, mut highest, mut productive) = (BTreeMap::new(), 0, 0);
    for round in 0..30 {
        let mut server = run(this_binary(), &format!("r{round}"), dir.path());
        // From during the start to well into writing.
        let lifetime = rand::rng().random_range(10..500);
        std::thread::sleep(Duration::from_millis(lifetime));
        server.0.kill().unwrap();
        let mut text = String::new();
        let mut output = server.0.stdout.take().unwrap();
        output.read_to_string(&mut text).unwrap();
        drop(server);
        productive += usize::from(acknowledged(&text, &mut acks) > 0);

        runtime.block_on(async {
            let consensus = Consensus::open(config(dir.path())).await.unwrap();
            let state = consensus.store().latest();
            for (key, index) in &acks {
                let entry = state.kv_get(key).1;
                let entry = entry.unwrap_or_else(|| panic!("round {round}: {key} is lost"));
                assert_eq!(entry.value, key.as_bytes());
                assert_eq!(entry.modify_index, *index);
                highest = highest.max(*index);
            }
            assert!(
                state.last_index() >= highest,
                "round {round}: the index went back"
            );
            highest = state.last_index();
            consensus.shutdown().await.unwrap();
        });
    }
    println!(
        "{} writes acknowledged, highest index {highest}",
        acks.len()
    );
    assert!(
        productive > 10,
        "only {productive} rounds acknowledged anything"
    );
}

#[test]
fn a_full_disk_fails_writes_keeps_reads_and_recovers() {
    if std::process::Command::new("prlimit")
        .arg("--version")
        .output()
        .is_err()
    {
        println!("SKIPPED: prlimit is not installed");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    // Files of this process may not grow beyond 4096 blocks of 512 or 1024 bytes: a write beyond fails as on a full disk.
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", "trap '' XFSZ; ulimit -S -f 4096; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap());
    let mut server = run(shell, "fill", dir.path());
    let lines = BufReader::new(server.0.stdout.take().unwrap()).lines();
    let start = Instant::now();
    let (mut acks, mut full) = (BTreeMap::new(), false);
    for line in lines {
        let line = line.unwrap();
        acknowledged(&format!("{line}\n"), &mut acks);
        if let Some((_, error)) = line.split_once("FULL ") {
            assert!(error.starts_with("true "), "a key stays readable: {error}");
            assert!(error.contains("the disk is full"), "{error}");
            full = true;
            let pid = server.0.id().to_string();
            let mut lift = std::process::Command::new("prlimit");
            lift.args(["--fsize=unlimited", "--pid", &pid]);
            assert!(lift.status().unwrap().success());
        }
        if line.contains("END") {
            break;
        }
        assert!(start.elapsed() < PATIENCE, "it did not recover");
    }
    assert!(full, "the disk never was full");
    drop(server);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let consensus = Consensus::open(config(dir.path())).await.unwrap();
        let state = consensus.store().latest();
        for key in acks.keys() {
            assert!(state.kv_get(key).1.is_some(), "{key} is lost");
        }
    });
}
