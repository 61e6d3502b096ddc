//! `agent`: runs the server until a signal ends it.

use crate::app::App;
use crate::app::Event;
use crate::config;
use crate::config::Loaded;
use crate::config::Sources;
use crate::config::flags;
use crate::telemetry;
use crate::telemetry::LogHandle;
use std::ffi::OsString;
use std::process::ExitCode;
use tokio::signal::unix::SignalKind;
use tokio::signal::unix::signal;
use tracing::error;
use tracing::info;
use tracing::warn;

/// Arguments of `agent`, as they were given.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Configuration flags; `agent -h` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) args: Vec<OsString>,
}

/// Runs `agent`.
pub(crate) fn run(args: Args) -> anyhow::Result<ExitCode> {
    let help = |arg: &OsString| ["-h", "-help", "--help"].iter().any(|h| arg == h);
    if args.args.iter().any(help) {
        print_help();
        return Ok(ExitCode::SUCCESS);
    }
    let loaded =
        flags::parse_agent(args.args).and_then(|sources| Ok((config::load(&sources)?, sources)));
    let (loaded, sources) = match loaded {
        Ok(loaded) => loaded,
        Err(problems) => {
            eprintln!("==> {problems}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let log = telemetry::init_logs(&(&loaded.config.log).into())?;
    raise_file_limit();
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?
        .block_on(serve(loaded, &sources, &log))
}

fn print_help() {
    outln!(
        "Usage: crossway agent [flags]\n\nRuns the server until a signal ends it. Flags, with the key that each sets:\n"
    );
    for (flag, key) in flags::known() {
        outln!(
            "  -{flag:<26} {}",
            key.unwrap_or("(where the configuration comes from)")
        );
    }
}

async fn serve(loaded: Loaded, sources: &Sources, log: &LogHandle) -> anyhow::Result<ExitCode> {
    announce(&loaded);
    let mut app = match App::start(&loaded.config).await {
        Ok(app) => app,
        Err(error) => {
            error!("the server does not start: {error:#}");
            return Ok(ExitCode::FAILURE);
        }
    };
    let pid_file = loaded.config.pid_file.clone();
    if let Some(file) = &pid_file
        && let Err(error) = std::fs::write(file, std::process::id().to_string())
    {
        warn!(file = %file.display(), %error, "pid_file cannot be written");
    }
    let code = until_stopped(&mut app, loaded, sources, log).await?;
    app.stop().await;
    if let Some(file) = &pid_file {
        let _ = std::fs::remove_file(file); // It may never have been written.
    }
    Ok(code)
}

/// Serves until a signal or a failure; SIGHUP reloads the configuration.
async fn until_stopped(
    app: &mut App,
    mut running: Loaded,
    sources: &Sources,
    log: &LogHandle,
) -> anyhow::Result<ExitCode> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let leave = loop {
        tokio::select! {
            _ = interrupt.recv() => {
                info!("stopping: interrupted");
                break !running.config.skip_leave_on_interrupt;
            }
            _ = terminate.recv() => {
                info!("stopping: terminated");
                break running.config.leave_on_terminate;
            }
            _ = hangup.recv() => {
                // What is wrong was logged, and nobody waits for an answer.
                let _ = reload(app, &mut running, sources, log).await;
                continue;
            }
            event = app.event() => match event {
                Event::Failed(reason) => {
                    error!("stopping: {reason}");
                    return Ok(ExitCode::FAILURE);
                }
                Event::Reload(reply) => {
                    // Whoever asked may have gone.
                    let _ = reply.send(reload(app, &mut running, sources, log).await);
                    continue;
                }
                Event::Leave => {
                    info!("stopping: told to leave");
                    break true;
                }
            },
        }
    };
    if leave {
        tokio::select! {
            () = app.leave() => {}
            _ = interrupt.recv() => warn!("interrupted again: stopping without leaving"),
            _ = terminate.recv() => warn!("terminated again: stopping without leaving"),
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Puts a new reading of the configuration in force, as far as a running server can; all of it or nothing. `Err` says what
/// is wrong, which is in the log, too.
async fn reload(
    app: &App,
    running: &mut Loaded,
    sources: &Sources,
    log: &LogHandle,
) -> Result<(), String> {
    let kept = |problem: String| {
        error!("configuration not reloaded, the old one stays in force: {problem}");
        problem
    };
    let newer = config::reload(sources, running).map_err(|problems| kept(problems.to_string()))?;
    let turned = app.reload(&newer.loaded.config).await;
    turned.map_err(|error| kept(format!("{error:#}")))?;
    if let Err(error) = log.set_level(&newer.loaded.config.log.level) {
        error!("log level not changed: {error}");
    }
    newer
        .loaded
        .warnings
        .0
        .iter()
        .for_each(|warning| warn!("{warning}"));
    if !newer.need_restart.is_empty() {
        let keys = newer.need_restart.join(", ");
        warn!("changed, but with the old value until a restart: {keys}");
    }
    info!(changed = newer.changed.join(", "), "configuration reloaded");
    *running = newer.loaded;
    Ok(())
}

/// The first lines of the log: who this is, and what of the configuration does not act.
fn announce(loaded: &Loaded) {
    let config = &loaded.config;
    for warning in &loaded.warnings.0 {
        warn!("{warning}");
    }
    if !loaded.not_yet_active.is_empty() {
        let keys = loaded.not_yet_active.join(", ");
        warn!("accepted, but without effect in this version: {keys}");
    }
    if !loaded.without_effect.is_empty() {
        let keys = loaded.without_effect.join(", ");
        warn!("accepted, but never with an effect in Crossway: {keys}");
    }
    if !config.tls.has_certificate() {
        warn!(
            "no cert_file and key_file: RPC is without TLS, so no datacenter can be federated and server certificates are \
             not demanded of anybody"
        );
    }
    info!(
        version = env!("CARGO_PKG_VERSION"),
        node = %config.identity.node_name,
        datacenter = %config.identity.datacenter,
        rpc = %config.addresses.rpc_bind,
        http = ?listed(&config.addresses.http),
        grpc = ?listed(&config.addresses.grpc),
        grpc_tls = ?listed(&config.addresses.grpc_tls),
        "Crossway starts"
    );
}

fn listed(addresses: &[config::settings::ListenAddr]) -> Vec<String> {
    addresses.iter().map(ToString::to_string).collect()
}

/// Thousands of gateways need as many open files: takes what the system allows.
fn raise_file_limit() {
    use rustix::process::Resource;
    let mut limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current < limit.maximum || limit.current.is_some() && limit.maximum.is_none() {
        limit.current = limit.maximum;
        if let Err(error) = rustix::process::setrlimit(Resource::Nofile, limit) {
            warn!(%error, "the limit of open files cannot be raised");
        }
    }
}
