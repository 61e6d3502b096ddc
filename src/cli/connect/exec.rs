//! Hands the bootstrap to Envoy and becomes Envoy.
//!
//! The document, which may hold a token and a key, is in memory only: Envoy inherits an open file and is told its
//! path `/dev/fd/N`. No helper process, no pipe that could fill, nothing in argv or on a disk.

use anyhow::Context;
use anyhow::bail;
use rustix::fs::MemfdFlags;
use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

/// Envoy arguments that only make sense with hot restart, which is off otherwise.
const HOT_RESTART_ARGUMENTS: [&str; 4] = [
    "--restart-epoch",
    "--hot-restart-version",
    "--drain-time-s",
    "--parent-shutdown-time-s",
];
/// Reading the configuration takes Envoy well under a second.
const VALIDATE_TIMEOUT: Duration = Duration::from_secs(30);

/// The bootstrap as an open file that Envoy inherits.
#[derive(Debug)]
pub(crate) struct BootstrapFile(File);

impl BootstrapFile {
    /// Keeps `document` in memory.
    pub(crate) fn new(document: &str) -> anyhow::Result<Self> {
        // Without CLOEXEC, so that it survives into Envoy.
        let handle = rustix::fs::memfd_create("envoy-bootstrap.json", MemfdFlags::empty())
            .context("cannot keep the bootstrap configuration in memory")?;
        let mut file = File::from(handle);
        file.write_all(document.as_bytes())
            .context("cannot keep the bootstrap configuration in memory")?;
        Ok(Self(file))
    }

    fn path(&self) -> String {
        format!("/dev/fd/{}", self.0.as_raw_fd())
    }
}

/// Lets Envoy read the bootstrap without starting, so that a mistake shows before anything is registered.
pub(crate) async fn validate(binary: &Path, bootstrap: &BootstrapFile) -> anyhow::Result<()> {
    let run = tokio::process::Command::new(binary)
        .args([
            "--mode",
            "validate",
            "--log-level",
            "error",
            "--config-path",
        ])
        .arg(bootstrap.path())
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(VALIDATE_TIMEOUT, run)
        .await
        .context("Envoy does not finish reading the bootstrap configuration")?
        .context("Failed to exec envoy")?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last = stderr.lines().rev().find(|line| !line.trim().is_empty());
    bail!(
        "Envoy refuses the bootstrap configuration; check the proxy's envoy_* keys and the files in the flags: {}",
        last.unwrap_or("it says nothing")
    )
}

/// Replaces this process by Envoy; returns only if that fails.
pub(crate) fn become_envoy(
    binary: &Path,
    bootstrap: &BootstrapFile,
    user: &[OsString],
) -> anyhow::Error {
    let error = std::process::Command::new(binary)
        .args(arguments(&bootstrap.path(), user))
        .exec();
    anyhow::Error::new(error).context(format!("Failed to exec envoy: {}", binary.display()))
}

fn arguments(path: &str, user: &[OsString]) -> Vec<OsString> {
    let mut all = vec![OsString::from("--config-path"), OsString::from(path)];
    let wants_hot_restart = user.iter().any(|argument| {
        let text = argument.to_string_lossy();
        let name = text.split('=').next().unwrap_or_default();
        HOT_RESTART_ARGUMENTS.contains(&name)
    });
    if !wants_hot_restart {
        all.push(OsString::from("--disable-hot-restart"));
    }
    all.extend_from_slice(user);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hot_restart_is_off_unless_its_arguments_are_given() {
        let args = |user: &[&str]| {
            let user: Vec<_> = user.iter().map(OsString::from).collect();
            let all = arguments("/dev/fd/7", &user);
            all.iter()
                .map(|a| a.to_string_lossy().into_owned())
                .collect::<Vec<_>>()
                .join(" ")
        };
        assert_eq!(
            args(&["-l", "debug"]),
            "--config-path /dev/fd/7 --disable-hot-restart -l debug"
        );
        assert_eq!(
            args(&["--restart-epoch", "1"]),
            "--config-path /dev/fd/7 --restart-epoch 1"
        );
        assert_eq!(
            args(&["--drain-time-s=5"]),
            "--config-path /dev/fd/7 --drain-time-s=5"
        );
    }

    #[test]
    fn a_bootstrap_larger_than_any_pipe_is_readable_again_and_again() {
        let document = "x".repeat(1024 * 1024);
        let file = BootstrapFile::new(&document).unwrap();
        for _ in 0..2 {
            assert_eq!(
                std::fs::read_to_string(file.path()).unwrap().len(),
                document.len()
            );
        }
    }
}
