//! What an agent does before it starts: reads its files, and builds the core.

use std::sync::Arc;

use crate::gossip::Member;
use crate::gossip::agent::Admission;
use crate::gossip::agent::Config;
use crate::gossip::agent::Error;
use crate::gossip::agent::exchange::Protection;
use crate::gossip::agent::keyring_file;
use crate::gossip::agent::shared::now;
use crate::gossip::agent::snapshot_file;
use crate::gossip::agent::snapshot_file::SnapshotFile;
use crate::gossip::agent::task::Files;
use crate::gossip::serf::Serf;
use crate::gossip::serf::Snapshot;
use crate::gossip::swim::Filter;
use crate::gossip::swim::Node;
use crate::gossip::wire::Keyring;
use crate::gossip::wire::packet;

/// The core, how it is protected, and where it remembers.
pub(super) fn prepare(
    config: Config,
    admission: Arc<dyn Admission>,
) -> Result<(Serf, Protection, Files), Error> {
    let keyring = keyring(&config)?;
    let protection = Protection {
        keyring: keyring.clone(),
        verify_incoming: config.verify_incoming,
        verify_outgoing: config.verify_outgoing,
        compress: config.compress,
    };
    let mut serf = config.serf;
    let (snapshot, file) = match config.snapshot_file {
        Some(path) => {
            let failed = |reason| Error::Snapshot {
                path: path.clone(),
                reason,
            };
            let content = snapshot_file::load(&path).map_err(failed)?;
            let snapshot = Snapshot::read(&content, serf.rejoin_after_leave);
            if snapshot.skipped > 0 {
                tracing::warn!(
                    path = %path.display(), lines = snapshot.skipped,
                    "the gossip snapshot is damaged; what the bad lines said is lost"
                );
            }
            (
                Some(snapshot),
                Some(SnapshotFile::open(path.clone()).map_err(failed)?),
            )
        }
        None => (None, None),
    };
    serf.keyring = keyring;
    serf.snapshot = snapshot;
    serf.swim.packet_room = packet::room(packet::DEFAULT_SIZE, &protection.outgoing(true));
    serf.swim.filter = Some(Filter::new(move |nodes: &[Node]| {
        let members: Vec<Member> = nodes.iter().map(Member::from).collect();
        admission.admit(&members)
    }));
    let core = Serf::new(serf, now(), &mut rand::rng())?;
    let files = Files {
        keyring: config.keyring_file,
        snapshot: file,
    };
    Ok((core, protection, files))
}

/// The keys in force: those of the file, or else those of the configuration, which the file then remembers.
fn keyring(config: &Config) -> Result<Option<Keyring>, Error> {
    let configured = config.serf.keyring.as_ref();
    let Some(path) = &config.keyring_file else {
        return Ok(configured.cloned());
    };
    let remembered = keyring_file::load(path)?;
    match (remembered, configured) {
        (Some(ring), configured) => {
            let unknown = configured.filter(|c| !ring.keys().any(|key| key == c.primary()));
            if unknown.is_some() {
                tracing::warn!(
                    path = %path.display(),
                    "`encrypt` is not one of the keys in the keyring file, which wins; change keys with the keyring command"
                );
            }
            Ok(Some(ring))
        }
        (None, Some(ring)) => {
            keyring_file::save(path, ring)?;
            Ok(Some(ring.clone()))
        }
        (None, None) => Ok(None),
    }
}
