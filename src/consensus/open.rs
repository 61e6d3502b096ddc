//! Starting: the directory is locked and checked, the state rebuilt, Raft started.

use crate::consensus::batch::Batcher;
use crate::consensus::config::{Config, raft_id};
use crate::consensus::disk::{Disk, lock_dir, open_file};
use crate::consensus::elect::{Contact, Elector};
use crate::consensus::error::Error;
use crate::consensus::follow::{announce_address, follow_role};
use crate::consensus::forward::Forwarder;
use crate::consensus::handle::{Consensus, Inner};
use crate::consensus::log_store::LogStore;
use crate::consensus::machine::{Applied, Keep, Machine, blocking};
use crate::consensus::recover::{no_gap, recover};
use crate::consensus::role::role;
use crate::consensus::snapshots::Snapshots;
use crate::consensus::timing::Timing;
use crate::consensus::transport::{Alone, Network, Peers, Transport};
use crate::consensus::types::Raft;
use crate::consensus::verify::{self, Verifier};
use crate::model::NodeId;
use crate::store::Store;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use tokio::sync::watch;
use tracing::Instrument;

impl Consensus {
    /// Opens the state in `data_dir`, or an empty one, and starts Raft. A server that is the only voter has its whole
    /// state when this returns, and leads a moment later.
    ///
    /// # Errors
    /// If a setting is out of range, or the directory is locked, another node's, damaged or not writable.
    pub async fn open(config: Config) -> Result<Self, Error> {
        let id = raft_id(&config.node_id)?;
        let settings = Arc::new(config.raft()?);
        let store = Store::default();
        let (log, machine) = match config.data_dir.clone() {
            None => {
                let keep = Keep::Memory(Arc::default());
                (LogStore::in_memory(), Machine::new(store.clone(), keep))
            }
            Some(dir) => {
                let (node, store) = (config.node_id.clone(), store.clone());
                blocking(move || load(&dir.join("raft"), &node, store)).await?
            }
        };
        let membership = log.stored_membership().unwrap_or(machine.membership());
        let alone = membership.voter_ids().eq([id]);
        if alone {
            log.commit_all();
        }
        let transport: Arc<dyn Transport> = match &config.transport {
            Some(transport) => transport.clone(),
            None => Arc::new(Alone),
        };
        let led = log.vote_is_won_by(id);
        let applied = machine.follow();
        let network = Network(transport.clone());
        let raft = Raft::new(id, settings, network, log.clone(), machine)
            .await
            .map_err(|error| Error::Raft(error.to_string()))?;
        begin(&raft, id, &config, alone && !led).await?;
        let span = tracing::info_span!("raft", node = %config.node_name);
        let opened = Opened {
            id,
            raft,
            log,
            applied,
            store,
            transport,
        };
        Ok(assemble(opened, &config, &span))
    }
}

/// Forms a datacenter of one, or has the only voter elect itself without waiting for a timeout.
async fn begin(raft: &Raft, id: u64, config: &Config, elect: bool) -> Result<(), Error> {
    let failed = |error: &dyn std::fmt::Display| Error::Raft(error.to_string());
    let initialized = raft.is_initialized().await.map_err(|e| failed(&e))?;
    if !initialized && config.bootstrap {
        let members = BTreeMap::from([(id, config.peer())]);
        raft.initialize(members).await.map_err(|e| failed(&e))?;
    } else if elect {
        raft.trigger().elect().await.map_err(|e| failed(&e))?;
    }
    Ok(())
}

/// Reads the directory. Nothing in it is changed unless all of it makes sense.
fn load(dir: &Path, node: &NodeId, store: Store) -> Result<(LogStore, Machine), Error> {
    let lock = lock_dir(dir)?;
    let snapshots = Snapshots::open(dir)?;
    let disk = Disk::open(dir, lock, node, snapshots.is_empty()?, open_file)?;
    let mut machine = Machine::new(store, Keep::Files(snapshots.clone()));
    if let Some((path, meta, state)) = snapshots.newest()? {
        machine
            .restore(&meta, &state)
            .map_err(|detail| Error::damaged(&path, detail))?;
    }
    recover(dir, node, &disk, &snapshots, &mut machine)?;
    let log = LogStore::on_disk(disk)?;
    no_gap(dir, log.purged().map(|log_id| log_id.index), &machine)?;
    Ok((log, machine))
}

/// What was opened and started.
struct Opened {
    id: u64,
    raft: Raft,
    log: LogStore,
    applied: Applied,
    store: Store,
    transport: Arc<dyn Transport>,
}

fn assemble(opened: Opened, config: &Config, span: &tracing::Span) -> Consensus {
    let Opened {
        id,
        raft,
        log,
        applied,
        store,
        transport,
    } = opened;
    let timing = Timing::new(config.raft_multiplier);
    let (contact, gate) = (Arc::<Contact>::default(), Arc::default());
    let peers = Arc::new(Peers::new(raft.clone(), transport, timing.lease));
    let (tell, role) = watch::channel(role(&raft.server_metrics().borrow()));
    let watcher = follow_role(raft.clone(), timing, contact.clone(), tell).instrument(span.clone());
    let announcer = announce_address(raft.clone(), id, config.peer(), role.clone());
    let elector = Elector {
        id,
        raft: raft.clone(),
        log: log.clone(),
        peers: peers.clone(),
        contact: contact.clone(),
        timing,
        role: role.clone(),
    };
    let forwarder = Forwarder::new(config.forward.clone(), role.clone(), config.propose_timeout);
    let (batcher, proposals) = Batcher::new(
        raft.clone(),
        role.clone(),
        log.fault(),
        forwarder.clone(),
        Arc::clone(&gate),
    );
    let verifier = |confirm| {
        Verifier::new(verify::Parts {
            raft: raft.clone(),
            role: role.clone(),
            fault: log.fault(),
            applied: applied.clone(),
            forwarder: forwarder.clone(),
            confirm,
        })
    };
    let (confirming, confirmers) = verifier(true);
    let (trusting, readers) = verifier(false);
    let tasks = vec![
        tokio::spawn(watcher),
        tokio::spawn(elector.run().instrument(span.clone())),
        tokio::spawn(announcer.instrument(span.clone())),
        tokio::spawn(batcher.run().instrument(span.clone())),
        tokio::spawn(confirming.run().instrument(span.clone())),
        tokio::spawn(trusting.run().instrument(span.clone())),
    ];
    Consensus::new(Inner {
        id,
        propose_timeout: config.propose_timeout,
        raft,
        log,
        store,
        applied,
        role,
        proposals,
        confirmers,
        readers,
        contact,
        timing,
        peers,
        forwarder,
        gate,
        tasks,
    })
}
