//! The providers of go-discover: which are built in, and what to use instead of the others.

/// A provider that is known but not built in, and the command that lists its machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Foreign {
    /// Its name in `provider=`.
    pub name: &'static str,
    /// The vendor's tool, which a program for `exec=` can call.
    pub tool: &'static str,
}

/// Every provider of go-discover that is not built in.
pub const FOREIGN: [Foreign; 13] = [
    foreign("aliyun", "aliyun ecs DescribeInstances"),
    foreign("azure", "az vm list-ip-addresses"),
    foreign("digitalocean", "doctl compute droplet list"),
    foreign("gce", "gcloud compute instances list"),
    foreign("linode", "linode-cli linodes list"),
    foreign("mdns", "avahi-browse --resolve"),
    foreign("os", "openstack server list"),
    foreign("packet", "metal device get"),
    foreign("scaleway", "scw instance server list"),
    foreign("softlayer", "ibmcloud sl vs list"),
    foreign("tencentcloud", "tccli cvm DescribeInstances"),
    foreign("triton", "triton instance list"),
    foreign("vsphere", "govc vm.info -json"),
];

const fn foreign(name: &'static str, tool: &'static str) -> Foreign {
    Foreign { name, tool }
}

/// What is wrong with a provider that is not built in, and what to do about it.
pub fn refusal(provider: &str) -> (String, String) {
    match FOREIGN.iter().find(|known| known.name == provider) {
        Some(known) => (
            format!("provider {provider:?} is not built in"),
            format!(
                "write \"exec=/path/to/program\" with a program that prints one address per line, for example from {:?}, or \
                 name the servers by address or DNS name",
                known.tool
            ),
        ),
        None => (
            format!("there is no provider {provider:?}"),
            "use provider=aws, provider=k8s, exec=/path/to/program, an address or a DNS name"
                .to_owned(),
        ),
    }
}
