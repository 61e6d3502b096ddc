//! One HTTP exchange with bounds on time and size.

use futures_util::StreamExt as _;
use reqwest::ClientBuilder;
use reqwest::RequestBuilder;
use reqwest::StatusCode;
use std::time::Duration;

/// Largest answer, in bytes. A page of 500 pods has about 5 MB.
const MAX_BODY: usize = 16 * 1024 * 1024;

/// How long connecting may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A client builder with this crate's bounds.
pub(super) fn builder() -> ClientBuilder {
    crate::net::install_crypto_provider();
    reqwest::Client::builder()
        .connect_timeout(CONNECT_LIMIT)
        .redirect(reqwest::redirect::Policy::none())
}

/// Sends a request; the answer's status and body. `Err` says why there is none.
pub(super) async fn exchange(request: RequestBuilder) -> Result<(StatusCode, Vec<u8>), String> {
    let answer = request.send().await.map_err(|e| cause(&e))?;
    let status = answer.status();
    let mut body = Vec::new();
    let mut chunks = answer.bytes_stream();
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|e| cause(&e))?;
        if body.len() + chunk.len() > MAX_BODY {
            return Err(format!("the answer has more than {MAX_BODY} bytes"));
        }
        body.extend_from_slice(&chunk);
    }
    Ok((status, body))
}

/// The start of a body, as text for an error.
pub(super) fn excerpt(body: &[u8]) -> String {
    let text = String::from_utf8_lossy(body.get(..400).unwrap_or(body));
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The innermost cause says most: reqwest's own text repeats the URL.
fn cause(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    match error.is_timeout() {
        true => "no answer in time".to_owned(),
        false => cause.to_string(),
    }
}
