//! Turns records into frames and back, and what nobody wrote into nothing.

use super::super::record::cut;
use super::*;

fn records(wall: Option<i64>) -> Vec<Record> {
    let whats = [
        Happened::ConditionChanged {
            condition: cut("Ready"),
            from: Status::Unknown,
            to: Status::True,
            reason: cut("KubeletReady"),
        },
        Happened::OutageBegan { cause: cut("") },
        Happened::OutageEnded { cause: cut(&"\u{e9}".repeat(32)), changes: u32::MAX, dropped: 0 },
        Happened::ProcessStarted,
        Happened::BoardRebooted { old: BootId(u128::MAX), reason: cut("KubeletReady") },
        Happened::ClockSet { wall: Wall::from_unix_us(i64::MIN) },
        Happened::Dropped { count: 300 },
        Happened::AbsenceAnnounced { until: Wall::from_unix_us(i64::MAX), reason: cut("sleeps at night") },
        Happened::Leaving { kind: cut("PowerOff") },
        Happened::Trouble { reason: cut("IOError"), text: cut("I/O error, dev sda"), count: u64::MAX },
        Happened::KernelRead { until: KernelPlaces { log: u64::MAX, oom_kills: 0, hung_tasks: 128 } },
        Happened::ProcessRuns { risk: cut("") },
        Happened::ProcessRuns { risk: cut("PowerLoss") },
    ];
    let of = |(place, what): (usize, Happened)| {
        // The clock of the boot never steps back, but what is read back is what was written, whatever it is.
        let up = Up::since_boot(Duration::from_micros([5, 3, u64::MAX, 0, 77, 78, 79, 79, 80, 81, 82, 83, 83][place]));
        let wall = wall.filter(|_| place % 3 != 1).map(|us| Wall::from_unix_us(us.wrapping_mul(place as i64)));
        Record { sequence: Sequence(10 + place as u64), at: Moment { boot: BootId(9), up, wall }, what }
    };
    whats.into_iter().enumerate().map(of).collect()
}

fn decode(bytes: &[u8]) -> Option<Batch<Record>> {
    Batch::decode(frame::scan(bytes).frames.first()?)
}

#[test]
fn every_record_comes_back_as_it_was() {
    for wall in [None, Some(1_800_000_000_000_000), Some(i64::MAX), Some(i64::MIN), Some(-1)] {
        let records = records(wall);
        let (forgotten, told) = (vec![(11, 11), (13, 15)], records.iter().collect());
        let bytes = Batch { boot: BootId(9), next: 99, below: 10, forgotten: forgotten.clone(), records: told }
            .encode()
            .unwrap();
        let batch = Batch { boot: BootId(9), next: 99, below: 10, forgotten, records };
        assert_eq!(decode(&bytes), Some(batch), "{wall:?}");
    }
}

#[test]
fn the_longest_frame_fits_in_a_block_and_a_record_takes_no_more_than_it_is_said_to() {
    let text = |place: usize| cut(&format!("{place:064}"));
    let records: Vec<Record> = (0..FRAME_RECORDS)
        .map(|place| Record {
            sequence: Sequence(1 + place as u64),
            at: Moment {
                boot: BootId(1),
                up: Up::since_boot(Duration::from_micros(u64::MAX / 2 * (place as u64 % 2))),
                wall: Some(Wall::from_unix_us(if place % 2 == 0 { i64::MIN } else { i64::MAX })),
            },
            what: Happened::ConditionChanged {
                condition: text(2 * place),
                from: Status::True,
                to: Status::False,
                reason: text(2 * place + 1),
            },
        })
        .collect();
    let forgotten = (0..FRAME_RANGES as u64).map(|place| ((1 << 60) + place * 2, (1 << 60) + place * 2)).collect();
    let next = LAST_SEQUENCE;
    let batch = Batch { boot: BootId(1), next, below: 1, forgotten, records: records.iter().collect() };
    assert!(batch.encode().is_some_and(|bytes| bytes.len() < frame::FRAME_BYTES));
    for record in &records {
        let alone = Batch { boot: BootId(1), next: 1 << 34, below: 1 << 34, forgotten: vec![], records: vec![record] };
        assert!(alone.encode().is_some_and(|bytes| bytes.len() <= most_bytes(record)), "{record:?}");
    }
}

#[test]
fn what_an_earlier_version_kept_of_the_node_is_passed_over() {
    let known = [8, 1, 0, 3, b'u', b'i', b'd', 2, b'v', b'1', 77, 3, 40, 0, 1, 1, 1, 2, 1, 0, 1];
    let started = [4, 2, 5];
    let payload = [&[7; 16][..], &[2, 0, 2], &known, &started].concat();
    let batch = decode(&frame::encode(9, &payload).unwrap()).unwrap();
    assert_eq!(batch.records.iter().map(|record| &record.what).collect::<Vec<_>>(), [&Happened::ProcessStarted]);
    for cut in 1..known.len() {
        let payload = [&[7; 16][..], &[1, 0, 1], &known[..cut]].concat();
        assert_eq!(decode(&frame::encode(9, &payload).unwrap()), None, "{cut}");
    }
}

#[test]
fn a_record_weighs_its_texts_and_numbers_and_a_share_of_a_frame() {
    let text = cut("12345");
    for (what, fields) in [
        (Happened::ProcessStarted, 0),
        (Happened::ProcessRuns { risk: text.clone() }, 1 + 5),
        (Happened::OutageBegan { cause: text.clone() }, 1 + 5),
        (Happened::OutageEnded { cause: text.clone(), changes: 0, dropped: 0 }, 1 + 5 + 5 + 5),
        (Happened::BoardRebooted { old: BootId(0), reason: text.clone() }, 16 + 1 + 5),
        (Happened::ClockSet { wall: Wall::from_unix_us(0) }, 10),
        (Happened::Dropped { count: 0 }, 5),
        (
            Happened::ConditionChanged { condition: text.clone(), from: Status::True, to: Status::True, reason: text },
            1 + 1 + 5 + 1 + 5,
        ),
    ] {
        let record = Record { sequence: Sequence(1), at: Moment { boot: BootId(1), up: Up::BOOT, wall: None }, what };
        // Kind, sequence, times; header, boot, and the numbers of ranges and records.
        assert_eq!(most_bytes(&record), (1 + 5 + 8 + 10) + (16 + 16 + 3) + fields, "{:?}", record.what);
    }
}

#[test]
fn a_change_a_minute_costs_a_dozen_bytes() {
    let of = |minute: u64| Record {
        sequence: Sequence(1_000_000 + minute),
        at: Moment {
            boot: BootId(1),
            up: Up::since_boot(Duration::from_micros(86_400_000_000 + minute * 60_000_000)),
            wall: Some(Wall::from_unix_us(1_800_000_000_000_000 + minute.cast_signed() * 60_000_300)),
        },
        what: Happened::ConditionChanged {
            condition: cut("MemoryPressure"),
            from: Status::False,
            to: Status::True,
            reason: cut("KubeletHasInsufficientMemory"),
        },
    };
    let records: Vec<Record> = (0..16).map(of).collect();
    let next = 1_000_016;
    let size = |records: Vec<&Record>| {
        Batch { boot: BootId(1), next, below: next - 40, forgotten: vec![], records }.encode().unwrap().len()
    };
    let (one, all) = (size(vec![&records[0]]), size(records.iter().collect()));
    assert!((all - one) / 15 <= 12 && one <= 100, "{one} {all}");
}

#[test]
fn what_was_never_written_is_not_believed() {
    let encoded = |next: u64, payload: &[u8]| frame::encode(next, payload).unwrap();
    let boot = [7; 16];
    let empty = [&boot[..], &[0, 0, 0]].concat();
    assert!(decode(&encoded(1, &empty)).is_some());
    for (next, rest) in [
        (0, &[0, 0, 0][..]),
        (LAST_SEQUENCE + 1, &[0, 0, 0]),
        (5, &[6, 0, 0]),
        (5, &[0, 0, 0, 0]),
        (5, &[0, 0]),
        (5, &[0, 65, 0]),
        (5, &[0, 0, 17]),
        (5, &[0, 1, 0, 0, 0]),
        (5, &[0, 0, 1, 4, 5, 0]),
        (5, &[0, 0, 1, 4, 0, 0]),
        (5, &[0, 0, 1, 8, 1, 0]),
        (5, &[0, 0, 1, 1, 1, 0, 9, 0, 0]),
        (5, &[0, 0, 1, 2, 1, 0, 65]),
        (5, &[0, 0, 1, 2, 1, 0, 1, 0xFF]),
        (5, &[0, 0, 1, 7, 1, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0x10]),
        (5, &[0, 0, 1, 4, 1, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 2]),
    ] {
        assert_eq!(decode(&encoded(next, &[&boot, rest].concat())), None, "{next} {rest:?}");
    }
}
