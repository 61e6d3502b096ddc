//! `tls ca create` and `tls cert create`: the certificates that servers, clients and this command line use.

mod files;
mod issue;

use std::net::IpAddr;
use std::path::Path;
use std::path::PathBuf;
use std::process::ExitCode;
use std::str::FromStr;

use anyhow::Context;
use anyhow::bail;
use clap::Subcommand;

use crate::model::ids::Datacenter;

/// Subcommands of `tls`.
#[derive(Debug, Subcommand)]
pub(crate) enum Args {
    /// The certificate authority that all datacenters share
    #[command(subcommand)]
    Ca(CaArgs),
    /// Certificates signed by it
    #[command(subcommand)]
    Cert(CertArgs),
}

/// Subcommands of `tls ca`.
#[derive(Debug, Subcommand)]
pub(crate) enum CaArgs {
    /// Create a certificate authority in the current directory
    Create(CreateCa),
}

/// Subcommands of `tls cert`.
#[derive(Debug, Subcommand)]
pub(crate) enum CertArgs {
    /// Create a certificate in the current directory
    Create(CreateCert),
}

/// Flags of `tls ca create`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateCa {
    /// DNS domain of the certificates' names
    #[arg(long, default_value = "consul", value_parser = domain)]
    domain: String,
    /// Days until the authority expires
    #[arg(long, default_value_t = 1825, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// Let the authority sign names of the domain, and localhost, only
    #[arg(long)]
    name_constraint: bool,
    /// A further domain whose names it may sign; repeatable
    #[arg(long, value_name = "DOMAIN")]
    additional_name_constraint: Vec<String>,
}

/// Flags of `tls cert create`.
#[derive(Debug, clap::Args)]
pub(crate) struct CreateCert {
    /// Create a certificate for a server
    #[arg(long)]
    server: bool,
    /// Create a certificate for a client agent
    #[arg(long)]
    client: bool,
    /// Create a certificate for a command line
    #[arg(long)]
    cli: bool,
    /// The server's node name, by which mesh gateways route to it; with -server only
    #[arg(long)]
    node: Option<String>,
    /// Datacenter of the server or client
    #[arg(long, default_value = "dc1", value_parser = <Datacenter as FromStr>::from_str)]
    dc: Datacenter,
    /// DNS domain of the certificate's names
    #[arg(long, default_value = "consul", value_parser = domain)]
    domain: String,
    /// Days until the certificate expires
    #[arg(long, default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    days: u32,
    /// Certificate of the authority [default: DOMAIN-agent-ca.pem]
    #[arg(long)]
    ca: Option<PathBuf>,
    /// Private key of the authority [default: DOMAIN-agent-ca-key.pem]
    #[arg(long)]
    key: Option<PathBuf>,
    /// A further DNS name; repeatable
    #[arg(long, value_name = "NAME")]
    additional_dnsname: Vec<String>,
    /// A further IP address; repeatable
    #[arg(long, value_name = "ADDRESS")]
    additional_ipaddress: Vec<IpAddr>,
}

/// Runs a `tls` command.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    match args {
        Args::Ca(CaArgs::Create(flags)) => create_ca(flags)?,
        Args::Cert(CertArgs::Create(flags)) => create_cert(flags)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A DNS domain, without the dot at its end.
fn domain(text: &str) -> Result<String, String> {
    let name = text.trim_end_matches('.');
    let word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    let label = |label: &str| !label.is_empty() && label.chars().all(word);
    if name.split('.').all(label) {
        Ok(name.to_owned())
    } else {
        Err("use letters, digits and '-' in labels separated by dots, for example `consul`".into())
    }
}

fn create_ca(flags: &CreateCa) -> anyhow::Result<()> {
    let mut permitted = flags.additional_name_constraint.clone();
    if flags.name_constraint {
        permitted.extend([flags.domain.clone(), "localhost".to_owned()]);
    }
    let authority = issue::authority(&issue::Authority {
        days: flags.days,
        permitted,
        stamp: stamp(),
    })?;
    let stem = format!("{}-agent-ca", flags.domain);
    let saved = files::save(&stem, &authority)?;
    saved.with_context(|| {
        format!("{stem}.pem or {stem}-key.pem exists already; remove both to make a new authority, which makes all certificates of the old one useless")
    })?;
    report(&stem);
    Ok(())
}

fn create_cert(flags: &CreateCert) -> anyhow::Result<()> {
    let kind = kind(flags)?;
    let signer = signer(flags)?;
    let leaf = issue::Leaf {
        kind,
        datacenter: flags.dc.as_str(),
        domain: &flags.domain,
        days: flags.days,
        dns_names: &flags.additional_dnsname,
        addresses: &flags.additional_ipaddress,
    };
    let issued = signer.issue(&leaf, stamp())?;
    let stem = save_numbered(&leaf, &issued)?;
    report(&stem);
    if matches!(kind, issue::Kind::Server { .. }) {
        eprintln!(
            "A server certificate gives control over the whole datacenter: keep its key on that server alone."
        );
    }
    if matches!(kind, issue::Kind::Server { node: None }) {
        eprintln!(
            "Without -node the certificate cannot be used for federation through mesh gateways."
        );
    }
    if issued.outlives_signer {
        eprintln!("The authority expires before this certificate does.");
    }
    Ok(())
}

fn kind(flags: &CreateCert) -> anyhow::Result<issue::Kind<'_>> {
    let node = flags.node.as_deref();
    if node.is_some() && !flags.server {
        bail!("-node requires -server");
    }
    Ok(match (flags.server, flags.client, flags.cli) {
        (true, false, false) => issue::Kind::Server { node },
        (false, true, false) => issue::Kind::Client,
        (false, false, true) => issue::Kind::Cli,
        _ => bail!("give exactly one of -server, -client and -cli"),
    })
}

fn signer(flags: &CreateCert) -> anyhow::Result<issue::Signer> {
    let default = |suffix: &str| PathBuf::from(format!("{}-agent-ca{suffix}", flags.domain));
    let cert = flags.ca.clone().unwrap_or_else(|| default(".pem"));
    let key = flags.key.clone().unwrap_or_else(|| default("-key.pem"));
    let signer = issue::Signer::new(&read("-ca", &cert)?, &read("-key", &key)?, stamp().now);
    signer.with_context(|| format!("{} and {} cannot sign", cert.display(), key.display()))
}

fn read(flag: &str, path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| {
        format!(
            "cannot read {}; run `crossway tls ca create` first, or name the file with {flag}",
            path.display()
        )
    })
}

/// Saves under the first number that is free.
fn save_numbered(leaf: &issue::Leaf<'_>, issued: &issue::Issued) -> anyhow::Result<String> {
    for number in 0..100_000 {
        let stem = leaf.file_stem(number);
        if files::save(&stem, issued)?.is_some() {
            return Ok(stem);
        }
    }
    bail!(
        "{} exists, and so do all before it; clean up this directory",
        leaf.file_stem(99_999)
    )
}

fn report(stem: &str) {
    outln!("==> Saved {stem}.pem");
    outln!("==> Saved {stem}-key.pem");
}

/// The clock and the random source.
fn stamp() -> issue::Stamp {
    issue::Stamp {
        now: time::OffsetDateTime::now_utc(),
        serial: rand::random(),
    }
}
