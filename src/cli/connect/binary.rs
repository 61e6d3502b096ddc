//! Finds Envoy's binary and asks it for its version, before anything is registered.

use crate::model::envoy::MINIMUM_ENVOY;
use anyhow::Context;
use anyhow::bail;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::path::PathBuf;
use std::time::Duration;

const MINIMUM: Version = Version(MINIMUM_ENVOY.0, MINIMUM_ENVOY.1, MINIMUM_ENVOY.2);
/// Newest Envoy that the tests run against.
const TESTED: Version = Version(1, 40, 0);
/// `envoy --version` answers in milliseconds; a wrapper script may start slowly.
const VERSION_TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Version(u32, u32, u32);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// A usable binary, and a warning about its version if there is one to give.
#[derive(Debug)]
pub(crate) struct Binary {
    pub(crate) path: PathBuf,
    pub(crate) warning: Option<String>,
}

/// The binary `given`, else `envoy` from `search`, the value of PATH.
///
/// # Errors
/// It is not there, not executable, does not answer, or is too old (unless `any_version`).
pub(crate) async fn check(
    given: Option<&Path>,
    search: &OsStr,
    any_version: bool,
) -> anyhow::Result<Binary> {
    let path = match given {
        Some(path) => {
            executable(path)?;
            path.to_owned()
        }
        None => std::env::split_paths(search)
            .map(|folder| folder.join("envoy"))
            .find(|path| executable(path).is_ok())
            .context(
                "Couldn't find envoy binary: exec: \"envoy\": executable file not found in $PATH. \
                 Install Envoy, name its binary with -envoy-binary, or use -bootstrap",
            )?,
    };
    let output = version_output(&path).await?;
    let warning = judge(&output, any_version)
        .with_context(|| format!("{} cannot be used", path.display()))?;
    Ok(Binary { path, warning })
}

fn executable(path: &Path) -> anyhow::Result<()> {
    let metadata = std::fs::metadata(path).with_context(|| {
        format!(
            "Failed to exec envoy: {}; check -envoy-binary",
            path.display()
        )
    })?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        bail!(
            "Failed to exec envoy: {} is not an executable file; check -envoy-binary",
            path.display()
        );
    }
    Ok(())
}

async fn version_output(path: &Path) -> anyhow::Result<String> {
    let run = tokio::process::Command::new(path)
        .arg("--version")
        .kill_on_drop(true)
        .output();
    let output = tokio::time::timeout(VERSION_TIMEOUT, run)
        .await
        .with_context(|| format!("{} --version does not end", path.display()))?
        .with_context(|| format!("Failed to exec envoy: {}", path.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// A warning, or nothing to say, about an Envoy with this `--version` output.
fn judge(output: &str, any_version: bool) -> anyhow::Result<Option<String>> {
    let Some(version) = parse(output) else {
        let text = "it does not tell its version with --version: is it Envoy?";
        if any_version {
            return Ok(Some(text.to_owned()));
        }
        bail!("{text} Use -ignore-envoy-compatibility to run it all the same");
    };
    if version < MINIMUM && !any_version {
        bail!(
            "Envoy {version} is too old: {MINIMUM} is the oldest supported version. Use a newer one, or \
             -ignore-envoy-compatibility to try this one"
        );
    }
    Ok(
        (version > TESTED && (version.0, version.1) != (TESTED.0, TESTED.1)).then(|| {
            format!("Envoy {version} is newer than {TESTED}, the newest one tested; it should work")
        }),
    )
}

/// The first `d.d.d` in the output, as in `envoy  version: <commit>/1.40.0/Clean/RELEASE/BoringSSL`.
fn parse(output: &str) -> Option<Version> {
    output
        .split(|c: char| !c.is_ascii_digit() && c != '.')
        .find_map(|word| {
            let mut numbers = word.split('.').map(str::parse);
            let version = Version(
                numbers.next()?.ok()?,
                numbers.next()?.ok()?,
                numbers.next()?.ok()?,
            );
            numbers.next().is_none().then_some(version)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTPUT: &str = "\n/usr/bin/envoy  version: 9e5580933739775e8bce696a57a2e1bc99368f23/1.40.0/Clean/RELEASE/BoringSSL\n";

    #[test]
    fn the_version_is_the_first_triple() {
        assert_eq!(parse(OUTPUT), Some(Version(1, 40, 0)));
        assert_eq!(parse("Python 3.11"), None);
    }

    #[test]
    fn old_ones_are_refused_and_newer_ones_only_warned_about() {
        assert_eq!(judge(OUTPUT, false).unwrap(), None);
        assert_eq!(judge("x/1.40.7/y", false).unwrap(), None);
        let newer = judge("x/1.41.0/y", false).unwrap().unwrap();
        assert!(newer.contains("1.41.0 is newer than 1.40.0"), "{newer}");
        let old = judge("x/1.22.3/y", false).unwrap_err().to_string();
        assert!(old.contains("1.22.3 is too old: 1.34.0"), "{old}");
        assert_eq!(judge("x/1.22.3/y", true).unwrap(), None);
        assert!(judge("usage", false).is_err());
    }
}
