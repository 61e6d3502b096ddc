//! Our read-only gRPC operator API over `api`.
//!
//! Nothing here knows where the answers come from: a [`Backend`] gives them as messages.

use std::pin::Pin;
use std::time::Duration;

use futures_util::Stream;
use tonic::{Request, Response, Status};

use crate::proto::crossway::v1 as api;
use crate::proto::crossway::v1::operator_server::{Operator, OperatorServer};

/// The full name of the service, for reflection.
pub const SERVICE_NAME: &str = "crossway.v1.Operator";

/// Changes that follow each other within this time are folded into one message of a Watch.
pub const FOLD: Duration = Duration::from_millis(100);

/// Where the operator API gets its answers from.
pub trait Backend: Clone + Send + Sync + 'static {
    /// Tells of changes.
    type Changes: Changes;

    /// The state in force of every datacenter, ordered by name.
    fn federation_states(&self) -> Vec<api::FederationState>;

    /// The proxies with a stream to this server, ordered by node and service id.
    fn proxies(&self) -> Vec<api::Proxy>;

    /// Starts to watch. A change after this call is told, even if it happens before [`Changes::changed`] is called.
    fn changes(&self) -> Self::Changes;
}

/// Tells of changes of the federation states or of the proxies.
pub trait Changes: Send + 'static {
    /// Ends when something may have changed since the last call; `false` if nothing will change any more, because the
    /// server stops. Must be cancel-safe.
    fn changed(&mut self) -> impl Future<Output = bool> + Send;
}

/// The service.
#[derive(Clone, Debug)]
pub struct Service<B> {
    backend: B,
}

impl<B: Backend> Service<B> {
    /// The service over `backend`, to be added to the routes of the gRPC port.
    pub fn server(backend: B) -> OperatorServer<Self> {
        OperatorServer::new(Self { backend })
    }

    fn states(&self) -> api::ListFederationStatesResponse {
        api::ListFederationStatesResponse {
            federation_states: self.backend.federation_states(),
        }
    }

    fn proxies(&self) -> api::ListProxiesResponse {
        api::ListProxiesResponse {
            proxies: self.backend.proxies(),
        }
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl<B: Backend> Operator for Service<B> {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<api::WatchResponse, Status>> + Send>>;

    async fn list_federation_states(
        &self,
        _: Request<api::ListFederationStatesRequest>,
    ) -> Answer<api::ListFederationStatesResponse> {
        Ok(Response::new(self.states()))
    }

    async fn get_federation_state(
        &self,
        request: Request<api::GetFederationStateRequest>,
    ) -> Answer<api::GetFederationStateResponse> {
        let datacenter = request.into_inner().datacenter.to_lowercase();
        if datacenter.is_empty() {
            return Err(Status::invalid_argument(
                "datacenter is required, such as {\"datacenter\": \"dc2\"}",
            ));
        }
        let states = self.backend.federation_states();
        let found = states
            .into_iter()
            .find(|state| state.datacenter == datacenter);
        let Some(state) = found else {
            let text = format!("datacenter {datacenter:?} has published no federation state");
            return Err(Status::not_found(text));
        };
        Ok(Response::new(api::GetFederationStateResponse {
            federation_state: Some(state),
        }))
    }

    async fn list_proxies(
        &self,
        request: Request<api::ListProxiesRequest>,
    ) -> Answer<api::ListProxiesResponse> {
        let wanted = request.into_inner();
        let mut proxies = self.proxies();
        proxies.proxies.retain(|proxy| {
            let node = wanted.node_name.is_empty() || wanted.node_name == proxy.node_name;
            let service = wanted.service_id.is_empty() || wanted.service_id == proxy.service_id;
            node && service
        });
        Ok(Response::new(proxies))
    }

    async fn watch(&self, request: Request<api::WatchRequest>) -> Answer<Self::WatchStream> {
        let wanted = request.into_inner();
        let both = wanted.federation_states == wanted.proxies;
        let watcher = Watcher {
            states: both || wanted.federation_states,
            proxies: both || wanted.proxies,
            changes: self.backend.changes(),
            service: self.clone(),
            last: None,
        };
        let messages = futures_util::stream::unfold(watcher, |mut watcher| async move {
            let message = watcher.next().await?;
            Some((Ok(message), watcher))
        });
        Ok(Response::new(Box::pin(messages)))
    }
}

/// One caller of Watch.
struct Watcher<B: Backend> {
    service: Service<B>,
    changes: B::Changes,
    states: bool,
    proxies: bool,
    last: Option<api::WatchResponse>,
}

impl<B: Backend> Watcher<B> {
    /// The next message: at first the whole picture, then what changed.
    async fn next(&mut self) -> Option<api::WatchResponse> {
        loop {
            let now = api::WatchResponse {
                federation_states: self.states.then(|| self.service.states()),
                proxies: self.proxies.then(|| self.service.proxies()),
            };
            let news = news(self.last.as_ref(), &now);
            self.last = Some(now);
            if let Some(news) = news {
                return Some(news);
            }
            if !self.changes.changed().await {
                return None;
            }
            tokio::time::sleep(FOLD).await;
        }
    }
}

/// The parts of `now` that differ from `last`; `None` if there are none.
fn news(last: Option<&api::WatchResponse>, now: &api::WatchResponse) -> Option<api::WatchResponse> {
    let Some(last) = last else {
        return Some(now.clone());
    };
    let states = (last.federation_states != now.federation_states)
        .then(|| now.federation_states.clone())
        .flatten();
    let proxies = (last.proxies != now.proxies)
        .then(|| now.proxies.clone())
        .flatten();
    (states.is_some() || proxies.is_some()).then_some(api::WatchResponse {
        federation_states: states,
        proxies,
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures_util::StreamExt;
    use parking_lot::Mutex;
    use tokio::sync::watch;

    use super::*;

    #[derive(Clone)]
    struct Fake {
        states: Arc<Mutex<Vec<api::FederationState>>>,
        changed: watch::Sender<()>,
    }

    impl Fake {
        fn new() -> Self {
            Self {
                states: Arc::default(),
                changed: watch::Sender::new(()),
            }
        }

        fn put(&self, datacenter: &str) {
            self.states.lock().push(api::FederationState {
                datacenter: datacenter.to_owned(),
                ..Default::default()
            });
            self.changed.send_replace(());
        }
    }

    impl Changes for watch::Receiver<()> {
        async fn changed(&mut self) -> bool {
            watch::Receiver::changed(self).await.is_ok()
        }
    }

    impl Backend for Fake {
        type Changes = watch::Receiver<()>;

        fn federation_states(&self) -> Vec<api::FederationState> {
            self.states.lock().clone()
        }

        fn proxies(&self) -> Vec<api::Proxy> {
            vec![api::Proxy {
                node_name: "n".to_owned(),
                service_id: "gw".to_owned(),
                streams: Vec::new(),
            }]
        }

        fn changes(&self) -> Self::Changes {
            self.changed.subscribe()
        }
    }

    #[tokio::test]
    async fn watch_sends_the_picture_and_then_what_changed() {
        let fake = Fake::new();
        fake.put("dc1");
        let service = Service {
            backend: fake.clone(),
        };
        let request = Request::new(api::WatchRequest::default());
        let mut messages = service.watch(request).await.unwrap().into_inner();
        let first = messages.next().await.unwrap().unwrap();
        assert_eq!(first.federation_states.unwrap().federation_states.len(), 1);
        assert_eq!(first.proxies.unwrap().proxies.len(), 1);
        fake.put("dc2");
        fake.put("dc3");
        let second = messages.next().await.unwrap().unwrap();
        assert_eq!(second.federation_states.unwrap().federation_states.len(), 3);
        assert_eq!(second.proxies, None);
    }

    #[tokio::test]
    async fn get_names_what_is_missing() {
        let fake = Fake::new();
        fake.put("dc2");
        let service = Service { backend: fake };
        let get = |datacenter: &str| {
            service.get_federation_state(Request::new(api::GetFederationStateRequest {
                datacenter: datacenter.to_owned(),
            }))
        };
        assert!(get("DC2").await.is_ok());
        let missing = get("dc9").await.unwrap_err();
        assert_eq!(missing.code(), tonic::Code::NotFound);
        assert!(missing.message().contains("dc9"));
        assert_eq!(
            get("").await.unwrap_err().code(),
            tonic::Code::InvalidArgument
        );
    }

    #[tokio::test]
    async fn proxies_can_be_filtered() {
        let service = Service {
            backend: Fake::new(),
        };
        let list = |node: &str| {
            service.list_proxies(Request::new(api::ListProxiesRequest {
                node_name: node.to_owned(),
                service_id: String::new(),
            }))
        };
        assert_eq!(list("").await.unwrap().into_inner().proxies.len(), 1);
        assert_eq!(list("n").await.unwrap().into_inner().proxies.len(), 1);
        assert_eq!(list("other").await.unwrap().into_inner().proxies.len(), 0);
    }
}
