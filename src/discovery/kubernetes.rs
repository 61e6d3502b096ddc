//! `provider=k8s`: the ready pods of a namespace that a label or field selector names.
//!
//! The keys and the meaning of the annotation are those of go-discover. Pure; [`client`] asks, [`kubeconfig`] reads the
//! file of that name.

pub(crate) mod client;
pub mod kubeconfig;

use crate::discovery::address::Address;
use crate::discovery::address::Host;
use crate::discovery::source::Fields;
use crate::discovery::source::Refusal;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Where Kubernetes puts a pod's token and the API server's CA.
pub const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// The annotation of a pod with the name or number of the port to join.
const PORT_ANNOTATION: &str = "consul.hashicorp.com/auto-join-port";

const KEYS: [&str; 5] = [
    "kubeconfig",
    "namespace",
    "label_selector",
    "field_selector",
    "host_network",
];

/// Which pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The file with the cluster and the credentials; `None`: those of the pod that this server runs in, or else the file
    /// that `KUBECONFIG` names.
    pub kubeconfig: Option<PathBuf>,
    /// Where the pods are; `default` unless given.
    pub namespace: String,
    /// Their labels; empty is any.
    pub label_selector: String,
    /// Their fields; empty is any.
    pub field_selector: String,
    /// Whether the addresses and ports of the pods' hosts are taken.
    pub host_network: bool,
}

impl Query {
    pub(crate) fn from_fields(mut fields: Fields) -> Result<Self, Refusal> {
        let query = Self {
            kubeconfig: fields.take("kubeconfig").map(PathBuf::from),
            namespace: fields
                .take("namespace")
                .unwrap_or_else(|| "default".to_owned()),
            label_selector: fields.take("label_selector").unwrap_or_default(),
            field_selector: fields.take("field_selector").unwrap_or_default(),
            host_network: match fields.take("host_network").as_deref() {
                None => false,
                Some(text) => boolean(text)?,
            },
        };
        fields.finish("k8s", &KEYS)?;
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if query.namespace.len() > 63 || !query.namespace.chars().all(fits) {
            return Err((
                format!("namespace is {:?}", query.namespace),
                "a namespace has at most 63 lower-case letters, digits and hyphens".to_owned(),
            ));
        }
        Ok(query)
    }
}

/// The words that Go's `strconv.ParseBool` takes.
fn boolean(text: &str) -> Result<bool, Refusal> {
    match text {
        "1" | "t" | "T" | "true" | "True" | "TRUE" => Ok(true),
        "0" | "f" | "F" | "false" | "False" | "FALSE" => Ok(false),
        _ => Err((
            format!("host_network is {text:?}"),
            "write true or false".to_owned(),
        )),
    }
}

/// A page of pods, with the fields that matter.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodList {
    pub(crate) metadata: ListMeta,
    items: Vec<Pod>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ListMeta {
    /// Where the next page goes on; empty on the last one.
    #[serde(rename = "continue")]
    pub(crate) next: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Pod {
    metadata: PodMeta,
    spec: PodSpec,
    status: PodStatus,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodMeta {
    name: String,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodSpec {
    containers: Vec<Container>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Container {
    ports: Option<Vec<ContainerPort>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ContainerPort {
    name: String,
    container_port: u16,
    host_port: u16,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodStatus {
    phase: String,
    #[serde(rename = "podIP")]
    pod_ip: String,
    #[serde(rename = "hostIP")]
    host_ip: String,
    conditions: Option<Vec<Condition>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

/// The addresses of the pods that run and are ready, and what is wrong with some of them.
pub(crate) fn addresses(pods: &PodList, host_network: bool) -> (Vec<Address>, Vec<String>) {
    let (mut found, mut problems) = (Vec::new(), Vec::new());
    for pod in pods.items.iter().filter(|pod| pod.is_usable()) {
        match pod.address(host_network) {
            Ok(address) => found.extend(address),
            Err(reason) => problems.push(format!("pod {:?}: {reason}", pod.metadata.name)),
        }
    }
    (found, problems)
}

impl Pod {
    /// A pod without the condition `Ready` counts as ready.
    fn is_usable(&self) -> bool {
        let mut conditions = self.status.conditions.iter().flatten();
        let ready = conditions.all(|c| c.kind != "Ready" || c.status == "True");
        self.status.phase == "Running" && ready
    }

    /// `None` while it has no address yet.
    fn address(&self, host_network: bool) -> Result<Option<Address>, String> {
        let ip = match host_network {
            true => &self.status.host_ip,
            false => &self.status.pod_ip,
        };
        if ip.is_empty() {
            return Ok(None);
        }
        let ip = ip
            .parse()
            .map_err(|_| format!("its address {ip:?} is no IP address"))?;
        Ok(Some(Address {
            node: None,
            host: Host::Ip(ip),
            port: self.port(host_network)?,
        }))
    }

    fn port(&self, host_network: bool) -> Result<Option<u16>, String> {
        let annotations = self.metadata.annotations.iter().flatten();
        let wanted = annotations
            .filter(|(key, value)| *key == PORT_ANNOTATION && !value.is_empty())
            .map(|(_, value)| value.as_str())
            .next();
        let Some(wanted) = wanted else {
            return Ok(None);
        };
        let all = self
            .spec
            .containers
            .iter()
            .flat_map(|c| c.ports.iter().flatten());
        let named = all
            .filter(|port| port.name == wanted)
            .map(|port| match host_network {
                true => port.host_port,
                false => port.container_port,
            })
            .find(|port| *port > 0);
        let numbered = || wanted.parse().ok().filter(|port: &u16| *port > 0);
        match named.or_else(numbered) {
            Some(port) => Ok(Some(port)),
            None => Err(format!(
                "its annotation {PORT_ANNOTATION} is {wanted:?}, which is neither the name of one of its ports nor a port number"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;
    use serde_json::json;

    fn pod(name: &str, status: Value, annotation: Option<&str>) -> Value {
        json!({
            "metadata": {
                "name": name,
                "annotations": annotation.map(|value| json!({PORT_ANNOTATION: value})),
            },
            "spec": {"containers": [{}, {"ports": [
                {"name": "serf", "containerPort": 8301, "hostPort": 18301},
                {"name": "http", "containerPort": 8500},
            ]}]},
            "status": status,
        })
    }

    fn running(ip: &str) -> Value {
        json!({"phase": "Running", "podIP": ip, "hostIP": "192.168.0.7",
            "conditions": [{"type": "Initialized", "status": "False"}, {"type": "Ready", "status": "True"}]})
    }

    #[track_caller]
    fn check(pods: &[Value], host_network: bool, expected: &[&str]) {
        let list: PodList = serde_json::from_value(json!({"items": pods})).unwrap();
        let (found, problems) = addresses(&list, host_network);
        let shown: Vec<_> = found
            .iter()
            .map(ToString::to_string)
            .chain(problems)
            .collect();
        assert_eq!(shown, expected);
    }

    #[test]
    fn only_ready_pods_with_an_address_count() {
        let unready = json!({"phase": "Running", "podIP": "10.0.0.2",
            "conditions": [{"type": "Ready", "status": "False"}]});
        let pods = [
            pod("ready", running("10.0.0.1"), None),
            pod("unready", unready, None),
            pod(
                "pending",
                json!({"phase": "Pending", "podIP": "10.0.0.3"}),
                None,
            ),
            pod("without", json!({"phase": "Running"}), None),
            pod(
                "unconditional",
                json!({"phase": "Running", "podIP": "fd00::4"}),
                None,
            ),
        ];
        check(&pods, false, &["10.0.0.1", "fd00::4"]);
        check(&pods, true, &["192.168.0.7"]);
    }

    #[test]
    fn the_annotation_gives_the_port() {
        let one = |annotation| [pod("p", running("fd00::1"), Some(annotation))];
        check(&one("serf"), false, &["[fd00::1]:8301"]);
        check(&one("serf"), true, &["192.168.0.7:18301"]);
        check(&one("9999"), false, &["[fd00::1]:9999"]);
        check(&one(""), false, &["fd00::1"]);
        let text = "pod \"p\": its annotation consul.hashicorp.com/auto-join-port is \"http\", which is neither the name of \
                    one of its ports nor a port number";
        check(&one("http"), true, &[text]);
    }
}
