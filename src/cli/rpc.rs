//! `rpc`: one call to a server's RPC port, JSON in and out, to look at what servers tell each other.

use std::io::Read;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::SystemTime;

use anyhow::Context;
use anyhow::bail;
use clap::ValueEnum;

use crate::cli::block_on;
use crate::codec;
use crate::codec::Value;
use crate::model::duration::GoDuration;
use crate::net::Tls;
use crate::net::TlsSettings;
use crate::rpc::Security;
use crate::rpc::Session;
use crate::rpc::Target;

/// Flags of `rpc`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Method to call, for example Status.Leader
    method: String,
    /// Its argument; `-` reads standard input, {"hex": "…"} stands for bytes
    #[arg(default_value = "{}")]
    json: String,
    /// RPC port of a server, or port of a mesh gateway on the way to it
    #[arg(long, default_value = "127.0.0.1:8300")]
    addr: String,
    /// Name of the server, which mesh gateways route on and its certificate must have
    #[arg(long, requires = "ca_file")]
    sni: Option<String>,
    /// Protocol inside native TLS
    #[arg(long, value_enum, default_value_t = Alpn::RpcMulti, requires = "sni")]
    alpn: Alpn,
    /// CA certificate of the server; without it the call is made without TLS
    #[arg(long)]
    ca_file: Option<PathBuf>,
    /// Our certificate
    #[arg(long, requires = "client_key", requires = "ca_file")]
    client_cert: Option<PathBuf>,
    /// Its private key
    #[arg(long, requires = "client_cert")]
    client_key: Option<PathBuf>,
    /// Time for the connection, and again for the answer
    #[arg(long, default_value = "10s")]
    timeout: GoDuration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Alpn {
    /// One call at a time.
    #[value(name = "rpc-single", alias = "consul/rpc-single")]
    RpcSingle,
    /// Many calls side by side.
    #[value(name = "rpc-multi", alias = "consul/rpc-multi")]
    RpcMulti,
}

/// Makes the call and prints the answer.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let body = codec::to_vec(&argument(&args.json)?)?;
    let tls = tls(args)?;
    let answer = block_on(call(args, &tls, &body))?;
    outln!("{}", serde_json::to_string_pretty(&answer.to_json())?);
    Ok(ExitCode::SUCCESS)
}

fn argument(json: &str) -> anyhow::Result<Value> {
    let mut text = json.to_owned();
    if json == "-" {
        text.clear();
        let read = std::io::stdin().read_to_string(&mut text);
        read.context("cannot read standard input")?;
    }
    let json: serde_json::Value =
        serde_json::from_str(&text).with_context(|| format!("{text:?} is not JSON"))?;
    Ok(Value::from_json(&json)?)
}

#[expect(clippy::disallowed_methods, reason = "a command reads the clock once")]
fn tls(args: &Args) -> anyhow::Result<Tls> {
    if args.ca_file.is_none() {
        return Ok(Tls::disabled());
    }
    let settings = TlsSettings {
        ca_files: args.ca_file.clone().into_iter().collect(),
        cert_file: args.client_cert.clone(),
        key_file: args.client_key.clone(),
        ..TlsSettings::default()
    };
    Ok(Tls::load(settings, SystemTime::now())?)
}

async fn call(args: &Args, tls: &Tls, body: &[u8]) -> anyhow::Result<Value> {
    let security = match (&args.ca_file, &args.sni) {
        (None, _) => Security::Plain,
        (Some(_), None) => Security::TypeByte,
        (Some(_), sni) => Security::Native { sni: sni.clone() },
    };
    let target = Target {
        address: address(&args.addr).await?,
        datacenter: String::new(),
        node: String::new(),
        security,
        multiplexed: args.alpn == Alpn::RpcMulti,
    };
    let limit = args.timeout.to_std();
    if limit.is_zero() {
        bail!("-timeout must be more than 0, for example 10s");
    }
    let session = Session::connect(&target, tls, limit).await?;
    let answer = session.call(&args.method, body, limit).await?;
    Ok(codec::from_slice(&answer)?)
}

async fn address(text: &str) -> anyhow::Result<SocketAddr> {
    let found = tokio::net::lookup_host(text).await;
    let found = found.with_context(|| {
        format!("-addr: {text:?} is no address; use host:port, for example 127.0.0.1:8300")
    })?;
    found
        .into_iter()
        .next()
        .with_context(|| format!("-addr: {text:?} has no address"))
}
