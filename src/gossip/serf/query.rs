//! Queries of ours: asked to all members, answered to us alone.

use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::time::Duration;
use std::time::Instant;

use bytes::Bytes;
use rand::RngCore;

use crate::gossip::serf::Error;
use crate::gossip::serf::Output;
use crate::gossip::serf::Serf;
use crate::gossip::serf::keys::KeyReport;
use crate::gossip::swim::UserQueue;
use crate::gossip::wire::Blob;
use crate::gossip::wire::SerfMessage;
use crate::gossip::wire::serf::Filter;
use crate::gossip::wire::serf::LamportTime;
use crate::gossip::wire::serf::Query;
use crate::gossip::wire::serf::QueryResponse;
use crate::model::NodeName;

/// Most bytes of a query as a message: serf's default of `QuerySizeLimit`.
const MAX_QUERY: usize = 1024;
/// Most queries that wait for answers.
const MAX_PENDING: usize = 1024;
/// Answers that are taken beyond one of each member: of members that we do not know yet.
const SPARE_ANSWERS: usize = 64;

/// Names a query of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueryId {
    /// Its time, by the clock of queries.
    pub ltime: LamportTime,
    /// Tells queries of one time apart.
    pub id: u32,
}

/// What to ask, and whom.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct QueryParams {
    /// What is asked. Names from `_serf_` on are serf's own.
    pub name: String,
    /// What is asked, in detail.
    pub payload: Bytes,
    /// Who should answer: all of these must hold.
    pub filters: Vec<Filter>,
    /// Whether whoever receives the query says so.
    pub ack: bool,
    /// Over how many others each answer goes too, in case the direct way fails.
    pub relay_factor: u8,
    /// For how long answers are taken; without it, as long as the pool's size demands.
    pub timeout: Option<Duration>,
}

/// A query that waits for answers.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) purpose: Purpose,
    until: Instant,
    acks: BTreeSet<NodeName>,
    answers: BTreeSet<NodeName>,
}

/// Who waits for the answers.
#[derive(Debug)]
pub(super) enum Purpose {
    Caller,
    /// We ourselves: who has our name?
    Conflict {
        answers: usize,
        for_us: usize,
    },
    /// Who has an operation on all members' keys done.
    Keys(KeyReport),
}

impl Serf {
    /// Asks all members. Answers come as [`Output::QueryAck`] and [`Output::QueryAnswer`], one of each from each member
    /// at most, and then [`Output::QueryDone`].
    ///
    /// # Errors
    /// When name, filters and payload are too long, or too many queries wait already.
    pub fn query(
        &mut self,
        now: Instant,
        params: QueryParams,
        rng: &mut dyn RngCore,
    ) -> Result<QueryId, Error> {
        let query = self.ask(now, params, Purpose::Caller, rng);
        self.settle(now, rng);
        query
    }

    /// Takes no more answers to a query, which is not done then.
    pub fn cancel_query(&mut self, query: QueryId) {
        self.pending.remove(&query);
    }

    /// For how long a query waits whose caller does not say.
    pub fn query_timeout(&self) -> Duration {
        let digits = (self.living() as f64 + 1.0).log10().ceil() as u32;
        let mult = self.config.timing.query_timeout_mult;
        let interval = self.swim.config().timing.gossip_interval;
        interval.saturating_mul(mult.saturating_mul(digits))
    }

    pub(super) fn ask(
        &mut self,
        now: Instant,
        params: QueryParams,
        purpose: Purpose,
        rng: &mut dyn RngCore,
    ) -> Result<QueryId, Error> {
        if self.pending.len() >= MAX_PENDING {
            return Err(Error::Busy(MAX_PENDING));
        }
        let timeout = params.timeout.unwrap_or_else(|| self.query_timeout());
        let id = QueryId {
            ltime: self.query_clock.time(),
            id: rng.next_u32() >> 1, // Go peers draw positive numbers.
        };
        let (query, message) = self.query_message(id, params, timeout)?;
        let pending = Pending {
            purpose,
            until: now.checked_add(timeout).unwrap_or(now),
            acks: BTreeSet::new(),
            answers: BTreeSet::new(),
        };
        self.pending.insert(id, pending);
        self.broadcast(UserQueue::Queries, &message, None);
        self.hear_query(now, &query, rng);
        Ok(id)
    }

    fn query_message(
        &self,
        id: QueryId,
        params: QueryParams,
        timeout: Duration,
    ) -> Result<(Query, Vec<u8>), Error> {
        let filters: Result<_, _> = params.filters.iter().map(Filter::encode).collect();
        let address = self.swim.config().advertise;
        let query = Query {
            ltime: id.ltime,
            id: id.id,
            addr: address.ip().into(),
            port: address.port(),
            source_node: self.name().clone(),
            filters: filters?,
            flags: if params.ack { Query::ACK } else { 0 },
            relay_factor: params.relay_factor,
            timeout: timeout.into(),
            name: params.name,
            payload: Blob(params.payload),
        };
        let message = SerfMessage::Query(query.clone()).encode()?;
        if message.len() > MAX_QUERY {
            return Err(Error::TooLong {
                what: "query",
                name: query.name,
                size: message.len(),
                limit: MAX_QUERY,
            });
        }
        Ok((query, message))
    }

    /// Takes an answer to a query of ours.
    pub(super) fn take_answer(&mut self, now: Instant, answer: QueryResponse) {
        let query = QueryId {
            ltime: answer.ltime,
            id: answer.id,
        };
        let most = self.members.len() + SPARE_ANSWERS;
        let Some(pending) = self.pending.get_mut(&query).filter(|p| now < p.until) else {
            tracing::debug!("gossip: {} answers a query too late", answer.from);
            return;
        };
        let (from, payload) = (answer.from.clone(), answer.payload.0.clone());
        let heard = match answer.is_ack() {
            true => &mut pending.acks,
            false => &mut pending.answers,
        };
        if heard.len() >= most || !heard.insert(answer.from.clone()) {
            return; // The same one again, over another way.
        }
        if answer.is_ack() {
            self.outputs.push_back(Output::QueryAck { query, from });
            return;
        }
        let done = match &mut pending.purpose {
            Purpose::Caller => {
                let answer = Output::QueryAnswer {
                    query,
                    from,
                    payload,
                };
                self.outputs.push_back(answer);
                false
            }
            Purpose::Conflict { answers, for_us } => {
                let address = self.swim.config().advertise;
                if let Ok(SerfMessage::ConflictResponse(member)) = SerfMessage::decode(&payload) {
                    *answers += 1;
                    let same = member.addr.ip() == Some(address.ip().to_canonical());
                    *for_us += usize::from(same && member.port == address.port());
                }
                false
            }
            Purpose::Keys(report) => {
                report.count(from, &payload);
                report.is_complete()
            }
        };
        if done {
            self.finish_query(query);
        }
    }

    pub(super) fn query_deadline(&self) -> Option<Instant> {
        self.pending.values().map(|pending| pending.until).min()
    }

    pub(super) fn expire_queries(&mut self, now: Instant) {
        let over = self.pending.iter().filter(|(_, p)| now >= p.until);
        let over: Vec<QueryId> = over.map(|(id, _)| *id).collect();
        for query in over {
            self.finish_query(query);
        }
    }

    fn finish_query(&mut self, query: QueryId) {
        let Some(pending) = self.pending.remove(&query) else {
            return;
        };
        match pending.purpose {
            Purpose::Caller => self.outputs.push_back(Output::QueryDone { query }),
            Purpose::Keys(report) => self.outputs.push_back(Output::KeyReport { query, report }),
            Purpose::Conflict { answers, for_us } => self.decide_conflict(answers, for_us),
        }
    }
}

/// Queries that wait for answers.
pub(super) type PendingQueries = BTreeMap<QueryId, Pending>;
