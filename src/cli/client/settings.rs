//! What flags and variables say about the server to contact.

use crate::cli::env::Lookup;
use crate::cli::env::variable;
use crate::model::Secret;
use std::fmt;
use std::net::SocketAddr;
use std::net::ToSocketAddrs;
use std::path::PathBuf;
use url::Url;

/// Where a server listens unless told otherwise.
const DEFAULT_ADDRESS: &str = "127.0.0.1:8500";

/// Flags that every client command has. Each falls back to a `CONSUL_` variable, and its `CROSSWAY_` twin wins.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Server")]
pub(crate) struct HttpFlags {
    /// HTTP address of a server: `host:port`, `http://...`, `https://...` or `unix:///path` [env: CONSUL_HTTP_ADDR]
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) http_addr: Option<String>,
    /// ACL token [env: CONSUL_HTTP_TOKEN]; prefer -token-file, which other users' `ps` does not show
    #[arg(long)]
    pub(crate) token: Option<String>,
    /// File with the ACL token [env: CONSUL_HTTP_TOKEN_FILE]
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// PEM file with the CA of the server's certificate [env: CONSUL_CACERT]
    #[arg(long, value_name = "FILE")]
    pub(crate) ca_file: Option<PathBuf>,
    /// Folder with CA certificates as PEM files [env: CONSUL_CAPATH]
    #[arg(long, value_name = "FOLDER")]
    pub(crate) ca_path: Option<PathBuf>,
    /// PEM file with the client certificate [env: CONSUL_CLIENT_CERT]
    #[arg(long, value_name = "FILE")]
    pub(crate) client_cert: Option<PathBuf>,
    /// PEM file with the client certificate's key [env: CONSUL_CLIENT_KEY]
    #[arg(long, value_name = "FILE")]
    pub(crate) client_key: Option<PathBuf>,
    /// Name to expect in the server's certificate instead of the address [env: CONSUL_TLS_SERVER_NAME]
    #[arg(long, value_name = "NAME")]
    pub(crate) tls_server_name: Option<String>,
}

/// Why the flags and variables cannot be used.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SettingsError {
    #[error(
        "HTTP address {address:?} cannot be used: {cause}. Write host:port, http://host:port, https://host:port or unix:///path in -http-addr or CONSUL_HTTP_ADDR"
    )]
    Address { address: String, cause: String },
    #[error(
        "cannot read the token file {path:?}: {cause}. Check -token-file or CONSUL_HTTP_TOKEN_FILE"
    )]
    TokenFile { path: PathBuf, cause: String },
    #[error("{variable} is {value:?}: write true or false")]
    Switch {
        variable: &'static str,
        value: String,
    },
    #[error("cannot look up {host:?}: {cause}. Check -http-addr")]
    Lookup { host: String, cause: String },
}

/// The address of a server's HTTP API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Address {
    /// A host and port, with the base URL that requests extend.
    Tcp { url: Url },
    /// A socket file.
    Unix(PathBuf),
}

impl Address {
    /// Whether requests are encrypted.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(self, Self::Tcp { url } if url.scheme() == "https")
    }

    /// The host without brackets; none for a socket file.
    pub(crate) fn host(&self) -> Option<&str> {
        match self {
            Self::Tcp { url } => url.host_str().map(|host| host.trim_matches(['[', ']'])),
            Self::Unix(_) => None,
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp { url } => f.write_str(url.as_str().trim_end_matches('/')),
            Self::Unix(path) => write!(f, "unix://{}", path.display()),
        }
    }
}

/// TLS as flags and variables give it.
#[derive(Debug, Clone, Default)]
pub(crate) struct TlsSettings {
    pub(crate) ca_file: Option<PathBuf>,
    pub(crate) ca_path: Option<PathBuf>,
    pub(crate) client_cert: Option<PathBuf>,
    pub(crate) client_key: Option<PathBuf>,
    pub(crate) server_name: Option<String>,
    /// `CONSUL_HTTP_SSL_VERIFY=false` switches the check of the server's certificate off.
    pub(crate) verify: bool,
}

/// Everything needed to contact a server.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) address: Address,
    pub(crate) token: Option<Secret>,
    token_file: Option<PathBuf>,
    pub(crate) tls: TlsSettings,
}

impl Settings {
    /// Flags first, then `CROSSWAY_` variables, then `CONSUL_` variables, then defaults.
    pub(crate) fn resolve(flags: &HttpFlags, lookup: Lookup<'_>) -> Result<Self, SettingsError> {
        let text = |flag: &Option<String>, name: &str| {
            flag.clone()
                .filter(|value| !value.is_empty())
                .or_else(|| variable(lookup, name))
        };
        let file = |flag: &Option<PathBuf>, name: &str| {
            flag.clone()
                .or_else(|| variable(lookup, name).map(PathBuf::from))
        };
        let ssl = switch(lookup, "HTTP_SSL", "CONSUL_HTTP_SSL")?.unwrap_or(false);
        let address = text(&flags.http_addr, "HTTP_ADDR");
        let address = parse_address(address.as_deref().unwrap_or(DEFAULT_ADDRESS), ssl)?;
        // A flag outranks every variable, so a token in a file beats one in a variable.
        let token = match (&flags.token, &flags.token_file) {
            (None, Some(_)) => None,
            (flag, _) => text(flag, "HTTP_TOKEN"),
        };
        Ok(Self {
            address,
            token: token.map(Secret::from),
            token_file: file(&flags.token_file, "HTTP_TOKEN_FILE"),
            tls: TlsSettings {
                ca_file: file(&flags.ca_file, "CACERT"),
                ca_path: file(&flags.ca_path, "CAPATH"),
                client_cert: file(&flags.client_cert, "CLIENT_CERT"),
                client_key: file(&flags.client_key, "CLIENT_KEY"),
                server_name: text(&flags.tls_server_name, "TLS_SERVER_NAME"),
                verify: switch(lookup, "HTTP_SSL_VERIFY", "CONSUL_HTTP_SSL_VERIFY")?
                    .unwrap_or(true),
            },
        })
    }

    /// Reads the token file if no token was given directly.
    pub(crate) fn with_token_file(mut self) -> Result<Self, SettingsError> {
        if let (None, Some(path)) = (&self.token, &self.token_file) {
            let text = std::fs::read_to_string(path).map_err(|error| SettingsError::TokenFile {
                path: path.clone(),
                cause: error.to_string(),
            })?;
            let token = text.trim();
            self.token = (!token.is_empty()).then(|| Secret::from(token));
        }
        Ok(self)
    }

    /// The URL of `/v1/<segments>` with each segment escaped.
    pub(crate) fn url(
        &self,
        segments: &[&str],
        query: &[(&str, &str)],
    ) -> Result<Url, SettingsError> {
        let base = match &self.address {
            Address::Tcp { url } => url.clone(),
            Address::Unix(_) => parse_url("http://localhost")?,
        };
        let mut url = base;
        if let Some(name) = &self.tls.server_name
            && self.address.is_tls()
        {
            url.set_host(Some(name))
                .map_err(|error| bad_address(name, &error))?;
        }
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("v1").extend(segments);
        }
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    /// With an expected name other than the address: that name and the address it stands for.
    ///
    /// Requests then name it as their host, so that SNI and the certificate's check follow it.
    pub(crate) fn name_override(&self) -> Result<Option<(String, SocketAddr)>, SettingsError> {
        let (Some(name), Address::Tcp { url }, true) =
            (&self.tls.server_name, &self.address, self.address.is_tls())
        else {
            return Ok(None);
        };
        let host = self.address.host().unwrap_or_default().to_owned();
        let port = url.port_or_known_default().unwrap_or_default();
        let failed = |cause: String| SettingsError::Lookup {
            host: host.clone(),
            cause,
        };
        let address = (host.as_str(), port)
            .to_socket_addrs()
            .map_err(|error| failed(error.to_string()))?
            .next()
            .ok_or_else(|| failed("no address".to_owned()))?;
        Ok(Some((name.clone(), address)))
    }
}

fn switch(
    lookup: Lookup<'_>,
    name: &str,
    variable_name: &'static str,
) -> Result<Option<bool>, SettingsError> {
    let Some(value) = variable(lookup, name) else {
        return Ok(None);
    };
    match value.to_ascii_lowercase().as_str() {
        "1" | "t" | "true" => Ok(Some(true)),
        "0" | "f" | "false" => Ok(Some(false)),
        _ => Err(SettingsError::Switch {
            variable: variable_name,
            value,
        }),
    }
}

fn parse_address(text: &str, ssl: bool) -> Result<Address, SettingsError> {
    if let Some(path) = text.strip_prefix("unix://") {
        return Ok(Address::Unix(PathBuf::from(path)));
    }
    let with_scheme = match text.split_once("://") {
        Some(_) => text.to_owned(),
        None if ssl => format!("https://{text}"),
        None => format!("http://{text}"),
    };
    let url = parse_url(&with_scheme).map_err(|error| match error {
        SettingsError::Address { cause, .. } => SettingsError::Address {
            address: text.to_owned(),
            cause,
        },
        other => other,
    })?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(bad_address(
            text,
            &format!("unknown scheme {:?}", url.scheme()),
        ));
    }
    Ok(Address::Tcp { url })
}

fn parse_url(text: &str) -> Result<Url, SettingsError> {
    Url::parse(text).map_err(|error| bad_address(text, &error))
}

fn bad_address(address: &str, cause: &dyn fmt::Display) -> SettingsError {
    SettingsError::Address {
        address: address.to_owned(),
        cause: cause.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(flags: &HttpFlags, env: &[(&str, &str)]) -> Result<Settings, SettingsError> {
        let lookup = |name: &str| {
            env.iter()
                .find(|(known, _)| *known == name)
                .map(|(_, value)| (*value).to_owned())
        };
        Settings::resolve(flags, &lookup)
    }

    #[track_caller]
    fn check_address(env: &[(&str, &str)], expected: &str) {
        let settings = resolve(&HttpFlags::default(), env).unwrap();
        assert_eq!(settings.address.to_string(), expected);
    }

    #[test]
    fn addresses() {
        check_address(&[], "http://127.0.0.1:8500");
        check_address(
            &[("CONSUL_HTTP_ADDR", "10.0.0.1:8500")],
            "http://10.0.0.1:8500",
        );
        check_address(
            &[("CONSUL_HTTP_ADDR", "h:8501"), ("CONSUL_HTTP_SSL", "true")],
            "https://h:8501",
        );
        check_address(
            &[
                ("CONSUL_HTTP_ADDR", "a:1"),
                ("CROSSWAY_HTTP_ADDR", "https://b:2"),
            ],
            "https://b:2",
        );
        check_address(
            &[("CONSUL_HTTP_ADDR", "unix:///run/c.sock")],
            "unix:///run/c.sock",
        );
        check_address(&[("CONSUL_HTTP_ADDR", "[::1]:8500")], "http://[::1]:8500");
    }

    #[test]
    fn mistakes_name_the_setting() {
        let error = |env| resolve(&HttpFlags::default(), env).unwrap_err().to_string();
        assert!(error(&[("CONSUL_HTTP_ADDR", "ftp://x")]).contains("unknown scheme \"ftp\""));
        assert!(error(&[("CONSUL_HTTP_SSL", "maybe")]).contains("CONSUL_HTTP_SSL is \"maybe\""));
    }

    #[test]
    fn segments_are_escaped_and_the_expected_name_becomes_the_host() {
        let flags = HttpFlags {
            http_addr: Some("https://10.0.0.1:8501".to_owned()),
            tls_server_name: Some("server.dc1.consul".to_owned()),
            ..HttpFlags::default()
        };
        let settings = resolve(&flags, &[]).unwrap();
        let url = settings.url(&["kv", "a/b c"], &[("dc", "dc 2")]).unwrap();
        assert_eq!(
            url.as_str(),
            "https://server.dc1.consul:8501/v1/kv/a%2Fb%20c?dc=dc+2"
        );
        let (name, address) = settings.name_override().unwrap().unwrap();
        assert_eq!(name, "server.dc1.consul");
        assert_eq!(address.to_string(), "10.0.0.1:8501");
    }

    #[test]
    fn a_token_file_flag_outranks_the_token_variable() {
        let flags = HttpFlags {
            token_file: Some(PathBuf::from("/nonexistent/token")),
            ..HttpFlags::default()
        };
        let settings = resolve(&flags, &[("CONSUL_HTTP_TOKEN", "from-env")]).unwrap();
        assert!(settings.token.is_none());
        let error = settings.with_token_file().unwrap_err().to_string();
        assert!(error.contains("/nonexistent/token"), "{error}");
    }

    #[test]
    fn tokens_do_not_show() {
        let settings = resolve(&HttpFlags::default(), &[("CONSUL_HTTP_TOKEN", "hush")]).unwrap();
        assert!(!format!("{settings:?}").contains("hush"));
        assert_eq!(settings.token.unwrap().expose(), "hush");
    }
}
