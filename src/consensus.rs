//! Raft behind one handle: the only writer of the store.
