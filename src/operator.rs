//! Our read-only gRPC operator API over `api`.
