//! The real programs that tests run against, as `scripts/peers.sh` installs them.
//!
//! ```ignore
//! let Some(envoy) = peers::find("envoy") else { return };
//! ```
#![allow(clippy::panic)] // Test code: a failed step should stop the test.
#![allow(clippy::print_stderr)] // A skipped test says so.

use std::env;
use std::path::Path;
use std::path::PathBuf;

/// Path of the program `name` (`envoy`, `grpcurl`, `consul` or `serf`).
///
/// `CROSSWAY_PEERS` names the folder, by default `target/peers`. Without the program the test is skipped, which is
/// printed; with `CROSSWAY_REQUIRE_PEERS=1` it fails instead.
#[track_caller]
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = folder().join(name);
    if path.exists() {
        return Some(path);
    }
    let why = format!(
        "{} is not there: run scripts/peers.sh, or set CROSSWAY_PEERS",
        path.display()
    );
    if env::var("CROSSWAY_REQUIRE_PEERS").is_ok_and(|value| value == "1") {
        panic!("CROSSWAY_REQUIRE_PEERS=1 and {why}");
    }
    eprintln!("SKIPPED: {why}");
    None
}

/// The folder with the programs.
pub(crate) fn folder() -> PathBuf {
    env::var_os("CROSSWAY_PEERS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers"),
        PathBuf::from,
    )
}
