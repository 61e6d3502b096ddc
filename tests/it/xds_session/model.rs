//! The subscription algebra against a model of a client, with random conversations.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// What happens next.
#[derive(Clone, Debug)]
enum Step {
    /// The world changes: a resource gets this content, or goes.
    Set(usize, Option<u8>),
    /// The client subscribes and unsubscribes (`4` is `*`), perhaps together with its answer.
    Request {
        sub: Vec<usize>,
        unsub: Vec<usize>,
        answer: bool,
    },
    /// The client accepts the oldest unanswered response.
    Ack,
    /// The client refuses it.
    Nack,
    /// The stream breaks; the client comes back with what it has.
    Reconnect { lost: Vec<usize> },
}

fn step() -> impl Strategy<Value = Step> {
    let some = || proptest::collection::vec(0usize..5, 0..3);
    prop_oneof![
        4 => (0usize..4, proptest::option::weighted(0.8, 0u8..3)).prop_map(|(n, c)| Step::Set(n, c)),
        4 => (some(), some(), any::<bool>())
            .prop_map(|(sub, unsub, answer)| Step::Request { sub, unsub, answer }),
        6 => Just(Step::Ack),
        1 => Just(Step::Nack),
        1 => some().prop_map(|lost| Step::Reconnect { lost }),
    ]
}

fn name(index: usize) -> String {
    NAMES.get(index).map_or("*", |name| name).to_owned()
}

/// A client that follows the protocol, and what an ideal server would let it have.
struct Client {
    kind: ResourceType,
    now: Instant,
    world: ProxyResources,
    session: Session,
    wildcard: bool,
    names: BTreeSet<String>,
    cache: BTreeMap<String, String>,
    /// Names that must be answered by a response that is sent from now on.
    owed: BTreeSet<String>,
    /// Versions that were refused: not again on this stream before the resource changed.
    refused: BTreeSet<(String, String)>,
    /// Everything that was ever refused on this stream: the client may lack it in the end.
    excused: BTreeSet<(String, String)>,
    inbox: Option<DeltaDiscoveryResponse>,
}

impl Client {
    fn new(kind: ResourceType, wildcard: bool) -> Self {
        let mut client = Self {
            kind,
            now: start(),
            world: ProxyResources::default(),
            session: Session::new(Protocol::Delta, None),
            wildcard,
            names: BTreeSet::new(),
            cache: BTreeMap::new(),
            owed: BTreeSet::new(),
            refused: BTreeSet::new(),
            excused: BTreeSet::new(),
            inbox: None,
        };
        client.connect();
        client
    }

    fn connect(&mut self) {
        self.session = Session::new(Protocol::Delta, None);
        self.inbox = None;
        self.refused.clear();
        self.excused.clear();
        self.owed = self.names.clone();
        let mut sub: Vec<String> = self.names.iter().cloned().collect();
        if self.wildcard || sub.is_empty() {
            self.wildcard = true;
            sub.push("*".to_owned());
        }
        let request = DeltaRequest {
            type_url: self.kind.url().to_owned(),
            resource_names_subscribe: sub,
            initial_resource_versions: self.cache.clone(),
            ..Default::default()
        };
        let offered = self.session.offer(&Arc::new(self.world.clone()));
        self.receive(offered);
        self.request(request);
    }

    fn request(&mut self, request: DeltaRequest) {
        let outbox = self
            .session
            .on_request(self.now, Request::Delta(request))
            .unwrap();
        self.receive(outbox);
    }

    fn receive(&mut self, outbox: Outbox) {
        for response in outbox.responses {
            assert!(
                self.inbox.is_none(),
                "a second response while one is unanswered"
            );
            let mut deframer = Deframer::new(usize::MAX);
            response
                .pieces
                .iter()
                .for_each(|piece| deframer.push(piece.clone()));
            let message = deframer.next_message().unwrap().unwrap();
            let message = DeltaDiscoveryResponse::decode(message).unwrap();
            let put = message.resources.iter().map(|resource| &resource.name);
            for name in put.chain(&message.removed_resources) {
                let asked = self.wildcard || self.names.contains(name);
                assert!(asked, "{name} was not asked for");
                self.owed.remove(name);
            }
            for resource in &message.resources {
                let known = (resource.name.clone(), resource.version.clone());
                assert!(
                    !self.refused.contains(&known),
                    "{known:?} was refused before"
                );
            }
            self.inbox = Some(message);
        }
    }

    /// Reads the unanswered response; gives its nonce.
    fn read(&mut self, accept: bool) -> Option<String> {
        let message = self.inbox.take()?;
        if accept || message.resources.is_empty() {
            for resource in message.resources {
                // A client ignores what it does not want (any more).
                if self.wildcard || self.names.contains(&resource.name) {
                    self.cache.insert(resource.name, resource.version);
                }
            }
            for name in message.removed_resources {
                self.cache.remove(&name);
            }
        } else if let [only] = message.resources.as_slice() {
            let refused = (only.name.clone(), only.version.clone());
            // What was asked for again meanwhile would be the same bytes once more.
            self.owed.remove(&only.name);
            self.refused.insert(refused.clone());
            self.excused.insert(refused);
        }
        Some(message.nonce)
    }

    fn play(&mut self, step: Step) {
        match step {
            Step::Set(index, content) => self.set(NAMES[index], content),
            Step::Ack => self.answer(true),
            Step::Nack => self.answer(false),
            Step::Reconnect { lost } => {
                for index in lost {
                    self.cache.remove(&name(index));
                }
                self.connect();
            }
            Step::Request { sub, unsub, answer } => self.subscribe(&sub, &unsub, answer),
        }
    }

    fn set(&mut self, name: &str, content: Option<u8>) {
        self.refused.retain(|(refused, _)| refused != name);
        let set = match self.kind {
            ResourceType::Cluster => &mut self.world.clusters,
            _ => &mut self.world.endpoints,
        };
        match content {
            Some(content) => {
                set.put(resource(self.kind, &format!("dns:{name}={content}")));
            }
            None => {
                set.remove(name);
            }
        }
        let outbox = self.session.offer(&Arc::new(self.world.clone()));
        self.receive(outbox);
    }

    fn answer(&mut self, accept: bool) {
        let Some(response_nonce) = self.read(accept) else {
            return;
        };
        let message = "no".to_owned();
        self.request(DeltaRequest {
            type_url: self.kind.url().to_owned(),
            response_nonce,
            error_detail: (!accept).then_some(ErrorDetail { code: 13, message }),
            ..Default::default()
        });
    }

    fn subscribe(&mut self, sub: &[usize], unsub: &[usize], answer: bool) {
        let response_nonce = if answer { self.read(true) } else { None };
        for index in sub {
            if *index == NAMES.len() {
                self.wildcard = true;
            } else {
                self.names.insert(name(*index));
                self.owed.insert(name(*index));
                self.refused.retain(|(refused, _)| *refused != name(*index));
            }
        }
        for index in unsub {
            if *index == NAMES.len() {
                self.wildcard = false;
            } else {
                self.names.remove(&name(*index));
            }
        }
        self.owed.retain(|name| self.names.contains(name));
        if !self.wildcard {
            self.cache.retain(|name, _| self.names.contains(name));
        }
        self.request(DeltaRequest {
            type_url: self.kind.url().to_owned(),
            resource_names_subscribe: sub.iter().copied().map(name).collect(),
            resource_names_unsubscribe: unsub.iter().copied().map(name).collect(),
            response_nonce: response_nonce.unwrap_or_default(),
            ..Default::default()
        });
    }

    /// Lets everything arrive, then compares with the ideal.
    fn finish(&mut self) {
        for _ in 0..100 {
            if self.inbox.is_none() {
                break;
            }
            self.answer(true);
        }
        assert!(self.inbox.is_none(), "the conversation ends");
        assert!(
            self.owed.is_empty(),
            "subscribed but never answered: {:?}",
            self.owed
        );
        let set = self.world.of(self.kind);
        let asked = |name: &str| self.wildcard || self.names.contains(name);
        for name in NAMES {
            let wanted = set.get(name).map(|resource| resource.version().to_string());
            let wanted = wanted.filter(|_| asked(name));
            let has = self.cache.get(name).cloned();
            let excused =
                |version: &String| self.excused.contains(&(name.to_owned(), version.clone()));
            if !wanted.as_ref().is_some_and(excused) {
                assert_eq!(has, wanted, "{name}");
            }
        }
        let deviations = self.session.of(self.kind).ledger.deviations();
        assert!(deviations <= NAMES.len());
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 5000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_conversation_ends_with_the_client_having_what_it_asked_for(
        clusters in any::<bool>(),
        wildcard in any::<bool>(),
        steps in proptest::collection::vec(step(), 0..40),
    ) {
        let kind = if clusters { ResourceType::Cluster } else { ResourceType::Endpoint };
        let mut client = Client::new(kind, wildcard);
        for step in steps {
            client.play(step);
        }
        client.finish();
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 2000,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn any_bytes_of_a_client_are_survived(data in proptest::collection::vec(any::<u8>(), 0..200)) {
        crossway::testing::fuzz::xds::fuzz_xds_request(&data);
    }

    /// Framed requests with random content get further than random bytes.
    #[test]
    fn any_requests_are_survived(
        cut in any::<u8>(),
        requests in proptest::collection::vec(
            (0usize..6, "[ab*]{0,2}", "[ab*]{0,2}", "0000000[0-3]|x", any::<bool>()),
            0..12,
        ),
    ) {
        let mut data = vec![cut];
        for (index, sub, unsub, nonce, refuse) in requests {
            let list = |text: String| text.chars().map(String::from).collect::<Vec<_>>();
            let kind = ResourceType::ALL.get(index);
            let request = DeltaRequest {
                type_url: kind.map_or("x", |kind| kind.url()).to_owned(),
                resource_names_subscribe: list(sub),
                resource_names_unsubscribe: list(unsub),
                response_nonce: nonce,
                error_detail: refuse.then(ErrorDetail::default),
                ..Default::default()
            }
            .encode_to_vec();
            data.push(0);
            data.extend_from_slice(&u32::try_from(request.len()).unwrap().to_be_bytes());
            data.extend_from_slice(&request);
        }
        crossway::testing::fuzz::xds::fuzz_xds_request(&data);
    }
}
