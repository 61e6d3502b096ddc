//! What survives a restart: one JSON file for each service, check and reported status in the data directory.
//!
//! A file is written beside its place, flushed and renamed, so that a crash leaves the old or the new content. A damaged
//! file is reported and skipped; it never keeps the others from loading. Files hold tokens: mode 0600.

use crate::local::definition::CheckDefinition;
use crate::model::{CheckId, CheckStatus, NodeService, Secret, ServiceId};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Larger files are damaged: what is kept here comes from bodies that are smaller.
const FILE_LIMIT: u64 = 4 << 20;

/// A service as it is kept.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StoredService {
    /// The instance.
    pub service: NodeService,
    /// Token to write it with.
    #[serde(default)]
    pub token: Secret,
}

/// A check as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StoredCheck {
    /// The definition, with its final id.
    pub definition: CheckDefinition,
}

/// A reported status as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct StoredStatus {
    /// The check.
    #[serde(rename = "CheckID")]
    pub check_id: CheckId,
    /// The status.
    pub status: CheckStatus,
    /// What was said about it.
    pub output: String,
    /// Until when the report counts, in seconds since the Unix epoch.
    pub expires: u64,
}

/// Why a file could not be written, read or removed.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// The system refused.
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: io::Error,
    },
    /// The content is not what was written.
    #[error(
        "{} is damaged ({reason}): what it described is not loaded; remove the file and register it again",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
}

/// What a data directory held, and what could not be read.
#[derive(Debug, Default)]
pub struct Loaded {
    /// Services.
    pub services: Vec<StoredService>,
    /// Checks.
    pub checks: Vec<StoredCheck>,
    /// Reported statuses.
    pub statuses: Vec<StoredStatus>,
    /// Files that were skipped.
    pub problems: Vec<FileError>,
}

/// The three folders of a data directory.
#[derive(Debug, Clone)]
pub struct Files {
    services: PathBuf,
    checks: PathBuf,
    statuses: PathBuf,
}

impl Files {
    /// Makes the folders if they are missing.
    ///
    /// # Errors
    /// The data directory cannot be written.
    pub fn open(data_dir: &Path) -> Result<Self, FileError> {
        let files = Self {
            services: data_dir.join("services"),
            checks: data_dir.join("checks"),
            statuses: data_dir.join("check-state"),
        };
        for path in [&files.services, &files.checks, &files.statuses] {
            fs::create_dir_all(path).map_err(|e| failed("create", path, e))?;
        }
        Ok(files)
    }

    /// Reads everything.
    pub fn load(&self) -> Loaded {
        let mut loaded = Loaded::default();
        let problems = &mut loaded.problems;
        loaded.services = read_all(&self.services, problems);
        loaded.checks = read_all(&self.checks, problems);
        loaded.statuses = read_all(&self.statuses, problems);
        loaded
    }

    /// Keeps a service and checks, flushed to the disk, and forgets other checks: all of it, or nothing when the disk is
    /// full.
    ///
    /// # Errors
    /// The disk is full, or a folder cannot be written.
    pub fn put(
        &self,
        service: Option<&StoredService>,
        checks: &[StoredCheck],
        obsolete: &[CheckId],
    ) -> Result<(), FileError> {
        let mut staged = Vec::new();
        if let Some(stored) = service {
            let path = place(&self.services, stored.service.id.as_str());
            staged.push(Staged::write(path, stored, true)?);
        }
        for stored in checks {
            let path = place(&self.checks, stored.definition.id.as_str());
            staged.push(Staged::write(path, stored, true)?);
        }
        // From here on nothing takes room on the disk.
        staged.into_iter().try_for_each(Staged::put)?;
        obsolete.iter().try_for_each(|id| self.remove_check(id))
    }

    /// Keeps a reported status. It is not flushed: after a power failure the service's next report makes up for it.
    ///
    /// # Errors
    /// As [`Files::put`].
    pub fn put_status(&self, stored: &StoredStatus) -> Result<(), FileError> {
        let path = place(&self.statuses, stored.check_id.as_str());
        Staged::write(path, stored, false)?.put()
    }

    /// Forgets a service; a missing file is no error.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn remove_service(&self, id: &ServiceId) -> Result<(), FileError> {
        remove(&place(&self.services, id.as_str()))
    }

    /// Forgets a check and its reported status; missing files are no error.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn remove_check(&self, id: &CheckId) -> Result<(), FileError> {
        remove(&place(&self.statuses, id.as_str()))?;
        self.remove_definition(id)
    }

    /// Forgets a check, but not its reported status; a missing file is no error.
    ///
    /// # Errors
    /// The folder cannot be written.
    pub fn remove_definition(&self, id: &CheckId) -> Result<(), FileError> {
        remove(&place(&self.checks, id.as_str()))
    }
}

/// Ids hold any characters, file names do not.
fn place(folder: &Path, id: &str) -> PathBuf {
    let name: String = Sha256::digest(id.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    folder.join(name)
}

fn failed(action: &'static str, path: &Path, reason: io::Error) -> FileError {
    FileError::Io {
        action,
        path: path.to_owned(),
        reason,
    }
}

fn damaged(path: &Path, reason: impl ToString) -> FileError {
    FileError::Damaged {
        path: path.to_owned(),
        reason: reason.to_string(),
    }
}

/// A file beside its place. Dropped before it is put there, it is removed.
struct Staged {
    path: PathBuf,
    temporary: PathBuf,
    flush: bool,
}

impl Staged {
    fn write(path: PathBuf, content: &impl Serialize, flush: bool) -> Result<Self, FileError> {
        let bytes = serde_json::to_vec(content).map_err(|e| damaged(&path, e))?;
        let staged = Self {
            temporary: path.with_extension("tmp"),
            path,
            flush,
        };
        let written = staged.fill(&bytes);
        written.map_err(|e| failed("write", &staged.path, e))?;
        Ok(staged)
    }

    fn fill(&self, bytes: &[u8]) -> io::Result<()> {
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&self.temporary)?;
        file.write_all(bytes)?;
        if self.flush { file.sync_all() } else { Ok(()) }
    }

    fn put(self) -> Result<(), FileError> {
        let renamed = fs::rename(&self.temporary, &self.path);
        let kept = renamed.and_then(|()| {
            if self.flush {
                flush_folder(&self.path)
            } else {
                Ok(())
            }
        });
        kept.map_err(|e| failed("write", &self.path, e))
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        // It is not there after a rename; and if it cannot be removed, the next start does.
        let _ = fs::remove_file(&self.temporary);
    }
}

/// A rename is durable when its folder is.
fn flush_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |p| File::open(p)?.sync_all())
}

fn remove(path: &Path) -> Result<(), FileError> {
    match fs::remove_file(path) {
        Ok(()) => flush_folder(path).map_err(|e| failed("flush the folder of", path, e)),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(failed("remove", path, e)),
    }
}

fn read_all<T: DeserializeOwned>(folder: &Path, problems: &mut Vec<FileError>) -> Vec<T> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(e) => {
            problems.push(failed("read", folder, e));
            return Vec::new();
        }
    };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    let mut out = Vec::new();
    for path in paths {
        // Left behind by a crash between writing and renaming.
        if path.extension().is_some_and(|e| e == "tmp") {
            let _ = fs::remove_file(&path);
            continue;
        }
        match read(&path) {
            Ok(content) => out.push(content),
            Err(problem) => problems.push(problem),
        }
    }
    out
}

fn read<T: DeserializeOwned>(path: &Path) -> Result<T, FileError> {
    let about = fs::metadata(path).map_err(|e| failed("read", path, e))?;
    if !about.is_file() {
        return Err(damaged(path, "it is no file")); // Reading a pipe could wait for ever.
    }
    let size = about.len();
    if size > FILE_LIMIT {
        return Err(damaged(path, format!("it has {size} bytes")));
    }
    let bytes = fs::read(path).map_err(|e| failed("read", path, e))?;
    serde_json::from_slice(&bytes).map_err(|e| damaged(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn stored(id: &str) -> StoredService {
        StoredService {
            service: NodeService {
                id: id.into(),
                service: "web".into(),
                ..NodeService::default()
            },
            token: "t".into(),
        }
    }

    #[test]
    fn a_damaged_file_is_named_and_the_others_load() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path()).unwrap();
        for id in ["a/../b", "b", "c"] {
            files.put(Some(&stored(id)), &[], &[]).unwrap();
        }
        let b = place(&files.services, "b");
        assert_eq!(
            fs::metadata(&b).unwrap().permissions().mode() & 0o777,
            0o600
        );
        fs::write(&b, "{\"Service\":{\"ID\":\"b\"").unwrap();
        fs::write(files.services.join("x.tmp"), "half").unwrap();
        let loaded = files.load();
        let mut ids: Vec<_> = loaded
            .services
            .iter()
            .map(|s| s.service.id.as_str())
            .collect();
        ids.sort_unstable();
        assert_eq!(ids, ["a/../b", "c"]);
        let text = loaded.problems[0].to_string();
        assert_eq!(loaded.problems.len(), 1);
        assert!(
            text.contains(b.to_str().unwrap()) && text.contains("remove the file"),
            "{text}"
        );
        assert!(!files.services.join("x.tmp").exists());
    }

    #[test]
    fn removing_what_is_not_there_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let files = Files::open(dir.path()).unwrap();
        files.put(Some(&stored("a")), &[], &[]).unwrap();
        files.remove_service(&"a".into()).unwrap();
        files.remove_service(&"a".into()).unwrap();
        assert!(files.load().services.is_empty());
    }
}
