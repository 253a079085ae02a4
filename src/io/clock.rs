//! Turns the kernel's clocks into [`Now`], and into the time that certificates are judged by (D11).

use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use nix::sys::timerfd::{self, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};
use nix::time::{ClockId, clock_gettime};
use rustls::pki_types::UnixTime;
use rustls::time_provider::TimeProvider;

use super::reactor::{Reactor, Watched};
use crate::time::{Now, Up, Wall};

/// No wall clock is right before this program was built: `SOURCE_DATE_EPOCH` of the build, or the date of this release.
pub const BUILT_UNIX_SECONDS: i64 = match option_env!("SOURCE_DATE_EPOCH") {
    Some(text) => parse_seconds(text.as_bytes()),
    None => RELEASED_UNIX_SECONDS,
};

/// 2026-11-21T00:00:00Z.
const RELEASED_UNIX_SECONDS: i64 = 1_795_219_200;

/// Both clocks at this moment.
pub fn now() -> Now {
    let built = Wall::from_unix_seconds(BUILT_UNIX_SECONDS);
    Now { up: up(), wall: Some(wall()).filter(|wall| *wall >= built) }
}

/// The boot-time clock; the monotonic one on a kernel without it (before 2.6.39), which differs only in suspend.
pub fn up() -> Up {
    let read = clock_gettime(ClockId::CLOCK_BOOTTIME).or_else(|_| clock_gettime(ClockId::CLOCK_MONOTONIC));
    Up::since_boot(read.map(Duration::from).unwrap_or_default())
}

/// How long this machine has been suspended since it was booted; zero on a kernel that does not count it.
pub fn suspended() -> Duration {
    let read = |clock| clock_gettime(clock).map(Duration::from).unwrap_or_default();
    // In this order, so that what passes between the two readings does not count.
    let up = read(ClockId::CLOCK_BOOTTIME);
    up.saturating_sub(read(ClockId::CLOCK_MONOTONIC))
}

fn wall() -> Wall {
    // A clock before 1970 reads as 1970: both are before the build date and therefore unknown.
    let since_1970 = clock_gettime(ClockId::CLOCK_REALTIME).map_or(Duration::ZERO, |time| {
        Duration::new(u64::try_from(time.tv_sec()).unwrap_or(0), u32::try_from(time.tv_nsec()).unwrap_or(0))
    });
    Wall::from_unix_us(i64::try_from(since_1970.as_micros()).unwrap_or(i64::MAX))
}

/// `SOURCE_DATE_EPOCH` by hand, as parsing is not `const`; anything but digits makes the build fail.
const fn parse_seconds(text: &[u8]) -> i64 {
    let mut rest = text;
    let mut seconds = 0;
    while let [digit, tail @ ..] = rest {
        assert!(digit.is_ascii_digit(), "SOURCE_DATE_EPOCH is not a number of seconds");
        seconds = seconds * 10 + (*digit - b'0') as i64;
        rest = tail;
    }
    seconds
}

/// Says when the wall clock was set, or the machine woke from suspend: `epoll_wait` measures time without suspend, so
/// without this a deadline that passed meanwhile would be noticed up to its whole length late. Costs nothing else.
pub struct ClockWatch {
    timer: Watched<TimerFd>,
}

impl ClockWatch {
    pub fn new(reactor: &Rc<Reactor>) -> io::Result<ClockWatch> {
        let flags = TimerFlags::TFD_CLOEXEC | TimerFlags::TFD_NONBLOCK;
        let timer = TimerFd::new(timerfd::ClockId::CLOCK_REALTIME, flags)?;
        // A date that never comes: only the cancellation is wanted (timerfd_create(2), TFD_TIMER_CANCEL_ON_SET).
        let never = Expiration::OneShot(Duration::from_secs(NEVER_UNIX_SECONDS).into());
        timer.set(never, TimerSetTimeFlags::TFD_TIMER_ABSTIME | TimerSetTimeFlags::TFD_TIMER_CANCEL_ON_SET)?;
        Ok(ClockWatch { timer: reactor.watch(timer)? })
    }

    /// Ends after a step.
    pub async fn stepped(&self) -> io::Result<()> {
        self.timer.read_with(|timer| Ok(timer.wait()?)).await?;
        self.timer.set_drained();
        Ok(())
    }
}

/// 2038-01-19T03:14:07Z, the last second that every kernel can count to; on a clock past it the watch is over.
const NEVER_UNIX_SECONDS: u64 = 2_147_483_647;

/// The time certificates are judged by: the latest of wall clock, build date and the newest stamp known to be past.
/// A board without a clock battery so reaches its API server before NTP does its work, at its first start too: its own
/// credentials were issued before they came here.
#[derive(Debug, Default)]
pub struct CertificateClock {
    floor_unix_seconds: AtomicI64,
    issued_unix_seconds: AtomicI64,
}

impl CertificateClock {
    pub fn new() -> Arc<CertificateClock> {
        let built = || AtomicI64::new(BUILT_UNIX_SECONDS);
        Arc::new(CertificateClock { floor_unix_seconds: built(), issued_unix_seconds: built() })
    }

    /// Something that cannot lie in the future was stamped with this; an earlier floor stays.
    pub fn raise(&self, seen: Wall) {
        self.floor_unix_seconds.fetch_max(seen.unix_seconds(), Ordering::Relaxed);
    }

    /// Credentials of ours are valid from this moment on. Counts only while the wall clock cannot be right: an issuer
    /// whose clock is ahead must not take the server's certificates from a board whose clock is not.
    pub fn credentials_issued(&self, not_before: Wall) {
        self.issued_unix_seconds.fetch_max(not_before.unix_seconds(), Ordering::Relaxed);
    }

    pub(super) fn at(&self, wall: Wall) -> Wall {
        let floor = self.floor_unix_seconds.load(Ordering::Relaxed);
        let is_unset = wall.unix_seconds() < BUILT_UNIX_SECONDS;
        let issued = if is_unset { self.issued_unix_seconds.load(Ordering::Relaxed) } else { floor };
        wall.max(Wall::from_unix_seconds(floor.max(issued)))
    }
}

impl TimeProvider for CertificateClock {
    fn current_time(&self) -> Option<UnixTime> {
        let seconds = u64::try_from(self.at(wall()).unix_seconds()).unwrap_or(0);
        Some(UnixTime::since_unix_epoch(Duration::from_secs(seconds)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_boot_time_clock_never_goes_back() {
        let first = now();
        let second = now();
        assert!(first.up > Up::BOOT && second.up >= first.up);
    }

    #[test]
    fn a_clock_that_nobody_sets_wakes_nobody() {
        let reactor = Reactor::new().unwrap();
        let watch = ClockWatch::new(&reactor).unwrap();
        let soon = up() + Duration::from_millis(20);
        assert!(reactor.block_on(reactor.before(soon, watch.stepped())).unwrap().is_none());
    }

    #[test]
    fn the_release_date_is_what_its_comment_says() {
        assert_eq!(Wall::from_unix_seconds(RELEASED_UNIX_SECONDS).to_seconds_stamp(), "2026-11-21T00:00:00Z");
        assert_eq!(parse_seconds(b"1795219200"), RELEASED_UNIX_SECONDS);
    }

    #[test]
    fn certificates_are_never_judged_by_a_time_that_is_known_to_be_past() {
        let clock = CertificateClock::new();
        let in_1970 = Wall::from_unix_seconds(12);
        assert_eq!(clock.at(in_1970).unix_seconds(), BUILT_UNIX_SECONDS);
        clock.raise(Wall::from_unix_seconds(BUILT_UNIX_SECONDS + 500));
        clock.raise(Wall::from_unix_seconds(BUILT_UNIX_SECONDS + 100));
        assert_eq!(clock.at(in_1970).unix_seconds(), BUILT_UNIX_SECONDS + 500);
        let later = Wall::from_unix_seconds(BUILT_UNIX_SECONDS + 900);
        assert_eq!(clock.at(later), later);
    }

    #[test]
    fn a_board_in_1970_knows_that_its_credentials_were_issued_and_a_board_with_a_clock_goes_by_that() {
        let clock = CertificateClock::new();
        clock.credentials_issued(Wall::from_unix_seconds(BUILT_UNIX_SECONDS + 700));
        assert_eq!(clock.at(Wall::from_unix_seconds(12)).unix_seconds(), BUILT_UNIX_SECONDS + 700);
        let set = Wall::from_unix_seconds(BUILT_UNIX_SECONDS + 100);
        assert_eq!(clock.at(set), set);
        clock.raise(Wall::from_unix_seconds(BUILT_UNIX_SECONDS + 900));
        assert_eq!(clock.at(Wall::from_unix_seconds(12)).unix_seconds(), BUILT_UNIX_SECONDS + 900);
    }
}
