//! Turns the kernel's clocks into [`Now`], and into the time that certificates are judged by (D11).

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nix::sys::time::TimeSpec;
use nix::time::{ClockId, clock_gettime};

use super::kernel;
use crate::probe::facts::WallClock;
use crate::probe::{Absent, Fact, Why};
use crate::time::{Now, Up, Wall};

/// No wall clock is right before this program was built: `SOURCE_DATE_EPOCH` of the build, or the date of this release.
pub const BUILT_UNIX_SECONDS: i64 = match option_env!("SOURCE_DATE_EPOCH") {
    Some(text) => parse_seconds(text.as_bytes()),
    None => RELEASED_UNIX_SECONDS,
};

/// 2026-11-21T00:00:00Z.
const RELEASED_UNIX_SECONDS: i64 = 1_795_219_200;

/// Seconds of 32 bits end in 2038, and with them the clock: what asks libc for more has to be what made it.
const _: () = assert!(
    option_env!("RUST_LIBC_UNSTABLE_MUSL_V1_2_3").is_none() || size_of::<TimeSpec>() == 16,
    "libc has not heard what .cargo/small.toml asks of it"
);

/// Later than any moment.
pub const NEVER: Up = Up::since_boot(Duration::MAX);

/// Both clocks at this moment.
pub fn now() -> Now {
    let built = Wall::from_unix_seconds(BUILT_UNIX_SECONDS);
    Now { up: up(), wall: Some(wall()).filter(|wall| *wall >= built) }
}

/// How right the wall clock is, as far as this kernel knows.
pub fn wall_clock() -> Fact<WallClock> {
    let is_unset = now().wall.is_none();
    match kernel::clock_discipline() {
        Ok((is_synchronised, most_off_us)) => Ok(WallClock { is_unset, is_synchronised, most_off_us }),
        Err(errno) => Err(Absent::new("adjtimex", Why::Errno(errno as i32))),
    }
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

/// What the kernel says of the time: its wall clock, and whether somebody keeps that right.
type Kernel = (Wall, bool);

/// The time that the server's certificate is judged by (D11). A wall clock that nobody keeps right has no vote: then a
/// certificate must not have ended before what is known to be past, and "not yet valid" is news of the time. So a board
/// without a clock battery reaches its API server before NTP does its work, at its first start too, and a clock that is
/// years ahead keeps nobody away.
#[derive(Debug)]
pub struct CertificateClock {
    /// Known to be past: the date of this program, and from when on certificates are valid that a server of ours showed
    /// or took, by its own clock as well. Never a date that a server only says: one that is wrong would stay.
    past_unix_seconds: Seconds,
    /// From when on the credentials in use are valid. It has no say against a clock that is kept right: an issuer whose
    /// clock is ahead must not take the server's certificates from the board.
    issued_unix_seconds: Seconds,
    kernel: fn() -> Kernel,
}

/// Seconds since 1970 that threads share. A lock, as not every processor has an atomic of 64 bits.
#[derive(Debug)]
struct Seconds(Mutex<i64>);

impl Seconds {
    fn get(&self) -> i64 {
        *self.lock()
    }

    fn lock(&self) -> MutexGuard<'_, i64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CertificateClock {
    pub fn new() -> Arc<CertificateClock> {
        CertificateClock::reading(|| {
            (wall(), kernel::clock_discipline().is_ok_and(|(is_synchronised, _)| is_synchronised))
        })
    }

    pub(super) fn reading(kernel: fn() -> Kernel) -> Arc<CertificateClock> {
        let built = || Seconds(Mutex::new(BUILT_UNIX_SECONDS));
        Arc::new(CertificateClock { past_unix_seconds: built(), issued_unix_seconds: built(), kernel })
    }

    /// This is past; what was known to be past stays so.
    pub fn passed(&self, moment: Wall) {
        let mut past = self.past_unix_seconds.lock();
        *past = (*past).max(moment.unix_seconds());
    }

    /// The credentials in use from now on are valid from this moment on.
    pub fn credentials_issued(&self, not_before: Option<Wall>) {
        *self.issued_unix_seconds.lock() = not_before.map_or(BUILT_UNIX_SECONDS, Wall::unix_seconds);
    }

    /// The wall clock, where somebody keeps it right and it is not before what is past.
    pub(super) fn known(&self) -> Option<Wall> {
        let (wall, is_synchronised) = (self.kernel)();
        Some(wall).filter(|wall| is_synchronised && wall.unix_seconds() >= self.past_unix_seconds.get())
    }

    /// When to judge a chain of certificates the last of which was issued then.
    pub(super) fn at(&self, issued: Option<Wall>) -> Wall {
        self.known().unwrap_or_else(|| {
            let past = Wall::from_unix_seconds(self.past_unix_seconds.get().max(self.issued_unix_seconds.get()));
            issued.map_or(past, |issued| issued.max(past))
        })
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
    fn the_release_date_is_what_its_comment_says() {
        assert_eq!(Wall::from_unix_seconds(RELEASED_UNIX_SECONDS).to_seconds_stamp(), "2026-11-21T00:00:00Z");
        assert_eq!(parse_seconds(b"1795219200"), RELEASED_UNIX_SECONDS);
    }

    const DAY_SECONDS: i64 = 86_400;

    /// So many days after this program was built.
    fn day(days: i64) -> Wall {
        Wall::from_unix_seconds(BUILT_UNIX_SECONDS + days * DAY_SECONDS)
    }

    #[test]
    fn a_clock_that_nobody_keeps_right_has_no_vote_about_certificates() {
        for kernel in [|| (Wall::from_unix_seconds(12), false), || (day(9_000), false), || (day(-30), true)] {
            let clock = CertificateClock::reading(kernel);
            assert_eq!((clock.known(), clock.at(None)), (None, day(0)));
            assert_eq!(clock.at(Some(day(-700))), day(0), "issued before what is known to be past");
            assert_eq!(clock.at(Some(day(700))), day(700), "news of the time");
            clock.passed(day(50));
            clock.passed(day(40));
            assert_eq!(clock.at(Some(day(45))), day(50));
        }
    }

    #[test]
    fn a_clock_that_is_kept_right_decides_unless_it_is_before_what_is_past() {
        let clock = CertificateClock::reading(|| (day(100), true));
        clock.passed(day(100));
        clock.credentials_issued(Some(day(300)));
        assert_eq!((clock.known(), clock.at(Some(day(200)))), (Some(day(100)), day(100)));
        clock.passed(day(101));
        assert_eq!((clock.known(), clock.at(Some(day(200)))), (None, day(300)));
    }

    #[test]
    fn what_the_credentials_say_of_the_time_goes_with_them() {
        let clock = CertificateClock::reading(|| (Wall::from_unix_seconds(12), false));
        clock.credentials_issued(Some(day(3_000)));
        assert_eq!(clock.at(None), day(3_000));
        clock.credentials_issued(Some(day(7)));
        assert_eq!(clock.at(None), day(7));
        clock.credentials_issued(None);
        assert_eq!(clock.at(None), day(0));
    }
}
