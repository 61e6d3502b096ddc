//! Sessions to servers: shared, repaired, ended.

use bytes::Bytes;
use crossway::codec;
use crossway::net::Tls;
use crossway::rpc::{
    CallContext, ClientError, Destination, Dial, Handler, Lan, Limits, Plugs, Pool, RpcError,
    ServerConfig, Target,
};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::support::server::PATIENCE;
use crate::support::trio::eventually;

/// Answers `Test.Echo`; `Test.Wait` never.
#[derive(Clone, Default)]
struct Echo {
    waiting: Arc<AtomicUsize>,
}

struct Waiting(Arc<AtomicUsize>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Handler for Echo {
    async fn call(&self, _: CallContext, method: &str, body: Bytes) -> Result<Bytes, RpcError> {
        match method {
            "Test.Echo" => Ok(body),
            "Test.Refuse" => Err(RpcError::failed("no")),
            _ => {
                self.waiting.fetch_add(1, Ordering::SeqCst);
                let _waiting = Waiting(self.waiting.clone());
                std::future::pending().await
            }
        }
    }
}

async fn serve(address: &str, echo: &Echo) -> (SocketAddr, CancellationToken) {
    let listener = TcpListener::bind(address).await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = ServerConfig {
        tls: Arc::new(Tls::disabled()),
        limits: Arc::new(arc_swap::ArcSwap::from_pointee(Limits::default())),
        plugs: Plugs::default(),
    };
    let stop = CancellationToken::new();
    let edition = Arc::new(crossway::hooks::Open);
    tokio::spawn(crossway::rpc::serve(
        listener,
        config,
        echo.clone(),
        edition,
        stop.clone(),
    ));
    (address, stop)
}

fn to(address: SocketAddr) -> Destination {
    Destination {
        datacenter: "dc1".into(),
        node: "n1".into(),
        address,
    }
}

/// Counts the dials.
struct Counted {
    inner: Lan,
    dials: AtomicUsize,
}

impl Dial for Counted {
    fn way(&self, to: &Destination) -> Result<Target, ClientError> {
        self.dials.fetch_add(1, Ordering::SeqCst);
        self.inner.way(to)
    }
}

fn pool() -> (Pool, Arc<Counted>) {
    let tls = Arc::new(Tls::disabled());
    let dial = Arc::new(Counted {
        inner: Lan(tls.clone()),
        dials: AtomicUsize::new(0),
    });
    (Pool::new(tls, dial.clone()), dial)
}

fn text(text: &str) -> Vec<u8> {
    codec::to_vec(text).unwrap()
}

async fn echo(pool: &Pool, to: &Destination, what: &str) -> Result<String, ClientError> {
    let reply = pool.call(to, "Test.Echo", &text(what), PATIENCE).await?;
    Ok(codec::from_slice(&reply).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_first_calls_share_one_dial() {
    let (address, _stop) = serve("127.0.0.1:0", &Echo::default()).await;
    let ((pool, dial), to) = (pool(), to(address));
    let calls = (0..200).map(|n| {
        let (pool, to) = (pool.clone(), to.clone());
        tokio::spawn(async move { (n, echo(&pool, &to, &n.to_string()).await.unwrap()) })
    });
    for call in calls.collect::<Vec<_>>() {
        let (n, answer) = call.await.unwrap();
        assert_eq!(answer, n.to_string());
    }
    assert_eq!(dial.dials.load(Ordering::SeqCst), 1);
    assert_eq!(pool.sessions(), 1);
    let refused = pool.call(&to, "Test.Refuse", &text(""), PATIENCE).await;
    assert_eq!(
        refused.unwrap_err().to_string(),
        "rpc error making call: no"
    );
    assert_eq!(pool.sessions(), 1, "an error of the server ends no session");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_restarted_is_dialled_anew() {
    let (address, stop) = serve("127.0.0.1:0", &Echo::default()).await;
    let ((pool, dial), to) = (pool(), to(address));
    assert_eq!(echo(&pool, &to, "a").await.unwrap(), "a");
    stop.cancel();
    let again = serve_again(address).await;
    // A call whose question was sent into the end of the session may have been done: that is for the caller to judge.
    let answer = match echo(&pool, &to, "b").await {
        Err(ClientError::Broken(_)) => echo(&pool, &to, "b").await,
        other => other,
    };
    assert_eq!(answer.unwrap(), "b");
    assert_eq!(dial.dials.load(Ordering::SeqCst), 2);
    again.cancel();
}

async fn serve_again(address: SocketAddr) -> CancellationToken {
    let mut last = None;
    for _ in 0..200 {
        match TcpListener::bind(address).await {
            Ok(listener) => {
                drop(listener);
                return serve(&address.to_string(), &Echo::default()).await.1;
            }
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("{last:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_is_not_there_is_named_with_consuls_words() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let (pool, _) = pool();
    let error = echo(&pool, &to(address), "a").await.unwrap_err();
    let begin = format!("rpc error getting client: failed to get conn: {address}: ");
    assert!(error.to_string().starts_with(&begin), "{error}");
    assert_eq!(pool.sessions(), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn closing_ends_the_calls_under_way() {
    let server = Echo::default();
    let (address, _stop) = serve("127.0.0.1:0", &server).await;
    let ((pool, _), to) = (pool(), to(address));
    let waiting = tokio::spawn({
        let (pool, to) = (pool.clone(), to.clone());
        async move { pool.call(&to, "Test.Wait", &text(""), PATIENCE).await }
    });
    let count = || server.waiting.load(Ordering::SeqCst);
    eventually("the call is under way", || count() == 1).await;
    pool.close(&to);
    let error = waiting.await.unwrap().unwrap_err();
    assert_eq!(error.to_string(), "rpc error making call: session shutdown");
    eventually("the server knows that nobody waits", || count() == 0).await;
    assert_eq!(echo(&pool, &to, "a").await.unwrap(), "a");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_gives_up_leaves_nothing_behind() {
    let server = Echo::default();
    let (address, _stop) = serve("127.0.0.1:0", &server).await;
    let ((pool, dial), to) = (pool(), to(address));
    for _ in 0..300 {
        let short = Duration::from_millis(1);
        let body = text("");
        let call = pool.call(&to, "Test.Wait", &body, PATIENCE);
        assert!(tokio::time::timeout(short, call).await.is_err());
    }
    let count = || server.waiting.load(Ordering::SeqCst);
    eventually("no call is left on the server", || count() == 0).await;
    assert_eq!(echo(&pool, &to, "a").await.unwrap(), "a");
    assert_eq!(dial.dials.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn an_idle_session_ends_and_a_used_one_does_not() {
    let server = Echo::default();
    let (address, _stop) = serve("127.0.0.1:0", &server).await;
    let (tls, to) = (Arc::new(Tls::disabled()), to(address));
    let idle = Duration::from_millis(50);
    let pool = Pool::with_idle_time(tls.clone(), Arc::new(Lan(tls)), idle);
    let waiting = tokio::spawn({
        let (pool, to) = (pool.clone(), to.clone());
        async move { pool.call(&to, "Test.Wait", &text(""), PATIENCE).await }
    });
    assert_eq!(echo(&pool, &to, "a").await.unwrap(), "a");
    let count = || server.waiting.load(Ordering::SeqCst);
    eventually("the call is under way", || count() == 1).await;
    tokio::time::sleep(4 * idle).await;
    assert_eq!(pool.sessions(), 1, "a call is under way");
    waiting.abort();
    eventually("the session ends", || pool.sessions() == 0).await;
    assert_eq!(echo(&pool, &to, "a").await.unwrap(), "a");
}
