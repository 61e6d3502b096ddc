//! Snapshot to resources, the xDS session, and its gRPC services.
