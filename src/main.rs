//! The `crossway` binary: everything it does is in the library.

/// Thousands of streams come and go: jemalloc gives their memory back. Its background threads (a feature of the crate) do
/// so even when the server falls idle afterwards.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    crossway::cli::run(std::env::args_os().collect())
}
