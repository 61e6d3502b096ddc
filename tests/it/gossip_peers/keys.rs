//! Encryption: right, wrong and no keys, and keys that change while the pool runs.

use crate::support::gossip::address;
use crate::support::gossip::at;
use crate::support::gossip::config;
use crate::support::gossip::start;
use crate::support::gossip::status;
use crate::support::gossip::until_status;
use crate::support::peers;
use crate::support::serf::Serf;
use crossway::gossip::Gossip;
use crossway::gossip::MemberStatus;
use crossway::gossip::agent::StreamError;
use crossway::gossip::serf::KeyOperation;
use crossway::gossip::wire;
use crossway::gossip::wire::Key;
use crossway::gossip::wire::Keyring;
use std::collections::BTreeMap;
use std::path::Path;

fn key(byte: u8, len: usize) -> Key {
    Key::new(&vec![byte; len]).unwrap()
}

fn text(byte: u8, len: usize) -> String {
    key(byte, len).to_base64()
}

async fn keyed(name: &str, key: Option<Key>, file: Option<&Path>) -> Gossip {
    let mut config = config(name);
    config.serf.keyring = key.map(Keyring::new);
    config.keyring_file = file.map(Into::into);
    start(config).await
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_has_the_key_gets_in_and_others_are_told() {
    let Some(program) = peers::find("serf") else {
        return;
    };
    for len in [16, 24, 32] {
        let serf = Serf::start(program.clone(), "serf", &["-encrypt", &text(1, len)]).await;
        let (right, wrong, none) = (
            keyed("right", Some(key(1, len)), None).await,
            keyed("wrong", Some(key(2, len)), None).await,
            keyed("none", None, None).await,
        );
        assert_eq!(right.join(&[at(serf.gossip())]).await.unwrap(), 1);
        until_status(&right, "serf", MemberStatus::Alive).await;
        serf.until_status("right", "alive").await;

        let error = wrong.join(&[at(serf.gossip())]).await.unwrap_err();
        let reason = &error.failures[0].reason;
        assert!(
            matches!(reason, StreamError::Wire(wire::Error::NoKey)),
            "{error}"
        );
        let error = none.join(&[at(serf.gossip())]).await.unwrap_err();
        let reason = &error.failures[0].reason;
        assert!(
            matches!(reason, StreamError::Wire(wire::Error::Encrypted)),
            "{error}"
        );
        assert!(error.to_string().contains("`encrypt`"), "{error}");

        // And those who come to us.
        let (strange, plain) = (
            Serf::start(program.clone(), "strange", &["-encrypt", &text(2, len)]).await,
            Serf::start(program.clone(), "plain", &[]).await,
        );
        for serf in [&strange, &plain] {
            let output = serf.command("join", &[&address(&right).to_string()]).await;
            assert!(!output.status.success());
        }
        for name in ["strange", "plain", "wrong", "none"] {
            assert_eq!(status(&right.members(), name), None);
            assert!(!serf.members().await.contains_key(name));
        }
    }
}

/// `encrypt_verify_incoming = false` and `encrypt_verify_outgoing = false` bring a pool from plain text to encryption
/// without a break.
#[tokio::test(flavor = "multi_thread")]
async fn a_pool_can_turn_encryption_on_step_by_step() {
    let Some(program) = peers::find("serf") else {
        return;
    };
    let plain = Serf::start(program, "plain", &[]).await;
    let mut first = config("first");
    first.serf.keyring = Some(Keyring::new(key(1, 16)));
    (first.verify_incoming, first.verify_outgoing) = (false, false);
    let first = start(first).await;
    first.join(&[at(plain.gossip())]).await.unwrap();
    until_status(&first, "plain", MemberStatus::Alive).await;
    plain.until_status("first", "alive").await;

    // The second step: sends encrypted, still takes plain text. The first member understands it.
    let mut second = config("second");
    second.serf.keyring = Some(Keyring::new(key(1, 16)));
    second.verify_incoming = false;
    let second = start(second).await;
    second.join(&[at(address(&first))]).await.unwrap();
    until_status(&first, "second", MemberStatus::Alive).await;
    until_status(&second, "first", MemberStatus::Alive).await;
}

fn count(keys: &BTreeMap<String, usize>, key: &str) -> usize {
    keys.get(key).copied().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_rotated_from_either_side() {
    let Some(program) = peers::find("serf") else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let (old, new, newest) = (text(1, 16), text(2, 32), text(3, 16));
    let (our_file, their_file) = (dir.path().join("ours"), dir.path().join("theirs"));
    std::fs::write(&their_file, format!("[\"{old}\"]")).unwrap();
    let with_file = format!("-keyring-file={}", their_file.display());
    let serf = Serf::start(program, "serf", &[&with_file]).await;
    let ours = keyed("ours", Some(key(1, 16)), Some(&our_file)).await;
    ours.join(&[at(serf.gossip())]).await.unwrap();
    serf.until_status("ours", "alive").await;
    let read = |path: &Path| -> Vec<String> {
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    };
    assert_eq!(read(&our_file), [&*old]);

    // By us.
    let report = ours.keyring(KeyOperation::List, 0).await.unwrap();
    assert_eq!(
        (report.num_nodes, report.num_resp, report.num_err),
        (2, 2, 0)
    );
    assert_eq!(count(&report.keys, &old), 2);
    for operation in [
        KeyOperation::Install(key(2, 32)),
        KeyOperation::Use(key(2, 32)),
        KeyOperation::Remove(key(1, 16)),
    ] {
        let report = ours.keyring(operation, 0).await.unwrap();
        assert_eq!(
            (report.num_resp, report.num_err),
            (2, 0),
            "{:?}",
            report.messages
        );
    }
    for file in [&our_file, &their_file] {
        assert_eq!(read(file), [&*new]);
    }
    let report = ours
        .keyring(KeyOperation::Remove(key(2, 32)), 0)
        .await
        .unwrap();
    assert_eq!(
        (report.num_resp, report.num_err),
        (2, 2),
        "the primary key stays"
    );
    assert_eq!(report.messages.len(), 2, "{:?}", report.messages);

    // By serf.
    for option in ["-install", "-use"] {
        serf.run("keys", &[option, &newest]).await;
    }
    serf.run("keys", &["-remove", &new]).await;
    let listed = serf.run("keys", &["-list"]).await;
    assert!(
        listed.contains(&newest) && listed.contains("[2/2]"),
        "{listed}"
    );
    assert!(!listed.contains(&new), "{listed}");
    for file in [&our_file, &their_file] {
        assert_eq!(read(file), [&*newest]);
    }
    serf.until_status("ours", "alive").await;
    until_status(&ours, "serf", MemberStatus::Alive).await;

    // The file wins over the key in the configuration, as in Consul.
    ours.shutdown().await;
    drop(ours);
    let again = keyed("again", Some(key(1, 16)), Some(&our_file)).await;
    again.join(&[at(serf.gossip())]).await.unwrap();
    serf.until_status("again", "alive").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_without_encryption_has_no_keys_to_operate_on() {
    let ours = keyed("ours", None, None).await;
    let report = ours.keyring(KeyOperation::List, 0).await.unwrap();
    assert_eq!((report.num_resp, report.num_err), (1, 1));
    let messages: Vec<&String> = report.messages.values().collect();
    assert!(messages[0].contains("not enabled"), "{messages:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_keyring_file_is_refused_at_start() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("local.keyring");
    std::fs::write(&file, "[\"no key\"]").unwrap();
    let mut config = config("ours");
    config.keyring_file = Some(file);
    let error = crate::support::gossip::try_start(config).await.unwrap_err();
    let text = error.to_string();
    assert!(
        text.contains("local.keyring") && text.contains("delete the file"),
        "{text}"
    );
}
