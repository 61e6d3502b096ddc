//! gRPC reflection, v1 and v1alpha, with every Envoy message.
//!
//! The descriptors become tens of megabytes of objects, so they are built when somebody asks for the first time.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::response::Response;
use http::Request;
use tokio::sync::OnceCell;
use tonic::Status;
use tonic::service::Routes;
use tonic_reflection::server::Builder;
use tower::ServiceExt;

use crate::proto::{CROSSWAY_DESCRIPTORS, ENVOY_DESCRIPTORS};

const V1: &str = "grpc.reflection.v1.ServerReflection";
const V1ALPHA: &str = "grpc.reflection.v1alpha.ServerReflection";
const HEALTH: &str = "grpc.health.v1.Health";

/// Adds both reflection services. `names` are the services that are really served, besides health and reflection.
pub(crate) fn add(router: Router, mut names: Vec<String>) -> Router {
    names.extend([V1, V1ALPHA, HEALTH].map(str::to_owned));
    let names = Arc::new(names);
    let router = lazily(router, V1, {
        let names = Arc::clone(&names);
        move || builder(&names).build_v1().map(Routes::new)
    });
    lazily(router, V1ALPHA, move || {
        builder(&names).build_v1alpha().map(Routes::new)
    })
}

fn builder(names: &[String]) -> Builder<'static> {
    let sets = [
        ENVOY_DESCRIPTORS,
        CROSSWAY_DESCRIPTORS,
        tonic_health::pb::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1::FILE_DESCRIPTOR_SET,
        tonic_reflection::pb::v1alpha::FILE_DESCRIPTOR_SET,
    ];
    let mut builder = Builder::configure().include_reflection_service(false);
    for set in sets {
        builder = builder.register_encoded_file_descriptor_set(set);
    }
    for name in names {
        builder = builder.with_service_name(name);
    }
    builder
}

type Build = Result<Routes, tonic_reflection::server::Error>;

fn lazily(
    router: Router,
    name: &str,
    build: impl Fn() -> Build + Clone + Send + Sync + 'static,
) -> Router {
    let cell: Arc<OnceCell<Router>> = Arc::default();
    let service = tower::service_fn(move |request: Request<Body>| {
        let (cell, build) = (Arc::clone(&cell), build.clone());
        async move { Ok::<_, Infallible>(answer(&cell, build, request).await) }
    });
    router.route_service(&format!("/{name}/{{method}}"), service)
}

async fn answer(
    cell: &OnceCell<Router>,
    build: impl Fn() -> Build + Send + 'static,
    request: Request<Body>,
) -> Response {
    let built = cell.get_or_try_init(|| async {
        let built = tokio::task::spawn_blocking(build).await;
        let built = built.map_err(|error| Status::internal(error.to_string()))?;
        built
            .map(Routes::into_axum_router)
            .map_err(|error| Status::internal(format!("reflection: {error}")))
    });
    match built.await {
        Ok(router) => match router.clone().oneshot(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        },
        Err(status) => status.into_http(),
    }
}
