//! The RPC port's front: type bytes, TLS records, yamux frames and net/rpc headers, over a real connection.

use crate::hooks;
use crate::net::Tls;
use crate::rpc;
use crate::rpc::CallContext;
use crate::rpc::Handler;
use crate::rpc::RpcError;
use arc_swap::ArcSwap;
use bytes::Bytes;
use std::io::Read;
use std::io::Write;
use std::net::Shutdown;
use std::net::SocketAddr;
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Panics in the server's thread: there they end a task, here they fail the run.
static PANICS: AtomicUsize = AtomicUsize::new(0);

/// The name of the server's thread.
const THREAD: &str = "fuzzed-rpc";

/// Answers every call with its own body.
#[derive(Clone)]
struct Echo;

impl Handler for Echo {
    async fn call(&self, _: CallContext, _: &str, body: Bytes) -> Result<Bytes, RpcError> {
        Ok(body)
    }
}

/// Sends `data` to an RPC port without TLS, says that this was all, and reads until the server closes.
///
/// # Panics
/// The server panicked, or kept the connection.
#[expect(clippy::panic, reason = "that is how a fuzz target reports")]
pub fn fuzz_rpc_front(data: &[u8]) {
    static SERVER: OnceLock<SocketAddr> = OnceLock::new();
    let Ok(mut stream) = TcpStream::connect(SERVER.get_or_init(serve)) else {
        panic!("the server does not accept connections");
    };
    let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
    // The server may refuse it midway.
    let _ = stream.write_all(data);
    let _ = stream.shutdown(Shutdown::Write);
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                panic!("the server keeps the connection");
            }
            Err(_) => break, // A reset is an end too.
        }
    }
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "the server panicked");
}

/// Starts the server on a thread of its own, which ends with the process.
#[expect(
    clippy::expect_used,
    reason = "without a server there is nothing to test"
)]
fn serve() -> SocketAddr {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if std::thread::current().name() == Some(THREAD) {
            PANICS.fetch_add(1, Ordering::Relaxed);
        }
        before(info);
    }));
    let (tell, address) = std::sync::mpsc::channel();
    let run = move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .expect("a runtime");
        runtime.block_on(async {
            let listener = crate::net::listen(([127, 0, 0, 1], 0).into(), "fuzz").expect("a port");
            let _ = tell.send(listener.local_addr().expect("an address"));
            let limits = rpc::Limits {
                max_conns_per_client: 0,
                ..rpc::Limits::default()
            };
            let config = rpc::ServerConfig {
                tls: Arc::new(Tls::disabled()),
                limits: Arc::new(ArcSwap::from_pointee(limits)),
                plugs: rpc::Plugs::default(),
            };
            let stop = CancellationToken::new();
            rpc::serve(listener, config, Echo, Arc::new(hooks::Open), stop).await;
        });
    };
    let builder = std::thread::Builder::new().name(THREAD.to_owned());
    builder.spawn(run).expect("a thread");
    address.recv().expect("the server's address")
}
