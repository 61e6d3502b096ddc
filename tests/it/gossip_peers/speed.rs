//! How fast a pool comes together and notices a death: ours beside serf's. Prints a table; `CROSSWAY_SOAK=1` takes 20
//! members and the timing of a datacenter, else 6 members and the fastest timing.
#![allow(clippy::print_stdout)] // The table is the result.

use crate::support::gossip::at;
use crate::support::gossip::config;
use crate::support::gossip::start;
use crate::support::peers;
use crate::support::serf::Seen;
use crate::support::serf::Serf;
use crossway::gossip::Gossip;
use crossway::gossip::swim::Timing;
use futures_util::future::join_all;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;
use std::time::Instant;

/// One member of the pool that is measured.
enum Member {
    Ours(Gossip),
    Serf(Serf),
}

impl Member {
    async fn start(ours: bool, program: PathBuf, name: &str, lan: bool) -> Self {
        if !ours {
            let profile = if lan {
                "-profile=lan"
            } else {
                "-profile=local"
            };
            return Self::Serf(Serf::start(program, name, &[profile]).await);
        }
        let mut config = config(name);
        if lan {
            config.serf.swim.timing = Timing::lan();
        }
        Self::Ours(start(config).await)
    }

    async fn join(&self, to: &Serf) {
        match self {
            Self::Ours(gossip) => assert_eq!(gossip.join(&[at(to.gossip())]).await.unwrap(), 1),
            Self::Serf(serf) => {
                serf.run("join", &[&to.gossip().to_string()]).await;
            }
        }
    }

    /// Ends it without a good-bye.
    async fn kill(self) {
        match self {
            Self::Ours(gossip) => gossip.shutdown().await,
            Self::Serf(mut serf) => serf.kill(),
        }
    }
}

fn count(seen: &BTreeMap<String, Seen>, status: &str) -> usize {
    seen.values().filter(|seen| seen.status == status).count()
}

/// Time until `n` have joined, and times until each of some deaths is noticed, as one more serf agent sees them.
async fn measure(
    ours: impl Fn(usize) -> bool,
    program: &Path,
    (n, kills, lan): (usize, usize, bool),
) -> (Duration, Vec<Duration>) {
    let profile = if lan {
        "-profile=lan"
    } else {
        "-profile=local"
    };
    let observer = Serf::start(program.to_owned(), "observer", &[profile]).await;
    let mut members = Vec::new();
    for i in 0..n {
        let name = format!("member-{i}");
        members.push(Member::start(ours(i), program.to_owned(), &name, lan).await);
    }
    let begin = Instant::now();
    join_all(members.iter().map(|member| member.join(&observer))).await;
    observer
        .until(format!("{n} members"), |seen| count(seen, "alive") == n + 1)
        .await;
    let joined = begin.elapsed();

    let mut noticed = Vec::new();
    for dead in 1..=kills {
        let member = members.swap_remove(dead % members.len());
        let begin = Instant::now();
        member.kill().await;
        observer
            .until(format!("{dead} failed"), |seen| {
                count(seen, "failed") == dead
            })
            .await;
        noticed.push(begin.elapsed());
    }
    noticed.sort();
    (joined, noticed)
}

#[tokio::test(flavor = "multi_thread")]
async fn deaths_are_noticed_as_fast_as_by_serf() {
    let Some(program) = peers::find("serf") else {
        return;
    };
    let soak = std::env::var("CROSSWAY_SOAK").is_ok_and(|value| value == "1");
    let shape = if soak { (20, 7, true) } else { (6, 1, false) };
    let mut medians = Vec::new();
    println!("pool          joined     death noticed: median, worst");
    for (name, ours) in [
        ("all serf", (|_| false) as fn(usize) -> bool),
        ("all Crossway", |_| true),
        ("half and half", |i| i % 2 == 0),
    ] {
        let (joined, noticed) = measure(ours, &program, shape).await;
        let (median, worst) = (noticed[noticed.len() / 2], noticed[noticed.len() - 1]);
        println!("{name:13} {joined:>9.2?}    {median:>8.2?}, {worst:>8.2?}");
        medians.push(median);
    }
    // Which member probes the dead one next is chance: generous, but no multiple of what serf takes.
    let slack = Duration::from_secs(10);
    assert!(medians[1] < medians[0] * 2 + slack, "{medians:?}");
}
