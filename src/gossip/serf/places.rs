//! Where members are in the network: what probes teach.

use std::time::Duration;

use rand::RngCore;

use crate::gossip::Coordinate;
use crate::gossip::serf::Serf;
use crate::gossip::swim::Node;
use crate::model::NodeName;

impl Serf {
    /// Where we are in the network.
    pub fn coordinate(&self) -> &Coordinate {
        self.vivaldi.coordinate()
    }

    /// Where a member is, as it said when it last answered our probe; we ourselves, too.
    pub fn coordinate_of(&self, name: &NodeName) -> Option<&Coordinate> {
        match name == self.name() {
            true => Some(self.coordinate()),
            false => self.coordinates.get(name),
        }
    }

    /// Learns from a round trip where we are.
    pub(super) fn learn(
        &mut self,
        node: &Node,
        rtt: Duration,
        payload: &[u8],
        rng: &mut dyn RngCore,
    ) {
        if !self.config.coordinates {
            return;
        }
        let other = match Coordinate::from_ack_payload(payload) {
            Ok(Some(other)) => other,
            Ok(None) => return, // It keeps no coordinates.
            Err(error) => {
                tracing::warn!(
                    "gossip: the coordinate of {} is ignored: {error}",
                    node.name
                );
                return;
            }
        };
        match self.vivaldi.update(&node.name, &other, rtt, rng) {
            Ok(()) => {
                self.coordinates.insert(node.name.clone(), other);
                self.publish_coordinate();
            }
            Err(error) => tracing::warn!("gossip: {} is ignored: {error}", node.name),
        }
    }

    /// From now on, answers to probes carry our coordinate.
    pub(super) fn publish_coordinate(&mut self) {
        if !self.config.coordinates {
            return;
        }
        match self.vivaldi.coordinate().to_ack_payload() {
            Ok(payload) => self.swim.set_ack_payload(payload.into()),
            Err(error) => tracing::error!("gossip: the coordinate cannot be sent: {error}"),
        }
    }
}
