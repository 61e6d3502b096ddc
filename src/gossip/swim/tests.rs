//! One member, told by hand what others say.

mod own;
mod probe;
mod queue;
mod spread;
mod state;

use std::net::SocketAddr;
use std::time::Duration;
use std::time::Instant;

use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::gossip::Target;
use crate::gossip::swim::Config;
use crate::gossip::swim::Event;
use crate::gossip::swim::Node;
use crate::gossip::swim::Output;
use crate::gossip::swim::Swim;
use crate::gossip::wire::Incoming;
use crate::gossip::wire::Message;
use crate::gossip::wire::Versions;
use crate::gossip::wire::message::Accusation;
use crate::gossip::wire::message::Ack;
use crate::gossip::wire::message::Alive;
use crate::gossip::wire::message::IndirectPing;
use crate::gossip::wire::message::Nack;
use crate::gossip::wire::message::Ping;
use crate::gossip::wire::packet;
use crate::gossip::wire::stream::NodeState;
use crate::gossip::wire::stream::PushNodeState;
use crate::model::NodeName;

/// Member "me" at 10.0.0.1, in a pool of which it knows what the test tells it.
struct Me {
    swim: Swim,
    now: Instant,
    rng: StdRng,
}

/// What a packet said, and to whom.
type Said = (Target, Vec<Message>);

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 8301))
}

fn target(name: &str, last: u8) -> Target {
    let (name, address) = (name.into(), address(last));
    Target { name, address }
}

/// The node is alive in this life, at 10.0.0.`last`.
fn alive(name: &str, last: u8, incarnation: u32) -> Alive {
    Alive {
        incarnation,
        node: name.into(),
        addr: address(last).ip().into(),
        port: 8301,
        meta: b"meta".as_slice().into(),
        vsn: Versions::OURS,
    }
}

fn accusation(node: &str, from: &str, incarnation: u32) -> Accusation {
    let (node, from) = (node.into(), from.into());
    Accusation {
        incarnation,
        node,
        from,
    }
}

fn state(name: &str, last: u8, incarnation: u32, state: NodeState) -> PushNodeState {
    let alive = alive(name, last, incarnation);
    PushNodeState {
        name: alive.node,
        addr: alive.addr,
        port: alive.port,
        meta: alive.meta,
        incarnation,
        state,
        vsn: alive.vsn,
    }
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

impl Me {
    fn new() -> Self {
        Self::with(|_| ())
    }

    #[expect(clippy::disallowed_methods, reason = "an arbitrary start of time")]
    fn with(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new("me".into(), address(1));
        config.meta = b"mine".as_slice().into();
        change(&mut config);
        let (now, mut rng) = (Instant::now(), StdRng::seed_from_u64(1));
        let swim = Swim::new(config, now, &mut rng);
        let mut me = Self { swim, now, rng };
        assert!(
            matches!(me.events().as_slice(), [Event::Join(node)] if node.name.as_str() == "me")
        );
        me
    }

    /// Knows these nodes, at 10.0.0.2 and on, in their first life, and has told everybody.
    fn knowing(names: &[&str]) -> Self {
        let mut me = Self::new();
        me.meet(names);
        me
    }

    fn meet(&mut self, names: &[&str]) {
        for (last, name) in (2..).zip(names) {
            self.hear(Message::Alive(alive(name, last, 1)));
        }
        self.quiet();
    }

    /// Tells what waits until nothing does, and forgets all that happened.
    fn quiet(&mut self) {
        for _ in 0..100 {
            self.swim.gossip(self.now, &mut self.rng);
        }
        self.outputs();
        assert_eq!(self.swim.queue_len(), 0);
    }

    fn hear(&mut self, message: Message) {
        self.hear_from(address(99), message);
    }

    fn hear_from(&mut self, from: SocketAddr, message: Message) {
        self.swim
            .handle_message(self.now, from, message, &mut self.rng);
    }

    fn merge(&mut self, states: &[PushNodeState]) {
        let merged = self
            .swim
            .merge_remote_state(self.now, true, states, &mut self.rng);
        merged.unwrap();
    }

    /// Lets time pass and does what is due meanwhile, when it is due.
    fn pass(&mut self, time: Duration) {
        let end = self.now + time;
        while let Some(deadline) = self.swim.next_deadline().filter(|at| *at <= end) {
            self.now = deadline.max(self.now);
            self.swim.tick(self.now, &mut self.rng);
        }
        self.now = end;
    }

    fn outputs(&mut self) -> Vec<Output> {
        std::iter::from_fn(|| self.swim.poll_output()).collect()
    }

    fn events(&mut self) -> Vec<Event> {
        let outputs = self.outputs().into_iter();
        let events = outputs.filter_map(|output| match output {
            Output::Event(event) => Some(event),
            _ => None,
        });
        events.collect()
    }

    fn said(&mut self) -> Vec<Said> {
        let outputs = self.outputs().into_iter();
        let said = outputs.filter_map(|output| match output {
            Output::Packet(out) => {
                assert!(out.body.len() <= self.swim.config().packet_room);
                let packet = packet::open(&out.body, &Incoming::default()).unwrap();
                assert_eq!(packet.skipped, 0);
                Some((out.to, packet.messages))
            }
            _ => None,
        });
        said.collect()
    }

    /// What it tells everybody next.
    fn gossip(&mut self) -> Vec<Message> {
        self.outputs();
        self.swim.gossip(self.now, &mut self.rng);
        let said = self.said().into_iter().next();
        said.map(|(_, messages)| messages).unwrap_or_default()
    }

    fn state_of(&self, name: &str) -> Option<(NodeState, u32)> {
        let name = NodeName::from(name);
        let life = self.swim.incarnation_of(&name)?;
        self.swim.node(&name).map(|node| (node.state, life))
    }
}

fn any_name() -> impl Strategy<Value = NodeName> {
    prop_oneof![Just("me"), Just("a"), Just("b"), Just("")].prop_map(NodeName::from)
}

fn any_life() -> impl Strategy<Value = u32> {
    prop_oneof![0..4_u32, Just(u32::MAX), any::<u32>()]
}

fn any_alive() -> impl Strategy<Value = Alive> {
    let versions = prop_oneof![
        Just(Versions::OURS),
        Just(Versions::default()),
        Just(Versions {
            protocol_min: 7,
            ..Versions::OURS
        })
    ];
    (
        any_life(),
        any_name(),
        0..4_u8,
        any::<bool>(),
        0..2000_usize,
        versions,
    )
        .prop_map(|(incarnation, node, last, port, meta, vsn)| Alive {
            incarnation,
            node,
            addr: match last {
                0 => Default::default(),
                last => address(last).ip().into(),
            },
            port: u16::from(port),
            meta: vec![b'x'; meta].into(),
            vsn,
        })
}

fn any_message() -> impl Strategy<Value = Message> {
    let accusation = || {
        (any_life(), any_name(), any_name()).prop_map(|(incarnation, node, from)| Accusation {
            incarnation,
            node,
            from,
        })
    };
    prop_oneof![
        any_alive().prop_map(Message::Alive),
        accusation().prop_map(Message::Suspect),
        accusation().prop_map(Message::Dead),
        (0..40_u32).prop_map(|seq_no| Message::Nack(Nack { seq_no })),
        (0..40_u32).prop_map(|seq_no| Message::Ack(Ack {
            seq_no,
            ..Ack::default()
        })),
        any_name().prop_map(|node| Message::Ping(Ping {
            node,
            ..Ping::default()
        })),
        (any_name(), 0..3_u8).prop_map(|(node, last)| Message::IndirectPing(IndirectPing {
            node,
            target: address(last).ip().into(),
            nack: true,
            ..IndirectPing::default()
        })),
    ]
}

proptest! {
    /// Whatever others say, and however time passes: our own number of life never falls, we stay alive to ourselves,
    /// packets fit, and there is always a next deadline ahead.
    #[test]
    fn nothing_that_others_say_breaks_it(
        heard in prop::collection::vec((any_message(), 0..3000_u64), 0..30)
    ) {
        let mut me = Me::new();
        let mut life = me.swim.incarnation();
        for (message, time) in heard {
            me.hear(message);
            me.pass(Duration::from_millis(time));
            me.said();
            prop_assert!(me.swim.incarnation() >= life);
            life = me.swim.incarnation();
            prop_assert_eq!(me.state_of("me").map(|(state, _)| state), Some(NodeState::Alive));
            prop_assert!(me.swim.next_deadline().is_some_and(|at| at > me.now));
        }
    }
}
