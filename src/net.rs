//! TLS configuration, ALPN names, listeners and byte streams.
