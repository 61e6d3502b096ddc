//! Replacing the whole state by a saved one, which arrives in parts because a log entry must stay small.

use crate::store::command::{ApplyError, Outcome, RestoreOp};
use crate::store::state::{State, Tx};
use imbl::Vector;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Largest state that is taken, in bytes.
const MAX_SIZE: u64 = 2 << 30;

/// A saved state of which not all parts have arrived.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Restoring {
    id: String,
    size: u64,
    parts: Vector<Arc<serde_bytes::ByteBuf>>,
}

impl Tx<'_> {
    pub(crate) fn restore(&mut self, op: &RestoreOp) -> Result<Outcome, ApplyError> {
        match op {
            RestoreOp::Begin { id } => {
                self.state.restoring = Some(Restoring {
                    id: id.clone(),
                    ..Restoring::default()
                });
            }
            RestoreOp::Part { id, at, bytes } => self.part(id, *at, bytes)?,
            RestoreOp::Finish { id, size } => {
                let restoring = under_way(&mut self.state.restoring, id)?;
                if restoring.size != *size {
                    let text = format!("{} of {size} bytes of the state are here", restoring.size);
                    return Err(ApplyError::refused(text));
                }
                let mut bytes = Vec::new();
                for part in &restoring.parts {
                    bytes.extend_from_slice(part);
                }
                *self.state = State::from_snapshot(&bytes)
                    .map_err(|error| ApplyError::refused(error.to_string()))?;
            }
            RestoreOp::GiveUp { id } => {
                under_way(&mut self.state.restoring, id)?;
                self.state.restoring = None;
            }
        }
        Ok(Outcome::Done)
    }

    /// Takes a part; one that is here already, because its sender did not hear so, is no error.
    fn part(&mut self, id: &str, at: u64, bytes: &[u8]) -> Result<(), ApplyError> {
        let restoring = under_way(&mut self.state.restoring, id)?;
        let end = at.saturating_add(bytes.len() as u64);
        if end == restoring.size && !bytes.is_empty() {
            return Ok(());
        }
        if at != restoring.size || end > MAX_SIZE {
            let text = format!(
                "a part at {at} does not follow the {} bytes before",
                restoring.size
            );
            return Err(ApplyError::refused(text));
        }
        restoring.size = end;
        let part = serde_bytes::ByteBuf::from(bytes);
        restoring.parts.push_back(Arc::new(part));
        Ok(())
    }
}

fn under_way<'a>(
    restoring: &'a mut Option<Restoring>,
    id: &str,
) -> Result<&'a mut Restoring, ApplyError> {
    let ours = restoring.as_mut().filter(|restoring| restoring.id == id);
    ours.ok_or_else(|| ApplyError::refused("another restore has begun meanwhile"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::KvEntry;
    use crate::store::{Command, KvOp};

    fn set(state: &mut State, index: u64, key: &str) {
        let entry = KvEntry {
            key: key.into(),
            ..KvEntry::default()
        };
        state.apply(index, &Command::Kv(KvOp::Set(entry)));
    }

    fn ops(saved: &[u8], id: &str) -> Vec<RestoreOp> {
        let id = id.to_owned();
        let mut ops = vec![RestoreOp::Begin { id: id.clone() }];
        for (n, part) in saved.chunks(10).enumerate() {
            ops.push(RestoreOp::Part {
                id: id.clone(),
                at: n as u64 * 10,
                bytes: part.to_vec(),
            });
        }
        let size = saved.len() as u64;
        ops.push(RestoreOp::Finish { id, size });
        ops
    }

    #[test]
    fn the_parts_make_the_state_and_a_repeated_one_does_no_harm() {
        let (mut old, mut state) = (State::default(), State::default());
        set(&mut old, 3, "old");
        set(&mut state, 50, "new");
        let saved = old.to_backup().unwrap();
        for (n, op) in ops(&saved, "r").into_iter().enumerate() {
            let op = Command::Restore(op);
            // A snapshot of Raft in the middle of it loses nothing.
            state = State::from_snapshot(&state.to_snapshot().unwrap()).unwrap();
            let twice = matches!(&op, Command::Restore(RestoreOp::Part { .. }));
            for _ in 0..=usize::from(twice) {
                assert_eq!(state.apply(51 + n as u64, &op).result, Ok(Outcome::Done));
            }
        }
        assert!(state.kv_get("old").1.is_some() && state.kv_get("new").1.is_none());
        assert!(state.last_index() > 51, "the log goes on");
        assert_eq!(state.to_backup().unwrap().len(), saved.len());
    }

    #[test]
    fn what_is_damaged_missing_or_anothers_leaves_the_state() {
        let mut saved = State::default().to_backup().unwrap();
        let at = saved.len() - 1;
        saved[at] ^= 1;
        let mut state = State::default();
        set(&mut state, 1, "kept");
        let refused = |state: &mut State, ops: Vec<RestoreOp>| {
            let mut last = Ok(Outcome::Done);
            for op in ops {
                last = state.apply(2, &Command::Restore(op)).result;
            }
            assert!(last.is_err(), "{last:?}");
            assert!(state.kv_get("kept").1.is_some());
        };
        refused(&mut state, ops(&saved, "a"));
        let mut short = ops(&State::default().to_backup().unwrap(), "b");
        short.remove(1);
        refused(&mut state, short);
        let finish = RestoreOp::Finish {
            id: "a".to_owned(),
            size: 0,
        };
        refused(&mut state, vec![finish]);
    }
}
