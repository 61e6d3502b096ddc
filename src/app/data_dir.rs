//! The data directory: created, proved writable, and the node's UUID in it.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::path::PathBuf;
use uuid::Uuid;

use crate::model::NodeId;

/// The file with the node's UUID.
const FILE: &str = "node-id";

/// Why the data directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataDirError {
    /// It cannot be created, or nothing can be written in it.
    #[error(
        "data_dir: {path} cannot be read or written: {reason}; make it writable for this user, free space on its disk, or set \
         data_dir to another directory"
    )]
    NotWritable {
        /// The file or directory.
        path: PathBuf,
        /// What the system says.
        reason: std::io::Error,
    },
    /// The file with the UUID holds something else.
    #[error(
        "{path} holds {found:?}, which is no UUID; restore the file, or set node_id to the id this server had before"
    )]
    BadNodeId {
        /// The file.
        path: PathBuf,
        /// What it holds.
        found: String,
    },
}

/// Makes the directory ready and answers the node's UUID: `configured`, else the one in the file `node-id`, else a new
/// one, which the file keeps. A file with another id than the configured one is left alone until [`keep`].
pub(crate) fn prepare(dir: &Path, configured: Option<&str>) -> Result<NodeId, DataDirError> {
    fs::create_dir_all(dir).map_err(|e| not_writable(dir, e))?;
    let file = dir.join(FILE);
    let stored = match fs::read(&file) {
        Ok(bytes) => Some(String::from_utf8_lossy(&bytes).into_owned()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => None,
        Err(e) => return Err(not_writable(&file, e)),
    };
    let stored = stored.map(|text| match Uuid::parse_str(text.trim()) {
        Ok(id) => Ok(id.to_string()),
        Err(_) => Err(DataDirError::BadNodeId {
            path: file.clone(),
            found: text.trim().chars().take(64).collect(),
        }),
    });
    let (id, proof) = match (configured, stored) {
        (Some(id), None) => (id.to_owned(), id.to_owned()),
        (Some(id), Some(Ok(stored))) => (id.to_owned(), stored),
        (Some(id), Some(Err(_))) => (id.to_owned(), id.to_owned()),
        (None, Some(stored)) => {
            let stored = stored?;
            (stored.clone(), stored)
        }
        (None, None) => {
            let new = Uuid::new_v4().to_string();
            (new.clone(), new)
        }
    };
    // Written even if nothing changes: a disk that is full or read-only is found out now.
    write_whole(&file, proof.as_bytes()).map_err(|e| not_writable(&file, e))?;
    Ok(NodeId::from(id))
}

/// Keeps the id that is in force, once it is known that the rest of the directory belongs to it.
pub(crate) fn keep(dir: &Path, id: &NodeId) -> Result<(), DataDirError> {
    let file = dir.join(FILE);
    let kept = fs::read(&file).map_err(|e| not_writable(&file, e))?;
    if kept == id.as_str().as_bytes() {
        return Ok(());
    }
    write_whole(&file, id.as_str().as_bytes()).map_err(|e| not_writable(&file, e))
}

fn not_writable(path: &Path, reason: std::io::Error) -> DataDirError {
    DataDirError::NotWritable {
        path: path.to_owned(),
        reason,
    }
}

/// Written beside and renamed, so that a crash leaves the old file or the new one.
fn write_whole(path: &Path, content: &[u8]) -> std::io::Result<()> {
    let beside = path.with_extension("tmp");
    let mut file = fs::File::create(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_stays_and_a_damaged_file_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("data");
        let first = prepare(&at, None).unwrap();
        assert_eq!(prepare(&at, None).unwrap(), first);
        let other = "ddd6fddd-b174-f428-7633-0e0dabed6a2c";
        assert_eq!(prepare(&at, Some(other)).unwrap(), other);
        assert_eq!(prepare(&at, None).unwrap(), first, "not kept yet");
        keep(&at, &other.into()).unwrap();
        assert_eq!(prepare(&at, None).unwrap(), other);
        for garbage in [&b"garbage"[..], b"\xff\xfe", b""] {
            fs::write(at.join("node-id"), garbage).unwrap();
            let error = prepare(&at, None).unwrap_err().to_string();
            assert!(error.contains("no UUID"), "{error}");
        }
        fs::write(at.join("node-id"), "garbage").unwrap();
        let error = prepare(&at, None).unwrap_err().to_string();
        assert!(
            error.contains("\"garbage\"") && error.contains("node_id"),
            "{error}"
        );
    }

    #[test]
    fn a_file_in_the_way_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("data");
        fs::write(&at, "").unwrap();
        let error = prepare(&at, None).unwrap_err().to_string();
        assert!(
            error.contains("data_dir") && error.contains("data"),
            "{error}"
        );
    }
}
