//! `validate FILE|DIR…`: every problem of a configuration at once, offline.

use crate::config;
use crate::config::Format;
use crate::config::Sources;
use clap::ValueEnum;
use std::path::PathBuf;
use std::process::ExitCode;

/// Flags of `validate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Files and directories, as agent's -config-file and -config-dir take them
    #[arg(required = true, value_name = "FILE|DIR")]
    paths: Vec<PathBuf>,
    /// Syntax of all files, whatever their names
    #[arg(long, value_enum)]
    config_format: Option<Syntax>,
    /// Print nothing when the configuration is valid
    #[arg(long)]
    quiet: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Syntax {
    Hcl,
    Json,
}

/// Prints the warnings and `Configuration is valid!`, or every problem, which is exit code 1.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let format = args.config_format.map(|syntax| match syntax {
        Syntax::Hcl => Format::Hcl,
        Syntax::Json => Format::Json,
    });
    let (text, valid) = report(&Sources::from_paths(args.paths, format));
    if !(args.quiet && valid) {
        outln!("{}", text.trim_end());
    }
    Ok(ExitCode::from(u8::from(!valid)))
}

/// What is printed, and whether a server would start with it.
fn report(sources: &Sources) -> (String, bool) {
    match config::load(sources) {
        Ok(loaded) => {
            let warnings = loaded.warnings.0.iter();
            let warnings = warnings.map(|warning| format!("{warning}\n"));
            let valid = [String::from("Configuration is valid!\n")];
            (warnings.chain(valid).collect(), true)
        }
        Err(problems) => (format!("Config validation failed: {problems}\n"), false),
    }
}
