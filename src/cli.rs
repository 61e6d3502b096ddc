//! Command line: `agent` runs the server, the others are small clients.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A command line talks on stdout and stderr.

pub mod args;

use std::ffi::OsString;
use std::process::ExitCode;

/// Runs the command in `args` (with the program's name first) and gives its exit code.
pub fn run(args: Vec<OsString>) -> ExitCode {
    let _ = args;
    ExitCode::FAILURE
}
