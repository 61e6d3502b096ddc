//! Bytes to calls: first-byte and ALPN dispatch, multiplexing, net/rpc framing, client.
