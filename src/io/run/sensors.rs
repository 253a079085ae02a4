//! Turns the sensors of a board, which may be slow or never answer, into what they said last, without waiting long.

use std::cell::Cell;
use std::time::Duration;

use nix::libc::ETIMEDOUT;

use super::super::clock;
use super::super::reactor::Reactor;
use super::super::thread::Source;
use crate::probe::{Absent, Health, HealthFiles, KernelLogFiles, Root, Why};
use crate::time::{Every, Up};

/// How long a look at the board waits for its sensors, at most.
const PATIENCE: Duration = Duration::from_secs(2);
/// No look may take longer while everything else waits.
const SLOW: Duration = Duration::from_millis(50);
/// How long sensors that took longer are left alone.
const REST: Duration = Duration::from_secs(60);

/// A look at all sensors, and at the firmware if that is asked for; one that hangs keeps it for ever. Answers too from when on one
/// reads files that no look has read yet, or not for an hour.
type Look = Box<dyn FnMut(Up, bool) -> (Health, Up) + Send>;

/// The sensors of this board. Whether they answer at once is seen on a thread, with each look at new files and with each after
/// one that was slow; those that do need none.
pub(super) struct Sensors {
    open: Box<dyn Fn() -> Look>,
    look: Option<Look>,
    source: Source,
    /// By the last look.
    said: Health,
    new_files_due: Up,
    is_slow: bool,
    rests_until: Up,
}

impl Sensors {
    /// `kernel_log`: open, and read as long as the sensors answer; `None`: nobody wants to know.
    pub fn of(root: &Root, kernel_log: Option<KernelLogFiles>) -> Sensors {
        let (root, kernel_log) = (root.clone(), Cell::new(kernel_log));
        Sensors::new(move || {
            let (mut files, mut clock_looks) = (HealthFiles::new(&root).with_log(kernel_log.take()), Every::MINUTE);
            let mut wall_clock = None;
            Box::new(move |now, asks_firmware| {
                files.ask_firmware(asks_firmware);
                if clock_looks.is_due(now) {
                    wall_clock = Some(clock::wall_clock());
                }
                let said = Health { wall_clock: wall_clock.clone(), ..files.read(now) };
                (said, files.search_due())
            })
        })
    }

    fn new(open: impl Fn() -> Look + 'static) -> Sensors {
        let source = Source::new("sensor-reader", 1);
        Sensors {
            open: Box::new(open),
            look: None,
            source,
            said: Health::default(),
            new_files_due: Up::default(),
            is_slow: false,
            rests_until: Up::default(),
        }
    }

    /// What they say now, or said a minute ago at most where they are slow.
    pub async fn read(&mut self, reactor: &Reactor, asks_firmware: bool) -> Health {
        let begun = clock::up();
        match &mut self.look {
            Some(look) if !self.is_slow && begun < self.new_files_due => {
                (self.said, self.new_files_due) = look(begun, asks_firmware);
            }
            _ if begun < self.rests_until => return self.said.clone(),
            _ => self.read_aside(reactor, begun, asks_firmware).await,
        }
        if clock::up() - begun > SLOW {
            (self.is_slow, self.rests_until) = (true, clock::up() + REST);
        }
        self.said.clone()
    }

    async fn read_aside(&mut self, reactor: &Reactor, begun: Up, asks_firmware: bool) {
        let mut look = self.look.take().unwrap_or_else(|| (self.open)());
        let asked = self.source.ask(move || (look(begun, asks_firmware), look));
        match reactor.before(clock::up() + PATIENCE, asked).await.and_then(Result::ok) {
            Some(((said, due), look)) => {
                (self.said, self.new_files_due, self.look) = (said, due, Some(look));
                self.is_slow = false;
            }
            None => self.said = self.said.unanswered(&Absent::new("/sys/class", Why::Errno(ETIMEDOUT))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    use std::sync::{Arc, Mutex, mpsc};

    use super::*;

    fn is_low(health: &Health) -> Option<bool> {
        health.undervoltage.as_ref().map(|fact| *fact.as_ref().unwrap_or(&false))
    }

    fn low() -> (Health, Up) {
        (Health { undervoltage: Some(Ok(true)), ..Health::default() }, clock::NEVER)
    }

    #[test]
    fn sensors_that_answer_at_once_need_a_thread_for_the_first_look_alone() {
        let (reactor, threads) = (Reactor::new().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let seen = Arc::clone(&threads);
        let mut sensors = Sensors::new(move || {
            let seen = Arc::clone(&seen);
            Box::new(move |_, _| {
                seen.lock().unwrap().push(std::thread::current().id());
                low()
            })
        });
        for _ in 0..3 {
            assert_eq!(is_low(&reactor.block_on(sensors.read(&reactor, false)).unwrap()), Some(true));
            // However busy this machine was.
            (sensors.is_slow, sensors.rests_until) = (false, Up::default());
        }
        let own = std::thread::current().id();
        let aside: Vec<bool> = threads.lock().unwrap().iter().map(|thread| *thread != own).collect();
        assert_eq!(aside, [true, false, false]);
    }

    #[test]
    fn slow_sensors_are_read_aside_once_a_minute() {
        let (reactor, looks) = (Reactor::new().unwrap(), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&looks);
        let mut sensors = Sensors::new(move || {
            let counted = Arc::clone(&counted);
            Box::new(move |_, _| {
                counted.fetch_add(1, SeqCst);
                let begun = clock::up();
                while clock::up() - begun <= SLOW {
                    std::thread::yield_now();
                }
                low()
            })
        });
        let read = |sensors: &mut Sensors| is_low(&reactor.block_on(sensors.read(&reactor, false)).unwrap());
        assert_eq!([(); 5].map(|()| read(&mut sensors)), [Some(true); 5]);
        assert_eq!(looks.load(SeqCst), 1, "they rest");
        sensors.rests_until = Up::default();
        assert_eq!(read(&mut sensors), Some(true));
        assert_eq!(looks.load(SeqCst), 2);
    }

    #[test]
    fn a_sensor_that_hangs_is_waited_for_once_and_unread_until_it_answers() {
        let reactor = Reactor::new().unwrap();
        let (release, hang) = mpsc::channel::<()>();
        let hang = Arc::new(Mutex::new(Some(hang)));
        let mut sensors = Sensors::new(move || {
            let hang = hang.lock().unwrap().take();
            Box::new(move |_, _| {
                let _ = hang.as_ref().map(mpsc::Receiver::recv);
                low()
            })
        });
        sensors.said = low().0;
        let hung = reactor.block_on(sensors.read(&reactor, false)).unwrap();
        let absent = hung.undervoltage.unwrap().unwrap_err();
        assert_eq!(absent.why, Why::Errno(ETIMEDOUT));
        sensors.rests_until = Up::default();
        let begun = clock::up();
        assert!(reactor.block_on(sensors.read(&reactor, false)).unwrap().undervoltage.unwrap().is_err());
        assert!(clock::up() - begun < PATIENCE, "nobody asks a second time while the first waits");
        drop(release);
        // As soon as that thread has ended.
        while reactor.block_on(sensors.read(&reactor, false)).unwrap().undervoltage.unwrap().is_err() {
            sensors.rests_until = Up::default();
            std::thread::yield_now();
        }
    }
}
