//! serf's snapshot (`serf/local.snapshot`): whom to join again after a restart, and where the clocks stood.
//!
//! A text file that grows line by line. The last line about something counts, and `leave` takes back all before it:
//!
//! ```text
//! alive: node-a 10.0.0.1:8301
//! clock: 12
//! event-clock: 3
//! query-clock: 1
//! not-alive: node-a
//! leave
//! ```
//!
//! The shell keeps the file, this module its content. A line that makes no sense is skipped and counted: a damaged file
//! costs what it says, never the start.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;

use rand::RngCore;
use rand::seq::SliceRandom;

use crate::gossip::Target;
use crate::gossip::serf::clock::is_believed;
use crate::gossip::wire::fields::MAX_ENTRIES;
use crate::gossip::wire::serf::LamportTime;
use crate::model::NodeName;

/// Bytes below which the file is left alone: serf's `SnapshotMinCompactSize`.
const MIN_COMPACT: usize = 128 * 1024;
/// Bytes that a node takes, roughly.
const BYTES_PER_NODE: usize = 128;
/// How many times larger than necessary the file may be.
const SLACK: usize = 2;
/// Longer lines are damage.
const MAX_LINE: usize = 4096;

/// One line of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line {
    /// A member lives.
    Alive(NodeName, SocketAddr),
    /// A member has failed or left.
    NotAlive(NodeName),
    /// The last time of the clock of members.
    Clock(LamportTime),
    /// The last time of the clock of events.
    EventClock(LamportTime),
    /// The last time of the clock of queries.
    QueryClock(LamportTime),
    /// This agent left the pool.
    Leave,
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alive(name, address) => write!(f, "alive: {name} {address}"),
            Self::NotAlive(name) => write!(f, "not-alive: {name}"),
            Self::Clock(time) => write!(f, "clock: {time}"),
            Self::EventClock(time) => write!(f, "event-clock: {time}"),
            Self::QueryClock(time) => write!(f, "query-clock: {time}"),
            Self::Leave => f.write_str("leave"),
        }
    }
}

impl Line {
    /// Reads a line without its end; `None` when it makes no sense.
    fn read(line: &str) -> Option<Self> {
        if line == "leave" {
            return Some(Self::Leave);
        }
        let (key, value) = line.split_once(": ")?;
        match key {
            "alive" => {
                let (name, address) = value.rsplit_once(' ')?;
                Some(Self::Alive(name.into(), address.parse().ok()?))
            }
            "not-alive" => Some(Self::NotAlive(value.into())),
            "clock" => value.parse().ok().map(Self::Clock),
            "event-clock" => value.parse().ok().map(Self::EventClock),
            "query-clock" => value.parse().ok().map(Self::QueryClock),
            _ => None,
        }
    }

    /// Whether it would be read as what it is, and can be true: names come from others, and may hold anything.
    fn is_safe(&self) -> bool {
        match self {
            Self::Alive(name, _) | Self::NotAlive(name) => {
                !name.as_str().contains(char::is_control) && name.as_str().len() < MAX_LINE / 2
            }
            Self::Clock(time) | Self::EventClock(time) | Self::QueryClock(time) => {
                is_believed(*time)
            }
            Self::Leave => true,
        }
    }
}

/// What a snapshot says as a whole.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Who lived at the end.
    pub alive: BTreeMap<NodeName, SocketAddr>,
    /// The last time of the clock of members.
    pub clock: LamportTime,
    /// The last time of the clock of events.
    pub event_clock: LamportTime,
    /// The last time of the clock of queries.
    pub query_clock: LamportTime,
    /// Lines that were skipped.
    pub skipped: usize,
    /// Bytes of the file.
    size: usize,
    /// Whether the file must be written anew before lines can be appended.
    damaged: bool,
}

impl Snapshot {
    /// Reads a file. Unless it `rejoins_after_leave`, an agent that left knows nobody and no time.
    pub fn read(file: &[u8], rejoins_after_leave: bool) -> Self {
        let mut snapshot = Self {
            size: file.len(),
            damaged: !file.is_empty() && !file.ends_with(b"\n"),
            ..Self::default()
        };
        for line in file.split_inclusive(|byte| *byte == b'\n') {
            let Some(line) = line.strip_suffix(b"\n") else {
                snapshot.skipped += 1; // Half a line: the last write did not get through.
                break;
            };
            let text = std::str::from_utf8(line).ok();
            let text = text.filter(|text| text.len() <= MAX_LINE);
            let read = text.and_then(Line::read).filter(Line::is_safe);
            match read {
                Some(Line::Leave) if rejoins_after_leave => {}
                Some(line) => snapshot.take(line),
                None if text.is_some_and(is_silent) => {}
                None => snapshot.skipped += 1,
            }
        }
        snapshot
    }

    /// Whom to join again, in a random order, so that not all nodes of a pool turn to the same one.
    pub fn rejoin(&self, own: &NodeName, rng: &mut dyn RngCore) -> Vec<Target> {
        let others = self.alive.iter().filter(|(name, _)| *name != own);
        let mut targets: Vec<_> = others
            .map(|(name, address)| Target {
                name: name.clone(),
                address: *address,
            })
            .collect();
        targets.shuffle(rng);
        targets
    }

    fn take(&mut self, line: Line) {
        match line {
            Line::Alive(name, address) => {
                if self.alive.len() < MAX_ENTRIES || self.alive.contains_key(&name) {
                    self.alive.insert(name, address);
                }
            }
            Line::NotAlive(name) => {
                self.alive.remove(&name);
            }
            Line::Clock(time) => self.clock = time,
            Line::EventClock(time) => self.event_clock = time,
            Line::QueryClock(time) => self.query_clock = time,
            Line::Leave => {
                let (skipped, size, damaged) = (self.skipped, self.size, self.damaged);
                *self = Self {
                    skipped,
                    size,
                    damaged,
                    ..Self::default()
                };
            }
        }
    }

    fn lines(&self) -> impl Iterator<Item = Line> {
        let alive = self.alive.iter();
        let alive = alive.map(|(name, address)| Line::Alive(name.clone(), *address));
        alive.chain([
            Line::Clock(self.clock),
            Line::EventClock(self.event_clock),
            Line::QueryClock(self.query_clock),
        ])
    }
}

/// Lines that say nothing on purpose: comments, and coordinates, which early versions kept.
fn is_silent(line: &str) -> bool {
    line.is_empty() || line.starts_with('#') || line.starts_with("coordinate: ")
}

/// What the shell has to do with the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Write {
    /// Add this to its end.
    Append(String),
    /// Put this in its place, in one step (write another file, sync it, rename it). serf's file has grown too long.
    Replace(String),
}

/// Keeps the file up to date.
#[derive(Debug)]
pub(super) struct Recorder {
    content: Snapshot,
    rejoins_after_leave: bool,
    /// After `leave`, nothing is recorded: members who vanish then vanish for us alone.
    left: bool,
}

impl Recorder {
    pub(super) fn new(previous: Snapshot, rejoins_after_leave: bool) -> Self {
        Self {
            content: previous,
            rejoins_after_leave,
            left: false,
        }
    }

    /// Records a line, if it says something new.
    pub(super) fn record(&mut self, line: Line) -> Option<Write> {
        if self.left || !line.is_safe() || !self.is_news(&line) {
            return None;
        }
        let mut text = line.to_string();
        text.push('\n');
        self.left = line == Line::Leave;
        if !(self.left && self.rejoins_after_leave) {
            self.content.take(line);
        }
        if self.content.damaged || self.content.size + text.len() > self.max_size() {
            return Some(Write::Replace(self.compact(&text)));
        }
        self.content.size += text.len();
        Some(Write::Append(text))
    }

    fn is_news(&self, line: &Line) -> bool {
        let content = &self.content;
        match line {
            Line::Alive(name, address) => content.alive.get(name) != Some(address),
            Line::NotAlive(name) => content.alive.contains_key(name),
            Line::Clock(time) => *time > content.clock,
            Line::EventClock(time) => *time > content.event_clock,
            Line::QueryClock(time) => *time > content.query_clock,
            Line::Leave => true,
        }
    }

    fn max_size(&self) -> usize {
        let estimate = self.content.alive.len() * BYTES_PER_NODE * SLACK;
        estimate.max(MIN_COMPACT)
    }

    /// The whole file. A `leave` must still stand in it, as the last line.
    fn compact(&mut self, last: &str) -> String {
        let mut file: String = self
            .content
            .lines()
            .map(|line| format!("{line}\n"))
            .collect();
        if self.left {
            file.push_str(last);
        }
        self.content.size = file.len();
        self.content.damaged = false;
        file
    }
}

#[cfg(test)]
mod tests;
