//! go-sockaddr's templates in addresses (`{{ GetInterfaceIP "eth0" }}`), over a given list of interfaces.
//!
//! A template is a pipeline: a source of interfaces, then filters (`include`, `exclude`, `sort`,
//! `limit`, `offset`, `unique`), then text (`attr`, `join`). `math` and `contains` are not offered.

use crate::config::host::Host;
use crate::config::host::Interface;
use crate::config::host::is_local;
use crate::config::host::is_private;
use crate::config::template::filter::Filter;
use crate::config::template::filter::attribute;
use std::net::IpAddr;

mod filter;

/// Longest template that is evaluated, in bytes.
const MAX_BYTES: usize = 4096;

/// Names for messages about unknown functions.
const FUNCTIONS: &str = "GetAllInterfaces, GetDefaultInterfaces, GetPrivateInterfaces, GetPublicInterfaces, \
    GetPrivateIP, GetPrivateIPs, GetPublicIP, GetPublicIPs, GetInterfaceIP, GetInterfaceIPs, \
    include, exclude, sort, limit, offset, unique, attr, join";

/// What flows through a pipeline.
enum Flow {
    Interfaces(Vec<Interface>),
    Text(String),
}

/// Replaces each `{{ … }}` of `text`; text without one is given back as it is.
///
/// # Errors
/// What is wrong with the template.
pub fn render(text: &str, host: &Host) -> Result<String, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("the template is longer than {MAX_BYTES} bytes"));
    }
    let mut out = String::new();
    let mut rest = text;
    while let Some((before, template)) = rest.split_once("{{") {
        let Some((inside, after)) = template.split_once("}}") else {
            return Err("'{{' without '}}'".to_owned());
        };
        out.push_str(before);
        out.push_str(&pipeline(inside, host)?);
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}

fn pipeline(text: &str, host: &Host) -> Result<String, String> {
    let text = text.trim().trim_matches('-');
    let mut flow = None;
    for stage in split_stages(text)? {
        flow = Some(apply(&stage, flow, host)?);
    }
    match flow {
        Some(Flow::Text(text)) => Ok(text),
        Some(Flow::Interfaces(list)) => Err(format!(
            "gives {} interfaces, not text: end it with | attr \"address\" or | join \"address\" \" \"",
            list.len()
        )),
        None => Err("the template is empty".to_owned()),
    }
}

/// Splits at `|` into words; quoted words keep spaces, bars and escapes.
fn split_stages(text: &str) -> Result<Vec<Vec<String>>, String> {
    let mut stages = vec![Vec::new()];
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let word = match char {
            '|' => {
                stages.push(Vec::new());
                continue;
            }
            c if c.is_whitespace() => continue,
            '"' | '`' => quoted(&mut chars, char)?,
            c => {
                let mut word = String::from(c);
                while let Some(c) = chars.next_if(|c| !c.is_whitespace() && *c != '|') {
                    word.push(c);
                }
                word
            }
        };
        if let Some(stage) = stages.last_mut() {
            stage.push(word);
        }
    }
    Ok(stages)
}

fn quoted(
    chars: &mut std::iter::Peekable<std::str::Chars<'_>>,
    end: char,
) -> Result<String, String> {
    let mut word = String::new();
    while let Some(char) = chars.next() {
        match char {
            c if c == end => return Ok(word),
            '\\' if end == '"' => word.extend(chars.next()),
            c => word.push(c),
        }
    }
    Err("a quote is not closed".to_owned())
}

fn apply(stage: &[String], input: Option<Flow>, host: &Host) -> Result<Flow, String> {
    let Some((function, arguments)) = stage.split_first() else {
        return Err("nothing stands between two '|'".to_owned());
    };
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match input {
        None => source(function, &arguments, host),
        Some(Flow::Interfaces(list)) => filtered(function, &arguments, list),
        Some(Flow::Text(_)) => Err(format!(
            "{function:?} needs interfaces, but text comes before it"
        )),
    }
}

fn source(function: &str, arguments: &[&str], host: &Host) -> Result<Flow, String> {
    let all = || host.interfaces.clone();
    let of = |keep: fn(&Interface) -> bool| -> Vec<Interface> {
        let mut list: Vec<_> = all().into_iter().filter(|i| i.up && keep(i)).collect();
        list.sort_by_key(|i| (!i.default_route, i.addr.is_ipv6(), i.prefix));
        list
    };
    let private = || of(|i| is_private(i.addr));
    let public = || of(|i| !is_private(i.addr) && !is_local(i.addr));
    match (function, arguments) {
        ("GetAllInterfaces", []) => Ok(Flow::Interfaces(all())),
        ("GetDefaultInterfaces", []) => Ok(Flow::Interfaces(of(|i| i.default_route))),
        ("GetPrivateInterfaces", []) => Ok(Flow::Interfaces(private())),
        ("GetPublicInterfaces", []) => Ok(Flow::Interfaces(public())),
        ("GetPrivateIP", []) => Ok(first(&private())),
        ("GetPrivateIPs", []) => Ok(joined(&private())),
        ("GetPublicIP", []) => Ok(first(&public())),
        ("GetPublicIPs", []) => Ok(joined(&public())),
        ("GetInterfaceIP", [name]) => Ok(first(&named(host, name))),
        ("GetInterfaceIPs", [name]) => Ok(joined(&named(host, name))),
        ("GetInterfaceIP" | "GetInterfaceIPs", _) => {
            Err(format!("{function} needs one argument: the interface"))
        }
        _ => Err(format!(
            "{function:?} is not a function here; known are {FUNCTIONS}"
        )),
    }
}

/// Addresses of the interface, IPv4 first, link-local ones last.
fn named(host: &Host, name: &str) -> Vec<Interface> {
    let mut list: Vec<_> = host
        .interfaces
        .iter()
        .filter(|i| i.name == name)
        .cloned()
        .collect();
    list.sort_by_key(|i| {
        let link_local = matches!(i.addr, IpAddr::V6(v6) if v6.is_unicast_link_local());
        (link_local, i.addr.is_ipv6())
    });
    list
}

fn first(list: &[Interface]) -> Flow {
    Flow::Text(list.first().map(|i| i.addr.to_string()).unwrap_or_default())
}

fn joined(list: &[Interface]) -> Flow {
    let addresses: Vec<_> = list.iter().map(|i| i.addr.to_string()).collect();
    Flow::Text(addresses.join(" "))
}

fn filtered(function: &str, arguments: &[&str], mut list: Vec<Interface>) -> Result<Flow, String> {
    let number = |text: &str| {
        text.parse::<usize>()
            .map_err(|_| format!("{function} needs a number, not {text:?}"))
    };
    match (function, arguments) {
        ("include", [by, value]) => {
            let filter = Filter::new(by, value)?;
            list.retain(|i| filter.matches(i));
        }
        ("exclude", [by, value]) => {
            let filter = Filter::new(by, value)?;
            list.retain(|i| !filter.matches(i));
        }
        ("sort", [by]) => filter::sort(&mut list, by)?,
        ("limit", [count]) => list.truncate(number(count)?),
        ("offset", [count]) => list = list.split_off(number(count)?.min(list.len())),
        ("unique", [by]) => {
            let mut seen = std::collections::BTreeSet::new();
            let keys = list
                .iter()
                .map(|i| attribute(i, by))
                .collect::<Result<Vec<_>, _>>()?;
            let mut keys = keys.into_iter();
            list.retain(|_| keys.next().is_some_and(|key| seen.insert(key)));
        }
        ("attr", [by]) => {
            let value = list.first().map(|i| attribute(i, by)).transpose()?;
            return Ok(Flow::Text(value.unwrap_or_default()));
        }
        ("join", [by, separator]) => {
            let values = list
                .iter()
                .map(|i| attribute(i, by))
                .collect::<Result<Vec<_>, _>>()?;
            return Ok(Flow::Text(values.join(separator)));
        }
        _ => {
            let count = arguments.len();
            return Err(format!(
                "{function:?} with {count} arguments is not a filter here; known are {FUNCTIONS}"
            ));
        }
    }
    Ok(Flow::Interfaces(list))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn host() -> Host {
        let row = |name: &str, addr: &str, prefix, default_route| Interface {
            name: name.to_owned(),
            addr: addr.parse().unwrap(),
            prefix,
            up: true,
            default_route,
        };
        Host {
            name: "h".to_owned(),
            interfaces: vec![
                row("lo", "127.0.0.1", 8, false),
                row("docker0", "172.17.0.1", 16, false),
                row("eth0", "10.1.2.3", 24, true),
                row("eth0", "fe80::1", 64, true),
                row("eth0", "2001:db8::3", 64, true),
                row("eth1", "8.8.4.4", 24, false),
            ],
        }
    }

    #[test]
    fn documented_templates() {
        for (template, expected) in [
            ("10.0.0.1", "10.0.0.1"),
            ("{{ GetPrivateIP }}", "10.1.2.3"),
            ("{{GetPrivateIPs}}", "10.1.2.3 172.17.0.1"),
            ("{{ GetPublicIP }}", "2001:db8::3"),
            ("{{ GetInterfaceIP \"eth0\" }}", "10.1.2.3"),
            ("{{ GetInterfaceIP \"nope\" }}", ""),
            (
                "{{ GetInterfaceIPs \"eth1\" }} 127.0.0.1",
                "8.8.4.4 127.0.0.1",
            ),
            (
                "{{ GetAllInterfaces | include \"network\" \"10.0.0.0/8\" | attr \"address\" }}",
                "10.1.2.3",
            ),
            (
                "{{ GetPrivateInterfaces | sort \"-address\" | limit 1 | join \"address\" \" \" }}",
                "172.17.0.1",
            ),
            (
                "{{ GetPrivateInterfaces | exclude \"name\" \"docker.*\" | join \"address\" \" \" }}",
                "10.1.2.3",
            ),
            (
                "{{ GetAllInterfaces | include \"flags\" \"loopback\" | attr \"address\" }}",
                "127.0.0.1",
            ),
            (
                "{{ GetAllInterfaces | include \"name\" \"^eth\" | include \"type\" \"ipv6\" | exclude \"rfc\" \"4291\" | join \"address\" \",\" }}",
                "2001:db8::3",
            ),
            (
                "{{ GetAllInterfaces | include \"rfc\" \"1918\" | sort \"default,size\" | offset 1 | attr \"address\" }}",
                "172.17.0.1",
            ),
            (
                "{{ GetDefaultInterfaces | unique \"name\" | join \"name\" \" \" }}",
                "eth0",
            ),
        ] {
            assert_eq!(
                render(template, &host()).as_deref(),
                Ok(expected),
                "{template}"
            );
        }
    }

    #[test]
    fn errors_say_what_to_write() {
        for (template, wanted) in [
            ("{{ GetFoo }}", "known are"),
            ("{{ GetAllInterfaces }}", "attr \"address\""),
            ("{{ GetPrivateIP | attr \"x\" }}", "needs interfaces"),
            ("{{ GetAllInterfaces | include \"color\" \"x\" }}", "color"),
            (
                "{{ GetAllInterfaces | include \"network\" \"x\" }}",
                "network",
            ),
            ("{{ GetAllInterfaces | limit x }}", "number"),
            ("{{ GetPrivateIP", "without '}}'"),
            ("{{ }}", "nothing stands"),
        ] {
            let err = render(template, &host()).unwrap_err();
            assert!(err.contains(wanted), "{template}: {err}");
        }
    }

    proptest! {
        #[test]
        fn any_template_is_rendered_or_refused(text in "[{}|\" a-zGIP`\\\\0-9.]{0,60}") {
            let _ = render(&format!("{{{{ GetAllInterfaces | {text} }}}}"), &host());
        }
    }
}
