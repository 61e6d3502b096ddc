//! HTTP checks.

use crate::local::checks::plan::HttpProbe;
use crate::local::checks::progress::Report;
use crate::local::checks::run::reason;
use crate::model::CheckStatus;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, HeaderValue, USER_AGENT};
use reqwest::{Client, Method, Response};
use std::error::Error;
use std::io;
use std::sync::OnceLock;
use std::time::Duration;

/// How much of an answer is read at most; the end of it is kept.
const READ_LIMIT: usize = 1 << 20;

/// Clients for the two ways to look at certificates, each built when it is first needed.
///
/// Proxies of the environment are not used: a check is about the direct way to the service.
#[derive(Default)]
pub(super) struct Clients {
    verifying: OnceLock<Result<Client, String>>,
    accepting: OnceLock<Result<Client, String>>,
}

impl Clients {
    pub(super) async fn run(&self, probe: &HttpProbe, timeout: Duration) -> Report {
        match tokio::time::timeout(timeout, self.ask(probe)).await {
            Ok(Ok(report)) => report,
            Ok(Err(error)) => failed(probe, &error),
            Err(_) => failed(probe, &format!("no answer within {timeout:?}")),
        }
    }

    async fn ask(&self, probe: &HttpProbe) -> Result<Report, String> {
        let method = Method::from_bytes(probe.method.as_bytes()).map_err(|e| e.to_string())?;
        let request = self
            .client(probe.tls_skip_verify)?
            .request(method, &probe.url)
            .headers(headers(probe)?)
            .body(probe.body.clone());
        let response = request.send().await.map_err(|e| cause(&e))?;
        let status = response.status();
        let body = end_of_body(response, probe.output_max).await?;
        let verdict = match status.as_u16() {
            200..=299 => CheckStatus::Passing,
            429 => CheckStatus::Warning,
            _ => CheckStatus::Critical,
        };
        Ok(Report {
            status: verdict,
            output: format!(
                "HTTP {} {}: {status} Output: {body}",
                probe.method, probe.url
            ),
        })
    }

    fn client(&self, accept_any: bool) -> Result<&Client, String> {
        let slot = if accept_any {
            &self.accepting
        } else {
            &self.verifying
        };
        slot.get_or_init(|| build(accept_any))
            .as_ref()
            .map_err(Clone::clone)
    }
}

fn build(accept_any: bool) -> Result<Client, String> {
    // An error says that a provider is installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    Client::builder()
        .no_proxy()
        .pool_max_idle_per_host(0)
        .tls_danger_accept_invalid_certs(accept_any)
        .build()
        .map_err(|e| cause(&e))
}

fn headers(probe: &HttpProbe) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &probe.header {
        let name: HeaderName = name
            .parse()
            .map_err(|_| format!("{name:?} is not a header name"))?;
        let value: HeaderValue = value.parse().map_err(|_| {
            format!("the value of header {name} has characters that headers cannot carry")
        })?;
        headers.append(name, value);
    }
    headers
        .entry(USER_AGENT)
        .or_insert(HeaderValue::from_static("Consul Health Check"));
    headers
        .entry(ACCEPT)
        .or_insert(HeaderValue::from_static("text/plain, text/*, */*"));
    Ok(headers)
}

async fn end_of_body(mut response: Response, max: usize) -> Result<String, String> {
    let (mut end, mut read) = (Vec::new(), 0);
    while let Some(chunk) = response.chunk().await.map_err(|e| cause(&e))? {
        read += chunk.len();
        end.extend_from_slice(&chunk);
        let surplus = end.len().saturating_sub(max);
        end.drain(..surplus);
        if read >= READ_LIMIT {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&end).into_owned())
}

/// The first cause, in the words that monitoring rules know when it is one of the network.
fn cause(error: &reqwest::Error) -> String {
    let mut at: &dyn Error = error;
    while let Some(source) = at.source() {
        at = source;
    }
    let Some(io) = at.downcast_ref::<io::Error>() else {
        return at.to_string();
    };
    let target = error.url().filter(|_| error.is_connect()).and_then(|url| {
        let port = url.port_or_known_default()?;
        Some(format!("dial tcp {}:{port}: ", url.host_str()?))
    });
    format!("{}{}", target.unwrap_or_default(), reason(io))
}

fn failed(probe: &HttpProbe, error: &str) -> Report {
    let mut method = probe.method.to_ascii_lowercase();
    if let Some(first) = method.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    Report {
        status: CheckStatus::Critical,
        output: format!("{method} {:?}: {error}", probe.url),
    }
}
