//! Which addresses to bind and to advertise, from keys, templates and the machine's interfaces.

use crate::config::host::Host;
use crate::config::host::is_local;
use crate::config::host::is_private;
use crate::config::layer::Settings;
use crate::config::problem::Problem;
use crate::config::problem::Problems;
use crate::config::settings::Addresses;
use crate::config::settings::ListenAddr;
use crate::config::settings::Ports;
use crate::config::settings::UnixSockets;
use crate::config::template;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::net::Ipv4Addr;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Resolves every address; what cannot be resolved is reported and replaced by loopback.
pub(super) fn resolve(
    settings: &Settings,
    ports: &Ports,
    host: &Host,
    problems: &mut Problems,
) -> Addresses {
    let mut resolver = Resolver {
        settings,
        host,
        problems,
    };
    let bind = resolver
        .single("bind_addr")
        .unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
    let advertise = resolver.advertise(bind);
    let advertise_wan = resolver.advertise_wan(advertise);
    let client = resolver.list("client_addr", false);
    let tagged = resolver.tagged(advertise, advertise_wan);
    let serf_lan = resolver.single("serf_lan").unwrap_or(bind);
    let serf_wan = resolver.single("serf_wan").unwrap_or(bind);
    let client_ips = client.iter().filter_map(|addr| match addr {
        Place::Ip(ip) => Some(*ip),
        Place::Unix(_) => None,
    });
    Addresses {
        bind,
        client: client_ips.collect(),
        advertise,
        advertise_wan,
        tagged,
        rpc_bind: SocketAddr::new(bind, ports.server),
        rpc_advertise: SocketAddr::new(advertise, ports.server),
        serf_lan_bind: SocketAddr::new(serf_lan, ports.serf_lan),
        serf_lan_advertise: SocketAddr::new(advertise, ports.serf_lan),
        serf_wan_bind: ports.serf_wan.map(|port| SocketAddr::new(serf_wan, port)),
        serf_wan_advertise: ports
            .serf_wan
            .map(|port| SocketAddr::new(advertise_wan, port)),
        http: resolver.listeners("addresses.http", ports.http, &client),
        https: resolver.listeners("addresses.https", ports.https, &client),
        grpc: resolver.listeners("addresses.grpc", ports.grpc, &client),
        grpc_tls: resolver.tcp_listeners("addresses.grpc", ports.grpc_tls, &client),
        dns: resolver.dns(ports.dns, &client),
        serf_lan_allowed: resolver.networks("serf_lan_allowed_cidrs"),
        serf_wan_allowed: resolver.networks("serf_wan_allowed_cidrs"),
        translate_wan: settings.bool("translate_wan_addrs"),
        unix_sockets: resolver.unix_sockets(),
    }
}

/// An address of a listener before its port is known.
#[derive(Clone)]
enum Place {
    Ip(IpAddr),
    Unix(PathBuf),
}

struct Resolver<'a> {
    settings: &'a Settings,
    host: &'a Host,
    problems: &'a mut Problems,
}

impl Resolver<'_> {
    fn problem(&mut self, key: &str, what: impl Into<String>, remedy: impl Into<String>) {
        self.problems
            .push(Problem::new(self.settings.origin(key), key, what).remedy(remedy));
    }

    /// The words of a key after its templates; `None` when the key is not set at all.
    fn words(&mut self, key: &str) -> Option<Vec<String>> {
        let text = self.settings.some_text(key)?;
        match template::render(&text, self.host) {
            Ok(rendered) => {
                let words: Vec<_> = rendered.split_whitespace().map(str::to_owned).collect();
                if words.is_empty() {
                    self.problem(
                        key,
                        format!("{key} cannot be empty"),
                        format!("{text:?} gives no address on this host"),
                    );
                    return None;
                }
                Some(words)
            }
            Err(why) => {
                self.problem(key, format!("{key}: {text:?}: {why}"), "");
                None
            }
        }
    }

    /// Exactly one IP address.
    fn single(&mut self, key: &str) -> Option<IpAddr> {
        let words = self.words(key)?;
        match words.as_slice() {
            [word] => self.ip(key, word),
            _ => {
                let what = format!(
                    "{key} cannot contain multiple addresses. Use 'addresses.{{dns,http,https}}' instead."
                );
                self.problem(key, what, format!("the value gives {}", words.join(" ")));
                None
            }
        }
    }

    /// An IP address with or without brackets; anything else gets a hint (case C018).
    fn ip(&mut self, key: &str, word: &str) -> Option<IpAddr> {
        match parse_ip(word) {
            Ok(ip) => Some(ip),
            Err(remedy) => {
                self.problem(key, format!("{key}: invalid ip address: {word}"), remedy);
                None
            }
        }
    }

    /// Addresses of a listener: IPs, and Unix sockets where they are allowed.
    fn list(&mut self, key: &str, unix: bool) -> Vec<Place> {
        let mut out = Vec::new();
        for word in self.words(key).unwrap_or_default() {
            match word.strip_prefix("unix://") {
                Some(path) if unix => out.push(Place::Unix(PathBuf::from(path))),
                Some(_) if key == "addresses.dns" => self.problem(
                    key,
                    "DNS address cannot be a unix socket",
                    "give an IP address",
                ),
                Some(_) => self.problem(
                    key,
                    format!("{key} cannot be a unix socket"),
                    "set addresses.http instead",
                ),
                None => out.extend(self.ip(key, &word).map(Place::Ip)),
            }
        }
        out
    }

    fn listeners(&mut self, key: &str, port: Option<u16>, client: &[Place]) -> Vec<ListenAddr> {
        let own = self.list(key, true);
        let Some(port) = port else { return Vec::new() };
        let places = if own.is_empty() { client } else { &own };
        let listen = |place: &Place| match place {
            Place::Ip(ip) => ListenAddr::Tcp(SocketAddr::new(*ip, port)),
            Place::Unix(path) => ListenAddr::Unix(path.clone()),
        };
        places.iter().map(listen).collect()
    }

    /// As [`Self::listeners`], without the Unix sockets that another listener owns.
    fn tcp_listeners(&mut self, key: &str, port: Option<u16>, client: &[Place]) -> Vec<ListenAddr> {
        let mut listeners = self.listeners(key, port, client);
        listeners.retain(|addr| matches!(addr, ListenAddr::Tcp(_)));
        listeners
    }

    fn dns(&mut self, port: Option<u16>, client: &[Place]) -> Vec<SocketAddr> {
        let own = self.list("addresses.dns", false);
        let places = if own.is_empty() { client } else { &own };
        let ips = places.iter().filter_map(|place| match place {
            Place::Ip(ip) => Some(*ip),
            Place::Unix(_) => None,
        });
        port.map_or_else(Vec::new, |port| {
            ips.map(|ip| SocketAddr::new(ip, port)).collect()
        })
    }

    /// The configured address, or the bound one when it is specific, or the only private one of its family.
    fn advertise(&mut self, bind: IpAddr) -> IpAddr {
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for key in [
            "advertise_addr",
            "advertise_addr_ipv4",
            "advertise_addr_ipv6",
        ] {
            if self.settings.some_text(key).is_none() {
                continue;
            }
            let Some(ip) = self.single(key) else {
                return loopback;
            };
            return self.specific(key, "Advertise address", ip);
        }
        if !bind.is_unspecified() {
            return bind;
        }
        let fits = |ip: &IpAddr| match bind {
            IpAddr::V4(_) => ip.is_ipv4() && is_private(*ip),
            IpAddr::V6(_) => ip.is_ipv6() && !is_local(*ip),
        };
        let up = self.host.interfaces.iter().filter(|i| i.up).map(|i| i.addr);
        let found: Vec<IpAddr> = up.filter(fits).collect();
        let kind = if bind.is_ipv4() {
            "private IPv4"
        } else {
            "public IPv6"
        };
        match found.as_slice() {
            [only] => *only,
            [] => {
                self.problem(
                    "advertise_addr",
                    format!("No {kind} address found"),
                    "set advertise_addr or bind_addr",
                );
                loopback
            }
            several => {
                let list: Vec<_> = several.iter().map(IpAddr::to_string).collect();
                let what = format!(
                    "Multiple {kind} addresses found. Please configure one with 'bind' and/or 'advertise'."
                );
                self.problem(
                    "advertise_addr",
                    what,
                    format!("set advertise_addr to one of {}", list.join(", ")),
                );
                loopback
            }
        }
    }

    fn advertise_wan(&mut self, advertise: IpAddr) -> IpAddr {
        for key in [
            "advertise_addr_wan",
            "advertise_addr_wan_ipv4",
            "advertise_addr_wan_ipv6",
        ] {
            if self.settings.some_text(key).is_some() {
                let Some(ip) = self.single(key) else {
                    return advertise;
                };
                return self.specific(key, "Advertise WAN address", ip);
            }
        }
        advertise
    }

    fn specific(&mut self, key: &str, name: &str, ip: IpAddr) -> IpAddr {
        if ip.is_unspecified() {
            let remedy = "others dial this address: give one of this host's";
            self.problem(key, format!("{name} cannot be 0.0.0.0, :: or [::]"), remedy);
        }
        ip
    }

    /// The addresses by tag; the family's own keys win, else the main address when it is of that family.
    fn tagged(&mut self, lan: IpAddr, wan: IpAddr) -> BTreeMap<String, String> {
        let mut out = self.settings.text_map("tagged_addresses");
        out.extend([
            ("lan".to_owned(), lan.to_string()),
            ("wan".to_owned(), wan.to_string()),
        ]);
        for (tag, key, main, v4) in [
            ("lan_ipv4", "advertise_addr_ipv4", lan, true),
            ("lan_ipv6", "advertise_addr_ipv6", lan, false),
            ("wan_ipv4", "advertise_addr_wan_ipv4", wan, true),
            ("wan_ipv6", "advertise_addr_wan_ipv6", wan, false),
        ] {
            let own = if self.settings.has(key) {
                self.single(key)
            } else {
                None
            };
            if own.is_some_and(|ip| ip.is_ipv4() != v4) {
                let family = if v4 { "IPv4" } else { "IPv6" };
                self.problem(key, format!("{key} is not an {family} address"), "");
            }
            if let Some(ip) = own.or_else(|| (main.is_ipv4() == v4).then_some(main)) {
                out.insert(tag.to_owned(), ip.to_string());
            }
        }
        out
    }

    fn networks(&mut self, key: &str) -> Vec<ipnet::IpNet> {
        networks(self.settings, key, self.problems)
    }

    fn unix_sockets(&mut self) -> UnixSockets {
        let mode = self.settings.some_text("unix_sockets.mode");
        let parsed = mode
            .as_ref()
            .and_then(|mode| u32::from_str_radix(mode, 8).ok());
        if let (Some(mode), None) = (&mode, parsed) {
            self.problem(
                "unix_sockets.mode",
                format!("{mode:?} is not a mode"),
                "write it in octal: \"0600\"",
            );
        }
        UnixSockets {
            user: self.settings.some_text("unix_sockets.user"),
            group: self.settings.some_text("unix_sockets.group"),
            mode: parsed,
        }
    }
}

/// A list of networks in CIDR form.
pub(super) fn networks(
    settings: &Settings,
    key: &str,
    problems: &mut Problems,
) -> Vec<ipnet::IpNet> {
    let mut out = Vec::new();
    for (text, origin) in settings.texts_with_origin(key) {
        match text.parse() {
            Ok(net) => out.push(net),
            Err(_) => {
                let problem = Problem::new(origin, key, format!("{key}: invalid cidr: {text}"));
                problems.push(problem.remedy("write a network such as 10.0.0.0/8"));
            }
        }
    }
    out
}

/// An IP address, in brackets or not; the error is a hint.
pub(super) fn parse_ip(word: &str) -> Result<IpAddr, String> {
    let inner = word
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'));
    let (bare, bracketed) = inner.map_or((word, false), |inner| (inner, true));
    match bare.parse::<IpAddr>() {
        Ok(IpAddr::V4(_)) if bracketed => Err("brackets are for IPv6 addresses".to_owned()),
        Ok(ip) => Ok(ip),
        Err(_) if word.parse::<SocketAddr>().is_ok() => {
            Err("leave the port out; ports have their own keys under ports { … }".to_owned())
        }
        Err(_) if word.starts_with("unix://") => Err("a Unix socket cannot stand here".to_owned()),
        Err(_) if word.contains('%') => Err("leave the zone out".to_owned()),
        Err(_) if word.starts_with('[') || word.ends_with(']') => {
            Err("write both brackets or none".to_owned())
        }
        Err(_) => Err(
            "give an IP address, not a host name; a template such as {{ GetPrivateIP }} works too"
                .to_owned(),
        ),
    }
}
