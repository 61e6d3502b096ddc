//! `raft/peers.json`: how an operator forms a datacenter anew of the servers that are left when a quorum is lost.
//!
//! The file is Consul's: a list of `{"id", "address", "non_voter"}`. The same file is laid into the data directory of
//! every server that is left, while all of them are stopped. On start this server's whole log is taken as committed, as
//! Consul does: what no quorum had may take effect by that. The result is a snapshot with the new membership.

use crate::consensus::config::raft_id;
use crate::consensus::disk::{Change, Disk, sync_dir};
use crate::consensus::error::Error;
use crate::consensus::machine::Machine;
use crate::consensus::snapshots::Snapshots;
use crate::consensus::types::{Peer, SnapshotMeta, StoredMembership};
use crate::model::NodeId;
use openraft::Membership;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// Its name in `raft/`.
const FILE: &str = "peers.json";
/// The note beside it, under Consul's name for it.
const NOTE: &str = "peers.info";
const NOTE_TEXT: &str = "\
How to recover when a quorum of servers is lost for good: stop all servers that are left, put a file peers.json with all
of them into this directory on each, and start them. The file is removed when it has taken effect.

[
  {\"id\": \"<node id>\", \"address\": \"<host>:<port of RPC>\", \"non_voter\": false},
  ...
]

The node id is in the file node-id of the data directory. Entries of the log that no quorum had may take effect.
";

/// Largest file read, in bytes.
const MAX_FILE: u64 = 1 << 20;

/// One server as the file names it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Listed {
    id: String,
    address: String,
    #[serde(default)]
    non_voter: bool,
}

/// Rewrites the membership if the file is there, and removes it. Nothing is changed when the file does not make sense.
pub(crate) fn recover(
    dir: &Path,
    node: &NodeId,
    disk: &Disk,
    snapshots: &Snapshots,
    machine: &mut Machine,
) -> Result<(), Error> {
    note(dir)?;
    let path = dir.join(FILE);
    if !path.try_exists().map_err(Error::io("read", &path))? {
        return Ok(());
    }
    if fs::metadata(&path).map_err(Error::io("read", &path))?.len() > MAX_FILE {
        return Err(bad("the file", "it is larger than 1 MiB"));
    }
    let text = fs::read(&path).map_err(Error::io("read", &path))?;
    let listed = parse(&text)?;
    let ours = raft_id(node)?;
    if !listed.contains_key(&ours) {
        return Err(bad(
            node.as_str(),
            "this node is not in the list; add it, or remove the file",
        ));
    }
    replay(dir, disk, machine)?;
    let Some(last) = machine.applied() else {
        return Err(bad(
            "the file",
            "there is no state to recover on this server; remove the file, and let it join the others",
        ));
    };
    let membership = membership(&listed, machine.membership());
    let meta = SnapshotMeta {
        last_log_id: Some(last),
        last_membership: StoredMembership::new(Some(last), membership),
        snapshot_id: uuid::Uuid::new_v4().to_string(),
    };
    let state = machine.to_bytes().map_err(Error::Raft)?;
    // Each step may be the last one before a crash: the file stays until all of it is on the disk, and doing it again
    // leads to the same.
    snapshots.save(&meta, &state)?;
    disk.write(&[Change::Purge(last)], Some(last))
        .map_err(|error| Error::Raft(error.to_string()))?;
    machine.restore(&meta, &state).map_err(Error::Raft)?;
    fs::remove_file(&path).map_err(Error::io("remove", &path))?;
    sync_dir(dir)?;
    let index = last.index;
    tracing::warn!(
        index,
        servers = listed.len(),
        "the raft membership was rewritten from peers.json"
    );
    Ok(())
}

/// Applies the whole log.
fn replay(dir: &Path, disk: &Disk, machine: &mut Machine) -> Result<(), Error> {
    let applied = machine.applied().map_or(0, |log_id| log_id.index);
    let mut failed = None;
    let contents = disk.load(|entry, _| {
        let behind = machine.applied().is_none() || entry.log_id.index > applied;
        if behind && failed.is_none() {
            failed = machine.replay(entry).err();
        }
    })?;
    if let Some(error) = failed {
        return Err(Error::damaged(disk.path(), error));
    }
    no_gap(dir, contents.purged.map(|log_id| log_id.index), machine)
}

/// Refuses a log whose beginning is in no snapshot.
pub(crate) fn no_gap(dir: &Path, purged: Option<u64>, machine: &Machine) -> Result<(), Error> {
    if purged <= machine.applied().map(|log_id| log_id.index) {
        return Ok(());
    }
    let begins = purged.map_or(0, |index| index + 1);
    let detail =
        format!("the log begins at entry {begins}, and there is no snapshot of what was before");
    Err(Error::damaged(&dir.join("snapshots"), detail))
}

/// The new membership. Names that the old one knows are kept; the others come when their servers are heard of.
fn membership(listed: &BTreeMap<u64, Listed>, old: &StoredMembership) -> Membership<u64, Peer> {
    let name = |id: &u64| old.membership().get_node(id).map(|peer| peer.node.clone());
    let nodes: BTreeMap<u64, Peer> = listed
        .iter()
        .map(|(id, server)| {
            let peer = Peer {
                id: server.id.as_str().into(),
                node: name(id).unwrap_or_else(|| server.id.as_str().into()),
                address: server.address.clone(),
            };
            (*id, peer)
        })
        .collect();
    let voters = listed.iter().filter(|(_, server)| !server.non_voter);
    let voters: BTreeSet<u64> = voters.map(|(id, _)| *id).collect();
    Membership::new(vec![voters], nodes)
}

/// Reads the list, by Raft id.
fn parse(text: &[u8]) -> Result<BTreeMap<u64, Listed>, Error> {
    let value: Value = serde_json::from_slice(text)
        .map_err(|error| bad("the file", format!("it is no JSON: {error}")))?;
    let Value::Array(all) = value else {
        return Err(bad(
            "the file",
            "write a list of servers: [{\"id\": ..., \"address\": ...}]",
        ));
    };
    if !all.is_empty() && all.iter().all(Value::is_string) {
        return Err(bad(
            "the file",
            "it lists addresses alone, as for version 2 of Consul's raft protocol; write {\"id\": <node id>, \"address\": <host:port>} for each server",
        ));
    }
    let mut found = BTreeMap::new();
    let mut addresses = BTreeSet::new();
    for (at, one) in all.into_iter().enumerate() {
        let (id, listed) = server(at, one)?;
        if !addresses.insert(listed.address.clone()) {
            let value = format!("[{at}].address {:?}", listed.address);
            return Err(bad(value, "it is there twice; each server has its own"));
        }
        if let Some(twice) = found.insert(id, listed) {
            let value = format!("[{at}].id {:?}", twice.id);
            return Err(bad(value, "it is there twice; each server has its own"));
        }
    }
    if found.values().all(|server| server.non_voter) {
        return Err(bad(
            "the list",
            "at least one server must vote; set its non_voter to false",
        ));
    }
    Ok(found)
}

fn server(at: usize, value: Value) -> Result<(u64, Listed), Error> {
    let listed: Listed = serde_json::from_value(value).map_err(|error| {
        bad(
            format!("[{at}]"),
            format!("{error}; a server has id, address and non_voter"),
        )
    })?;
    let id = raft_id(&listed.id.as_str().into())
        .map_err(|_| bad(format!("[{at}].id {:?}", listed.id), "use the node's UUID"))?;
    let parts = listed.address.rsplit_once(':');
    let good = parts.is_some_and(|(host, port)| {
        !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port != 0)
    });
    if !good {
        let value = format!("[{at}].address {:?}", listed.address);
        return Err(bad(
            value,
            "use <host>:<port of RPC>, such as 10.0.0.1:8300",
        ));
    }
    Ok((id, listed))
}

fn bad(value: impl std::fmt::Display, problem: impl Into<String>) -> Error {
    Error::config("raft/peers.json", value, problem)
}

/// Leaves the note where an operator looks for it.
fn note(dir: &Path) -> Result<(), Error> {
    let path = dir.join(NOTE);
    if path.try_exists().map_err(Error::io("read", &path))? {
        return Ok(());
    }
    fs::write(&path, NOTE_TEXT).map_err(Error::io("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0a000000-0000-4000-8000-000000000001";

    #[test]
    fn the_list_of_consul_is_read() {
        let text = format!(
            r#"[{{"id": "{ID}", "address": "10.0.0.1:8300"}},
                {{"id": "0B{}", "address": "[::1]:8300", "non_voter": true}}]"#,
            &ID[2..]
        );
        let found = parse(text.as_bytes()).unwrap();
        let votes: Vec<_> = found.values().map(|server| !server.non_voter).collect();
        assert_eq!(votes, [true, false]);
        let membership = membership(&found, &StoredMembership::default());
        assert_eq!(membership.voter_ids().count(), 1);
        assert_eq!(membership.nodes().count(), 2);
    }

    #[test]
    fn a_bad_list_is_refused_with_place_value_and_remedy() {
        let one = |id: &str, rest: &str| format!(r#"[{{"id": "{id}", {rest}}}]"#);
        let good = r#""address": "10.0.0.1:8300""#;
        for (text, parts) in [
            ("{".to_owned(), vec!["no JSON"]),
            ("{}".to_owned(), vec!["write a list"]),
            ("[]".to_owned(), vec!["at least one"]),
            (
                r#"["10.0.0.1:8300"]"#.to_owned(),
                vec!["addresses alone", "\"id\""],
            ),
            (one("n1", good), vec!["[0].id", "\"n1\"", "UUID"]),
            (
                one(ID, r#""address": "10.0.0.1""#),
                vec!["[0].address", "\"10.0.0.1\"", "8300"],
            ),
            (one(ID, r#""address": ":8300""#), vec!["[0].address"]),
            (
                one(ID, r#""adress": "10.0.0.1:1""#),
                vec!["[0]", "adress", "non_voter"],
            ),
            (
                one(ID, r#""non_voter": true, "address": "10.0.0.1:1""#),
                vec!["at least one"],
            ),
            (
                format!(
                    r#"[{{"id": "{ID}", "address": "a:1"}}, {{"id": "{ID}", "address": "b:1"}}]"#
                ),
                vec!["[1].id", "twice"],
            ),
        ] {
            let error = parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with("raft/peers.json = "), "{error}");
            for part in parts {
                assert!(error.contains(part), "{text}: {error}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_file_makes_the_reader_panic(bytes: Vec<u8>) {
            let _ = parse(&bytes);
        }
    }
}
