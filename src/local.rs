//! Services and checks registered with this server, their runners and the sync to the catalog.
