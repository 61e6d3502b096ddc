//! Figures of Consul 1.8.7 from earlier runs of the same method (two cores of an AMD EPYC, ext4), for the rows where a run
//! takes it many minutes. The most favourable one of several rounds; the full matrix measures them anew.

use crate::Measured;
use crate::ads::Round;

/// What Consul gave with so many services and gateways.
pub fn figures(services: usize, streams: usize) -> Option<Measured> {
    let (p50, p99, cpu, bytes_per_stream, kib_per_gateway, restart) = match (services, streams) {
        (10, 500) => (1436.0, 2844.0, 2.8, 5963.0, 1.2 * 1024.0, (f64::NAN, 4.7)),
        (100, 500) => (12050.0, 14807.0, 28.0, 56633.0, 8.8 * 1024.0, (264.0, 36.0)),
        _ => return None,
    };
    Some(Measured {
        round: Round {
            p50,
            p99,
            cpu,
            bytes_per_stream,
        },
        restart,
        kib_per_gateway,
    })
}
