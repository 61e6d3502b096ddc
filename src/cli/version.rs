//! `version`: what this binary is and which Consul API it speaks.

use clap::ValueEnum;
use serde_json::json;
use std::process::ExitCode;

/// The Consul release whose API, configuration and wire formats this binary speaks.
const CONSUL_API: &str = "1.8.7";

/// Flags of `version`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// How to print it
    #[arg(long, value_enum, default_value_t = Format::Pretty)]
    format: Format,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Format {
    /// Lines for people.
    Pretty,
    /// One JSON object.
    Json,
}

/// Prints the version.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    outln!("{}", render(args.format)?);
    Ok(ExitCode::SUCCESS)
}

fn render(format: Format) -> anyhow::Result<String> {
    let version = env!("CARGO_PKG_VERSION");
    Ok(match format {
        Format::Pretty => format!(
            "Crossway v{version}\nSpeaks Consul {CONSUL_API}'s HTTP API, configuration and wire formats; xDS v3"
        ),
        Format::Json => serde_json::to_string_pretty(&json!({
            "Version": version,
            "HumanVersion": format!("Crossway v{version}"),
            "ConsulAPI": CONSUL_API,
            "XDS": "v3",
        }))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_name_the_version() {
        let pretty = render(Format::Pretty).unwrap();
        assert!(pretty.starts_with(concat!("Crossway v", env!("CARGO_PKG_VERSION"))));
        let json: serde_json::Value = serde_json::from_str(&render(Format::Json).unwrap()).unwrap();
        assert_eq!(json["Version"], env!("CARGO_PKG_VERSION"));
    }
}
