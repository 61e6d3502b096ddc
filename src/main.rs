//! The `crossway` binary: everything it does is in the library.

fn main() -> std::process::ExitCode {
    crossway::cli::run(std::env::args_os().collect())
}
