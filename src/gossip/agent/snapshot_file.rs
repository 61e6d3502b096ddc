//! The file in which a pool remembers its members over a restart. What its lines say is serf's affair.

use std::fs;
use std::fs::File;
use std::io;
use std::io::Read;
use std::io::Write as _;
use std::path::Path;
use std::path::PathBuf;

use tokio::sync::mpsc;
use tokio::task;
use tokio::task::JoinHandle;

use crate::gossip::serf::Write;

/// Most bytes that are read: the file is compacted long before.
const MAX_FILE: u64 = 64 << 20;
/// Changes that may wait for the disk; more are written with the next compaction.
const QUEUE: usize = 256;
/// Changes that are written at once.
const BATCH: usize = 64;

/// Writes the file in a task of its own, because disks may stall.
#[derive(Debug)]
pub(super) struct SnapshotFile {
    changes: mpsc::Sender<Write>,
    task: JoinHandle<()>,
}

/// What the file holds; nothing when there is none.
///
/// # Errors
/// What the system says.
pub(super) fn load(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    match File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut bytes)) {
        Ok(_) => Ok(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(bytes),
        Err(error) => Err(error),
    }
}

impl SnapshotFile {
    /// Opens the file, so that one that cannot be written is found out now.
    ///
    /// # Errors
    /// What the system says.
    pub(super) fn open(path: PathBuf) -> io::Result<Self> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let file = File::options().append(true).create(true).open(&path)?;
        let (changes, queue) = mpsc::channel(QUEUE);
        let task = tokio::spawn(run(path, file, queue));
        Ok(Self { changes, task })
    }

    /// Queues a change. `false` says that the disk is too slow for it and that it is lost.
    pub(super) fn write(&self, write: Write) -> bool {
        self.changes.try_send(write).is_ok()
    }

    /// Waits until everything is written.
    pub(super) async fn close(self) {
        drop(self.changes);
        let _ = self.task.await;
    }
}

async fn run(path: PathBuf, mut file: File, mut queue: mpsc::Receiver<Write>) {
    let mut batch = Vec::new();
    while queue.recv_many(&mut batch, BATCH).await > 0 {
        let (changes, at) = (std::mem::take(&mut batch), path.clone());
        let written = task::spawn_blocking(move || {
            let result = write(&at, &mut file, &changes);
            (file, result)
        });
        let Ok((back, result)) = written.await else {
            return; // The runtime ends.
        };
        file = back;
        if let Err(error) = result {
            tracing::error!(path = %path.display(), %error, "the gossip snapshot cannot be written; a restart will not know all members");
        }
    }
}

fn write(path: &Path, file: &mut File, changes: &[Write]) -> io::Result<()> {
    for change in changes {
        match change {
            Write::Append(text) => file.write_all(text.as_bytes())?,
            Write::Replace(text) => *file = replace(path, text.as_bytes())?,
        }
    }
    Ok(())
}

/// Written beside and renamed, so that a crash leaves the old file or the new one.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let beside = path.with_extension("snapshot.compact");
    let mut file = File::create(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn changes_are_written_in_their_order() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serf/local.snapshot");
        assert_eq!(load(&path).unwrap(), b"");
        for expected in ["alive: b\nclock: 2\n", "alive: b\nclock: 2\n"] {
            let file = SnapshotFile::open(path.clone()).unwrap();
            assert!(file.write(Write::Append("alive: a\n".to_owned())));
            assert!(file.write(Write::Replace("alive: b\n".to_owned())));
            assert!(file.write(Write::Append("clock: 2\n".to_owned())));
            file.close().await;
            assert_eq!(load(&path).unwrap(), expected.as_bytes());
        }
        let file = SnapshotFile::open(path.clone()).unwrap();
        assert!(file.write(Write::Append("leave\n".to_owned())));
        file.close().await;
        assert_eq!(load(&path).unwrap(), b"alive: b\nclock: 2\nleave\n");
    }

    #[tokio::test]
    async fn a_folder_in_the_way_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(SnapshotFile::open(dir.path().to_owned()).is_err());
        assert!(load(dir.path()).is_err());
    }
}
