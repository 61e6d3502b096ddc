//! Asks the API server for pods.

use crate::discovery::address::Address;
use crate::discovery::fetch;
use crate::discovery::kubernetes::PodList;
use crate::discovery::kubernetes::Query;
use crate::discovery::kubernetes::addresses;
use crate::discovery::kubernetes::kubeconfig;
use crate::discovery::kubernetes::kubeconfig::Access;
use crate::discovery::kubernetes::kubeconfig::Material;
use crate::discovery::resolve::Environment;
use crate::discovery::resolve::MAX_ADDRESSES;
use reqwest::StatusCode;
use std::path::Path;
use std::path::PathBuf;
use url::Url;

/// Pods in one page.
const PAGE: &str = "500";

/// Largest file that is read, in bytes.
const MAX_FILE: u64 = 1024 * 1024;

/// The addresses of the pods, and what is wrong with some of them. `Err` says why there is none.
pub(crate) async fn pods(
    query: &Query,
    environment: &Environment,
) -> Result<(Vec<Address>, Vec<String>), String> {
    let access = access(query, environment).await?;
    let token = match &access.token {
        Some(token) => Some(
            String::from_utf8_lossy(&load(token).await?)
                .trim()
                .to_owned(),
        ),
        None => None,
    };
    let client = client(&access).await?;
    let url = pods_url(&access, query)?;
    let mut all = (Vec::new(), Vec::new());
    let mut next: Option<String> = None;
    loop {
        let mut url = url.clone();
        if let Some(next) = &next {
            url.query_pairs_mut().append_pair("continue", next);
        }
        let mut request = client.get(url.clone());
        if let Some(token) = &token {
            request = request.bearer_auth(token);
        }
        let (status, body) = fetch::exchange(request).await.map_err(|cause| {
            format!(
                "the Kubernetes API server at {} cannot be asked: {cause}",
                access.server
            )
        })?;
        if status != StatusCode::OK {
            return Err(refusal(status, &body, query));
        }
        let page: PodList = serde_json::from_slice(&body).map_err(|error| {
            format!("the Kubernetes API server's list of pods cannot be read: {error}")
        })?;
        let (found, problems) = addresses(&page, query.host_network);
        all.0.extend(found);
        all.1.extend(problems);
        next = page.metadata.next.filter(|token| !token.is_empty());
        if next.is_none() || all.0.len() > MAX_ADDRESSES {
            return Ok(all);
        }
    }
}

fn refusal(status: StatusCode, body: &[u8], query: &Query) -> String {
    let remedy = match status {
        StatusCode::UNAUTHORIZED => "check the token or the certificate",
        StatusCode::FORBIDDEN => "grant the verb list on pods to the service account",
        StatusCode::BAD_REQUEST => "check label_selector and field_selector",
        _ => "check the API server",
    };
    format!(
        "the Kubernetes API server answers {} to the list of pods in namespace {:?}; {remedy}: {}",
        status.as_u16(),
        query.namespace,
        fetch::excerpt(body)
    )
}

fn pods_url(access: &Access, query: &Query) -> Result<Url, String> {
    let wrong = |cause: &str| {
        format!(
            "the API server's URL {:?} is wrong: {cause}; write https://host:port",
            access.server
        )
    };
    let mut url = Url::parse(&access.server).map_err(|error| wrong(&error.to_string()))?;
    url.path_segments_mut()
        .map_err(|()| wrong("it has no host"))?
        .pop_if_empty()
        .extend(["api", "v1", "namespaces", &query.namespace, "pods"]);
    let selectors = [
        ("labelSelector", query.label_selector.as_str()),
        ("fieldSelector", &query.field_selector),
        ("limit", PAGE),
    ];
    let given = selectors.iter().filter(|(_, value)| !value.is_empty());
    url.query_pairs_mut().extend_pairs(given);
    Ok(url)
}

/// The file that the source names, the pod's own service account, or the file that `KUBECONFIG` names.
async fn access(query: &Query, environment: &Environment) -> Result<Access, String> {
    let variable = |name: &str| (environment.variable)(name);
    let host = variable("KUBERNETES_SERVICE_HOST");
    let file = match (&query.kubeconfig, host) {
        (Some(file), _) => file.clone(),
        (None, Some(host)) => {
            let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
            return Ok(in_cluster(&host, &port, &environment.service_account));
        }
        (None, None) => variable("KUBECONFIG").map(PathBuf::from).ok_or_else(|| {
            "this server runs in no pod (KUBERNETES_SERVICE_HOST is not set); name a kubeconfig file with kubeconfig=/path"
                .to_owned()
        })?,
    };
    let text = String::from_utf8(read(&file).await?)
        .map_err(|_| format!("{}: it is no text", file.display()))?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    kubeconfig::parse(&text, folder).map_err(|reason| format!("{}: {reason}", file.display()))
}

fn in_cluster(host: &str, port: &str, service_account: &Path) -> Access {
    let host = match host.contains(':') {
        true => format!("[{host}]"),
        false => host.to_owned(),
    };
    Access {
        server: format!("https://{host}:{port}"),
        ca: Some(Material::File(service_account.join("ca.crt"))),
        insecure: false,
        server_name: None,
        // Read anew on every attempt: Kubernetes replaces it every hour.
        token: Some(Material::File(service_account.join("token"))),
        identity: None,
    }
}

async fn client(access: &Access) -> Result<reqwest::Client, String> {
    let mut builder = fetch::builder().no_proxy();
    if let Some(name) = &access.server_name {
        return Err(format!(
            "tls-server-name is {name:?}, which is not supported; use a server URL with the name in its certificate"
        ));
    }
    if let Some(ca) = &access.ca {
        let certificates = reqwest::Certificate::from_pem_bundle(&load(ca).await?)
            .map_err(|error| format!("the cluster's CA cannot be read: {error}"))?;
        builder = builder.tls_certs_only(certificates);
    }
    if let Some((certificate, key)) = &access.identity {
        let mut pem = load(certificate).await?;
        pem.push(b'\n');
        pem.extend(load(key).await?);
        let identity = reqwest::Identity::from_pem(&pem).map_err(|error| {
            format!("the client certificate or its key cannot be read: {error}")
        })?;
        builder = builder.identity(identity);
    }
    builder
        .tls_danger_accept_invalid_certs(access.insecure)
        .build()
        .map_err(|error| format!("the TLS settings for the cluster do not work: {error}"))
}

async fn load(material: &Material) -> Result<Vec<u8>, String> {
    match material {
        Material::Inline(bytes) => Ok(bytes.clone()),
        Material::File(path) => read(path).await,
    }
}

async fn read(path: &Path) -> Result<Vec<u8>, String> {
    use tokio::io::AsyncReadExt as _;
    let failed = |error: std::io::Error| {
        format!(
            "{} cannot be read: {error}; check the path and its permissions",
            path.display()
        )
    };
    let file = tokio::fs::File::open(path).await.map_err(failed)?;
    let mut bytes = Vec::new();
    let mut bounded = file.take(MAX_FILE + 1);
    bounded.read_to_end(&mut bytes).await.map_err(failed)?;
    match bytes.len() as u64 > MAX_FILE {
        true => Err(format!("{} has more than {MAX_FILE} bytes", path.display())),
        false => Ok(bytes),
    }
}
