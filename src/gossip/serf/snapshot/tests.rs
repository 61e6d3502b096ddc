use proptest::prelude::*;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn read(file: &str) -> Snapshot {
    Snapshot::read(file.as_bytes(), false)
}

/// Records the lines, and gives the file that comes of it.
fn written(recorder: &mut Recorder, lines: impl IntoIterator<Item = Line>) -> String {
    let mut file = String::new();
    for line in lines {
        match recorder.record(line) {
            Some(Write::Append(text)) => file.push_str(&text),
            Some(Write::Replace(text)) => file = text,
            None => {}
        }
    }
    file
}

#[test]
fn the_last_line_about_something_counts() {
    let snapshot = read(
        "alive: a 10.0.0.1:1\nalive: name with blanks [::1]:2\nclock: 3\nevent-clock: 5\nquery-clock: 7\n\
         clock: 9\nalive: b 10.0.0.1:2\nnot-alive: b\nalive: a 10.0.0.1:4\n",
    );
    assert_eq!(snapshot.alive.len(), 2);
    assert_eq!(snapshot.alive["a"], address(4));
    let six = snapshot.alive["name with blanks"];
    assert_eq!(six, "[::1]:2".parse().unwrap());
    let clocks = (snapshot.clock, snapshot.event_clock, snapshot.query_clock);
    assert_eq!(clocks, (9, 5, 7));
    assert_eq!(snapshot.skipped, 0);
}

#[test]
fn what_makes_no_sense_is_skipped_and_counted() {
    let long = "x".repeat(MAX_LINE);
    let file = format!(
        "# comment\ncoordinate: {{}}\n\nalive: a\nalive: b nowhere\nclock: -1\nclock: many\nfuture: 1\n\
         alive: {long} 10.0.0.1:1\nclock: 4\nalive: half 10.0.0.1:1"
    );
    let snapshot = read(&file);
    assert_eq!((snapshot.skipped, snapshot.clock), (7, 4));
    assert!(snapshot.alive.is_empty());
    assert_eq!(Snapshot::read(b"clock: \xff\nclock: 2\n", false).clock, 2);
}

/// With such a time, nothing could ever happen after it.
#[test]
fn times_that_cannot_be_are_damage() {
    let max = u64::MAX;
    let file = format!("clock: {max}\nevent-clock: {max}\nquery-clock: {max}\nclock: 3\n");
    let snapshot = read(&file);
    assert_eq!((snapshot.skipped, snapshot.clock), (3, 3));
    assert_eq!((snapshot.event_clock, snapshot.query_clock), (0, 0));
}

/// A write that was cut off must not spoil the line that comes next.
#[test]
fn half_a_line_is_repaired_by_a_new_file() {
    let previous = read("alive: a 10.0.0.1:1\nclock: 4\nclo");
    let mut recorder = Recorder::new(previous, false);
    let write = recorder.record(Line::Clock(5));
    let file = "alive: a 10.0.0.1:1\nclock: 5\nevent-clock: 0\nquery-clock: 0\n";
    assert_eq!(write, Some(Write::Replace(file.into())));
    let next = recorder.record(Line::Clock(6));
    assert_eq!(next, Some(Write::Append("clock: 6\n".into())));
}

#[test]
fn who_left_knows_nobody_unless_it_rejoins() {
    let file = "alive: a 10.0.0.1:1\nclock: 4\nleave\n";
    let forgot = read(file);
    assert!(forgot.alive.is_empty() && forgot.clock == 0);
    let kept = Snapshot::read(file.as_bytes(), true);
    assert_eq!((kept.alive.len(), kept.clock), (1, 4));
    let mut rng = StdRng::seed_from_u64(1);
    assert_eq!(kept.rejoin(&"a".into(), &mut rng), []);
    let [target] = &kept.rejoin(&"b".into(), &mut rng)[..] else {
        panic!("{kept:?}");
    };
    assert_eq!(target.to_string(), "a/10.0.0.1:1");
}

/// When others vanish because we leave, the file does not say so: we may want to find them again.
#[test]
fn nothing_is_recorded_after_a_leave() {
    for rejoins in [false, true] {
        let mut recorder = Recorder::new(Snapshot::default(), rejoins);
        let lines = [
            Line::Alive("a".into(), address(1)),
            Line::Leave,
            Line::NotAlive("a".into()),
            Line::Leave,
        ];
        let file = written(&mut recorder, lines);
        assert_eq!(file, "alive: a 10.0.0.1:1\nleave\n");
    }
}

#[test]
fn what_is_known_is_not_written_again() {
    let mut recorder = Recorder::new(read("alive: a 10.0.0.1:1\nclock: 4\n"), false);
    assert_eq!(recorder.record(Line::Alive("a".into(), address(1))), None);
    assert_eq!(recorder.record(Line::Clock(4)), None);
    assert_eq!(recorder.record(Line::NotAlive("b".into())), None);
    assert!(
        recorder
            .record(Line::Alive("a".into(), address(2)))
            .is_some()
    );
    assert!(recorder.record(Line::EventClock(1)).is_some());
    assert!(recorder.record(Line::QueryClock(1)).is_some());
}

/// A name with a line end would be a line of its own.
#[test]
fn names_cannot_write_lines() {
    let mut recorder = Recorder::new(Snapshot::default(), false);
    let name = NodeName::from("a 10.0.0.1:1\nleave\nalive: b");
    assert_eq!(recorder.record(Line::Alive(name, address(1))), None);
}

#[test]
fn a_file_that_grew_too_long_is_replaced() {
    let mut recorder = Recorder::new(Snapshot::default(), false);
    let name = |n: u64| NodeName::from(format!("node-{}", n % 3));
    let mut size = 0;
    let mut replaced = 0;
    for n in 0..20_000 {
        let line = Line::Alive(name(n), address(n as u16));
        match recorder.record(line) {
            Some(Write::Append(text)) => size += text.len(),
            Some(Write::Replace(text)) => {
                assert!(text.len() < 200);
                assert_eq!(read(&text).alive, recorder.content.alive);
                size = text.len();
                replaced += 1;
            }
            None => panic!("it is news"),
        }
        assert!(size <= MIN_COMPACT);
        assert_eq!(size, recorder.content.size);
    }
    assert_eq!(replaced, 4, "about 570 kB were written");
    // In a large pool the file may be longer: twice what its nodes need.
    for n in 0..1000 {
        let name = NodeName::from(format!("n{n}"));
        recorder.content.alive.insert(name, address(1));
    }
    assert_eq!(recorder.max_size(), 1003 * 256);
}

#[test]
fn a_leave_survives_compaction() {
    let mut recorder = Recorder::new(read("alive: a 10.0.0.1:1\nclo"), true);
    let Some(Write::Replace(file)) = recorder.record(Line::Leave) else {
        panic!("the file is damaged");
    };
    assert!(read(&file).alive.is_empty());
    assert_eq!(Snapshot::read(file.as_bytes(), true).alive.len(), 1);
}

fn any_line() -> impl Strategy<Value = Line> {
    let name = "[a-z ]{1,9}".prop_map(NodeName::from);
    prop_oneof![
        (name.clone(), any::<u16>()).prop_map(|(name, port)| Line::Alive(name, address(port))),
        name.prop_map(Line::NotAlive),
        (0u64..9).prop_map(Line::Clock),
        (0u64..9).prop_map(Line::EventClock),
        (0u64..9).prop_map(Line::QueryClock),
    ]
}

proptest! {
    #[test]
    fn any_bytes_are_read(file: Vec<u8>, rejoins: bool) {
        let snapshot = Snapshot::read(&file, rejoins);
        prop_assert!(snapshot.skipped <= file.len());
    }

    #[test]
    fn any_text_is_read(file in "((not-)?alive: |clock: |leave|[ -~]{0,9}|\n){0,40}") {
        Snapshot::read(file.as_bytes(), false);
    }

    #[test]
    fn what_was_recorded_is_read(lines in prop::collection::vec(any_line(), 0..50)) {
        let mut recorder = Recorder::new(Snapshot::default(), false);
        let file = written(&mut recorder, lines);
        let mut read = read(&file);
        prop_assert_eq!(read.size, recorder.content.size);
        read.size = recorder.content.size;
        prop_assert_eq!(&read, &recorder.content);
    }

    #[test]
    fn a_damaged_file_costs_only_its_damage(cut in 0usize..70, garbage: u8) {
        let mut file = b"clock: 3\nalive: a 10.0.0.1:1\nalive: b 10.0.0.1:2\nalive: c 10.0.0.1:3\nclock: 4\n".to_vec();
        if let Some(byte) = file.get_mut(cut) {
            *byte = garbage;
        }
        let snapshot = Snapshot::read(&file, false);
        prop_assert!(snapshot.clock > 0);
        prop_assert!(!snapshot.alive.is_empty());
    }
}
