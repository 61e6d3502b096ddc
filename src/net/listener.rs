//! Opens listening ports.

use std::io;
use std::io::ErrorKind;
use std::net::SocketAddr;

use socket2::Domain;
use socket2::Protocol;
use socket2::Socket;
use socket2::Type;
use tokio::net::TcpListener;
use tokio::net::UdpSocket;

/// Connections that may wait to be accepted: a datacenter's clients all come back at once after a restart.
const BACKLOG: i32 = 4096;
/// Bytes of packets that may wait to be read, as memberlist asks for; the system may give less (`net.core.rmem_max`).
const RECEIVE_BUFFER: usize = 2 << 20;

/// Why a port cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// Somebody else listens there.
    #[error(
        "{key}: {address} is already in use; stop the program that listens there, or set {key} to a free port"
    )]
    InUse {
        /// The configuration key of the port.
        key: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// The address is not one of this machine.
    #[error(
        "{key}: {address} is no address of this machine; set bind_addr or client_addr to one that is"
    )]
    NotLocal {
        /// The configuration key of the port.
        key: &'static str,
        /// The address.
        address: SocketAddr,
    },
    /// Everything else, for example a port below 1024 without the right to it.
    #[error("{key}: cannot listen on {address}: {reason}")]
    Other {
        /// The configuration key of the port.
        key: &'static str,
        /// The address.
        address: SocketAddr,
        /// What the system says.
        reason: io::Error,
    },
}

/// Listens on `address`; `key` is the configuration key that errors name. Port 0 takes any free port.
///
/// # Errors
/// Names the key, the address and what to do.
pub fn listen(address: SocketAddr, key: &'static str) -> Result<TcpListener, ListenError> {
    open(address).map_err(|reason| explained(reason, address, key))
}

/// Receives packets on `address`; `key` is the configuration key that errors name. Port 0 takes any free port.
///
/// # Errors
/// Names the key, the address and what to do.
pub fn listen_packets(address: SocketAddr, key: &'static str) -> Result<UdpSocket, ListenError> {
    open_packets(address).map_err(|reason| explained(reason, address, key))
}

fn explained(reason: io::Error, address: SocketAddr, key: &'static str) -> ListenError {
    match reason.kind() {
        ErrorKind::AddrInUse => ListenError::InUse { key, address },
        ErrorKind::AddrNotAvailable => ListenError::NotLocal { key, address },
        _ => ListenError::Other {
            key,
            address,
            reason,
        },
    }
}

fn open_packets(address: SocketAddr) -> io::Result<UdpSocket> {
    let domain = Domain::for_address(address);
    let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(RECEIVE_BUFFER)?;
    socket.bind(&address.into())?;
    UdpSocket::from_std(socket.into())
}

fn open(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?; // A restarted server must not wait for old connections to be forgotten.
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn listens_on_both_families_and_names_the_key_of_a_port_in_use() {
        for any in ["127.0.0.1:0", "[::1]:0"] {
            let listener = listen(any.parse().unwrap(), "ports.server").unwrap();
            let address = listener.local_addr().unwrap();
            let error = listen(address, "ports.server").unwrap_err().to_string();
            assert!(error.contains("ports.server"), "{error}");
            assert!(error.contains(&address.to_string()), "{error}");
        }
    }

    #[tokio::test]
    async fn an_address_of_another_machine_is_said_to_be_so() {
        let error = listen("192.0.2.1:0".parse().unwrap(), "ports.http").unwrap_err();
        assert!(matches!(error, ListenError::NotLocal { .. }), "{error}");
    }
}
