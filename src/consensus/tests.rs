//! Consensus as a whole: one server on memory and on disk, damaged directories, three servers in one process.

#![allow(clippy::print_stdout, clippy::disallowed_methods)] // Measurements are printed, and need the clock.

mod cluster;
mod damage;
mod single;
mod suite;

use crate::consensus::{Config, Consensus, Error, ProposeError, Role, Written};
use crate::model::KvEntry;
use crate::store::{CaCommand, Command, KvOp, Outcome};
use std::path::Path;
use std::time::Duration;
use tokio::time::timeout;

/// Longer than anything here takes on a busy machine.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

pub(super) const NODE: &str = "0a000000-0000-4000-8000-000000000001";

pub(super) fn config(dir: Option<&Path>) -> Config {
    Config {
        data_dir: dir.map(Path::to_owned),
        bootstrap: true,
        ..Config::new(NODE.into(), "n1".into(), "127.0.0.1:8300")
    }
}

pub(super) async fn leader(config: Config) -> Consensus {
    let consensus = Consensus::open(config).await.unwrap();
    wait_leader(&consensus).await;
    consensus
}

pub(super) async fn wait_leader(consensus: &Consensus) {
    wait_role(consensus, Role::is_leader).await;
}

pub(super) async fn wait_role(consensus: &Consensus, wanted: impl FnMut(&Role) -> bool) {
    let mut role = consensus.role();
    let reached = timeout(PATIENCE, role.wait_for(wanted)).await;
    reached.expect("the role is reached in time").unwrap();
}

pub(super) fn set(key: &str, value: &str) -> Command {
    Command::Kv(KvOp::Set(KvEntry {
        key: key.into(),
        value: value.as_bytes().to_vec(),
        ..KvEntry::default()
    }))
}

pub(super) async fn put(consensus: &Consensus, key: &str, value: &str) -> Written {
    let written = timeout(PATIENCE, consensus.propose(set(key, value))).await;
    written.expect("the write ends in time").unwrap()
}

pub(super) fn get(consensus: &Consensus, key: &str) -> Option<String> {
    let state = consensus.store().latest();
    let entry = state.kv.get(key)?;
    Some(String::from_utf8(entry.value.clone()).unwrap())
}

/// What an empty state refuses.
pub(super) fn refused() -> Command {
    Command::Ca(CaCommand::NextSerials {
        id: "no such provider".to_owned(),
        count: 1,
    })
}

pub(super) fn is_refusal(result: &Result<Written, ProposeError>) -> bool {
    matches!(result, Err(ProposeError::Refused(_)))
}

pub(super) fn open_error(result: Result<Consensus, Error>) -> Error {
    match result {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

pub(super) fn done(written: &Written) -> bool {
    matches!(written.outcome, Outcome::Bool(true) | Outcome::Done)
}
