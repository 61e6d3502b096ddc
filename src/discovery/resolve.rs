//! From sources to addresses: asks DNS, programs, Kubernetes and EC2, each time anew.

use crate::discovery::Error;
use crate::discovery::address::Address;
use crate::discovery::address::Host;
use crate::discovery::aws;
use crate::discovery::exec;
use crate::discovery::kubernetes;
use crate::discovery::source::Kind;
use crate::discovery::source::Source;
use crate::model::NodeName;
use futures_util::future::BoxFuture;
use futures_util::future::join_all;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// How long one source may take to answer.
const TIME_LIMIT: Duration = Duration::from_secs(20);

/// Most addresses that one source may give; more are left out and reported.
pub const MAX_ADDRESSES: usize = 4096;

/// Looks a host name up.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<'static, io::Result<Vec<IpAddr>>> + Send + Sync>;

/// Reads an environment variable.
pub type Variable = Arc<dyn Fn(&str) -> Option<String> + Send + Sync>;

/// What resolving asks of the machine that it runs on.
#[derive(Clone)]
pub struct Environment {
    /// How names are looked up.
    pub lookup: Lookup,
    /// The process's environment, with credentials and endpoints.
    pub variable: Variable,
    /// Where Kubernetes puts a pod's `token` and `ca.crt`.
    pub service_account: PathBuf,
    /// How long a program may run.
    pub program_limit: Duration,
}

impl Environment {
    /// The real one: the system's resolver, which reads the hosts file and asks DNS, and the process's variables.
    pub fn system() -> Self {
        Self {
            lookup: Arc::new(|name| Box::pin(system_lookup(name))),
            variable: Arc::new(|name| std::env::var(name).ok().filter(|text| !text.is_empty())),
            service_account: PathBuf::from(kubernetes::SERVICE_ACCOUNT),
            program_limit: exec::TIME_LIMIT,
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("service_account", &self.service_account)
            .finish_non_exhaustive()
    }
}

/// All A and AAAA records; a port is needed by the interface only.
async fn system_lookup(name: String) -> io::Result<Vec<IpAddr>> {
    let found = tokio::net::lookup_host((name, 1)).await?;
    Ok(found.map(|address| address.ip()).collect())
}

/// An address that was found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Found {
    /// The node that is expected there, if the source names one.
    pub node: Option<NodeName>,
    /// Where it is.
    pub address: SocketAddr,
}

/// What sources gave: addresses in the order of the sources, each once, and what went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolution {
    /// The addresses.
    pub found: Vec<Found>,
    /// The sources that failed, or gave less than they have.
    pub problems: Vec<Error>,
}

/// Asks every source at once. `default_port` is for addresses that come without one. A source that fails does not keep the
/// others from being used.
pub async fn resolve(
    sources: &[Source],
    default_port: u16,
    environment: &Environment,
) -> Resolution {
    let all = sources
        .iter()
        .map(|source| one(source, default_port, environment));
    let mut out = Resolution::default();
    for (source, (found, reasons)) in sources.iter().zip(join_all(all).await) {
        for address in found {
            if !out.found.contains(&address) {
                out.found.push(address);
            }
        }
        let label = source.to_string();
        out.problems.extend(reasons.into_iter().map(|reason| Error {
            source_label: label.clone(),
            reason,
        }));
    }
    out
}

/// Addresses, and reasons for which there are none or fewer.
type Partial<T> = (Vec<T>, Vec<String>);

async fn one(source: &Source, default_port: u16, environment: &Environment) -> Partial<Found> {
    let whole = async {
        let (mut addresses, mut reasons) = match ask(source.kind(), environment).await {
            Ok(partial) => partial,
            Err(reason) => return (Vec::new(), vec![reason]),
        };
        if addresses.len() > MAX_ADDRESSES {
            let left_out = addresses.len() - MAX_ADDRESSES;
            addresses.truncate(MAX_ADDRESSES);
            reasons.push(format!(
                "it gave {left_out} more than {MAX_ADDRESSES} addresses, which are left out; make the selection narrower"
            ));
        }
        let looked_up = addresses
            .iter()
            .map(|a| look_up(a, default_port, environment));
        let mut found = Vec::new();
        for result in join_all(looked_up).await {
            match result {
                Ok(some) => found.extend(some),
                Err(reason) => reasons.push(reason),
            }
        }
        (found, reasons)
    };
    match tokio::time::timeout(TIME_LIMIT, whole).await {
        Ok(result) => result,
        Err(_) => {
            let reason =
                format!("no answer within {TIME_LIMIT:?}; check the network, DNS and the endpoint");
            (Vec::new(), vec![reason])
        }
    }
}

async fn ask(kind: &Kind, environment: &Environment) -> Result<Partial<Address>, String> {
    match kind {
        Kind::Address(address) => Ok((vec![address.clone()], Vec::new())),
        Kind::Exec(program) => {
            let printed = exec::run(program, environment.program_limit).await?;
            printed_addresses(&printed)
        }
        Kind::Kubernetes(query) => kubernetes::client::pods(query, environment).await,
        Kind::Aws(query) => aws::client::instances(query, environment).await,
    }
}

/// One bad word does not spoil the others.
fn printed_addresses(printed: &str) -> Result<Partial<Address>, String> {
    let (mut addresses, mut reasons) = (Vec::new(), Vec::new());
    for word in printed.split_whitespace() {
        match word.parse() {
            Ok(address) => addresses.push(address),
            Err(error) if reasons.is_empty() => {
                let short: String = word.chars().take(60).collect();
                reasons.push(format!("the program printed {short:?}: {error}"));
            }
            Err(_) => {}
        }
    }
    if addresses.is_empty() && reasons.is_empty() {
        return Err(
            "the program printed no address; let it print one or more, parted by white space"
                .to_owned(),
        );
    }
    Ok((addresses, reasons))
}

async fn look_up(
    address: &Address,
    default_port: u16,
    environment: &Environment,
) -> Result<Vec<Found>, String> {
    let port = address.port.unwrap_or(default_port);
    let ips = match &address.host {
        Host::Ip(ip) => vec![*ip],
        Host::Name(name) => (environment.lookup)(name.clone()).await.map_err(|error| {
            format!("{name:?} is not resolved: {error}; check the name and this machine's DNS")
        })?,
    };
    if ips.is_empty() {
        return Err(format!("{address} has no A or AAAA record"));
    }
    let found = ips.into_iter().map(|ip| Found {
        node: address.node.clone(),
        address: SocketAddr::new(ip, port),
    });
    Ok(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::collections::BTreeMap;

    type Names = Arc<Mutex<BTreeMap<String, Vec<IpAddr>>>>;

    fn environment(names: &Names) -> Environment {
        let names = names.clone();
        Environment {
            lookup: Arc::new(move |name| {
                let found = names.lock().get(&name).cloned();
                let failed = || io::Error::other("no such host");
                Box::pin(async move { found.ok_or_else(failed) })
            }),
            ..Environment::system()
        }
    }

    fn sources(texts: &[&str]) -> Vec<Source> {
        texts.iter().map(|t| Source::parse(t).unwrap()).collect()
    }

    async fn found(texts: &[&str], names: &Names) -> Vec<String> {
        let resolution = resolve(&sources(texts), 8301, &environment(names)).await;
        let shown = resolution.found.iter().map(|f| f.address.to_string());
        let problems = resolution.problems.iter().map(ToString::to_string);
        shown.chain(problems).collect()
    }

    #[tokio::test]
    async fn names_give_all_their_addresses_anew_each_time() {
        let names = Names::default();
        let texts = ["s1/db.example", "10.0.0.1:9", "10.0.0.1:9"];
        assert_eq!(
            found(&texts, &names).await,
            [
                "10.0.0.1:9",
                "s1/db.example: \"db.example\" is not resolved: no such host; check the name and this machine's DNS"
            ]
        );
        let set = |ips: &[&str]| {
            let ips = ips.iter().map(|ip| ip.parse().unwrap()).collect();
            names.lock().insert("db.example".to_owned(), ips);
        };
        set(&["10.1.1.1", "2001:db8::1"]);
        assert_eq!(
            found(&texts, &names).await,
            ["10.1.1.1:8301", "[2001:db8::1]:8301", "10.0.0.1:9"]
        );
        set(&["10.1.1.2"]);
        assert_eq!(found(&texts, &names).await, ["10.1.1.2:8301", "10.0.0.1:9"]);
        set(&[]);
        assert_eq!(
            found(&texts[..1], &names).await,
            ["s1/db.example: s1/db.example has no A or AAAA record"]
        );
    }

    #[tokio::test]
    async fn programs_may_print_names_and_some_junk() {
        let names = Names::default();
        names
            .lock()
            .insert("a.example".to_owned(), vec!["10.2.2.2".parse().unwrap()]);
        let text = "exec=/bin/echo n1/10.0.0.1 a.example:99 <junk> <more>";
        assert_eq!(
            found(&[text], &names).await,
            [
                "10.0.0.1:8301".to_owned(),
                "10.2.2.2:99".to_owned(),
                format!(
                    "{text}: the program printed \"<junk>\": this is neither an IP address nor a host name; write an IP \
                     address or a host name of letters, digits, hyphens and dots, and a port after a colon if it needs one"
                ),
            ]
        );
        let nothing = found(&["exec=/bin/true"], &names).await;
        assert!(nothing[0].contains("printed no address"), "{nothing:?}");
    }

    #[tokio::test]
    async fn a_flood_of_addresses_is_cut() {
        let text =
            "exec=/bin/sh -c \"for i in $(seq 1 4200); do echo 10.0.$((i/256)).$((i%256)); done\"";
        let resolution = resolve(&sources(&[text]), 1, &environment(&Names::default())).await;
        assert_eq!(resolution.found.len(), MAX_ADDRESSES);
        assert!(resolution.problems[0].reason.contains("104 more than 4096"));
    }
}
