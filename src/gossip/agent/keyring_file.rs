//! The file with the keys of a pool: a JSON array of base64, the primary key first, as serf and Consul write it.

use std::fs;
use std::io;
use std::io::Read;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::path::PathBuf;

use crate::gossip::wire;
use crate::gossip::wire::Key;
use crate::gossip::wire::Keyring;

/// Most bytes that are read: thousands of keys.
const MAX_FILE: u64 = 1 << 20;
/// Only the owner reads secrets.
const MODE: u32 = 0o600;

/// Why a keyring file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum KeyringFileError {
    /// It cannot be read or written.
    #[error(
        "{path}: the gossip keys cannot be read or written: {reason}; make the file and its folder accessible for this user"
    )]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// It is no list of keys.
    #[error(
        "{path} is no JSON list of base64 keys ({reason}); restore it, or delete it and set `encrypt` to a key of the pool"
    )]
    NoList {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// One of its entries is no key.
    #[error(
        "{path}: entry {number} is no key ({reason}); correct it, or delete the file and set `encrypt` to a key of the pool"
    )]
    BadKey {
        /// The file.
        path: PathBuf,
        /// Which entry, counted from 1. The entry itself is a secret.
        number: usize,
        /// What is wrong.
        reason: wire::Error,
    },
}

/// The keys in the file, or `None` when there is no file.
///
/// # Errors
/// Names the file and what to do.
pub(super) fn load(path: &Path) -> Result<Option<Keyring>, KeyringFileError> {
    let mut text = Vec::new();
    let read = fs::File::open(path).and_then(|file| file.take(MAX_FILE).read_to_end(&mut text));
    match read {
        Ok(_) => parse(path, &text).map(Some),
        Err(reason) if reason.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(reason) => Err(io_error(path, reason)),
    }
}

fn parse(path: &Path, text: &[u8]) -> Result<Keyring, KeyringFileError> {
    let no_list = |reason: String| KeyringFileError::NoList {
        path: path.to_owned(),
        reason,
    };
    // serde_json's own text may show the value, which is a secret.
    let keys: Vec<String> = serde_json::from_slice(text)
        .map_err(|e| no_list(format!("line {}, column {}", e.line(), e.column())))?;
    let mut ring: Option<Keyring> = None;
    for (index, text) in keys.iter().enumerate() {
        let key = Key::from_base64(text).map_err(|reason| KeyringFileError::BadKey {
            path: path.to_owned(),
            number: index + 1,
            reason,
        })?;
        match &mut ring {
            Some(ring) => ring.install(key),
            None => ring = Some(Keyring::new(key)),
        }
    }
    ring.ok_or_else(|| no_list("it has no keys".to_owned()))
}

/// Writes the keys. A crash leaves the old file or the new one.
///
/// # Errors
/// Names the file and what to do.
pub(super) fn save(path: &Path, ring: &Keyring) -> Result<(), KeyringFileError> {
    write(path, ring).map_err(|reason| io_error(path, reason))
}

fn write(path: &Path, ring: &Keyring) -> io::Result<()> {
    let keys: Vec<String> = ring.keys().map(Key::to_base64).collect();
    let text = serde_json::to_vec_pretty(&keys)?;
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let beside = path.with_extension("keyring.tmp");
    let mut options = fs::OpenOptions::new();
    let options = options.write(true).create(true).truncate(true).mode(MODE);
    let mut file = options.open(&beside)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

fn io_error(path: &Path, reason: io::Error) -> KeyringFileError {
    KeyringFileError::Io {
        path: path.to_owned(),
        reason,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn keys_come_back_in_their_order_from_a_private_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("serf/local.keyring");
        assert_eq!(load(&path).unwrap(), None);
        let mut ring = Keyring::new(Key::new(&[1; 16]).unwrap());
        ring.install(Key::new(&[2; 32]).unwrap());
        for _ in 0..2 {
            save(&path, &ring).unwrap();
            assert_eq!(load(&path).unwrap(), Some(ring.clone()));
        }
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        let keys: Vec<String> = serde_json::from_str(&text).unwrap();
        assert_eq!(keys[0], Key::new(&[1; 16]).unwrap().to_base64());
    }

    #[test]
    fn a_bad_file_is_refused_with_the_remedy_and_without_its_secrets() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("local.keyring");
        for (text, says) in [
            ("", "line 1"),
            ("[]", "no keys"),
            ("{\"a\": \"secret\"}", "line 1"),
            ("[\"AQEBAQEBAQEBAQEBAQEBAQ==\", \"secret\"]", "entry 2"),
            ("[\"c2VjcmV0\"]", "entry 1"),
            ("[1, \"secret\"]", "line 1"),
        ] {
            fs::write(&path, text).unwrap();
            let error = load(&path).unwrap_err().to_string();
            assert!(error.contains(says), "{error}");
            assert!(error.contains("local.keyring"), "{error}");
            assert!(error.contains("delete"), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
        let error = load(dir.path()).unwrap_err().to_string();
        assert!(error.contains("accessible"), "{error}");
    }
}
