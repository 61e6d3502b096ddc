//! Asks EC2 for instances, and the environment or the instance's metadata for credentials and region.

use crate::discovery::address::Address;
use crate::discovery::aws;
use crate::discovery::aws::Query;
use crate::discovery::aws::sign;
use crate::discovery::aws::sign::Credentials;
use crate::discovery::fetch;
use crate::discovery::resolve::Environment;
use crate::discovery::resolve::MAX_ADDRESSES;
use reqwest::Client;
use reqwest::RequestBuilder;
use reqwest::StatusCode;
use serde::Deserialize;
use std::time::Duration;
use std::time::SystemTime;
use url::Url;

/// Where an instance finds its metadata.
const METADATA: &str = "http://169.254.169.254";

/// Where a container's role is, when only a path is given.
const CONTAINER: &str = "http://169.254.170.2";

/// How long the metadata service may take: elsewhere than on EC2 nobody answers.
const METADATA_LIMIT: Duration = Duration::from_secs(2);

/// The content type of EC2's requests.
const FORM: &str = "application/x-www-form-urlencoded; charset=utf-8";

/// The addresses of the instances. `Err` says why there is none.
pub(crate) async fn instances(
    query: &Query,
    environment: &Environment,
) -> Result<(Vec<Address>, Vec<String>), String> {
    let client = fetch::builder().build().map_err(unusable)?;
    let metadata = Metadata::new(environment)?;
    let region = region(query, environment, &metadata).await?;
    let credentials = credentials(query, environment, &metadata).await?;
    let endpoint = match &query.endpoint {
        Some(endpoint) => endpoint.clone(),
        None => aws::endpoint(&region),
    };
    let mut found = Vec::new();
    let mut next: Option<String> = None;
    loop {
        let form = query.form(next.as_deref());
        let request = signed(&client, &endpoint, &form, &region, &credentials)?;
        let (status, body) = fetch::exchange(request)
            .await
            .map_err(|cause| format!("EC2 at {endpoint} cannot be asked: {cause}"))?;
        let text = String::from_utf8_lossy(&body);
        if status != StatusCode::OK {
            let said = aws::read_error(&text).unwrap_or_else(|| fetch::excerpt(&body));
            return Err(format!(
                "EC2 answers {} to DescribeInstances; check the credentials, their permission ec2:DescribeInstances and the \
                 clock: {said}",
                status.as_u16()
            ));
        }
        let page = aws::read_page(&text, query.address_type)
            .map_err(|cause| format!("EC2's list of instances cannot be read: {cause}"))?;
        found.extend(page.addresses);
        next = page.next;
        if next.is_none() || found.len() > MAX_ADDRESSES {
            return Ok((found, Vec::new()));
        }
    }
}

fn signed(
    client: &Client,
    endpoint: &str,
    form: &str,
    region: &str,
    credentials: &Credentials,
) -> Result<RequestBuilder, String> {
    let wrong = |cause: String| format!("endpoint is {endpoint:?}: {cause}; write https://host");
    let url = Url::parse(endpoint).map_err(|error| wrong(error.to_string()))?;
    let host = match (url.host_str(), url.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => return Err(wrong("it has no host".to_owned())),
    };
    let request = sign::Request {
        method: "POST",
        path: url.path(),
        query: "",
        headers: &[("content-type", FORM), ("host", &host)],
        body: form.as_bytes(),
    };
    let scope = sign::Scope {
        region,
        service: "ec2",
        now: now(),
    };
    let added = sign::headers(&request, &scope, credentials);
    let request = client
        .post(url.clone())
        .header("content-type", FORM)
        .body(form.to_owned());
    Ok(added.into_iter().fold(request, |request, (name, value)| {
        request.header(name, value)
    }))
}

async fn region(
    query: &Query,
    environment: &Environment,
    metadata: &Metadata,
) -> Result<String, String> {
    let variable = |name: &str| (environment.variable)(name);
    let known = query.region.clone();
    let known = known.or_else(|| variable("AWS_REGION"));
    let region = match known.or_else(|| variable("AWS_DEFAULT_REGION")) {
        Some(region) => region,
        None => {
            let asked = metadata.get("placement/region").await;
            asked.map_err(|e| format!("the region is not known; write region=NAME: {e}"))?
        }
    };
    match aws::is_region(&region) {
        true => Ok(region),
        false => Err(format!("{region:?} is no region; write region=NAME")),
    }
}

async fn credentials(
    query: &Query,
    environment: &Environment,
    metadata: &Metadata,
) -> Result<Credentials, String> {
    let variable = |name: &str| (environment.variable)(name);
    if let Some(credentials) = &query.credentials {
        return Ok(credentials.clone());
    }
    let keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
    if let (Some(id), Some(secret)) = (variable(keys.0), variable(keys.1)) {
        return Ok(Credentials {
            access_key_id: id,
            secret_access_key: secret,
            session_token: variable("AWS_SESSION_TOKEN"),
        });
    }
    let answer = match container(environment) {
        Some(url) => metadata.container(&url, environment).await,
        None => metadata.role().await,
    };
    let answer = answer.map_err(|e| {
        format!(
            "there are no credentials; set {} and {}, or give this machine a role: {e}",
            keys.0, keys.1
        )
    })?;
    let role: Role = serde_json::from_slice(&answer)
        .map_err(|error| format!("the role's credentials cannot be read: {error}"))?;
    Ok(Credentials {
        access_key_id: role.access_key_id,
        secret_access_key: role.secret_access_key,
        session_token: Some(role.token),
    })
}

/// Where a container on ECS or EKS gets the credentials of its role.
fn container(environment: &Environment) -> Option<String> {
    let relative = (environment.variable)("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI");
    let full = || (environment.variable)("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    relative
        .map(|path| format!("{CONTAINER}{path}"))
        .or_else(full)
}

/// Temporary credentials, as both metadata services give them.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Role {
    access_key_id: String,
    secret_access_key: String,
    token: String,
}

/// The instance's metadata service, version 2: a token first.
struct Metadata {
    client: Client,
    endpoint: String,
}

impl Metadata {
    fn new(environment: &Environment) -> Result<Self, String> {
        let client = fetch::builder().no_proxy().timeout(METADATA_LIMIT);
        let endpoint = (environment.variable)("AWS_EC2_METADATA_SERVICE_ENDPOINT");
        let endpoint = endpoint.unwrap_or_else(|| METADATA.to_owned());
        Ok(Self {
            client: client.build().map_err(unusable)?,
            endpoint: endpoint.trim_end_matches('/').to_owned(),
        })
    }

    async fn get(&self, path: &str) -> Result<String, String> {
        let put = self
            .client
            .put(format!("{}/latest/api/token", self.endpoint))
            .header("x-aws-ec2-metadata-token-ttl-seconds", "60");
        let token = self.ask(put).await?;
        let get = self
            .client
            .get(format!("{}/latest/meta-data/{path}", self.endpoint))
            .header("x-aws-ec2-metadata-token", token.as_slice());
        let body = self.ask(get).await?;
        Ok(String::from_utf8_lossy(&body).trim().to_owned())
    }

    /// The credentials of the instance's role.
    async fn role(&self) -> Result<Vec<u8>, String> {
        const PATH: &str = "iam/security-credentials/";
        let roles = self.get(PATH).await?;
        let role = roles.lines().next().unwrap_or_default();
        if role.is_empty() {
            return Err("the instance has no role".to_owned());
        }
        Ok(self.get(&format!("{PATH}{role}")).await?.into_bytes())
    }

    async fn container(&self, url: &str, environment: &Environment) -> Result<Vec<u8>, String> {
        let mut token = (environment.variable)("AWS_CONTAINER_AUTHORIZATION_TOKEN");
        if let Some(file) = (environment.variable)("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE") {
            let read = tokio::fs::read_to_string(&file).await;
            token = Some(read.map_err(|error| format!("{file} cannot be read: {error}"))?);
        }
        let mut request = self.client.get(url);
        if let Some(token) = token {
            request = request.header("authorization", token.trim());
        }
        self.ask(request).await
    }

    async fn ask(&self, request: RequestBuilder) -> Result<Vec<u8>, String> {
        match fetch::exchange(request).await {
            Ok((StatusCode::OK, body)) => Ok(body),
            Ok((status, body)) => Err(format!(
                "the metadata service answers {}: {}",
                status.as_u16(),
                fetch::excerpt(&body)
            )),
            Err(cause) => Err(format!("the metadata service cannot be asked: {cause}")),
        }
    }
}

fn unusable(error: reqwest::Error) -> String {
    format!("no HTTP client: {error}")
}

#[expect(clippy::disallowed_methods, reason = "a signature holds its time")]
fn now() -> SystemTime {
    SystemTime::now()
}
