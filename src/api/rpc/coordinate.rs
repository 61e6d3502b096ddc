//! The methods of coordinates.

use crate::api::Api;
use crate::api::rpc::{Nothing, Reply, decode, encode, read, unknown};
use crate::model::query::{
    CoordinateUpdateRequest, DcSpecificRequest, IndexedCoordinates, NodeSpecificRequest,
};

impl Api {
    pub(super) async fn rpc_coordinate(&self, method: &str, body: &[u8]) -> Reply {
        match method {
            "Coordinate.Update" => {
                self.update_coordinate(decode::<CoordinateUpdateRequest>(body)?)?;
                encode(&Nothing {})
            }
            "Coordinate.ListNodes" => read!(
                self,
                body,
                DcSpecificRequest,
                coordinates,
                IndexedCoordinates { coordinates }
            ),
            "Coordinate.Node" => read!(
                self,
                body,
                NodeSpecificRequest,
                coordinates_of,
                IndexedCoordinates { coordinates }
            ),
            _ => unknown(method),
        }
    }
}
