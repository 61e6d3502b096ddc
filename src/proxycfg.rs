//! State and proxy id to everything one Envoy needs, as plain data.
