//! Builders and helpers for tests; nothing in production imports it.

pub mod fuzz;
