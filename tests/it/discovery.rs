//! Sources of addresses against stand-ins for the Kubernetes API server, EC2 and the metadata services.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing)] // Test code: a failed step should stop the test.

use crate::support::stand_in::Asked;
use crate::support::stand_in::StandIn;
use crossway::discovery::Environment;
use crossway::discovery::Source;
use crossway::discovery::aws::sign;
use crossway::discovery::resolve;
use rcgen::BasicConstraints;
use rcgen::CertificateParams;
use rcgen::IsCa;
use rcgen::Issuer;
use rcgen::KeyPair;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::Value;
use serde_json::json;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use time::PrimitiveDateTime;
use time::macros::format_description;

/// A machine with these environment variables and this folder of a pod's service account.
fn machine(variables: &[(&str, &str)], service_account: &Path) -> Environment {
    let variables: BTreeMap<String, String> = variables
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    Environment {
        variable: Arc::new(move |name| variables.get(name).cloned()),
        service_account: service_account.to_owned(),
        ..Environment::system()
    }
}

/// The addresses that a source gives, and behind them what is wrong.
async fn found(text: &str, environment: &Environment) -> Vec<String> {
    let source = Source::parse(text).unwrap();
    let resolution = resolve(&[source], 8301, environment).await;
    let addresses = resolution
        .found
        .iter()
        .map(|found| found.address.to_string());
    let problems = resolution
        .problems
        .into_iter()
        .map(|problem| problem.reason);
    addresses.chain(problems).collect()
}

fn pods(ips: &[&str], next: &str) -> Value {
    let pod = |ip: &&str| {
        json!({
            "metadata": {"name": "p", "annotations": {"consul.hashicorp.com/auto-join-port": "9301"}},
            "status": {"phase": "Running", "podIP": ip, "conditions": [{"type": "Ready", "status": "True"}]},
        })
    };
    json!({"kind": "PodList", "metadata": {"continue": next}, "items": ips.iter().map(pod).collect::<Vec<_>>()})
}

/// A CA in PEM, and a server's configuration with a certificate of it for 127.0.0.1.
fn authority() -> (String, Arc<ServerConfig>) {
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca = params.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(params, key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    let leaf = leaf.signed_by(&key, &issuer).unwrap();
    crossway::net::install_crypto_provider();
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let config = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![leaf.der().clone()], key)
        .unwrap();
    (ca, Arc::new(config))
}

#[tokio::test]
async fn a_pod_asks_its_own_api_server() {
    let (ca, tls) = authority();
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("ca.crt"), ca).unwrap();
    std::fs::write(dir.path().join("token"), "first\n").unwrap();
    let server = StandIn::start(Some(tls), |asked: &Asked| {
        let pages = [
            ("", pods(&["10.0.0.1", "fd00::2"], "page2")),
            ("&continue=page2", pods(&["10.0.0.3"], "")),
        ];
        let start = "/api/v1/namespaces/mesh/pods?labelSelector=app%3Dconsul%2Ccomponent%3Dserver&limit=500";
        let page = pages.iter().find(|(next, _)| asked.path == format!("{start}{next}"));
        match (asked.header("authorization"), page) {
            ("Bearer first" | "Bearer second", Some((_, page))) => (200, page.to_string()),
            ("Bearer forbidden", _) => (403, json!({"message": "pods is\nforbidden"}).to_string()),
            _ => (404, asked.path.clone()),
        }
    })
    .await;
    let port = server.address.port().to_string();
    let pod = machine(
        &[
            ("KUBERNETES_SERVICE_HOST", "127.0.0.1"),
            ("KUBERNETES_SERVICE_PORT", &port),
        ],
        dir.path(),
    );
    let text = "provider=k8s namespace=mesh label_selector=\"app=consul,component=server\"";
    let expected = ["10.0.0.1:9301", "[fd00::2]:9301", "10.0.0.3:9301"];
    assert_eq!(found(text, &pod).await, expected);
    // The token is read anew each time, as Kubernetes replaces it.
    std::fs::write(dir.path().join("token"), "second").unwrap();
    assert_eq!(found(text, &pod).await, expected);
    std::fs::write(dir.path().join("token"), "forbidden").unwrap();
    assert_eq!(
        found(text, &pod).await,
        [
            "the Kubernetes API server answers 403 to the list of pods in namespace \"mesh\"; grant the verb list on pods to \
             the service account: {\"message\":\"pods is\\nforbidden\"}"
        ]
    );
    // Another CA.
    std::fs::write(dir.path().join("ca.crt"), authority().0).unwrap();
    let problem = found(text, &pod).await;
    assert!(
        problem[0].contains("cannot be asked") && problem[0].contains("certificate"),
        "{problem:?}"
    );
    std::fs::remove_file(dir.path().join("ca.crt")).unwrap();
    let problem = found(text, &pod).await;
    assert!(problem[0].contains("ca.crt cannot be read"), "{problem:?}");
}

#[tokio::test]
async fn a_kubeconfig_file_names_another_cluster() {
    let server = StandIn::start(None, |asked: &Asked| {
        match (asked.header("authorization"), asked.path.as_str()) {
            (
                "Bearer t0",
                "/prefix/api/v1/namespaces/default/pods?fieldSelector=x%3Dy&limit=500",
            ) => (200, pods(&["10.0.0.1"], "").to_string()),
            ("Bearer t0", "/prefix/api/v1/namespaces/junk/pods?limit=500") => {
                (200, "<html>".to_owned())
            }
            _ => (401, String::new()),
        }
    })
    .await;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("config");
    let text = format!(
        "current-context: c\ncontexts:\n- {{name: c, context: {{cluster: k, user: u}}}}\nclusters:\n- name: k\n  cluster: \
         {{server: \"http://{}/prefix\"}}\nusers:\n- name: u\n  user: {{tokenFile: token}}\n",
        server.address
    );
    std::fs::write(&file, text).unwrap();
    std::fs::write(dir.path().join("token"), "t0").unwrap();
    let nowhere = machine(&[], dir.path());
    let named = |more: &str| format!("provider=k8s kubeconfig={} {more}", file.display());
    assert_eq!(
        found(&named("field_selector=\"x=y\""), &nowhere).await,
        ["10.0.0.1:9301"]
    );
    let from_variable = machine(&[("KUBECONFIG", file.to_str().unwrap())], dir.path());
    let problem = found("provider=k8s namespace=junk", &from_variable).await;
    assert!(
        problem[0].contains("list of pods cannot be read"),
        "{problem:?}"
    );
    std::fs::write(dir.path().join("token"), "old").unwrap();
    let problem = found(&named(""), &nowhere).await;
    assert!(
        problem[0].contains("401") && problem[0].contains("check the token"),
        "{problem:?}"
    );
    let problem = found("provider=k8s", &nowhere).await;
    assert!(problem[0].contains("name a kubeconfig file"), "{problem:?}");
}

/// A page of instances.
fn instances(ips: &[&str], next: &str) -> String {
    let item = |ip: &&str| format!("<item><privateIpAddress>{ip}</privateIpAddress></item>");
    let items: String = ips.iter().map(item).collect();
    format!(
        "<DescribeInstancesResponse xmlns=\"http://ec2.amazonaws.com/doc/2016-11-15/\"><reservationSet><item>\
         <instancesSet>{items}</instancesSet></item></reservationSet><nextToken>{next}</nextToken></DescribeInstancesResponse>"
    )
}

/// Whether a request has the signature that these credentials give it.
fn is_signed(asked: &Asked, credentials: &sign::Credentials) -> bool {
    let format = format_description!("[year][month][day]T[hour][minute][second]Z");
    let date = PrimitiveDateTime::parse(asked.header("x-amz-date"), format).unwrap();
    let headers = [
        ("content-type", asked.header("content-type")),
        ("host", asked.header("host")),
    ];
    let request = sign::Request {
        method: &asked.method,
        path: &asked.path,
        query: "",
        headers: &headers,
        body: asked.body.as_bytes(),
    };
    let scope = sign::Scope {
        region: "eu-test-1",
        service: "ec2",
        now: SystemTime::from(date.assume_utc()),
    };
    let expected = sign::headers(&request, &scope, credentials);
    expected
        .iter()
        .all(|(name, value)| asked.header(name) == value)
}

/// EC2 and the metadata service in one.
async fn ec2(credentials: sign::Credentials) -> StandIn {
    StandIn::start(None, move |asked: &Asked| {
        let has_token = asked.header("x-aws-ec2-metadata-token") == "imds";
        let role = json!({"Code": "Success", "AccessKeyId": credentials.access_key_id,
            "SecretAccessKey": credentials.secret_access_key, "Token": credentials.session_token,
            "Expiration": "2030-01-01T00:00:00Z"});
        match (asked.method.as_str(), asked.path.as_str()) {
            ("PUT", "/latest/api/token") if !asked.header("x-aws-ec2-metadata-token-ttl-seconds").is_empty() => {
                (200, "imds".to_owned())
            }
            ("GET", "/latest/meta-data/placement/region") if has_token => (200, "eu-test-1".to_owned()),
            ("GET", "/latest/meta-data/iam/security-credentials/") if has_token => (200, "gateway-role".to_owned()),
            ("GET", "/latest/meta-data/iam/security-credentials/gateway-role") if has_token => (200, role.to_string()),
            ("GET", "/container") if asked.header("authorization") == "pod" => (200, role.to_string()),
            ("POST", "/") if is_signed(asked, &credentials) => {
                assert!(asked.body.contains("Filter.1.Name=tag%3Arole&Filter.1.Value.1=server"), "{}", asked.body);
                match asked.body.contains("NextToken=more") {
                    true => (200, instances(&["10.0.0.2"], "")),
                    false => (200, instances(&["10.0.0.1"], "more")),
                }
            }
            ("POST", "/") => (
                401,
                "<Response><Errors><Error><Code>AuthFailure</Code><Message>no</Message></Error></Errors></Response>".to_owned(),
            ),
            _ => (404, "nothing here".to_owned()),
        }
    })
    .await
}

#[tokio::test]
async fn ec2_is_asked_with_whatever_credentials_there_are() {
    let credentials = |token: Option<&str>| sign::Credentials {
        access_key_id: "AK".to_owned(),
        secret_access_key: "s3cret".to_owned(),
        session_token: token.map(ToOwned::to_owned),
    };
    let dir = tempfile::tempdir().unwrap();
    let server = ec2(credentials(Some("session"))).await;
    let url = format!("http://{}", server.address);
    let text = format!("provider=aws tag_key=role tag_value=server endpoint={url}/");
    let expected = ["10.0.0.1:8301", "10.0.0.2:8301"];
    // The instance's role and region.
    let instance = machine(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url)], dir.path());
    assert_eq!(found(&text, &instance).await, expected);
    // A container's role.
    let container = format!("{url}/container");
    let mut variables = vec![
        ("AWS_REGION", "eu-test-1"),
        ("AWS_CONTAINER_CREDENTIALS_FULL_URI", container.as_str()),
        ("AWS_CONTAINER_AUTHORIZATION_TOKEN", "pod"),
    ];
    assert_eq!(
        found(&text, &machine(&variables, dir.path())).await,
        expected
    );
    // Keys in the environment win over roles.
    let keys = [
        ("AWS_ACCESS_KEY_ID", "AK"),
        ("AWS_SECRET_ACCESS_KEY", "s3cret"),
    ];
    variables.extend(keys);
    let problem = found(&text, &machine(&variables, dir.path())).await;
    assert!(
        problem[0].contains("EC2 answers 401") && problem[0].ends_with("AuthFailure: no"),
        "{problem:?}"
    );
    variables.push(("AWS_SESSION_TOKEN", "session"));
    assert_eq!(
        found(&text, &machine(&variables, dir.path())).await,
        expected
    );
    // Keys in the entry win over all.
    let server = ec2(credentials(None)).await;
    let text = format!(
        "provider=aws tag_key=role tag_value=server region=eu-test-1 access_key_id=AK secret_access_key=s3cret \
         endpoint=http://{}/",
        server.address
    );
    assert_eq!(
        found(&text, &machine(&variables, dir.path())).await,
        expected
    );
}

#[tokio::test]
async fn without_credentials_ec2_is_not_asked() {
    let dir = tempfile::tempdir().unwrap();
    let nothing = StandIn::start(None, |_: &Asked| (404, String::new())).await;
    let url = format!("http://{}", nothing.address);
    let text = "provider=aws tag_key=role tag_value=server region=eu-test-1";
    let alone = machine(&[("AWS_EC2_METADATA_SERVICE_ENDPOINT", &url)], dir.path());
    let problem = found(text, &alone).await;
    assert_eq!(
        problem,
        [
            "there are no credentials; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or give this machine a role: the \
             metadata service answers 404: "
        ]
    );
    let problem = found(&text.replace(" region=eu-test-1", ""), &alone).await;
    assert!(
        problem[0].starts_with("the region is not known; write region=NAME"),
        "{problem:?}"
    );
}

/// The hosts file and DNS of the machine itself.
#[tokio::test]
async fn the_machine_knows_names() {
    let local = found("localhost:1234", &Environment::system()).await;
    assert!(
        local
            .iter()
            .any(|a| a == "127.0.0.1:1234" || a == "[::1]:1234"),
        "{local:?}"
    );
    let problem = found("no-such-name.invalid", &Environment::system()).await;
    assert!(
        problem[0].starts_with("\"no-such-name.invalid\" is not resolved: "),
        "{problem:?}"
    );
}
