//! The replicated state: tables, indexes, commands, topics and snapshots.
