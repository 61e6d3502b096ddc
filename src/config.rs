//! Configuration files and flags to one validated `Config`.
