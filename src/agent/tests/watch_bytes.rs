//! A watch that takes more than assertions would: it ends, and they go on.

use super::watch::{count, is_read, watched, watching};
use super::*;
use crate::config::settings::Profile;

const HOUR: Duration = Duration::from_secs(3600);
const SECOND: Duration = Duration::from_secs(1);

#[test]
fn others_that_write_all_the_time_cost_a_look_each_ten_seconds_and_then_the_watch() {
    let mut script = watched();
    let mut reads = 0;
    for version in 101..141 {
        if script.watch.is_some() {
            script.see_version(version);
        }
        let looked = script.pass(SECOND);
        reads += count(&looked, is_read);
    }
    assert!((4..=8).contains(&reads), "{reads}");
    assert!(script.watch.is_none() && script.words().contains(&"node-restless"));
    script.pass(30 * SECOND);
    assert_eq!(script.watches.len(), 2, "it may be over");
}

/// Twenty hours in which somebody writes the Node every five minutes.
#[test]
fn where_bytes_are_paid_for_others_that_write_more_often_than_assertions_come_end_it() {
    for (profile, is_ended) in [(Profile::Lan, false), (Profile::Metered, true), (Profile::Satellite, true)] {
        let status_assert_frequency = Duration::from_secs(600);
        let mut script = Script::with(Settings { profile, status_assert_frequency, ..watching() });
        script.store(100);
        script.register();
        script.pass(15 * SECOND);
        script.see_version(100);
        for version in 101..341 {
            if script.watch.is_some() {
                script.see_version(version);
            }
            script.store(version);
            script.pass(HOUR / 12);
        }
        assert_eq!(script.words().contains(&"node-restless"), is_ended, "{profile:?}");
    }
}

/// Its beginning is worth ten assertions.
#[test]
fn where_bytes_are_paid_for_a_watch_that_lives_shortly_is_begun_as_rarely_as_ten_assertions_come() {
    for (profile, assertion, lives, begun) in [
        (Profile::Lan, HOUR / 60, 2 * HOUR, 12..=13),
        (Profile::Metered, HOUR / 6, 2 * HOUR, 12..=13),
        (Profile::Metered, HOUR / 6, HOUR, 9..=10),
        (Profile::Satellite, HOUR, 2 * HOUR, 2..=3),
        (Profile::Satellite, HOUR, 11 * HOUR, 2..=3),
    ] {
        let rarely = Settings { node_status_report_frequency: 48 * HOUR, ..watching() };
        let mut script = Script::with(Settings { profile, status_assert_frequency: assertion, ..rarely });
        script.store(100);
        script.register();
        let (start, mut began) = (script.up, script.up);
        while script.up < start + 24 * HOUR {
            let was_watched = script.watch.is_some();
            script.pass(60 * SECOND);
            if script.watch.is_some() && !was_watched {
                script.see_version(100);
                began = script.up;
            } else if script.watch.is_some() && script.up >= began + lives {
                script.watch_ends(Ok(Document::Nothing));
            }
        }
        let watches = script.watches.len();
        assert!(begun.contains(&watches), "{profile:?}, each of {lives:?}: {watches}");
    }
}

#[test]
fn with_assertions_the_watch_is_put_off() {
    let budget = Some(2_859_840 + 10_000_000);
    let mut script = Script::with(Settings { daily_bytes: budget, ..watching() });
    script.counted = Some(<[Day; 2]>::default());
    script.store(100);
    script.register();
    script.pass(15 * SECOND);
    script.see_version(100);
    script.counted.as_mut().unwrap()[0].of(Purpose::Status).unwrap().bytes = 5_100_000;
    script.pass(60 * SECOND);
    assert!(script.watch.is_some(), "nothing came");
    script.see_version(101);
    script.pass(2 * HOUR);
    assert!(script.watch.is_none() && script.watches.len() == 1);
    script.pass(23 * HOUR);
    assert_eq!(script.watches.len(), 2, "the next day");
}
