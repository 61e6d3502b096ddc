//! Leader loops that publish the datacenter's own federation state.
