//! Vivaldi network coordinates as they travel in the acknowledgements of probes.

mod client;

use std::time::Duration;

use serde::Deserialize;
use serde::Serialize;

use crate::codec;
use crate::gossip::wire::Error;

pub use client::Client;
pub use client::Rejected;

/// Dimensions of the Euclidean part that serf computes with.
pub const DIMENSIONS: usize = 8;

/// The error that a node starts with, which is also the largest one: `VivaldiErrorMax`.
const START_ERROR: f64 = 1.5;
/// The least height, in seconds: `HeightMin`.
const MIN_HEIGHT: f64 = 1.0e-5;
/// The longest distance that is computed with; what is farther is as good as unreachable.
const MAX_DISTANCE: f64 = 1.0e9;

/// Version of the payload that serf puts into acknowledgements.
const PING_VERSION: u8 = 1;

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
    fn raw_distance(&self, other: &Self) -> f64 {
        magnitude(&difference(&self.vec, &other.vec)) + self.height + other.height
    }

    /// The payload of an acknowledgement.
    ///
    /// # Errors
    /// None that a coordinate can cause; the signature is that of the codec.
    pub fn to_ack_payload(&self) -> Result<Vec<u8>, Error> {
        let mut out = vec![PING_VERSION];
        codec::append(&mut out, self)?;
        Ok(out)
    }

    /// Reads the payload of an acknowledgement; `None` when it has none, as from a node whose coordinates are off.
    ///
    /// # Errors
    /// When it has an unknown version, is no coordinate, or one that is not [valid](Self::is_valid).
    pub fn from_ack_payload(payload: &[u8]) -> Result<Option<Self>, Error> {
        let Some((version, mut body)) = payload.split_first() else {
            return Ok(None);
        };
        if *version != PING_VERSION {
            return Err(Error::Kind(*version));
        }
        let coordinate: Self = codec::take(&mut body)?;
        if coordinate.is_valid() {
            Ok(Some(coordinate))
        } else {
            Err(Error::Coordinate)
        }
    }
}

fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

fn magnitude(vec: &[f64]) -> f64 {
    vec.iter().map(|n| n * n).sum::<f64>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_coordinate_comes_back_from_its_payload() {
        let payload = Coordinate::default().to_ack_payload().unwrap();
        let read = Coordinate::from_ack_payload(&payload).unwrap();
        assert_eq!(read, Some(Coordinate::default()));
        assert_eq!(Coordinate::from_ack_payload(&[]), Ok(None));
    }

    #[test]
    fn coordinates_that_cannot_be_computed_with_are_refused() {
        let infinite = Coordinate {
            height: f64::INFINITY,
            ..Coordinate::default()
        };
        let flat = Coordinate {
            vec: vec![0.0; 2],
            ..Coordinate::default()
        };
        for bad in [infinite, flat] {
            let payload = bad.to_ack_payload().unwrap();
            assert_eq!(
                Coordinate::from_ack_payload(&payload),
                Err(Error::Coordinate)
            );
        }
        assert_eq!(Coordinate::from_ack_payload(&[2]), Err(Error::Kind(2)));
    }
}
