//! Queries of others, and of ours as every member hears them.

use std::net::SocketAddr;
use std::time::Instant;

use bytes::Bytes;
use rand::RngCore;
use rand::seq::IndexedRandom;
use regex::Regex;
use regex::RegexBuilder;

use crate::gossip::MemberStatus;
use crate::gossip::Target;
use crate::gossip::serf::Error;
use crate::gossip::serf::Output;
use crate::gossip::serf::QueryId;
use crate::gossip::serf::Serf;
use crate::gossip::wire::Blob;
use crate::gossip::wire::SerfMessage;
use crate::gossip::wire::serf::Endpoint;
use crate::gossip::wire::serf::Filter;
use crate::gossip::wire::serf::Query;
use crate::gossip::wire::serf::QueryResponse;
use crate::gossip::wire::serf::RelayHeader;
use crate::model::NodeName;

/// What the names of serf's own queries begin with.
pub(super) const INTERNAL: &str = "_serf_";
/// Serf's own query: where is the node of this name?
pub(super) const CONFLICT: &str = "conflict";
/// Serf's own query that wants nothing but acknowledgements.
const PING: &str = "ping";

/// Most bytes of an answer as a message: serf's default of `QueryResponseSizeLimit`.
pub(super) const MAX_ANSWER: usize = 1024;
/// Most bytes that the compiled pattern of a filter may take: patterns come from others.
const MAX_PATTERN: usize = 1 << 20;
/// Lowest protocol whose agents pass answers on.
const RELAY_PROTOCOL: u8 = 5;

/// A query that somebody, maybe we, asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IncomingQuery {
    /// What is asked.
    pub name: String,
    /// What is asked, in detail.
    pub payload: Bytes,
    /// Who asks, and how it is reached.
    pub asker: Asker,
    /// When answers stop to be of interest.
    pub until: Instant,
}

/// Where an answer goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asker {
    query: QueryId,
    to: Target,
    relay_factor: u8,
}

impl Asker {
    /// The node that asks.
    pub fn target(&self) -> &Target {
        &self.to
    }
}

impl Serf {
    /// Answers a query. Only the first answer counts.
    ///
    /// # Errors
    /// When it is too long, or too late.
    pub fn respond(
        &mut self,
        now: Instant,
        query: &IncomingQuery,
        payload: Bytes,
        rng: &mut dyn RngCore,
    ) -> Result<(), Error> {
        if now >= query.until {
            return Err(Error::Late(query.name.clone()));
        }
        let answer = self.answer(&query.asker, Blob(payload));
        let size = SerfMessage::QueryResponse(answer.clone()).encode()?.len();
        if size > MAX_ANSWER {
            return Err(Error::TooLong {
                what: "answer to query",
                name: query.name.clone(),
                size,
                limit: MAX_ANSWER,
            });
        }
        self.reply(now, &query.asker, answer, rng);
        self.settle(now, rng);
        Ok(())
    }

    /// Hears a query, and says whether to pass it on.
    pub(super) fn hear_query(
        &mut self,
        now: Instant,
        query: &Query,
        rng: &mut dyn RngCore,
    ) -> bool {
        let news = self.query_clock.witness(query.ltime)
            && self
                .queries
                .hear(self.query_clock.time(), query.ltime, query.id);
        if !news {
            return false;
        }
        let pass_on = !query.is_private();
        let asker = query.addr.ip().map(|ip| Asker {
            query: QueryId {
                ltime: query.ltime,
                id: query.id,
            },
            to: Target {
                name: query.source_node.clone(),
                address: SocketAddr::new(ip, query.port),
            },
            relay_factor: query.relay_factor,
        });
        let Some(asker) = asker.filter(|_| self.is_asked(&query.filters)) else {
            return pass_on;
        };
        if query.wants_ack() {
            let ack = QueryResponse {
                flags: QueryResponse::ACK,
                ..self.answer(&asker, Blob::default())
            };
            self.reply(now, &asker, ack, rng);
        }
        match query.name.strip_prefix(INTERNAL) {
            Some(internal) => self.answer_internal(now, internal, asker, &query.payload, rng),
            None => {
                let timeout = query.timeout.to_std();
                self.outputs.push_back(Output::Query(IncomingQuery {
                    name: query.name.clone(),
                    payload: query.payload.0.clone(),
                    asker,
                    until: now.checked_add(timeout).unwrap_or(now),
                }));
            }
        }
        pass_on
    }

    fn answer_internal(
        &mut self,
        now: Instant,
        name: &str,
        asker: Asker,
        payload: &[u8],
        rng: &mut dyn RngCore,
    ) {
        match name {
            PING => {}
            CONFLICT => {
                let node = NodeName::from(String::from_utf8_lossy(payload).into_owned());
                // Who is party to the conflict has no say, and who knows nothing says nothing.
                let member = self.members.get(&node).filter(|_| node != *self.name());
                let message = member.cloned().map(Box::new);
                if let Some(message) = message.map(SerfMessage::ConflictResponse) {
                    self.reply_message(now, &asker, &message, rng);
                }
            }
            _ => self.answer_about_keys(now, name, asker, payload, rng),
        }
    }

    /// Whether we are among those who shall answer.
    fn is_asked(&self, filters: &[Blob]) -> bool {
        filters.iter().all(|filter| match Filter::decode(filter) {
            Ok(Filter::Nodes(nodes)) => nodes.contains(self.name()),
            Ok(Filter::Tag { name, pattern }) => {
                let value = self.config.tags.get(&name).unwrap_or_default();
                compiled(&pattern).is_some_and(|regex| regex.is_match(value))
            }
            Err(error) => {
                tracing::warn!("gossip: does not answer a query with an unknown filter: {error}");
                false
            }
        })
    }

    pub(super) fn answer(&self, asker: &Asker, payload: Blob) -> QueryResponse {
        QueryResponse {
            ltime: asker.query.ltime,
            id: asker.query.id,
            from: self.name().clone(),
            flags: 0,
            payload,
        }
    }

    pub(super) fn reply_message(
        &mut self,
        now: Instant,
        asker: &Asker,
        payload: &SerfMessage,
        rng: &mut dyn RngCore,
    ) {
        match payload.encode() {
            Ok(payload) => {
                let answer = self.answer(asker, payload.into());
                self.reply(now, asker, answer, rng);
            }
            Err(error) => tracing::error!("gossip: a query cannot be answered: {error}"),
        }
    }

    /// Sends an answer to who asked, and over some others.
    fn reply(&mut self, now: Instant, asker: &Asker, answer: QueryResponse, rng: &mut dyn RngCore) {
        if asker.to.name == *self.name() {
            self.take_answer(now, answer);
            return;
        }
        let message = match SerfMessage::QueryResponse(answer).encode() {
            Ok(message) if message.len() <= MAX_ANSWER => message,
            Ok(message) => {
                tracing::warn!("gossip: an answer of {} bytes is too long", message.len());
                return;
            }
            Err(error) => {
                tracing::error!("gossip: a query cannot be answered: {error}");
                return;
            }
        };
        self.swim.send_user(asker.to.clone(), &message);
        if asker.relay_factor > 0 {
            self.relay(asker, message.into(), rng);
        }
    }

    fn relay(&mut self, asker: &Asker, answer: Bytes, rng: &mut dyn RngCore) {
        let able = self.members.iter().filter(|member| {
            member.status == MemberStatus::Alive
                && member.protocol_max >= RELAY_PROTOCOL
                && member.name != *self.name()
                && member.name != asker.to.name
        });
        let able: Vec<_> = able.filter_map(target_of).collect();
        let header = RelayHeader {
            dest_addr: Endpoint {
                ip: asker.to.address.ip().into(),
                port: asker.to.address.port(),
                zone: String::new(),
            },
            dest_name: asker.to.name.clone(),
        };
        let Ok(message) = SerfMessage::Relay(header, answer).encode() else {
            return;
        };
        let chosen = able.choose_multiple(rng, asker.relay_factor.into());
        for helper in chosen {
            self.swim.send_user(helper.clone(), &message);
        }
    }

    /// Passes a message on, for somebody who is not sure that it reaches its target directly.
    pub(super) fn pass_on(&mut self, header: &RelayHeader, message: &[u8]) {
        let Some(ip) = header.dest_addr.ip.ip() else {
            return;
        };
        if message.len() > MAX_ANSWER {
            tracing::debug!(
                "gossip: a message of {} bytes is not passed on",
                message.len()
            );
            return;
        }
        let to = Target {
            name: header.dest_name.clone(),
            address: SocketAddr::new(ip, header.dest_addr.port),
        };
        self.swim.send_user(to, message);
    }
}

/// The pattern of a filter. Go's syntax is that of the crate but for details that nobody filters tags with.
fn compiled(pattern: &str) -> Option<Regex> {
    let regex = RegexBuilder::new(pattern).size_limit(MAX_PATTERN).build();
    regex
        .inspect_err(|error| tracing::warn!("gossip: a query's pattern is not valid: {error}"))
        .ok()
}

/// Where a member receives gossip.
pub(super) fn target_of(member: &crate::gossip::Member) -> Option<Target> {
    Some(Target {
        name: member.name.clone(),
        address: SocketAddr::new(member.addr.ip()?, member.port),
    })
}
