//! Doing what a plan says: connecting and asking. The only file of this folder, with [`crate::local::checks::http`],
//! that does I/O.

use crate::local::checks::http;
use crate::local::checks::plan::Probe;
use crate::local::checks::progress::Report;
use crate::model::CheckStatus;
use futures_util::FutureExt as _;
use std::io;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;

/// Runs probes, a bounded number at a time. Cloning shares the bound and the clients.
#[derive(Clone)]
pub struct Runner {
    permits: Arc<Semaphore>,
    clients: Arc<http::Clients>,
}

impl Runner {
    /// At most `concurrency` probes run at once; the others wait their turn.
    pub fn new(concurrency: usize) -> Self {
        Self {
            permits: Arc::new(Semaphore::new(concurrency)),
            clients: Arc::default(),
        }
    }

    /// Runs one probe. The timeout starts when its turn comes.
    pub async fn run(&self, probe: &Probe, timeout: Duration) -> Report {
        // The semaphore is never closed; if it were, running unbounded is the lesser evil.
        let _permit = self.permits.acquire().await.ok();
        whole(async {
            match probe {
                Probe::Tcp(address) => tcp(address, timeout).await,
                Probe::Http(probe) => self.clients.run(probe, timeout).await,
            }
        })
        .await
    }
}

/// A report even of a run that panics: without one the check would never be run again.
async fn whole(run: impl Future<Output = Report>) -> Report {
    match AssertUnwindSafe(run).catch_unwind().await {
        Ok(report) => report,
        Err(_) => {
            // The panic itself, with its place, is on standard error.
            tracing::error!("a check panicked while it ran; it is critical until the next run");
            Report {
                status: CheckStatus::Critical,
                output: "the check failed inside the server that runs it; see its log".to_owned(),
            }
        }
    }
}

async fn tcp(address: &str, timeout: Duration) -> Report {
    let (status, output) = match connect(address, timeout).await {
        Ok(()) => (
            CheckStatus::Passing,
            format!("TCP connect {address}: Success"),
        ),
        Err(error) => (CheckStatus::Critical, error),
    };
    Report { status, output }
}

async fn connect(address: &str, timeout: Duration) -> Result<(), String> {
    let has_port = address
        .rsplit_once(':')
        .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    if !has_port {
        return Err(format!(
            "dial tcp: address {address}: missing port in address"
        ));
    }
    match tokio::time::timeout(timeout, TcpStream::connect(address)).await {
        Err(_) => Err(format!("dial tcp {address}: i/o timeout")),
        Ok(Err(error)) => Err(format!("dial tcp {address}: {}", reason(&error))),
        Ok(Ok(_)) => Ok(()),
    }
}

/// The words Go uses, which monitoring rules know.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::ConnectionReset => "connect: connection reset by peer".to_owned(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_run_that_panics_has_a_report_too() {
        let report = whole(async { panic!("a bug in a probe") }).await;
        assert_eq!(report.status, CheckStatus::Critical);
        assert!(report.output.contains("see its log"));
        let good = Report {
            status: CheckStatus::Passing,
            output: "fine".to_owned(),
        };
        assert_eq!(whole(async { good.clone() }).await, good);
    }
}
