//! Entry points for fuzzing: outside bytes in, no panic and no unbounded work out.
//!
//! `fuzz/fuzz_targets` runs each under cargo-fuzz; a property test beside each reader runs it on random input.

pub mod xds;

use crate::config;
use crate::config::host::Host;

/// A configuration text, HCL or JSON, through reading and all rules.
pub fn fuzz_config(data: &[u8]) {
    if let Ok(text) = std::str::from_utf8(data) {
        let _ = config::check_text(text, &Host::default());
    }
}
