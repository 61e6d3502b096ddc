//! What the whole state of another node means.

use std::ops::RangeInclusive;
use std::time::Instant;

use rand::RngCore;

use crate::gossip::swim::Node;
use crate::gossip::swim::Swim;
use crate::gossip::wire::Versions;
use crate::gossip::wire::message::Accusation;
use crate::gossip::wire::message::Alive;
use crate::gossip::wire::stream::NodeState;
use crate::gossip::wire::stream::PushNodeState;
use crate::model::NodeName;

/// Why the state of another node does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MergeError {
    /// A node speaks a protocol that others do not understand.
    #[error(
        "gossip: node '{node}' speaks {layer} protocol {version}, but the pool needs one of {min} to {max}: \
         set its protocol to one of these, or upgrade the others first"
    )]
    Protocol {
        /// The node.
        node: NodeName,
        /// Whose protocol: memberlist's or serf's.
        layer: &'static str,
        /// What it speaks.
        version: u8,
        /// The least that all understand.
        min: u8,
        /// The most that all understand.
        max: u8,
    },
    /// The [filter](crate::gossip::swim::Filter) refuses the nodes.
    #[error("gossip: the pools may not merge: {0}")]
    Refused(String),
}

impl Swim {
    /// All that we know, for a push/pull.
    pub fn local_state(&self) -> Vec<PushNodeState> {
        let states = self.members.iter().map(|record| PushNodeState {
            name: record.node.name.clone(),
            addr: record.node.addr,
            port: record.node.port,
            meta: record.node.meta.clone(),
            incarnation: record.incarnation,
            state: record.node.state,
            vsn: record.node.versions,
        });
        states.collect()
    }

    /// Takes what another node sent in a push/pull. With `join`, the two pools meet for the first time, and the filter
    /// decides about all nodes together.
    ///
    /// # Errors
    /// When a node speaks a protocol that others do not understand, or the filter refuses. Nothing has changed then, and
    /// the state of the layer above must not count either.
    pub fn merge_remote_state(
        &mut self,
        now: Instant,
        join: bool,
        remote: &[PushNodeState],
        rng: &mut dyn RngCore,
    ) -> Result<(), MergeError> {
        self.check_protocols(remote)?;
        if let Some(filter) = self.config.filter.as_ref().filter(|_| join) {
            let nodes: Vec<Node> = remote.iter().map(Node::from).collect();
            filter.admit(&nodes).map_err(MergeError::Refused)?;
        }
        for said in remote {
            self.merge(now, said, rng);
        }
        Ok(())
    }

    fn merge(&mut self, now: Instant, said: &PushNodeState, rng: &mut dyn RngCore) {
        match said.state {
            NodeState::Alive => {
                let alive = Alive {
                    incarnation: said.incarnation,
                    node: said.name.clone(),
                    addr: said.addr,
                    port: said.port,
                    meta: said.meta.clone(),
                    vsn: said.vsn,
                };
                self.alive(now, alive, rng);
            }
            NodeState::Left => {
                let accusation = Accusation {
                    incarnation: said.incarnation,
                    node: said.name.clone(),
                    from: said.name.clone(),
                };
                self.dead(now, accusation, None);
            }
            // It may be alive after all, and refute: the sender does not get its word of death through by a stream.
            NodeState::Dead | NodeState::Suspect => {
                let accusation = self.accusation(said.name.clone(), said.incarnation);
                self.suspect(now, accusation);
            }
            NodeState::Other(state) => {
                tracing::debug!("gossip: {} has the unknown state {state}", said.name);
            }
        }
    }

    /// Every node must speak what all living nodes understand.
    fn check_protocols(&self, remote: &[PushNodeState]) -> Result<(), MergeError> {
        let said = remote.iter().map(|said| (&said.name, said.state, said.vsn));
        let known = self.members.iter().map(|record| &record.node);
        let known = known.map(|node| (&node.name, node.state, node.versions));
        let all: Vec<_> = said.chain(known).collect();
        let (mut swim, mut serf) = (0..=u8::MAX, 0..=u8::MAX);
        for (_, state, v) in &all {
            if *state == NodeState::Alive && *v != Versions::default() {
                swim = narrow(&swim, v.protocol_min, v.protocol_max);
                serf = narrow(&serf, v.delegate_min, v.delegate_max);
            }
        }
        for (name, _, versions) in all {
            check(name, "memberlist", versions.protocol, &swim)?;
            check(name, "serf", versions.delegate, &serf)?;
        }
        Ok(())
    }
}

fn narrow(range: &RangeInclusive<u8>, min: u8, max: u8) -> RangeInclusive<u8> {
    *range.start().max(&min)..=*range.end().min(&max)
}

fn check(
    node: &NodeName,
    layer: &'static str,
    version: u8,
    understood: &RangeInclusive<u8>,
) -> Result<(), MergeError> {
    match understood.contains(&version) {
        true => Ok(()),
        false => Err(MergeError::Protocol {
            node: node.clone(),
            layer,
            version,
            min: *understood.start(),
            max: *understood.end(),
        }),
    }
}
