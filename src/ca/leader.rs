//! The leader's task: sets the CA up once, then signs.
//!
//! ```text
//!   Uninitialized --config, key and root stored--> Ready --order--> Ready
//!        ^   | failed: try again, later each time
//!        +---+
//! ```
//!
//! Setting up never holds up leadership (C090): it runs in this task and retries in the background. The task may be
//! cancelled at any await; each write is a whole step, and a later leader goes on from what is stored.

use crate::ca::sign::{self, Csr, LeafRequest};
use crate::ca::spiffe::{ServiceUri, TrustDomain};
use crate::ca::{Error, LeafOrder, Orders};
use crate::consensus::Consensus;
use crate::model::{
    CaConfiguration, CaProviderState, CaRoot, Datacenter, GoDuration, Index, IssuedCert, Timestamp,
};
use crate::store::{CaCommand, Command, Outcome};
use rand::Rng;
use rcgen::{Issuer, KeyPair};
use serde_json::Value;
use sha2::{Digest, Sha256};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use tracing::{info, warn};
use uuid::Uuid;

/// Serial numbers are taken from the replicated counter this many at a time; a change of leader skips the rest.
const SERIAL_BLOCK: u64 = 64;

/// First and longest wait between attempts to set the CA up.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(30));

/// What the leader's task works with.
#[derive(Clone)]
pub struct Context {
    /// Where the CA's state is kept.
    pub consensus: Consensus,
    /// Requests for leaves; locked by the task of the present term.
    pub orders: Arc<Mutex<Orders>>,
    /// The datacenter that certificates name.
    pub datacenter: Datacenter,
    /// Cluster id for a new federation, for tests; random when `None`.
    pub cluster_id: Option<String>,
}

/// Runs while this server leads.
pub async fn run(context: Context) {
    let mut orders = context.orders.lock().await;
    let mut wait = RETRY.0;
    let mut provider = loop {
        match set_up(&context).await {
            Ok(provider) => break provider,
            Err(error) => {
                warn!(%error, retry_in = ?wait, "the CA is not set up yet");
                tokio::time::sleep(wait).await;
                wait = (wait * 2).min(RETRY.1);
            }
        }
    };
    while let Some(LeafOrder { csr, answer }) = orders.0.recv().await {
        if answer.is_closed() {
            continue; // Whoever asked has given up, perhaps while there was no leader.
        }
        let signed = provider.leaf(&context, &csr).await;
        if let Err(error) = &signed {
            warn!(%error, "leaf certificate not signed");
        }
        let _ = answer.send(signed); // The caller may have gone.
    }
}

/// The built-in provider of one term.
struct Provider {
    id: String,
    trust_domain: TrustDomain,
    issuer: Issuer<'static, KeyPair>,
    leaf_ttl: Duration,
    next_serial: u64,
    last_serial: u64,
}

impl Provider {
    async fn leaf(&mut self, context: &Context, csr: &str) -> Result<IssuedCert, Error> {
        let csr = Csr::parse(csr)?;
        let uri = self.allowed(context, &csr)?;
        let serial = self.serial(context).await?;
        let signed = sign::leaf(
            &self.issuer,
            &LeafRequest {
                csr: &csr,
                common_name: &self.trust_domain.service_common_name(&uri.service),
                serial,
                now: now(),
                ttl: self.leaf_ttl,
            },
        )?;
        Ok(IssuedCert {
            serial_number: serial_hex(serial),
            cert_pem: unix_lines(&signed.certificate.pem()),
            service: uri.service,
            service_uri: csr.uri,
            valid_after: signed.not_before,
            valid_before: signed.not_after,
            ..IssuedCert::default()
        })
    }

    /// Whom a request is for: a service of this trust domain and datacenter.
    fn allowed(&self, context: &Context, csr: &Csr) -> Result<ServiceUri, Error> {
        let uri: ServiceUri = csr
            .uri
            .parse()
            .map_err(|_| Error::Invalid("SPIFFE ID in CSR must be a service ID".to_owned()))?;
        let (ours, here) = (self.trust_domain.to_string(), &context.datacenter);
        if !uri.trust_domain.eq_ignore_ascii_case(&ours) {
            let theirs = uri.trust_domain;
            return Err(Error::Invalid(format!(
                "SPIFFE ID in CSR from a different trust domain: {theirs}, we are {ours}"
            )));
        }
        if uri.datacenter != *here.as_str() {
            let theirs = uri.datacenter;
            return Err(Error::Invalid(format!(
                "SPIFFE ID in CSR from a different datacenter: {theirs}, we are {here}"
            )));
        }
        Ok(uri)
    }

    async fn serial(&mut self, context: &Context) -> Result<u64, Error> {
        if self.next_serial > self.last_serial {
            let command = CaCommand::NextSerials {
                id: self.id.clone(),
                count: SERIAL_BLOCK,
            };
            let (_, outcome) = store(context, command).await?;
            let Outcome::Number(last) = outcome else {
                return Err(Error::Store("no serial numbers were given".to_owned()));
            };
            self.last_serial = last;
            self.next_serial = last + 1 - SERIAL_BLOCK;
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        Ok(serial)
    }
}

async fn set_up(context: &Context) -> Result<Provider, Error> {
    let config = configuration(context).await?;
    let trust_domain = TrustDomain::of(&config.cluster_id);
    let id = provider_id();
    let state = context.consensus.store().latest();
    let provider = match state.ca_provider(&id) {
        Some(known) => (**known).clone(),
        None => create_root(context, &id, &trust_domain).await?,
    };
    let active = activate(context, &provider).await?;
    info!(%trust_domain, root = %active, "the CA is ready");
    Ok(Provider {
        issuer: sign::issuer(&provider.root_cert, &provider.private_key)?,
        id,
        trust_domain,
        leaf_ttl: leaf_ttl(&config),
        next_serial: 1,
        last_serial: 0,
    })
}

/// The stored configuration, or the default one with a new cluster id, stored by this call.
async fn configuration(context: &Context) -> Result<Arc<CaConfiguration>, Error> {
    let stored = |context: &Context| {
        let state = context.consensus.store().latest();
        state.ca_config().1.cloned()
    };
    if let Some(config) = stored(context) {
        return Ok(config);
    }
    let text = |text: &str| Value::String(text.to_owned());
    let config = CaConfiguration {
        cluster_id: context
            .cluster_id
            .clone()
            .unwrap_or_else(|| Uuid::new_v4().to_string()),
        provider: "consul".to_owned(),
        config: [
            ("IntermediateCertTTL", "8760h"),
            ("LeafCertTTL", "72h"),
            ("RotationPeriod", "2160h"),
        ]
        .map(|(key, value)| (key.to_owned(), text(value)))
        .into(),
        ..CaConfiguration::default()
    };
    let command = CaCommand::SetConfig {
        cas: Some(0),
        config,
    };
    store(context, command).await?;
    stored(context).ok_or_else(|| Error::Store("the configuration was not kept".to_owned()))
}

async fn create_root(
    context: &Context,
    id: &str,
    trust_domain: &TrustDomain,
) -> Result<CaProviderState, Error> {
    const SERIAL: u64 = 1;
    let root = sign::root(trust_domain, &uid(), SERIAL, now())?;
    let state = CaProviderState {
        id: id.to_owned(),
        private_key: root.private_key_pem,
        root_cert: unix_lines(&root.certificate.pem()),
        serial: SERIAL,
        ..CaProviderState::default()
    };
    store(context, CaCommand::SetProviderState(state.clone())).await?;
    Ok(state)
}

/// Makes the provider's root the active one, unless it is; answers its id.
async fn activate(context: &Context, provider: &CaProviderState) -> Result<String, Error> {
    let root = describe(provider)?;
    let state = context.consensus.store().latest();
    let (index, known) = state.ca_roots();
    if known.iter().any(|r| r.active && r.id == root.id) {
        return Ok(root.id);
    }
    let id = root.id.clone();
    let retired = known.iter().filter(|r| r.id != id).map(|r| CaRoot {
        active: false,
        rotated_out_at: if r.active { now() } else { r.rotated_out_at },
        ..(**r).clone()
    });
    let command = CaCommand::SetRoots {
        cas: index,
        roots: retired.chain([root]).collect(),
    };
    match store(context, command).await? {
        (_, Outcome::Bool(true)) => Ok(id),
        _ => Err(Error::Store("the roots changed meanwhile".to_owned())),
    }
}

/// The entry of the list of roots for a provider's root certificate.
fn describe(provider: &CaProviderState) -> Result<CaRoot, Error> {
    let bad = |what: String| Error::Crypto(format!("the stored root certificate {what}"));
    let (_, pem) = x509_parser::pem::parse_x509_pem(provider.root_cert.as_bytes())
        .map_err(|e| bad(format!("is not PEM: {e}")))?;
    let cert = pem
        .parse_x509()
        .map_err(|e| bad(format!("is not X.509: {e}")))?;
    let spki = cert.public_key().raw;
    let uri = cert
        .subject_alternative_name()
        .ok()
        .flatten()
        .and_then(|san| {
            san.value.general_names.iter().find_map(|name| match name {
                x509_parser::extensions::GeneralName::URI(uri) => Some((*uri).to_owned()),
                _ => None,
            })
        })
        .ok_or_else(|| bad("names no trust domain".to_owned()))?;
    let cluster = uri.trim_start_matches("spiffe://");
    Ok(CaRoot {
        id: sign::colon_hex(&sha1::Sha1::digest(&pem.contents)),
        name: "Consul CA Root Cert".to_owned(),
        serial_number: u64::from_str_radix(&cert.tbs_certificate.serial.to_str_radix(16), 16)
            .unwrap_or_default(),
        signing_key_id: sign::colon_hex(&Sha256::digest(spki)),
        external_trust_domain: cluster.split('.').next().unwrap_or(cluster).to_owned(),
        not_before: Timestamp::from_unix(cert.validity().not_before.timestamp(), 0),
        not_after: Timestamp::from_unix(cert.validity().not_after.timestamp(), 0),
        root_cert: provider.root_cert.clone(),
        active: true,
        private_key_type: "ec".to_owned(),
        private_key_bits: 256,
        ..CaRoot::default()
    })
}

/// The id under which a primary's built-in provider without a configured key keeps its state.
fn provider_id() -> String {
    sign::colon_hex(&Sha256::digest(",,true"))
}

fn leaf_ttl(config: &CaConfiguration) -> Duration {
    const DEFAULT: Duration = Duration::from_secs(72 * 3600);
    config
        .config
        .get("LeafCertTTL")
        .and_then(Value::as_str)
        .and_then(|text| text.parse::<GoDuration>().ok())
        .map_or(DEFAULT, GoDuration::to_std)
}

async fn store(context: &Context, command: CaCommand) -> Result<(Index, Outcome), Error> {
    let written = context
        .consensus
        .propose(Command::Ca(command))
        .await
        .map_err(|error| Error::Store(error.to_string()))?;
    Ok((written.index, written.outcome))
}

/// Hexadecimal with an even number of digits, as clients show serial numbers.
fn serial_hex(serial: u64) -> String {
    let digits = format!("{serial:x}");
    if digits.len() % 2 == 1 {
        format!("0{digits}")
    } else {
        digits
    }
}

fn unix_lines(pem: &str) -> String {
    pem.replace("\r\n", "\n")
}

fn uid() -> String {
    const ALPHABET: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut rng = rand::rng();
    (0..8)
        .map(|_| {
            let at = rng.random_range(0..ALPHABET.len());
            char::from(ALPHABET.get(at).copied().unwrap_or(b'x'))
        })
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "the shell reads the clock")]
fn now() -> Timestamp {
    SystemTime::now().into()
}
