//! HTTP client of the commands: Consul's common flags and variables, and errors that say what to change.
//!
//! [`settings`] decides from flags and variables what to contact and how; this file only does the requests.

pub(crate) mod settings;
pub(crate) mod tls;

use crate::cli::env;
use reqwest::Method;
use reqwest::StatusCode;
use serde_json::Value;
use settings::Address;
use settings::HttpFlags;
use settings::Settings;
use std::time::Duration;

/// Longest wait for an answer. Commands never make blocking queries.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a request gave no result.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ClientError {
    #[error(transparent)]
    Settings(#[from] settings::SettingsError),
    #[error(transparent)]
    Tls(#[from] tls::TlsError),
    #[error(
        "cannot reach the server at {address}: {cause}. Is it running there? Set -http-addr or CONSUL_HTTP_ADDR to another address"
    )]
    Unreachable { address: String, cause: String },
    #[error("{address} does not speak HTTP as expected: {cause}. {remedy}")]
    Protocol {
        address: String,
        cause: String,
        remedy: &'static str,
    },
    #[error("Unexpected response code: {code} ({body})")]
    Status { code: u16, body: String },
    #[error(
        "{method} {path} was refused by {address}: {body}. Give a token that may do this with -token, -token-file or CONSUL_HTTP_TOKEN"
    )]
    Denied {
        method: String,
        path: String,
        address: String,
        body: String,
    },
    #[error("{address} answered {path} with something that is not JSON: {cause}")]
    NotJson {
        address: String,
        path: String,
        cause: String,
    },
}

/// A connection to one server's HTTP API.
#[derive(Debug)]
pub(crate) struct Client {
    http: reqwest::Client,
    settings: Settings,
}

impl Client {
    /// A client for what `flags` and the environment name. Nothing is contacted yet.
    ///
    /// # Errors
    /// An address, token file or certificate that cannot be used.
    pub(crate) fn new(flags: &HttpFlags) -> Result<Self, ClientError> {
        let settings = Settings::resolve(flags, &env::process)?.with_token_file()?;
        let mut builder = reqwest::Client::builder()
            .tls_backend_preconfigured(tls::client_config(&settings.tls)?)
            .connect_timeout(CONNECT_TIMEOUT)
            .timeout(REQUEST_TIMEOUT)
            .redirect(reqwest::redirect::Policy::none())
            .no_proxy();
        match &settings.address {
            Address::Unix(path) => builder = builder.unix_socket(path.as_path()),
            Address::Tcp { .. } => {
                if let Some((name, address)) = settings.name_override()? {
                    builder = builder.resolve(&name, address);
                }
            }
        }
        let http = builder.build().map_err(|error| ClientError::Protocol {
            address: settings.address.to_string(),
            cause: chain(&error),
            remedy: "Check the TLS flags",
        })?;
        Ok(Self { http, settings })
    }

    /// What this client contacts and how.
    pub(crate) fn settings(&self) -> &Settings {
        &self.settings
    }

    /// GET of `segments` (each escaped) with `query`; `None` when the server answers 404.
    pub(crate) async fn get(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Option<Value>, ClientError> {
        match self.send(Method::GET, segments, query, None).await {
            Ok(body) => self.json(segments, &body).map(Some),
            Err(ClientError::Status { code: 404, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// PUT of `body`; the answer's text.
    pub(crate) async fn put(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
        body: &Value,
    ) -> Result<String, ClientError> {
        self.send(Method::PUT, segments, query, Some(body)).await
    }

    /// DELETE of `segments`; the answer's text.
    pub(crate) async fn delete(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
    ) -> Result<String, ClientError> {
        self.send(Method::DELETE, segments, query, None).await
    }

    /// Sends a request; the answer's text.
    pub(crate) async fn send(
        &self,
        method: Method,
        segments: &[&str],
        query: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Result<String, ClientError> {
        let url = self.settings.url(segments, query)?;
        let mut request = self.http.request(method.clone(), url);
        if let Some(token) = &self.settings.token {
            request = request.header("X-Consul-Token", token.expose());
        }
        if let Some(body) = body {
            request = request.json(body);
        }
        let answer = request.send().await.map_err(|error| self.failure(&error))?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| self.failure(&error))?;
        self.checked(&method, segments, status, text)
    }

    fn checked(
        &self,
        method: &Method,
        segments: &[&str],
        status: StatusCode,
        text: String,
    ) -> Result<String, ClientError> {
        if status.is_success() {
            return Ok(text);
        }
        let body = text;
        if status == StatusCode::FORBIDDEN {
            return Err(ClientError::Denied {
                method: method.to_string(),
                path: path(segments),
                address: self.settings.address.to_string(),
                body,
            });
        }
        Err(ClientError::Status {
            code: status.as_u16(),
            body,
        })
    }

    fn json(&self, segments: &[&str], text: &str) -> Result<Value, ClientError> {
        serde_json::from_str(text).map_err(|error| ClientError::NotJson {
            address: self.settings.address.to_string(),
            path: path(segments),
            cause: error.to_string(),
        })
    }

    fn failure(&self, error: &reqwest::Error) -> ClientError {
        let address = self.settings.address.to_string();
        let cause = chain(error);
        let tls = self.settings.address.is_tls();
        if tls && cause.contains("certificate") {
            return ClientError::Protocol {
                address,
                cause,
                remedy: "Give the CA that signed the server's certificate with -ca-file or CONSUL_CACERT, \
                         and its name with -tls-server-name if the address is not in it",
            };
        }
        if tls && (cause.contains("InvalidContentType") || cause.contains("corrupt message")) {
            return ClientError::Protocol {
                address,
                cause,
                remedy: "The port speaks plain HTTP: use http:// in -http-addr, or the HTTPS port",
            };
        }
        if !tls && !error.is_connect() && !error.is_timeout() {
            return ClientError::Protocol {
                address,
                cause,
                remedy: "If the port speaks HTTPS, use https:// in -http-addr or CONSUL_HTTP_SSL=true",
            };
        }
        ClientError::Unreachable { address, cause }
    }
}

fn path(segments: &[&str]) -> String {
    format!("/v1/{}", segments.join("/"))
}

/// The innermost cause says most: reqwest's own text repeats the URL.
fn chain(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    if error.is_timeout() {
        return "no answer in time".to_owned();
    }
    cause.to_string()
}
