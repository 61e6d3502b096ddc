//! Generated protobuf code and the few aliases for it.
