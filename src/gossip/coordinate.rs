//! Vivaldi network coordinates as they travel in the acknowledgements of probes.

mod client;

use crate::codec;
use crate::gossip::wire::Error;

pub use crate::model::coordinate::Coordinate;
pub use crate::model::coordinate::DIMENSIONS;
pub(crate) use crate::model::coordinate::MIN_HEIGHT;
pub(crate) use crate::model::coordinate::START_ERROR;
pub(crate) use crate::model::coordinate::difference;
pub(crate) use crate::model::coordinate::magnitude;
pub use client::Client;
pub use client::Rejected;

/// Version of the payload that serf puts into acknowledgements.
const PING_VERSION: u8 = 1;

impl Coordinate {
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
