//! Finds the own place from round-trip times: the Vivaldi algorithm with serf's additions (heights, an adjustment that
//! no place can express, and gravity that keeps the whole pool near the origin).

use std::collections::BTreeMap;
use std::collections::VecDeque;
use std::time::Duration;

use rand::Rng;
use rand::RngCore;

use crate::gossip::Coordinate;
use crate::gossip::coordinate::DIMENSIONS;
use crate::gossip::coordinate::MIN_HEIGHT;
use crate::gossip::coordinate::START_ERROR;
use crate::gossip::coordinate::difference;
use crate::gossip::coordinate::magnitude;
use crate::model::NodeName;

/// How fast the error moves: `VivaldiCE`.
const ERROR_RATE: f64 = 0.25;
/// How fast the place moves: `VivaldiCC`.
const MOVE_RATE: f64 = 0.25;
/// Deviations that the adjustment is the average of: `AdjustmentWindowSize`.
const ADJUSTMENT_WINDOW: usize = 20;
/// Round trips to one node that the median is taken of: `LatencyFilterSize`.
const LATENCY_FILTER: usize = 3;
/// Distance from the origin, in seconds, at which gravity is 1: `GravityRho`.
const GRAVITY_RHO: f64 = 150.0;
/// Less than this, in seconds, counts as nothing.
const ZERO: f64 = 1.0e-6;
/// Longer round trips say nothing about distance.
const MAX_RTT: Duration = Duration::from_secs(10);

/// Why a measurement does not count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Rejected {
    /// The other's coordinate cannot be computed with.
    #[error("gossip: a coordinate has other than 8 dimensions, or a number that is not finite")]
    Coordinate,
    /// The round trip took so long that something else than distance caused it.
    #[error("gossip: a round trip of {0:?} is more than {MAX_RTT:?}")]
    Rtt(Duration),
}

/// Keeps the own coordinate.
#[derive(Debug, Default)]
pub struct Client {
    own: Coordinate,
    deviations: VecDeque<f64>,
    latencies: BTreeMap<NodeName, VecDeque<f64>>,
    resets: u64,
}

impl Client {
    /// Where we are.
    pub fn coordinate(&self) -> &Coordinate {
        &self.own
    }

    /// How often the own coordinate had to start anew because it was no longer finite.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Learns from a round trip to `node`, which is at `other`.
    ///
    /// # Errors
    /// When the measurement does not count; nothing has changed then.
    pub fn update(
        &mut self,
        node: &NodeName,
        other: &Coordinate,
        rtt: Duration,
        rng: &mut dyn RngCore,
    ) -> Result<(), Rejected> {
        if !other.is_valid() {
            return Err(Rejected::Coordinate);
        }
        if rtt > MAX_RTT {
            return Err(Rejected::Rtt(rtt));
        }
        let rtt = self.filtered(node, rtt.as_secs_f64()).max(ZERO);
        self.pull(other, rtt, rng);
        self.adjust(other, rtt);
        self.fall(rng);
        if !self.own.is_valid() {
            self.own = Coordinate::default();
            self.resets += 1;
        }
        Ok(())
    }

    /// Forgets the round trips to a node that is gone.
    pub fn forget(&mut self, node: &NodeName) {
        self.latencies.remove(node);
    }

    /// The median of the latest round trips, which single delays do not move.
    fn filtered(&mut self, node: &NodeName, rtt: f64) -> f64 {
        let latest = self.latencies.entry(node.clone()).or_default();
        latest.push_back(rtt);
        if latest.len() > LATENCY_FILTER {
            latest.pop_front();
        }
        let mut sorted: Vec<f64> = latest.iter().copied().collect();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(rtt)
    }

    /// A spring between the two places, as strong as their distance is wrong, weighted by whose error is larger.
    fn pull(&mut self, other: &Coordinate, rtt: f64, rng: &mut dyn RngCore) {
        let distance = self.own.distance(other).as_secs_f64();
        let wrong = (distance - rtt).abs() / rtt;
        let weight = self.own.error / (self.own.error + other.error.max(0.0)).max(ZERO);
        let rate = ERROR_RATE * weight;
        self.own.error = (rate * wrong + self.own.error * (1.0 - rate)).min(START_ERROR);
        push(
            &mut self.own,
            other,
            MOVE_RATE * weight * (rtt - distance),
            rng,
        );
    }

    /// What is left over on average, half of it ours.
    fn adjust(&mut self, other: &Coordinate, rtt: f64) {
        self.deviations
            .push_back(rtt - self.own.raw_distance(other));
        if self.deviations.len() > ADJUSTMENT_WINDOW {
            self.deviations.pop_front();
        }
        let sum: f64 = self.deviations.iter().sum();
        self.own.adjustment = sum / (2.0 * ADJUSTMENT_WINDOW as f64);
    }

    /// Gravity: without it, the whole pool drifts.
    fn fall(&mut self, rng: &mut dyn RngCore) {
        let origin = Coordinate::default();
        let distance = origin.distance(&self.own).as_secs_f64();
        push(
            &mut self.own,
            &origin,
            -(distance / GRAVITY_RHO).powi(2),
            rng,
        );
    }
}

/// Pushes `own` away from `other`, or towards it if the force is negative.
fn push(own: &mut Coordinate, other: &Coordinate, force: f64, rng: &mut dyn RngCore) {
    let mut away = difference(&own.vec, &other.vec);
    let distance = magnitude(&away);
    let apart = distance > ZERO;
    if !apart {
        // One place for both: any direction will do.
        away = (0..DIMENSIONS)
            .map(|_| rng.random_range(-0.5..0.5))
            .collect();
    }
    let scale = force / magnitude(&away).max(ZERO);
    for (place, direction) in own.vec.iter_mut().zip(&away) {
        *place += direction * scale;
    }
    if apart {
        own.height += (own.height + other.height) * force / distance;
        own.height = own.height.max(MIN_HEIGHT);
    }
}

#[cfg(test)]
mod tests;
