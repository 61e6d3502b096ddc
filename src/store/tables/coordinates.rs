//! Where nodes are in the network.

use crate::model::ids::Index;
use crate::model::query::NodeCoordinate;
use crate::store::command::{Outcome, Topic};
use crate::store::state::{IndexRow, Key, State, Tx};
use crate::store::tables::on_node;
use std::sync::Arc;

impl State {
    /// The index of the table.
    pub fn coordinates_index(&self) -> Index {
        self.row(&IndexRow::Coordinates)
    }

    /// All coordinates, in order of node and segment.
    pub fn coordinates(&self) -> impl Iterator<Item = &Arc<NodeCoordinate>> {
        self.coordinates.values()
    }

    /// The coordinates of one node, one per network segment.
    pub fn coordinates_of(&self, node: &str) -> Vec<Arc<NodeCoordinate>> {
        let node = Key::from(node);
        on_node(&self.coordinates, &node)
            .map(|(_, row)| row.clone())
            .collect()
    }
}

impl Tx<'_> {
    /// Sets coordinates. Nodes that are not registered, perhaps not yet, are passed over.
    pub(crate) fn set_coordinates(&mut self, rows: &[NodeCoordinate]) -> Outcome {
        for row in rows {
            let key = Key::of(row.node.shared());
            if !self.state.nodes.contains_key(&key) {
                continue;
            }
            let segment = Key::from(row.segment.as_str());
            self.state
                .coordinates
                .insert((key, segment), Arc::new(row.clone()));
            self.coordinates_changed();
        }
        Outcome::Done
    }

    /// Forgets where a node is.
    pub(crate) fn delete_coordinates(&mut self, node: &Key) {
        let rows = on_node(&self.state.coordinates, node);
        let keys: Vec<_> = rows.map(|(key, _)| key.clone()).collect();
        for key in keys {
            self.state.coordinates.remove(&key);
            self.coordinates_changed();
        }
    }

    fn coordinates_changed(&mut self) {
        self.bump(IndexRow::Coordinates);
        self.touch(Topic::Coordinates);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::query::RegisterRequest;
    use crate::store::Command;

    #[test]
    fn a_place_comes_and_goes_with_its_node() {
        let mut state = State::default();
        let row = |node: &str| NodeCoordinate {
            node: node.into(),
            ..NodeCoordinate::default()
        };
        let register = Command::Register(Box::new(RegisterRequest {
            node: "Web".into(),
            address: "10.0.0.1".to_owned(),
            ..RegisterRequest::default()
        }));
        state.apply(1, &register);
        state.apply(2, &Command::Coordinates(vec![row("web"), row("none")]));
        assert_eq!(
            (state.coordinates().count(), state.coordinates_index()),
            (1, 2)
        );
        let mut state = State::from_snapshot(&state.to_snapshot().unwrap()).unwrap();
        assert_eq!(state.coordinates_of("WEB").len(), 1);
        let applied = state.apply(3, &Command::Coordinates(vec![row("none")]));
        assert!(applied.topics.is_empty() && state.coordinates_index() == 2);
        let gone = Command::Deregister {
            node: "web".into(),
            service_id: Default::default(),
            check_id: Default::default(),
        };
        state.apply(4, &gone);
        assert_eq!(
            (state.coordinates().count(), state.coordinates_index()),
            (0, 4)
        );
    }
}
