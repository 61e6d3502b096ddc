//! Saves a certificate and its key, never over something that exists.

use std::fs;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use anyhow::Context;

use crate::cli::tls::issue::Issued;

/// Writes `<stem>.pem` and `<stem>-key.pem`, the key readable by its owner only. Gives `None`, and leaves nothing
/// behind, if one of them exists.
pub(super) fn save(stem: &str, issued: &Issued) -> anyhow::Result<Option<()>> {
    let (cert, key) = (format!("{stem}.pem"), format!("{stem}-key.pem"));
    if Path::new(&cert).exists() || !create(&key, 0o600, &issued.key)? {
        return Ok(None);
    }
    match create(&cert, 0o644, &issued.certificate) {
        Ok(true) => Ok(Some(())),
        other => {
            fs::remove_file(&key).with_context(|| format!("cannot remove {key} again"))?;
            other.map(|_| None)
        }
    }
}

/// Creates a file; `false` if it exists.
fn create(path: &str, mode: u32, text: &str) -> anyhow::Result<bool> {
    let opened = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path);
    let mut file = match opened {
        Err(error) if error.kind() == ErrorKind::AlreadyExists => return Ok(false),
        other => other.with_context(|| format!("cannot create {path} in this directory"))?,
    };
    file.write_all(text.as_bytes())
        .and_then(|()| file.sync_all())
        .with_context(|| format!("cannot write {path}"))?;
    Ok(true)
}
