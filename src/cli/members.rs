//! `members`: who is in the pool.

use crate::cli::block_on;
use crate::cli::client::Client;
use crate::cli::client::settings::HttpFlags;
use crate::cli::table;
use anyhow::Context as _;
use anyhow::anyhow;
use regex::Regex;
use serde::Deserialize;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::net::SocketAddr;
use std::process::ExitCode;

/// What Consul ends with when no member matches.
const NOBODY: u8 = 2;

/// Flags of `members`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Show the tags
    #[arg(long)]
    detailed: bool,
    /// Show the pool of all datacenters
    #[arg(long)]
    wan: bool,
    /// Show only members whose status matches this regular expression
    #[arg(long, value_name = "REGEXP", default_value = ".*")]
    status: String,
    /// Network segment; there are none but all
    #[arg(long, value_name = "SEGMENT", default_value = "_all")]
    segment: String,
    #[command(flatten)]
    http: HttpFlags,
}

/// A member as the server shows it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Member {
    name: String,
    addr: String,
    port: u16,
    tags: BTreeMap<String, String>,
    status: u8,
}

/// Runs `members`.
pub(crate) fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let status = Regex::new(&args.status)
        .map_err(|error| anyhow!("Failed to compile status regexp: {error}"))?;
    let client = Client::new(&args.http)?;
    let mut query = vec![("segment", args.segment.as_str())];
    if args.wan {
        query.push(("wan", "1"));
    }
    let answer = block_on(async { Ok(client.get(&["agent", "members"], &query).await) })?;
    let members = answer
        .map_err(|error| anyhow!("Error retrieving members: {error}"))?
        .unwrap_or_default();
    let members: Option<Vec<Member>> = serde_json::from_value(members)
        .context("Error retrieving members: the server answers something else")?;
    let lines = lines(members.unwrap_or_default(), &status, args.detailed);
    if lines.is_empty() {
        return Ok(ExitCode::from(NOBODY));
    }
    for line in lines {
        outln!("{line}");
    }
    Ok(ExitCode::SUCCESS)
}

/// The table; nothing if no member matches.
fn lines(mut members: Vec<Member>, status: &Regex, detailed: bool) -> Vec<String> {
    members.retain(|member| status.is_match(member.status()));
    for member in &mut members {
        let segment = match (member.tag("role"), member.tag("segment")) {
            ("consul", _) => "<all>",
            (_, "") => "<default>",
            _ => continue,
        };
        member.tags.insert("segment".to_owned(), segment.to_owned());
    }
    if members.is_empty() {
        return Vec::new();
    }
    members.sort_by(|a, b| (a.tag("segment"), &a.name).cmp(&(b.tag("segment"), &b.name)));
    if detailed {
        let mut rows = vec![table::row(["Node", "Address", "Status", "Tags"])];
        rows.extend(members.iter().map(Member::detailed));
        return table::columns(&rows);
    }
    let head = [
        "Node", "Address", "Status", "Type", "Build", "Protocol", "DC", "Segment",
    ];
    let mut rows = vec![table::row(head)];
    rows.extend(members.iter().map(Member::standard));
    table::columns(&rows)
}

impl Member {
    fn tag(&self, name: &str) -> &str {
        self.tags.get(name).map_or("", String::as_str)
    }

    fn status(&self) -> &'static str {
        match self.status {
            1 => "alive",
            2 => "leaving",
            3 => "left",
            4 => "failed",
            _ => "none",
        }
    }

    fn address(&self) -> String {
        match self.addr.parse::<IpAddr>() {
            Ok(ip) => SocketAddr::new(ip, self.port).to_string(),
            Err(_) => format!("{}:{}", self.addr, self.port),
        }
    }

    fn detailed(&self) -> [String; 4] {
        let tags: Vec<_> = self.tags.iter().map(|(k, v)| format!("{k}={v}")).collect();
        let [name, address, status] = self.first();
        [name, address, status, tags.join(",")]
    }

    fn standard(&self) -> [String; 8] {
        let build = match self.tag("build").split(':').next() {
            None | Some("") => "< 0.3",
            Some(version) => version,
        };
        let rest = match self.tag("role") {
            "consul" => [
                "server",
                build,
                self.tag("vsn"),
                self.tag("dc"),
                self.tag("segment"),
            ],
            "node" => [
                "client",
                build,
                self.tag("vsn"),
                self.tag("dc"),
                self.tag("segment"),
            ],
            _ => ["unknown", "", "", "", ""],
        };
        let [name, address, status] = self.first();
        let [kind, build, protocol, datacenter, segment] = rest.map(str::to_owned);
        [
            name, address, status, kind, build, protocol, datacenter, segment,
        ]
    }

    fn first(&self) -> [String; 3] {
        [self.name.clone(), self.address(), self.status().to_owned()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn strangers_and_clients_are_shown_and_filtered() {
        let members = || {
            serde_json::from_value::<Vec<Member>>(json!([
                {"Name": "x", "Addr": "2001:db8::1", "Port": 1, "Status": 4, "Tags": {}},
                {"Name": "b", "Addr": "10.0.0.2", "Port": 2, "Status": 1, "Tags": {"role": "node", "vsn": "2", "dc": "dc1"}},
            ]))
            .unwrap()
        };
        let all = Regex::new(".*").unwrap();
        assert_eq!(
            lines(members(), &all, false),
            [
                "Node  Address          Status  Type     Build  Protocol  DC   Segment",
                "b     10.0.0.2:2       alive   client   < 0.3  2         dc1  <default>",
                "x     [2001:db8::1]:1  failed  unknown",
            ]
        );
        let failed = Regex::new("fail").unwrap();
        assert_eq!(lines(members(), &failed, true).len(), 2);
        assert!(lines(members(), &Regex::new("left").unwrap(), true).is_empty());
    }
}
