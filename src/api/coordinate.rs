//! Where nodes are in the network: agents tell, and who asks gets rows sorted by distance.
//!
//! ```text
//!   Coordinate.Update --> staged, the newest of each node --a while later--> few log entries
//! ```
//!
//! Places change all the time and none of them matters much, so updates are collected on the server that gets them and
//! written together; too many at a time are dropped, as their nodes will tell again.

use crate::api::Api;
use crate::api::error::Error;
use crate::api::read::Answer;
use crate::model::coordinate::DIMENSIONS;
use crate::model::query::{
    CoordinateUpdateRequest, DcSpecificRequest, NodeCoordinate, NodeSpecificRequest,
};
use crate::model::{Coordinate, NodeName};
use crate::store::{Command, State, Topic};
use parking_lot::Mutex;
use rand::Rng;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// Updates in one log entry, and entries per period.
const BATCH: (usize, usize) = (128, 5);

/// All agents together send about so many updates per second; none sends more often than every 15 seconds.
const RATE: f64 = 64.0;
const LEAST_INTERVAL: Duration = Duration::from_secs(15);

/// Updates that wait to be written.
#[derive(Default)]
pub(crate) struct Staged(Mutex<BTreeMap<(NodeName, String), Coordinate>>);

/// Coordinates in order of node and segment.
pub type Coordinates = Vec<Arc<NodeCoordinate>>;

impl Api {
    /// Takes a node's place. It is written with others some seconds later.
    ///
    /// # Errors
    /// A place that cannot be computed with, or no path to the datacenter.
    pub fn update_coordinate(&self, request: CoordinateUpdateRequest) -> Result<(), Error> {
        self.reach_datacenter(&request.datacenter)?;
        let coord = request.coord.unwrap_or_default();
        if coord.vec.len() != DIMENSIONS {
            return Err(Error::refused("incompatible coordinate"));
        }
        if !coord.is_valid() {
            return Err(Error::refused("invalid coordinate"));
        }
        let (node, segment) = (request.node, request.segment);
        let mut staged = self.inner.staged.0.lock();
        let is_first = staged.is_empty();
        if staged.len() < BATCH.0 * BATCH.1 || staged.contains_key(&(node.clone(), segment.clone()))
        {
            staged.insert((node, segment), coord);
        } else {
            metrics::counter!("consul.coordinate.discarded").increment(1);
        }
        if is_first {
            let api = self.clone();
            tokio::spawn(async move {
                sleep(api.settings().coordinate_period).await;
                api.write_coordinates().await;
            });
        }
        Ok(())
    }

    async fn write_coordinates(&self) {
        let staged = mem::take(&mut *self.inner.staged.0.lock());
        let rows = staged
            .into_iter()
            .map(|((node, segment), coord)| NodeCoordinate {
                node,
                segment,
                coord,
            });
        let rows: Vec<_> = rows.collect();
        for batch in rows.chunks(BATCH.0) {
            let command = Command::Coordinates(batch.to_vec());
            if let Err(error) = self.consensus().propose(command).await {
                // Each node tells its place again soon.
                tracing::debug!(%error, dropped = batch.len(), "coordinates not written");
            }
        }
    }

    /// The coordinates of all nodes.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn coordinates(
        &self,
        request: &DcSpecificRequest,
    ) -> Result<Answer<Coordinates>, Error> {
        let topics = vec![Topic::Coordinates];
        self.read(request, topics, State::coordinates_index, |state| {
            state.coordinates().cloned().collect()
        })
        .await
    }

    /// The coordinates of one node, one per network segment.
    ///
    /// # Errors
    /// No path to the datacenter, or no leader.
    pub async fn coordinates_of(
        &self,
        request: &NodeSpecificRequest,
    ) -> Result<Answer<Coordinates>, Error> {
        let node = request.node.clone();
        let topics = vec![Topic::Coordinates];
        self.read(request, topics, State::coordinates_index, move |state| {
            state.coordinates_of(node.as_str())
        })
        .await
    }
}

impl Api {
    /// Adds what this server's gossip knows of nodes that have not told their place yet.
    pub fn add_places(&self, rows: &mut Coordinates, wanted: impl Fn(&NodeName) -> bool) {
        // A server without an agent has no gossip.
        for place in self.places().unwrap_or_default() {
            if wanted(&place.node) && rows.iter().all(|row| row.node != place.node) {
                rows.push(Arc::new(NodeCoordinate {
                    node: place.node,
                    coord: place.coord,
                    ..NodeCoordinate::default()
                }));
            }
        }
        rows.sort_by(|a, b| (&a.node, &a.segment).cmp(&(&b.node, &b.segment)));
    }
}

/// Tells this server's own place again and again until `stop`: the larger the pool of `members`, the more seldom.
pub async fn publish(
    api: Api,
    own: impl Fn() -> Coordinate,
    members: impl Fn() -> usize,
    stop: CancellationToken,
) {
    loop {
        let pause = interval(members(), rand::rng().random_range(0.0..1.0));
        tokio::select! {
            () = sleep(pause) => {}
            () = stop.cancelled() => return,
        }
        let request = CoordinateUpdateRequest {
            node: api.settings().node.clone(),
            coord: Some(own()),
            ..CoordinateUpdateRequest::default()
        };
        if let Err(error) = api.update_coordinate(request) {
            tracing::debug!(%error, "the own coordinate was not taken");
        }
    }
}

/// How long an agent in a pool of `members` waits until it tells its place again (`jitter` in 0..1).
pub fn interval(members: usize, jitter: f64) -> Duration {
    let members = u32::try_from(members).unwrap_or(u32::MAX);
    let least = Duration::from_secs_f64(f64::from(members) / RATE).max(LEAST_INTERVAL);
    least + least.mul_f64(jitter.clamp(0.0, 1.0))
}

/// Sorts rows by the distance of their node from `near`, that node itself first; nodes whose place is not known come
/// last. Rows of equal distance stay in order.
pub(crate) fn nearest_first<T>(
    state: &State,
    rows: &mut [T],
    near: &str,
    node: impl Fn(&T) -> &str,
) {
    if near.is_empty() {
        return;
    }
    let from = state.coordinates_of(near);
    rows.sort_by_cached_key(|row| {
        let name = node(row);
        let there = state.coordinates_of(name);
        (
            !name.eq_ignore_ascii_case(near),
            distance(&from, &there).unwrap_or(Duration::MAX),
        )
    });
}

/// The distance in the first segment in which both are.
fn distance(from: &Coordinates, to: &Coordinates) -> Option<Duration> {
    from.iter().find_map(|from| {
        let to = to.iter().find(|to| to.segment == from.segment)?;
        Some(from.coord.distance(&to.coord))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::query::RegisterRequest;

    #[test]
    fn rows_are_sorted_by_distance() {
        let mut state = State::default();
        let nodes = ["a", "b", "c", "d", "x"];
        for (n, node) in nodes.into_iter().enumerate() {
            let request = RegisterRequest {
                node: node.into(),
                address: "10.0.0.1".to_owned(),
                ..RegisterRequest::default()
            };
            state.apply(1 + n as u64, &Command::Register(Box::new(request)));
        }
        let place = |node: &str, at: f64| NodeCoordinate {
            node: node.into(),
            coord: Coordinate {
                vec: vec![at, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0],
                ..Coordinate::default()
            },
            ..NodeCoordinate::default()
        };
        let rows = vec![
            place("a", 0.3),
            place("b", 0.1),
            place("c", 0.2),
            place("d", 0.0),
        ];
        state.apply(10, &Command::Coordinates(rows));
        let sorted = |near: &str| {
            let mut rows = nodes.to_vec();
            nearest_first(&state, &mut rows, near, |row| row);
            rows.concat()
        };
        assert_eq!(sorted("d"), "dbcax");
        assert_eq!(sorted("A"), "acbdx");
        assert_eq!(sorted("x"), "xabcd", "its place is not known");
        assert_eq!(sorted(""), "abcdx");
    }

    #[test]
    fn large_pools_tell_more_seldom() {
        assert_eq!(interval(3, 0.0), Duration::from_secs(15));
        assert_eq!(interval(6400, 0.0), Duration::from_secs(100));
        assert_eq!(interval(6400, 1.0), Duration::from_secs(200));
    }
}
