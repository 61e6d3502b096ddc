use proptest::prelude::*;
use rand::Rng as _;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::*;

fn rng() -> StdRng {
    StdRng::seed_from_u64(7)
}

fn at(vec: [f64; 3], height: f64) -> Coordinate {
    let mut place = Coordinate {
        height,
        ..Coordinate::default()
    };
    place.vec[..3].copy_from_slice(&vec);
    place
}

#[track_caller]
fn near(a: f64, b: f64) {
    assert!((a - b).abs() < 1.0e-9, "{a} is not {b}");
}

#[test]
fn distance_has_heights_and_adjustments() {
    let (mut a, mut b) = (at([-0.5, 1.3, 2.4], 0.1), at([1.2, -2.3, 3.4], 0.2));
    let plain = 4.104_875_150_354_758;
    near(a.distance(&b).as_secs_f64(), plain + 0.3);
    (a.adjustment, b.adjustment) = (0.5, -0.1);
    near(b.distance(&a).as_secs_f64(), plain + 0.3 + 0.4);
    // An adjustment that would make it negative does not count.
    a.adjustment = -100.0;
    near(a.distance(&b).as_secs_f64(), plain + 0.3);
    a.vec[0] = f64::INFINITY;
    assert_eq!(a.distance(&b), Duration::from_secs(1_000_000_000));
    a.vec[0] = f64::NAN;
    assert!(a.distance(&b) <= Duration::from_secs(1_000_000_000));
}

/// Worked by hand from the formulas: the unit vector times the force, and the height in proportion.
#[test]
fn a_push_moves_place_and_height() {
    let mut own = at([3.0, 4.0, 0.0], 0.5);
    push(&mut own, &at([0.0, 0.0, 0.0], 0.25), 10.0, &mut rng());
    near(own.vec[0], 9.0);
    near(own.vec[1], 12.0);
    near(own.height, 0.5 + 0.75 * 10.0 / 5.0);
    let mut low = at([3.0, 4.0, 0.0], MIN_HEIGHT);
    push(&mut low, &at([0.0, 0.0, 0.0], MIN_HEIGHT), -1.0, &mut rng());
    near(low.height, MIN_HEIGHT);
}

#[test]
fn nodes_at_one_place_are_pushed_apart_in_some_direction() {
    let mut own = Coordinate::default();
    push(&mut own, &Coordinate::default(), 0.01, &mut rng());
    near(magnitude(&own.vec), 0.01);
    assert!(own.vec.iter().all(|n| *n != 0.0));
    near(own.height, MIN_HEIGHT);
}

#[test]
fn one_step_is_vivaldis() {
    let mut client = Client::default();
    let other = at([0.0, 0.0, 0.001], MIN_HEIGHT);
    let rtt = Duration::from_millis(10);
    client.update(&"b".into(), &other, rtt, &mut rng()).unwrap();
    let own = client.coordinate();
    let distance = 0.001 + 2.0 * MIN_HEIGHT;
    let wrong = (0.01 - distance) / 0.01;
    near(own.error, 0.125 * wrong + 1.5 * 0.875);
    // Half the weight, a quarter of the way, away from the other; gravity is negligible here.
    assert!((own.vec[2] + 0.125 * (0.01 - distance)).abs() < 1.0e-8);
    assert!(own.adjustment > 0.0);
}

#[test]
fn single_delays_are_filtered() {
    let mut client = Client::default();
    let node = NodeName::from("a");
    for (rtt, median) in [(0.2, 0.2), (0.4, 0.4), (0.3, 0.3), (9.0, 0.4), (0.1, 0.3)] {
        near(client.filtered(&node, rtt), median);
    }
    client.forget(&node);
    near(client.filtered(&node, 0.1), 0.1);
}

#[test]
fn measurements_that_cannot_be_are_refused() {
    let mut client = Client::default();
    let (node, mut rng) = (NodeName::from("a"), rng());
    let far = Coordinate {
        height: f64::INFINITY,
        ..Coordinate::default()
    };
    let refused = client.update(&node, &far, Duration::ZERO, &mut rng);
    assert_eq!(refused, Err(Rejected::Coordinate));
    let slow = Duration::from_secs(11);
    let refused = client.update(&node, &Coordinate::default(), slow, &mut rng);
    assert_eq!(refused, Err(Rejected::Rtt(slow)));
    assert_eq!(client.coordinate(), &Coordinate::default());
    // A coarse clock may say that no time has passed.
    client
        .update(&node, &Coordinate::default(), Duration::ZERO, &mut rng)
        .unwrap();
    assert!(client.coordinate().is_valid());
}

/// Numbers at the edge of what a float holds end in a new start, not in a coordinate that nobody can use.
#[test]
fn a_coordinate_that_is_no_number_starts_anew() {
    let mut client = Client::default();
    let edge = at([f64::MAX, f64::MAX, f64::MAX], f64::MAX);
    let rtt = Duration::from_millis(1);
    client.update(&"a".into(), &edge, rtt, &mut rng()).unwrap();
    assert!(client.coordinate().is_valid());
    assert_eq!(client.resets(), 1);
}

/// Nodes on a line, 10 ms from one to the next: after a while all estimates are good.
#[test]
fn a_line_of_nodes_finds_its_places() {
    let mut rng = rng();
    let mut clients: Vec<Client> = (0..10).map(|_| Client::default()).collect();
    let truth = |a: usize, b: usize| Duration::from_millis(10) * a.abs_diff(b) as u32;
    for _ in 0..3000 {
        let (a, b) = (rng.random_range(0..10), rng.random_range(0..10));
        if a != b {
            let other = clients[b].coordinate().clone();
            let name = NodeName::from(b.to_string());
            clients[a]
                .update(&name, &other, truth(a, b), &mut rng)
                .unwrap();
        }
    }
    let mut errors = Vec::new();
    for a in 0..10 {
        for b in 0..a {
            let guess = clients[a].coordinate().distance(clients[b].coordinate());
            let truth = truth(a, b).as_secs_f64();
            errors.push((guess.as_secs_f64() - truth).abs() / truth);
        }
    }
    let average = errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(average < 0.1, "relative error {average}");
}

proptest! {
    #[test]
    fn no_measurement_breaks_the_coordinate(
        vec in prop::collection::vec(prop::num::f64::ANY, DIMENSIONS),
        rest in prop::array::uniform3(prop::num::f64::ANY),
        rtts in prop::collection::vec(0u64..20_000_000, 1..30),
    ) {
        let [error, adjustment, height] = rest;
        let other = Coordinate { vec, error, adjustment, height };
        let mut client = Client::default();
        for rtt in rtts {
            client.update(&"a".into(), &other, Duration::from_micros(rtt), &mut rng()).ok();
            prop_assert!(client.coordinate().is_valid());
            client.coordinate().distance(&other);
        }
    }
}
