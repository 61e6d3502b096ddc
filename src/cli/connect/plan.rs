//! Flags of `connect envoy`, and the checks that need nothing but the flags.

use crate::cli::client::settings::HttpFlags;
use crate::cli::connect::address;
use crate::cli::connect::address::AddressError;
use crate::cli::connect::address::HostPort;
use crate::model::GoDuration;
use std::ffi::OsString;
use std::path::PathBuf;

/// Port of a mesh gateway that is given no address at all.
const MESH_PORT: u16 = 8443;
/// Port of an address given without one.
const ADDRESS_PORT: u16 = 443;
/// Service kind, and the default service name, of mesh gateways.
pub(crate) const MESH_GATEWAY: &str = "mesh-gateway";

/// Flags of `connect envoy`.
#[derive(Debug, Clone, Default, clap::Args)]
pub(crate) struct EnvoyFlags {
    /// Kind of gateway to run: mesh
    #[arg(long, value_name = "KIND")]
    pub(crate) gateway: Option<String>,
    /// Old form of -gateway=mesh
    #[arg(long)]
    pub(crate) mesh_gateway: bool,
    /// Service id of the proxy, if it is not the service's name [env: CONNECT_PROXY_ID]
    #[arg(long, value_name = "ID", env = "CONNECT_PROXY_ID", hide_env = true)]
    pub(crate) proxy_id: Option<String>,
    /// Id of the service to run a sidecar for [env: CONNECT_SIDECAR_FOR]
    #[arg(long, value_name = "ID", env = "CONNECT_SIDECAR_FOR", hide_env = true)]
    pub(crate) sidecar_for: Option<String>,
    /// Catalog node of the gateway, by default this host's name
    #[arg(long, value_name = "NAME")]
    pub(crate) node_name: Option<String>,
    /// Print the bootstrap configuration instead of running Envoy
    #[arg(long)]
    pub(crate) bootstrap: bool,

    /// Register the gateway, as a catalog node of its own, before running it
    #[arg(long, help_heading = "Registration")]
    pub(crate) register: bool,
    /// Service name of the gateway, by default its kind
    #[arg(long, value_name = "NAME", help_heading = "Registration")]
    pub(crate) service: Option<String>,
    /// LAN address, `ip[:port]`, a name with port, or a go-sockaddr template [default port: 443]
    #[arg(long, value_name = "ADDRESS", help_heading = "Registration")]
    pub(crate) address: Option<String>,
    /// Address for other datacenters, in the same form
    #[arg(long, value_name = "ADDRESS", help_heading = "Registration")]
    pub(crate) wan_address: Option<String>,
    /// Address to listen on instead of the advertised ones; repeatable
    #[arg(long, value_name = "NAME=ADDRESS", help_heading = "Registration")]
    pub(crate) bind_address: Vec<String>,
    /// Let this gateway carry RPC and gossip between the servers of the datacenters
    #[arg(long, help_heading = "Registration")]
    pub(crate) expose_servers: bool,
    /// Remove the registration after the gateway was unreachable for this long
    #[arg(
        long,
        value_name = "DURATION",
        default_value = "6h",
        help_heading = "Registration"
    )]
    pub(crate) deregister_after_critical: String,

    /// gRPC address of a server, `[http(s)://]host:port` or `unix:///path`; repeatable [env: CONSUL_GRPC_ADDR]
    #[arg(long, value_name = "ADDRESS", help_heading = "Control plane")]
    pub(crate) grpc_addr: Vec<String>,
    /// PEM file with the CA of the gRPC port [env: CONSUL_GRPC_CACERT], else that of the HTTP port
    #[arg(long, value_name = "FILE", help_heading = "Control plane")]
    pub(crate) grpc_ca_file: Option<PathBuf>,
    /// Folder with CAs of the gRPC port as PEM files [env: CONSUL_GRPC_CAPATH]
    #[arg(long, value_name = "FOLDER", help_heading = "Control plane")]
    pub(crate) grpc_ca_path: Option<PathBuf>,
    /// PEM file with Envoy's certificate for a gRPC port that asks for one
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Control plane",
        requires = "grpc_client_key"
    )]
    pub(crate) grpc_client_cert: Option<PathBuf>,
    /// PEM file with that certificate's key
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Control plane",
        requires = "grpc_client_cert"
    )]
    pub(crate) grpc_client_key: Option<PathBuf>,
    /// Name to expect in the gRPC port's certificate, by default server.DATACENTER.DOMAIN
    #[arg(long, value_name = "NAME", help_heading = "Control plane")]
    pub(crate) grpc_tls_server_name: Option<String>,

    /// Address of Envoy's admin interface
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "localhost:19000",
        help_heading = "Envoy"
    )]
    pub(crate) admin_bind: String,
    /// File for the admin interface's access log
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/dev/null",
        help_heading = "Envoy"
    )]
    pub(crate) admin_access_log_path: PathBuf,
    /// Envoy's binary, by default `envoy` in PATH
    #[arg(long, value_name = "FILE", help_heading = "Envoy")]
    pub(crate) envoy_binary: Option<PathBuf>,
    /// Ignored: one bootstrap fits all supported versions
    #[arg(long, value_name = "VERSION", help_heading = "Envoy", hide = true)]
    pub(crate) envoy_version: Option<String>,
    /// Run an Envoy that is older than the oldest supported one
    #[arg(long, help_heading = "Envoy")]
    pub(crate) ignore_envoy_compatibility: bool,
    /// Address on which Envoy answers /ready
    #[arg(long, value_name = "IP", help_heading = "Envoy")]
    pub(crate) envoy_ready_bind_address: Option<String>,
    /// Port on which Envoy answers /ready
    #[arg(long, value_name = "PORT", help_heading = "Envoy")]
    pub(crate) envoy_ready_bind_port: Option<u16>,
    /// Do not read the proxy's configuration from the server
    #[arg(long, help_heading = "Envoy")]
    pub(crate) no_central_config: bool,
    /// Arguments for Envoy itself
    #[arg(last = true, value_name = "ENVOY ARGUMENTS")]
    pub(crate) envoy_args: Vec<OsString>,

    /// Whether to leave out the tag names of Consul before 1.9; by default they are left out for mesh gateways, whose
    /// Envoy spends seconds of CPU on them with a thousand services
    #[arg(
        long,
        value_name = "BOOL",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        value_parser = clap::builder::BoolishValueParser::new(),
        help_heading = "Statistics"
    )]
    pub(crate) omit_deprecated_tags: Option<bool>,
    /// Port of a program on this host that answers Prometheus in place of Envoy
    #[arg(long, value_name = "PORT", help_heading = "Statistics")]
    pub(crate) prometheus_backend_port: Option<u16>,
    /// Path on which the Prometheus listener answers
    #[arg(
        long,
        value_name = "PATH",
        default_value = "/metrics",
        help_heading = "Statistics"
    )]
    pub(crate) prometheus_scrape_path: String,
    /// PEM file with the CA of Prometheus's client certificate
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Statistics",
        requires = "prometheus_cert_file"
    )]
    pub(crate) prometheus_ca_file: Option<PathBuf>,
    /// Folder with CAs of Prometheus's client certificate
    #[arg(
        long,
        value_name = "FOLDER",
        help_heading = "Statistics",
        requires = "prometheus_cert_file"
    )]
    pub(crate) prometheus_ca_path: Option<PathBuf>,
    /// PEM file with the certificate of the Prometheus listener
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Statistics",
        requires = "prometheus_key_file"
    )]
    pub(crate) prometheus_cert_file: Option<PathBuf>,
    /// PEM file with that certificate's key
    #[arg(
        long,
        value_name = "FILE",
        help_heading = "Statistics",
        requires = "prometheus_cert_file"
    )]
    pub(crate) prometheus_key_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) http: HttpFlags,
    /// Accepted for compatibility; only the default namespace exists
    #[arg(long, hide = true)]
    pub(crate) namespace: Option<String>,
    /// Accepted for compatibility; only the default partition exists
    #[arg(long, hide = true)]
    pub(crate) partition: Option<String>,
}

/// Why the flags cannot be used together.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum FlagError {
    #[error("The mesh-gateway flag is deprecated and cannot be used alongside the gateway flag")]
    BothGatewayFlags,
    #[error("Gateway must be one of: terminating, mesh, or ingress")]
    UnknownGateway,
    #[error("{0} are not supported by this version: it configures mesh gateways (-gateway=mesh)")]
    NotYet(String),
    #[error("'-expose-servers' can only be used for mesh gateways")]
    ExposeServersKind,
    #[error("'-expose-servers' requires '-register'")]
    ExposeServersRegister,
    #[error("Auto-Registration can only be used for gateways")]
    RegisterWithoutGateway,
    #[error("No proxy ID specified. One of -proxy-id, -sidecar-for, or -gateway is required")]
    NothingGiven,
    #[error("-envoy-ready-bind-address and -envoy-ready-bind-port go together")]
    ReadyPair,
    #[error("-envoy-ready-bind-address {0:?} is not an IP address")]
    ReadyAddress(String),
    #[error("-deregister-after-critical {0:?} is not a duration such as 6h or 90m")]
    DeregisterAfter(String),
    #[error("-namespace {0:?}: only the namespace \"default\" exists")]
    Namespace(String),
    #[error("-partition {0:?}: only the partition \"default\" exists")]
    Partition(String),
    #[error(transparent)]
    Address(#[from] AddressError),
    #[error("{flag} {value:?}: {cause}")]
    Template {
        flag: &'static str,
        value: String,
        cause: String,
    },
}

/// What the flags ask for, checked.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    /// Id of the proxy if given.
    pub(crate) proxy_id: Option<String>,
    /// Name of the gateway's service.
    pub(crate) service: String,
    /// Catalog node if given.
    pub(crate) node_name: Option<String>,
    /// What to register, if anything.
    pub(crate) register: Option<RegisterPlan>,
    /// Where to answer `/ready`.
    pub(crate) ready: Option<std::net::SocketAddr>,
}

/// What to register.
#[derive(Debug, Clone)]
pub(crate) struct RegisterPlan {
    /// Advertised inside the datacenter; an empty host stands for the node's address.
    pub(crate) lan: HostPort,
    /// Advertised to other datacenters.
    pub(crate) wan: Option<HostPort>,
    /// Addresses to listen on instead.
    pub(crate) binds: Vec<(String, HostPort)>,
    /// Whether server traffic may pass.
    pub(crate) expose_servers: bool,
    /// How long the check may be critical.
    pub(crate) deregister_after: GoDuration,
}

/// Evaluates an address template; the value itself if it is none.
pub(crate) type Template<'a> = &'a dyn Fn(&str) -> Result<String, String>;

impl EnvoyFlags {
    /// Checks the flags.
    pub(crate) fn plan(&self, template: Template<'_>) -> Result<Plan, FlagError> {
        self.check_names()?;
        let is_gateway = self.check_kind()?;
        if self.expose_servers && !is_gateway {
            return Err(FlagError::ExposeServersKind);
        }
        if self.expose_servers && !self.register {
            return Err(FlagError::ExposeServersRegister);
        }
        let proxy_id = self.proxy_id.clone().filter(|id| !id.is_empty());
        if self.register && !is_gateway {
            return Err(FlagError::RegisterWithoutGateway);
        }
        if !is_gateway && proxy_id.is_none() {
            return Err(FlagError::NothingGiven);
        }
        let service = self.service.clone().filter(|name| !name.is_empty());
        Ok(Plan {
            proxy_id,
            service: service.unwrap_or_else(|| MESH_GATEWAY.to_owned()),
            node_name: self.node_name.clone().filter(|name| !name.is_empty()),
            register: self
                .register
                .then(|| self.registration(template))
                .transpose()?,
            ready: self.ready()?,
        })
    }

    fn check_names(&self) -> Result<(), FlagError> {
        let other = |name: &Option<String>| {
            name.clone()
                .filter(|name| !matches!(name.as_str(), "" | "default"))
        };
        if let Some(name) = other(&self.namespace) {
            return Err(FlagError::Namespace(name));
        }
        other(&self.partition).map_or(Ok(()), |name| Err(FlagError::Partition(name)))
    }

    /// Whether a gateway is asked for; kinds that this version does not configure are refused.
    fn check_kind(&self) -> Result<bool, FlagError> {
        if self.sidecar_for.as_ref().is_some_and(|id| !id.is_empty()) {
            return Err(FlagError::NotYet("Sidecar proxies".to_owned()));
        }
        match (self.mesh_gateway, self.gateway.as_deref().unwrap_or("")) {
            (true, "") | (false, "mesh") => Ok(true),
            (true, _) => Err(FlagError::BothGatewayFlags),
            (false, "") => Ok(false),
            (false, kind @ ("terminating" | "ingress" | "api")) => {
                Err(FlagError::NotYet(format!("Gateways of the kind {kind}")))
            }
            (false, _) => Err(FlagError::UnknownGateway),
        }
    }

    fn registration(&self, template: Template<'_>) -> Result<RegisterPlan, FlagError> {
        let evaluated = |flag: &'static str, value: &str| {
            template(value).map_err(|cause| FlagError::Template {
                flag,
                value: value.to_owned(),
                cause,
            })
        };
        let given = |value: &Option<String>| value.clone().filter(|text| !text.is_empty());
        let lan = match given(&self.address) {
            Some(text) => address::parse(&evaluated("-address", &text)?, ADDRESS_PORT)?,
            None => HostPort {
                host: String::new(),
                port: MESH_PORT,
            },
        };
        let wan = match given(&self.wan_address) {
            Some(text) => Some(address::parse(
                &evaluated("-wan-address", &text)?,
                ADDRESS_PORT,
            )?),
            None => None,
        };
        let mut binds = Vec::new();
        for text in &self.bind_address {
            let text = evaluated("-bind-address", text)?;
            binds.push(address::parse_bind(&text, lan.port)?);
        }
        let deregister_after: GoDuration = self
            .deregister_after_critical
            .parse()
            .map_err(|_| FlagError::DeregisterAfter(self.deregister_after_critical.clone()))?;
        Ok(RegisterPlan {
            lan,
            wan,
            binds,
            expose_servers: self.expose_servers,
            deregister_after,
        })
    }

    fn ready(&self) -> Result<Option<std::net::SocketAddr>, FlagError> {
        match (&self.envoy_ready_bind_address, self.envoy_ready_bind_port) {
            (None, None) => Ok(None),
            (Some(address), Some(port)) => {
                let ip: std::net::IpAddr = address
                    .parse()
                    .map_err(|_| FlagError::ReadyAddress(address.clone()))?;
                Ok(Some((ip, port).into()))
            }
            _ => Err(FlagError::ReadyPair),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct TestCli {
        #[command(flatten)]
        flags: EnvoyFlags,
    }

    fn plan(args: &str) -> Result<Plan, FlagError> {
        let args = std::iter::once("envoy").chain(args.split_whitespace());
        let cli = TestCli::try_parse_from(args).unwrap();
        cli.flags.plan(&|text| Ok(text.to_owned()))
    }

    #[track_caller]
    fn check(args: &str, error: &str) {
        assert_eq!(plan(args).unwrap_err().to_string(), error);
    }

    #[test]
    fn wrong_combinations() {
        check(
            "--mesh-gateway --gateway=mesh",
            "The mesh-gateway flag is deprecated and cannot be used alongside the gateway flag",
        );
        check(
            "--gateway=x",
            "Gateway must be one of: terminating, mesh, or ingress",
        );
        check(
            "--gateway=ingress",
            "Gateways of the kind ingress are not supported by this version: it configures mesh gateways (-gateway=mesh)",
        );
        check(
            "--gateway=mesh --expose-servers",
            "'-expose-servers' requires '-register'",
        );
        check(
            "--proxy-id=x --register --expose-servers",
            "'-expose-servers' can only be used for mesh gateways",
        );
        check(
            "--proxy-id=x --register",
            "Auto-Registration can only be used for gateways",
        );
        check(
            "",
            "No proxy ID specified. One of -proxy-id, -sidecar-for, or -gateway is required",
        );
        check(
            "--gateway=mesh --register --deregister-after-critical=soon",
            "-deregister-after-critical \"soon\" is not a duration such as 6h or 90m",
        );
    }

    #[test]
    fn defaults_of_a_registration() {
        let plan = plan("--gateway=mesh --register").unwrap();
        let register = plan.register.unwrap();
        assert_eq!(plan.service, "mesh-gateway");
        assert_eq!(register.lan.to_string(), ":8443");
        assert_eq!(register.deregister_after.to_string(), "6h0m0s");
    }

    #[test]
    fn addresses_get_their_default_port() {
        let plan = plan(
            "--mesh-gateway --register --address=10.0.0.1 --wan-address=gw.example.com:8443 --bind-address=lan=0.0.0.0",
        );
        let register = plan.unwrap().register.unwrap();
        assert_eq!(register.lan.to_string(), "10.0.0.1:443");
        assert_eq!(register.wan.unwrap().to_string(), "gw.example.com:8443");
        assert_eq!(register.binds[0].1.to_string(), "0.0.0.0:443");
    }
}
