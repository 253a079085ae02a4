//! Turns connections to servers that answer, refuse or keep silent into what they must be said to cost.

use super::*;
use crate::api::Operation;
use crate::config::kubeconfig::Kubeconfig;
use crate::config::settings::Http;
use crate::io::clock::CertificateClock;
use crate::io::loopback::{Authority, Listener, Silent, kubeconfig, version_reply};
use crate::io::pool::Pool;
use crate::io::reactor::Reactor;
use crate::io::resolve::Resolver;
use crate::io::successor::Successor;
use crate::time::Wall;

/// A pool, its reactor, and the meter that counts it.
fn metered(kubeconfig: Kubeconfig) -> (Pool, Rc<Reactor>, Rc<Meter>) {
    let reactor = Reactor::new().unwrap();
    let resolver = Rc::new(Resolver::new(Rc::clone(&reactor), Rc::default()));
    let meter = Rc::clone(resolver.meter());
    let (clock, successor) = (CertificateClock::new(), Successor::none("board"));
    let pool = Pool::new(Rc::clone(&reactor), resolver, clock, kubeconfig, successor, Http::default());
    (pool, reactor, meter)
}

fn sum(day: &Day, purpose: Purpose) -> Sum {
    day.clone().of(purpose).copied().unwrap()
}

fn today(meter: &Meter) -> Day {
    let [today, _] = meter.days();
    assert_eq!(today.bytes() - sum(&today, Purpose::Names).bytes, today.sent_bytes + today.received_bytes, "{today:?}");
    today
}

#[test]
fn what_the_kernel_counts_is_shared_out_by_purpose_and_nothing_is_left_over() {
    let authority = Authority::new();
    let server = Listener::answering(&authority, version_reply());
    let (pool, reactor, meter) = metered(kubeconfig(&authority, server.port));
    let ask = |operation| reactor.block_on(pool.exchange(operation)).unwrap();
    assert_eq!(today(&meter), Day { number: today(&meter).number, seconds: today(&meter).seconds, ..Day::default() });
    ask(Operation::ReadVersion);
    let first = today(&meter);
    assert_eq!((sum(&first, Purpose::Status).count, sum(&first, Purpose::Handshake).count), (1, 1));
    // TCP and TLS with certificates on both sides, over IPv4.
    let handshake = sum(&first, Purpose::Handshake).bytes;
    assert!((1500..6000).contains(&handshake), "{handshake}");
    for _ in 0..20 {
        ask(Operation::ReadClusterInfo);
    }
    let then = today(&meter);
    let more = sum(&then, Purpose::Identity);
    assert_eq!((more.count, sum(&then, Purpose::Status)), (20, sum(&first, Purpose::Status)));
    // Request and answer with their headers, and acknowledgements where they went alone.
    assert!((20 * 400..20 * 800).contains(&more.bytes), "{more:?}");
    assert_eq!((sum(&then, Purpose::Handshake).bytes, then.repeated), (handshake, 0));
    pool.drop_idle();
    let end = sum(&today(&meter), Purpose::Handshake);
    assert!(end.count == 1 && (handshake + 200..handshake + 600).contains(&end.bytes), "{end:?} after {handshake}");
}

#[test]
fn a_connection_that_nobody_answers_and_one_that_is_refused_cost_their_attempts() {
    let silent = Silent::new();
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let authority = Authority::new();
    for (port, least) in [(silent.address.port(), 60), (nobody.port(), 60 + 40)] {
        let (pool, reactor, meter) = metered(kubeconfig(&authority, port));
        let soon = clock::up() + Duration::from_millis(200);
        assert!(reactor.block_on(reactor.before(soon, pool.exchange(Operation::ReadVersion))).is_ok());
        let handshake = sum(&today(&meter), Purpose::Handshake);
        assert!(handshake.count >= 1 && handshake.bytes >= least, "{handshake:?}");
        assert_eq!(sum(&today(&meter), Purpose::Status).count, 0);
    }
}

#[test]
fn what_is_counted_at_midnight_belongs_to_both_days() {
    let day = |number, bytes| {
        let mut day = Day { number, ..Day::default() };
        day.of(Purpose::Lease).into_iter().for_each(|sum| sum.bytes = bytes);
        day
    };
    let noon = |number: i64| Some(Wall::from_unix_seconds(number * 86_400 + 43_200));
    let meter = Meter::new([day(10, 1), day(9, 2)]);
    let turn = |after: u64, wall| {
        meter.count_all(Now { up: meter.since + Duration::from_secs(after), wall });
        meter.days.borrow().each_ref().map(|day| (day.number, day.bytes(), day.seconds))
    };
    assert_eq!(turn(100, noon(10)), [(10, 1, 100), (9, 2, 0)]);
    assert_eq!(turn(160, None), [(10, 1, 160), (9, 2, 0)], "nobody knows the date any more");
    assert_eq!(turn(200, noon(11)), [(11, 0, 0), (10, 1, 200)]);
    assert_eq!(turn(230, noon(10)), [(10, 1, 200), (11, 0, 30)], "a clock that was put back goes on with its day");
    let meter = Meter::new([day(0, 5), Day::default()]);
    meter.count_all(Now { up: meter.since, wall: noon(3) });
    assert_eq!(meter.days.borrow().each_ref().map(|day| (day.number, day.bytes())), [(3, 5), (0, 0)]);
}

#[test]
fn a_day_that_nobody_can_date_ends_after_24_hours() {
    let mut undated = Day::default();
    undated.of(Purpose::Lease).into_iter().for_each(|sum| sum.bytes = 5);
    let meter = Meter::new([undated, Day::default()]);
    let count = |hours: u64| {
        meter.count_all(Now { up: meter.since + Duration::from_secs(hours * 3600), wall: None });
        meter.days.borrow().each_ref().map(|day| (day.number, day.bytes()))
    };
    assert_eq!(count(23), [(0, 5), (0, 0)]);
    assert_eq!(count(24), [(0, 0), (0, 5)]);
    assert_eq!(count(30), [(0, 0), (0, 5)]);
}

#[test]
fn a_day_is_as_long_however_often_somebody_asks() {
    let meter = Meter::new(Default::default());
    let tenths = |count: u32| Now {
        wall: Some(Wall::from_unix_seconds(1_800_000_000)),
        up: meter.since + Duration::from_millis(100) * count,
    };
    (1..=257).for_each(|count| meter.count_all(tenths(count)));
    assert_eq!(meter.days.borrow()[0].seconds, 25);
    (258..=400).step_by(19).for_each(|count| meter.count_all(tenths(count)));
    assert_eq!(meter.days.borrow()[0].seconds, 39);
}

#[test]
fn a_look_up_of_a_name_is_counted_by_its_length_and_one_of_our_own_is_not() {
    let meter = Meter::new(Default::default());
    meter.looked_up("localhost", &["127.0.0.1".parse().unwrap()]);
    assert_eq!(sum(&today(&meter), Purpose::Names), Sum::default());
    meter.looked_up("kubernetes.example.com", &["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()]);
    // Two questions of 28 + 12 + 28 bytes, and their answers with a record each.
    assert_eq!(sum(&today(&meter), Purpose::Names), Sum { count: 1, bytes: 4 * 68 + 2 * 12 + 4 + 16 });
}

/// `struct tcp_info` as Linux 6.12 gives it, cut to what an older kernel knows.
fn info(state: u8, segments: (u32, u32), length: usize) -> Option<Count> {
    let mut info = vec![0; 216];
    let mut put = |at: usize, bytes: &[u8]| info[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, &[state]);
    put(5, &[1]);
    put(20, &536_u32.to_ne_bytes());
    put(152, &2_u32.to_ne_bytes());
    put(100, &2_u32.to_ne_bytes());
    put(120, &900_u64.to_ne_bytes());
    put(128, &500_u64.to_ne_bytes());
    put(136, &segments.0.to_ne_bytes());
    put(140, &segments.1.to_ne_bytes());
    put(200, &1000_u64.to_ne_bytes());
    Count::of(&info[..length], 20)
}

#[test]
fn an_older_kernel_knows_less_and_one_that_counts_no_segments_nothing() {
    let whole = info(1, (4, 3), 216).unwrap();
    let syn = 8;
    let count = Count {
        sent_bytes: 1000 + 4 * 52 + syn,
        received_bytes: 500 + 3 * 52 + syn,
        packets: 7,
        repeated: 2,
        content_bytes: 500,
        content_packets: 2,
        most_bytes: 536,
        is_open: true,
    };
    assert_eq!(whole, count);
    assert_eq!(info(1, (4, 3), 192), Some(Count { sent_bytes: 900 + 4 * 52 + syn, ..count }), "Linux 4.9");
    let older = Count { sent_bytes: 900 + 4 * 52 + syn, content_packets: 0, ..count };
    assert_eq!(info(1, (4, 3), 144), Some(older), "Linux 4.4");
    assert_eq!(info(1, (4, 3), 104), None, "Linux 3.18");
    assert!(!info(7, (4, 3), 216).unwrap().is_open);
}

#[test]
fn an_answer_that_came_twice_is_counted_as_often_as_our_own_packets_were_lost() {
    let answers = Count { content_bytes: 5000, content_packets: 13, most_bytes: 1448, repeated: 2, ..Count::default() };
    assert_eq!(answers.received_twice(10), 2 * 500, "of three packets more, as many as ours were lost");
    assert_eq!(Count { repeated: 0, ..answers }.received_twice(10), 0, "answers in more than one packet");
    assert_eq!(Count { content_packets: 10, ..answers }.received_twice(10), 0, "only requests were lost");
    assert_eq!(Count { content_bytes: 14_480, ..answers }.received_twice(2), 2 * 1448, "an answer of many packets");
    assert_eq!(Count::default().received_twice(0), 0);
}
