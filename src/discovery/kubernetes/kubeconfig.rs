//! The file that `kubectl` keeps clusters and credentials in. Pure.
//!
//! Taken: the current context with a token, a token file or a client certificate. Credential plugins are programs of
//! their own and are not run.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;
use std::path::Path;
use std::path::PathBuf;

/// What the current context says.
#[derive(Clone, PartialEq, Eq)]
pub struct Access {
    /// The API server's URL.
    pub server: String,
    /// The CA of its certificate; `None` is the machine's own CAs.
    pub ca: Option<Material>,
    /// Whether its certificate is not checked.
    pub insecure: bool,
    /// The name in its certificate, if it is not the URL's host.
    pub server_name: Option<String>,
    /// A bearer token.
    pub token: Option<Material>,
    /// A client certificate and its key, in PEM.
    pub identity: Option<(Material, Material)>,
}

/// Bytes that stand in the file, or where they are.
#[derive(Clone, PartialEq, Eq)]
pub enum Material {
    /// The bytes.
    Inline(Vec<u8>),
    /// A file.
    File(PathBuf),
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Document {
    current_context: String,
    contexts: Vec<Named<Context>>,
    clusters: Vec<Named<Cluster>>,
    users: Vec<Named<User>>,
}

#[derive(Debug, Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "context", alias = "cluster", alias = "user")]
    value: T,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Context {
    cluster: String,
    user: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    exec: Option<serde::de::IgnoredAny>,
    auth_provider: Option<serde::de::IgnoredAny>,
    username: Option<serde::de::IgnoredAny>,
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("User")
    }
}

/// Reads the current context. Relative paths start at `folder`, where the file lies. `Err` says what is wrong.
///
/// # Errors
/// No YAML, a name that is not in the file, or credentials of a kind that is not taken.
pub fn parse(text: &str, folder: &Path) -> Result<Access, String> {
    let document: Document = serde_saphyr::from_str(text)
        .map_err(|error| format!("it is no kubeconfig: {}", first_line(&error.to_string())))?;
    let name = &document.current_context;
    if name.is_empty() {
        return Err(
            "it has no current-context; choose one with kubectl config use-context".to_owned(),
        );
    }
    let context = find(&document.contexts, "context", name)?;
    let cluster = find(&document.clusters, "cluster", &context.cluster)?;
    let user = match context.user.as_str() {
        "" => &User::default(),
        name => find(&document.users, "user", name)?,
    };
    let token = match (&user.token, &user.token_file) {
        (Some(token), _) if !token.is_empty() => Some(Material::Inline(token.clone().into_bytes())),
        (_, Some(file)) => Some(Material::File(folder.join(file))),
        _ => None,
    };
    let identity = match (
        material(
            &user.client_certificate_data,
            &user.client_certificate,
            folder,
        )?,
        material(&user.client_key_data, &user.client_key, folder)?,
    ) {
        (Some(certificate), Some(key)) => Some((certificate, key)),
        (None, None) => None,
        _ => return Err("a client certificate and its key go together".to_owned()),
    };
    let foreign = user.exec.is_some() || user.auth_provider.is_some() || user.username.is_some();
    if token.is_none() && identity.is_none() && foreign {
        return Err(format!(
            "user {:?} has a credential plugin or a password; use a token or a client certificate, such as a service account's",
            context.user
        ));
    }
    Ok(Access {
        server: cluster.server.clone(),
        ca: material(
            &cluster.certificate_authority_data,
            &cluster.certificate_authority,
            folder,
        )?,
        insecure: cluster.insecure_skip_tls_verify,
        server_name: cluster.tls_server_name.clone(),
        token,
        identity,
    })
}

fn find<'a, T>(list: &'a [Named<T>], kind: &str, name: &str) -> Result<&'a T, String> {
    let found = list.iter().find(|entry| entry.name == name);
    found
        .map(|entry| &entry.value)
        .ok_or_else(|| format!("it has no {kind} {name:?}"))
}

fn material(
    data: &Option<String>,
    file: &Option<PathBuf>,
    folder: &Path,
) -> Result<Option<Material>, String> {
    if let Some(data) = data.as_ref().filter(|data| !data.is_empty()) {
        let bytes = STANDARD.decode(data.trim());
        let bytes = bytes.map_err(|error| format!("its base64 data is damaged: {error}"))?;
        return Ok(Some(Material::Inline(bytes)));
    }
    Ok(file.as_ref().map(|file| Material::File(folder.join(file))))
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "
apiVersion: v1
kind: Config
current-context: b
contexts:
- {name: a, context: {cluster: x, user: none}}
- name: b
  context: {cluster: c1, user: u1, namespace: other}
clusters:
- name: c1
  cluster:
    server: https://10.0.0.1:6443
    certificate-authority-data: Y2E=
users:
- name: u1
  user:
    client-certificate: certs/client.pem
    client-key: /keys/client.pem
";

    fn problem(text: &str) -> String {
        parse(text, Path::new("/etc/k")).err().unwrap()
    }

    #[test]
    fn the_current_context_counts() {
        let access = parse(TEXT, Path::new("/etc/k")).unwrap();
        assert_eq!(access.server, "https://10.0.0.1:6443");
        assert!(access.ca == Some(Material::Inline(b"ca".to_vec())));
        let identity = (
            Material::File("/etc/k/certs/client.pem".into()),
            Material::File("/keys/client.pem".into()),
        );
        assert!(access.identity == Some(identity));
        assert!(access.token.is_none() && !access.insecure);
        // JSON is YAML.
        let json = r#"{"current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://h:1", "insecure-skip-tls-verify": true}}],
            "users": [{"name": "u", "user": {"token": "t"}}]}"#;
        let access = parse(json, Path::new("/")).unwrap();
        assert!(access.token == Some(Material::Inline(b"t".to_vec())) && access.insecure);
    }

    #[test]
    fn mistakes_are_named() {
        assert_eq!(
            problem(&TEXT.replace("cluster: c1", "cluster: c2")),
            "it has no cluster \"c2\""
        );
        assert_eq!(
            problem(&TEXT.replace("current-context: b", "current-context: z")),
            "it has no context \"z\""
        );
        assert!(
            problem(&TEXT.replace("current-context: b", "")).contains("kubectl config use-context")
        );
        assert!(problem(&TEXT.replace("Y2E=", "Y2E!")).contains("damaged"));
        assert!(
            problem(&TEXT.replace("    client-key: /keys/client.pem\n", ""))
                .contains("go together")
        );
        assert!(problem("clusters: [").starts_with("it is no kubeconfig: "));
        let plugin = TEXT.replace(
            "client-certificate: certs/client.pem",
            "exec: {command: aws}",
        );
        let plugin = plugin.replace("    client-key: /keys/client.pem\n", "");
        assert!(
            problem(&plugin).contains("credential plugin"),
            "{}",
            problem(&plugin)
        );
    }

    proptest::proptest! {
        #[test]
        fn no_text_panics(text in "[a-z:\\-\\n {}\\[\\]&*!|>\"']{0,200}") {
            let _ = parse(&text, Path::new("/"));
        }
    }
}
