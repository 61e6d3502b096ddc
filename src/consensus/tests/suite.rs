//! openraft's own contract for log and state machine, on memory and on disk.

use super::NODE;
use crate::consensus::disk::{Disk, lock_dir, open_file};
use crate::consensus::log_store::LogStore;
use crate::consensus::machine::{Keep, Machine};
use crate::consensus::snapshots::Snapshots;
use crate::consensus::types::{StorageError, Types};
use crate::store::Store;
use openraft::testing::{StoreBuilder, Suite};
use tempfile::TempDir;

struct Memory;

impl StoreBuilder<Types, LogStore, Machine, ()> for Memory {
    async fn build(&self) -> Result<((), LogStore, Machine), StorageError> {
        let keep = Keep::Memory(std::sync::Arc::default());
        Ok((
            (),
            LogStore::in_memory(),
            Machine::new(Store::default(), keep),
        ))
    }
}

struct OnDisk;

impl StoreBuilder<Types, LogStore, Machine, TempDir> for OnDisk {
    async fn build(&self) -> Result<(TempDir, LogStore, Machine), StorageError> {
        let dir = tempfile::tempdir().unwrap();
        let lock = lock_dir(dir.path()).unwrap();
        let disk = Disk::open(dir.path(), lock, &NODE.into(), true, open_file).unwrap();
        let keep = Keep::Files(Snapshots::open(dir.path()).unwrap());
        let log = LogStore::on_disk(disk).unwrap();
        Ok((dir, log, Machine::new(Store::default(), keep)))
    }
}

#[test]
fn memory_keeps_the_contract() {
    Suite::test_all(Memory).unwrap();
}

#[test]
fn disk_keeps_the_contract() {
    Suite::test_all(OnDisk).unwrap();
}
