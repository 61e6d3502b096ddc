//! Vivaldi network coordinates: where a node is, in terms of round-trip times.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Dimensions of the Euclidean part that serf computes with.
pub const DIMENSIONS: usize = 8;

/// The error that a node starts with, which is also the largest one: `VivaldiErrorMax`.
pub(crate) const START_ERROR: f64 = 1.5;
/// The least height, in seconds: `HeightMin`.
pub(crate) const MIN_HEIGHT: f64 = 1.0e-5;
/// The longest distance that is computed with; what is farther is as good as unreachable.
const MAX_DISTANCE: f64 = 1.0e9;

/// A node's place in the network. The distance of two places, plus both heights, is the round-trip time in seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Coordinate {
    /// The Euclidean part, in seconds per axis.
    pub vec: Vec<f64>,
    /// How little the place is trusted: 0 is exact, 1.5 is where a node starts.
    pub error: f64,
    /// Offset in seconds from the average of recent deviations.
    pub adjustment: f64,
    /// Seconds of the access link, which no Euclidean place can show; at least 10 µs.
    pub height: f64,
}

impl Default for Coordinate {
    /// Where a node starts.
    fn default() -> Self {
        Self {
            vec: vec![0.0; DIMENSIONS],
            error: START_ERROR,
            adjustment: 0.0,
            height: MIN_HEIGHT,
        }
    }
}

impl Coordinate {
    /// Whether it has [`DIMENSIONS`] and only finite numbers; others must not be computed with.
    pub fn is_valid(&self) -> bool {
        let rest = [self.error, self.adjustment, self.height];
        self.vec.len() == DIMENSIONS && self.vec.iter().chain(&rest).all(|n| n.is_finite())
    }

    /// The round-trip time from here to `other`, as far as the coordinates can tell: at most 30 years, and zero if one
    /// of them is not [valid](Self::is_valid).
    pub fn distance(&self, other: &Self) -> Duration {
        let raw = self.raw_distance(other);
        let adjusted = raw + self.adjustment + other.adjustment;
        let seconds = if adjusted > 0.0 { adjusted } else { raw };
        Duration::try_from_secs_f64(seconds.min(MAX_DISTANCE)).unwrap_or_default()
    }

    /// The round-trip time in seconds without the adjustments.
    pub(crate) fn raw_distance(&self, other: &Self) -> f64 {
        magnitude(&difference(&self.vec, &other.vec)) + self.height + other.height
    }
}

pub(crate) fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

pub(crate) fn magnitude(vec: &[f64]) -> f64 {
    vec.iter().map(|n| n * n).sum::<f64>().sqrt()
}
