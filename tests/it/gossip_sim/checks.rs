//! What must hold.

use std::time::Duration;

use crossway::gossip::MemberStatus;
use crossway::gossip::serf::MemberChange;
use crossway::gossip::swim::UserQueue;
use crossway::gossip::wire::stream::NodeState;

use crate::gossip_sim::world::World;

/// After this time without trouble a host is in the pool.
const SETTLED: Duration = Duration::from_secs(10);

impl World {
    /// The number of a node's life never falls, in nobody's eyes, unless the node was forgotten in between.
    pub(super) fn check_lives(&mut self, index: usize) {
        let place = self.place();
        let host = &mut self.hosts[index];
        let Some(serf) = &host.serf else {
            return;
        };
        for (subject, before) in host.lives.iter_mut().enumerate() {
            let known = serf.swim().incarnation_of(&self.names[subject]);
            let back = known.is_some_and(|life| life < *before);
            assert!(
                !back,
                "{place}: n{subject} goes back to {known:?} for n{index}"
            );
            *before = known.unwrap_or_default();
        }
    }

    /// What still keeps hosts from agreeing on who is there, or from having told it, if anything.
    pub(super) fn disagreement(&self) -> Option<String> {
        let running = self.running();
        let mut all_say = vec![None; self.hosts.len()];
        for &observer in &running {
            let host = &self.hosts[observer];
            let serf = host.serf.as_ref()?;
            for (subject, name) in self.names.iter().enumerate() {
                let status = serf.member(name).map(|member| member.status);
                let fine = match running.contains(&subject) {
                    true => status == Some(MemberStatus::Alive) && self.knows(observer, subject),
                    false => matches!(
                        status,
                        None | Some(MemberStatus::Failed | MemberStatus::Left)
                    ),
                };
                // Those who never met a host that is gone know nothing of it.
                let all_say = status.map(|status| *all_say[subject].get_or_insert(status));
                if !fine || status != all_say {
                    return Some(format!("n{observer} takes n{subject} for {status:?}"));
                }
            }
            let queues = [UserQueue::Intents, UserQueue::Queries, UserQueue::Events];
            let queues = queues.map(|queue| serf.swim().user_queue_len(queue));
            let waiting = serf.swim().queue_len() + queues.iter().sum::<usize>();
            if waiting > 0 || !host.commands.is_empty() {
                return Some(format!("n{observer} still has to tell {waiting} things"));
            }
        }
        None
    }

    /// Whether one host has the latest that another one says about itself, and does not suspect it.
    fn knows(&self, observer: usize, subject: usize) -> bool {
        let (observer, subject) = (&self.hosts[observer].serf, &self.hosts[subject].serf);
        let (Some(observer), Some(subject)) = (observer, subject) else {
            return false;
        };
        let name = subject.name();
        let life = observer.swim().incarnation_of(name);
        let node = observer.swim().node(name);
        if node.is_none_or(|node| node.state != NodeState::Alive) {
            return false;
        }
        let tags = observer.member(name).map(|member| &member.tags);
        life == Some(subject.swim().incarnation()) && tags == Some(subject.tags())
    }

    /// Nobody who was all right the whole time was ever taken for dead.
    pub(super) fn assert_no_false_death(&self) {
        let false_death = self.seen.iter().find(|seen| {
            let bad = matches!(seen.change, MemberChange::Failed | MemberChange::Leave);
            bad && !self.hosts[seen.subject].troubled
        });
        assert!(false_death.is_none(), "{}: {false_death:?}", self.place());
    }

    /// Who left in order has left, for everybody who knows it.
    pub(super) fn assert_leavers_left(&self) {
        for observer in self.running() {
            for (subject, _) in self.hosts.iter().enumerate().filter(|(_, host)| host.left) {
                let serf = self.hosts[observer].serf.as_ref().unwrap();
                let status = serf
                    .member(&self.names[subject])
                    .map(|member| member.status);
                let left = matches!(status, None | Some(MemberStatus::Left));
                assert!(
                    left,
                    "{}: n{observer} takes n{subject} for {status:?}",
                    self.place()
                );
            }
        }
    }

    /// A user event that somebody did not get, although both it and the sender run since long before.
    pub(super) fn lost_event(&self) -> Option<String> {
        let running = self.running();
        let sent = self.events.iter().filter(|event| {
            let sender = &self.hosts[event.sender];
            running.contains(&event.sender) && sender.life == event.life
        });
        for event in sent {
            let in_pool = |host: &&usize| self.hosts[**host].since + SETTLED < event.at;
            let both = in_pool(&&event.sender);
            let mut observers = running.iter().filter(|host| both && in_pool(host));
            let name = &event.name;
            if let Some(host) = observers.find(|host| !self.hosts[**host].events.contains(name)) {
                return Some(format!("n{host} never got {event:?}"));
            }
        }
        None
    }
}
