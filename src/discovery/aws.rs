//! `provider=aws`: the running instances of EC2 that have a tag.
//!
//! The keys are those of go-discover. Pure; [`client`] asks, [`sign`] signs.

pub(crate) mod client;
pub mod sign;

use crate::discovery::address::Address;
use crate::discovery::address::Host;
use crate::discovery::aws::sign::Credentials;
use crate::discovery::source::Fields;
use crate::discovery::source::Refusal;
use roxmltree::Node;
use roxmltree::ParsingOptions;
use std::net::IpAddr;

const KEYS: [&str; 8] = [
    "region",
    "tag_key",
    "tag_value",
    "addr_type",
    "access_key_id",
    "secret_access_key",
    "session_token",
    "endpoint",
];

/// Version of EC2's API whose form is asked for.
const API_VERSION: &str = "2016-11-15";

/// Most XML nodes of one answer.
const MAX_NODES: u32 = 2_000_000;

/// Which instances, and which of their addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// The region; `None`: `AWS_REGION`, or else the one that this instance is in.
    pub region: Option<String>,
    /// The tag's key.
    pub tag_key: String,
    /// The tag's value.
    pub tag_value: String,
    /// Which addresses.
    pub address_type: AddressType,
    /// Credentials; `None`: those of the environment, or else of this instance's role.
    pub credentials: Option<Credentials>,
    /// EC2's URL, if it is not the region's usual one.
    pub endpoint: Option<String>,
}

/// Which address of an instance is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AddressType {
    /// The private IPv4 address.
    PrivateV4,
    /// The public IPv4 address.
    PublicV4,
    /// Every IPv6 address.
    PublicV6,
}

impl Query {
    pub(crate) fn from_fields(mut fields: Fields) -> Result<Self, Refusal> {
        let mut tag = |key: &str| {
            fields.take(key).ok_or_else(|| {
                let remedy = "write provider=aws tag_key=KEY tag_value=VALUE".to_owned();
                (format!("{key} is missing"), remedy)
            })
        };
        let (tag_key, tag_value) = (tag("tag_key")?, tag("tag_value")?);
        let query = Self {
            tag_key,
            tag_value,
            region: fields.take("region"),
            address_type: match fields.take("addr_type").as_deref() {
                None | Some("private_v4") => AddressType::PrivateV4,
                Some("public_v4") => AddressType::PublicV4,
                Some("public_v6") => AddressType::PublicV6,
                Some(other) => {
                    let remedy = "write private_v4, public_v4 or public_v6".to_owned();
                    return Err((format!("addr_type is {other:?}"), remedy));
                }
            },
            credentials: credentials(&mut fields)?,
            endpoint: fields.take("endpoint"),
        };
        fields.finish("aws", &KEYS)?;
        match &query.region {
            Some(region) if !is_region(region) => {
                let remedy = "write a name such as eu-west-1".to_owned();
                Err((format!("region is {region:?}"), remedy))
            }
            _ => Ok(query),
        }
    }

    /// The form that asks for a page of instances.
    pub(crate) fn form(&self, next: Option<&str>) -> String {
        let tag = format!("tag:{}", self.tag_key);
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.append_pair("Action", "DescribeInstances")
            .append_pair("Version", API_VERSION)
            .append_pair("Filter.1.Name", &tag)
            .append_pair("Filter.1.Value.1", &self.tag_value)
            .append_pair("Filter.2.Name", "instance-state-name")
            .append_pair("Filter.2.Value.1", "running")
            .append_pair("MaxResults", "1000");
        if let Some(next) = next {
            form.append_pair("NextToken", next);
        }
        form.finish()
    }
}

fn credentials(fields: &mut Fields) -> Result<Option<Credentials>, Refusal> {
    let id = fields.take("access_key_id");
    let secret = fields.take("secret_access_key");
    let token = fields.take("session_token");
    match (id, secret) {
        (Some(access_key_id), Some(secret_access_key)) => Ok(Some(Credentials {
            access_key_id,
            secret_access_key,
            session_token: token,
        })),
        (None, None) if token.is_none() => Ok(None),
        _ => Err((
            "access_key_id and secret_access_key go together".to_owned(),
            "give both, or none to use the environment or the instance's role".to_owned(),
        )),
    }
}

/// The region becomes part of a host name and of the signature.
pub(crate) fn is_region(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..=32).contains(&text.len()) && text.chars().all(fits)
}

/// EC2's URL in a region.
pub(crate) fn endpoint(region: &str) -> String {
    let domain = match region.starts_with("cn-") {
        true => "amazonaws.com.cn",
        false => "amazonaws.com",
    };
    format!("https://ec2.{region}.{domain}/")
}

/// A page of instances.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    /// The addresses of the wanted kind; instances without one are left out.
    pub(crate) addresses: Vec<Address>,
    /// Where the next page goes on.
    pub(crate) next: Option<String>,
}

/// Reads an answer to [`Query::form`].
pub(crate) fn read_page(text: &str, kind: AddressType) -> Result<Page, String> {
    let document = parse(text)?;
    let root = document.root_element();
    if root.tag_name().name() != "DescribeInstancesResponse" {
        return Err(format!("it is a {}", root.tag_name().name()));
    }
    let mut addresses = Vec::new();
    for reservation in items(root, "reservationSet") {
        for instance in items(reservation, "instancesSet") {
            for text in instance_addresses(instance, kind) {
                let ip: IpAddr = text
                    .parse()
                    .map_err(|_| format!("{text:?} in it is no IP address"))?;
                addresses.push(Address {
                    node: None,
                    host: Host::Ip(ip),
                    port: None,
                });
            }
        }
    }
    let next = child_text(root, "nextToken").map(ToOwned::to_owned);
    Ok(Page { addresses, next })
}

/// What an error answer says, such as `AuthFailure: ...`.
pub(crate) fn read_error(text: &str) -> Option<String> {
    let document = parse(text).ok()?;
    let find = |name: &str| {
        let mut all = document.descendants();
        all.find(|n| n.has_tag_name(name))?.text()
    };
    Some(format!("{}: {}", find("Code")?, find("Message")?))
}

fn parse(text: &str) -> Result<roxmltree::Document<'_>, String> {
    let options = ParsingOptions {
        nodes_limit: MAX_NODES,
        ..ParsingOptions::default()
    };
    roxmltree::Document::parse_with_options(text, options).map_err(|e| format!("it is no XML: {e}"))
}

fn instance_addresses<'a>(instance: Node<'a, 'a>, kind: AddressType) -> Vec<&'a str> {
    match kind {
        AddressType::PrivateV4 => child_text(instance, "privateIpAddress")
            .into_iter()
            .collect(),
        AddressType::PublicV4 => child_text(instance, "ipAddress").into_iter().collect(),
        AddressType::PublicV6 => items(instance, "networkInterfaceSet")
            .flat_map(|interface| items(interface, "ipv6AddressesSet"))
            .filter_map(|address| child_text(address, "ipv6Address"))
            .collect(),
    }
}

fn child<'a>(of: Node<'a, 'a>, name: &str) -> Option<Node<'a, 'a>> {
    // Namespaces carry the API's version; only the names matter.
    of.children().find(|node| node.tag_name().name() == name)
}

fn child_text<'a>(of: Node<'a, 'a>, name: &str) -> Option<&'a str> {
    let text = child(of, name)?.text()?.trim();
    (!text.is_empty()).then_some(text)
}

/// The `item`s of a set.
fn items<'a>(of: Node<'a, 'a>, set: &str) -> impl Iterator<Item = Node<'a, 'a>> {
    let children = child(of, set).into_iter().flat_map(|set| set.children());
    children.filter(|node| node.tag_name().name() == "item")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::discovery::source::Kind;
    use crate::discovery::source::Source;

    const PAGE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/">
  <requestId>8f7724cf</requestId>
  <reservationSet>
    <item><reservationId>r-1</reservationId><instancesSet>
      <item><instanceId>i-1</instanceId><privateIpAddress>10.0.0.1</privateIpAddress><ipAddress>203.0.113.1</ipAddress>
        <networkInterfaceSet><item><privateIpAddress>10.9.9.9</privateIpAddress>
          <ipv6AddressesSet><item><ipv6Address>2001:db8::1</ipv6Address></item><item><ipv6Address>2001:db8::2</ipv6Address></item></ipv6AddressesSet>
        </item></networkInterfaceSet></item>
      <item><instanceId>i-2</instanceId><privateIpAddress>10.0.0.2</privateIpAddress></item>
    </instancesSet></item>
    <item><reservationId>r-2</reservationId><instancesSet><item><instanceId>i-3</instanceId></item></instancesSet></item>
  </reservationSet>
  <nextToken>more</nextToken>
</DescribeInstancesResponse>"#;

    fn shown(kind: AddressType) -> Vec<String> {
        let page = read_page(PAGE, kind).unwrap();
        page.addresses.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn addresses_of_each_kind() {
        assert_eq!(shown(AddressType::PrivateV4), ["10.0.0.1", "10.0.0.2"]);
        assert_eq!(shown(AddressType::PublicV4), ["203.0.113.1"]);
        assert_eq!(shown(AddressType::PublicV6), ["2001:db8::1", "2001:db8::2"]);
        let next = read_page(PAGE, AddressType::PublicV4).unwrap().next;
        assert_eq!(next.as_deref(), Some("more"));
    }

    #[test]
    fn wrong_answers() {
        let error = "<Response><Errors><Error><Code>AuthFailure</Code><Message>no access</Message></Error></Errors></Response>";
        assert_eq!(read_error(error).unwrap(), "AuthFailure: no access");
        assert_eq!(read_error("<a/>"), None);
        let page = |text: &str| read_page(text, AddressType::PrivateV4).unwrap_err();
        assert_eq!(page(error), "it is a Response");
        assert!(page("<html>").starts_with("it is no XML"));
        assert!(page(&PAGE.replace("10.0.0.1", "ten")).contains("\"ten\""));
        let laughs = "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>";
        assert!(
            page(laughs).starts_with("it is no XML"),
            "entities are not expanded"
        );
    }

    #[test]
    fn the_form_selects_running_instances() {
        let source = Source::parse("provider=aws tag_key=role tag_value=\"a b\"").unwrap();
        let Kind::Aws(query) = source.kind() else {
            panic!("{source}");
        };
        assert_eq!(
            query.form(Some("t/1")),
            "Action=DescribeInstances&Version=2016-11-15&Filter.1.Name=tag%3Arole&Filter.1.Value.1=a+b&\
             Filter.2.Name=instance-state-name&Filter.2.Value.1=running&MaxResults=1000&NextToken=t%2F1"
        );
        assert_eq!(
            endpoint("eu-west-1"),
            "https://ec2.eu-west-1.amazonaws.com/"
        );
        assert_eq!(
            endpoint("cn-north-1"),
            "https://ec2.cn-north-1.amazonaws.com.cn/"
        );
    }

    proptest::proptest! {
        #[test]
        fn no_answer_panics(text in "[<>/a-zA-Z&;!\\[\\] \"=]{0,200}") {
            let _ = (read_page(&text, AddressType::PublicV6), read_error(&text));
        }
    }
}
