//! Nouns and ids of the replicated state, parsed and validated in their constructors.

pub mod ids;
