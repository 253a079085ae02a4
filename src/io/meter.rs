//! Turns what the kernel counts of each connection into what the operator of the network bills, by purpose and day.
//!
//! A connection is asked for its counts (TCP_INFO, one system call) after its first exchange, when it ends, when a day does
//! and when somebody wants to know: never for a heartbeat. In between each exchange says only what it was for and how long
//! its plaintext was. What the kernel has counted since it was asked last is then shared out in proportion to that, with an
//! allowance for the headers of each exchange, so the sum is always the kernel's; what the first time leaves over is the
//! handshake's.

use std::cell::{Cell, RefCell};
use std::net::{IpAddr, TcpStream};
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::time::Duration;

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;

use super::clock;
use super::kernel::tcp_info;
use super::reactor::Watched;
use crate::api::traffic::{Cadence, Day, PURPOSES, Purpose, Sum, day_of, shares};
use crate::time::{Now, Up};

const TCP_HEADER_BYTES: u64 = 20;
const TIMESTAMPS_BYTES: u64 = 12;
/// A SYN, or the answer to it, as Linux sends them: with the options that only these have.
const SYN_BYTES: u64 = 40;
/// An exchange is three packets, the last an acknowledgement, and two records of TLS.
const PACKETS_OF_EXCHANGE: u64 = 3;
/// An event of a watch is a packet and its acknowledgement.
const PACKETS_OF_EVENT: u64 = 2;
const RECORDS_BYTES: u64 = 2 * 22;
/// What follows when we end a connection in order: our FIN, its acknowledgement, the peer's last record and its FIN, and to
/// each of these a reset.
const PACKETS_OF_END: u64 = 6;
/// Of a message of DNS: headers of IPv4, UDP and DNS, and the question but for the name.
const DNS_BYTES: u64 = 20 + 8 + 12 + 6;
/// Of a record of DNS in the answer, but for its address.
const DNS_RECORD_BYTES: u64 = 12;

const SECONDS_PER_DAY: u64 = 24 * 3600;

/// All connections of this process, and what came of them.
pub struct Meter {
    /// Today, and the day before.
    days: RefCell<[Day; 2]>,
    /// Up to when the seconds of the day are counted.
    counted_until: Cell<Up>,
    /// When this process began to count, and how much it has counted since.
    pub since: Up,
    bytes: Cell<u64>,
    open: RefCell<Vec<Weak<Counted>>>,
}

/// A socket whose traffic counts until it is dropped, however that comes.
pub struct Metered(Rc<Counted>);

struct Counted {
    socket: Watched<TcpStream>,
    meter: Rc<Meter>,
    ip_header_bytes: u64,
    /// When the kernel was asked last.
    last: Cell<Count>,
    /// What was said of exchanges since.
    since: RefCell<[Sum; PURPOSES.len()]>,
    is_new: Cell<bool>,
    ends_in_order: Cell<bool>,
}

/// What the kernel has counted so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    sent_bytes: u64,
    received_bytes: u64,
    packets: u64,
    repeated: u64,
    /// What was received without headers and repeats, in how many packets with repeats, and how much one may carry.
    content_bytes: u64,
    content_packets: u64,
    most_bytes: u64,
    /// Its end is still to come.
    is_open: bool,
}

impl Meter {
    /// Goes on from these days.
    pub fn new(days: [Day; 2]) -> Rc<Meter> {
        let since = clock::up();
        Rc::new(Meter {
            days: RefCell::new(days),
            counted_until: Cell::new(since),
            since,
            bytes: Cell::new(0),
            open: RefCell::default(),
        })
    }

    /// Today and the day before, everything counted that there is.
    pub fn days(&self) -> [Day; 2] {
        self.count_all(clock::now());
        self.days.borrow().clone()
    }

    /// Today and the day before, and how many bytes this process has counted since its start, whatever day it was.
    pub fn so_far(&self) -> ([Day; 2], u64) {
        (self.days(), self.bytes.get())
    }

    /// What a command is told: lines of a first word and numbers.
    ///
    /// ```text
    /// traffic ...                                    of today, and of the day before (api/traffic.rs)
    /// cadence RENEWAL_MS ASSERTION_MS REPORT_MS
    /// process SECONDS PEAK_KIB CPU_MS SWITCHES WRITTEN_BYTES      since its start, by getrusage(2)
    /// ```
    pub fn report(&self, cadence: Cadence) -> String {
        let mut lines: Vec<String> = self.days().iter().map(|day| format!("traffic {}", day.to_line())).collect();
        lines.push(format!("cadence {}", cadence.to_line()));
        if let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) {
            const BLOCK_BYTES: u64 = 512;
            let ms = usage.user_time().num_milliseconds() + usage.system_time().num_milliseconds();
            let switches = usage.voluntary_context_switches() + usage.involuntary_context_switches();
            let seconds = (clock::up() - self.since).as_secs();
            let written_bytes = u64::try_from(usage.block_writes()).unwrap_or(0) * BLOCK_BYTES;
            lines.push(format!("process {seconds} {} {ms} {switches} {written_bytes}", usage.max_rss()));
        }
        lines.join("\n")
    }

    /// A name was looked up, and these are its addresses. How it was, libc knows: this is one question for each family, over
    /// IPv4, and its answer. A name that is the board's own is asked of nobody.
    pub fn looked_up(&self, name: &str, addresses: &[IpAddr]) {
        let octets = |ip: &IpAddr| if ip.is_ipv4() { 4 } else { 16 };
        let answers: u64 = addresses.iter().map(|ip| DNS_RECORD_BYTES + octets(ip)).sum();
        let bytes = 4 * (DNS_BYTES + name.len() as u64) + answers;
        if !addresses.iter().any(IpAddr::is_loopback) {
            self.add(Purpose::Names, Sum { count: 1, bytes });
        }
    }

    fn add(&self, purpose: Purpose, more: Sum) {
        self.bytes.set(self.bytes.get() + more.bytes);
        let [today, _] = &mut *self.days.borrow_mut();
        if let Some(sum) = today.of(purpose) {
            sum.count += more.count;
            sum.bytes += more.bytes;
        }
    }

    fn take(&self, more: Count) {
        let [today, _] = &mut *self.days.borrow_mut();
        today.sent_bytes += more.sent_bytes;
        today.received_bytes += more.received_bytes;
        today.packets += more.packets;
        today.repeated += more.repeated;
    }

    /// Every connection up to now; what comes from now on may be another day's.
    fn count_all(&self, now: Now) {
        self.open.borrow().iter().filter_map(Weak::upgrade).for_each(|one| one.count());
        let [today, before] = &mut *self.days.borrow_mut();
        // What is less than a second stays for the next time, however often somebody asks.
        let until = self.counted_until.get();
        let more = Duration::from_secs((now.up - until).as_secs());
        self.counted_until.set(until + more);
        today.seconds += more.as_secs();
        let number = day_of(now.wall);
        if number == 0 && today.seconds >= SECONDS_PER_DAY {
            // One of which nobody knows when it ends is as long as all others.
            *before = std::mem::take(today);
        }
        if number != today.number && number != 0 {
            if number == before.number {
                // A clock that stood wrong was put right.
                std::mem::swap(today, before);
            } else if today.number != 0 {
                *before = std::mem::take(today);
            }
            today.number = number;
        }
    }

    /// Whether what is counted from now on belongs to another day.
    fn turn_day(&self) {
        let now = clock::now();
        let number = day_of(now.wall);
        let [today, _] = self.days.borrow().each_ref().map(|day| day.number);
        if number != 0 && number != today {
            self.count_all(now);
        }
    }
}

impl Metered {
    pub fn new(socket: Watched<TcpStream>, is_ipv6: bool, meter: &Rc<Meter>) -> Metered {
        let counted = Rc::new(Counted {
            socket,
            meter: Rc::clone(meter),
            ip_header_bytes: if is_ipv6 { 40 } else { 20 },
            last: Cell::default(),
            since: RefCell::default(),
            is_new: Cell::new(true),
            ends_in_order: Cell::new(false),
        });
        let mut open = meter.open.borrow_mut();
        open.retain(|one| one.strong_count() > 0);
        open.push(Rc::downgrade(&counted));
        Metered(counted)
    }

    /// A request of so many bytes of plaintext leaves. Whatever becomes of it, its bytes are this purpose's.
    pub fn sends(&self, purpose: Purpose, bytes: usize) {
        self.0.meter.turn_day();
        let headers = PACKETS_OF_EXCHANGE * (self.0.ip_header_bytes + TCP_HEADER_BYTES + TIMESTAMPS_BYTES);
        self.0.tell(purpose, Sum { count: 1, bytes: bytes as u64 + headers + RECORDS_BYTES });
    }

    /// So many bytes of the answer's plaintext have come, and no more will.
    pub fn received(&self, purpose: Purpose, bytes: usize) {
        self.0.tell(purpose, Sum { count: 0, bytes: bytes as u64 });
        if self.0.is_new.get() {
            self.0.count();
            self.0.is_new.set(false);
            self.0.meter.add(Purpose::Handshake, Sum { count: 1, bytes: 0 });
        }
    }

    /// So many bytes of plaintext have come that nobody had asked for just then.
    pub fn heard(&self, purpose: Purpose, bytes: usize) {
        self.0.meter.turn_day();
        let headers = PACKETS_OF_EVENT * (self.0.ip_header_bytes + TCP_HEADER_BYTES + TIMESTAMPS_BYTES);
        self.0.tell(purpose, Sum { count: 1, bytes: bytes as u64 + headers + RECORDS_BYTES / 2 });
    }

    /// It is about to be closed with all that belongs to it.
    pub fn ends_in_order(&self) {
        self.0.ends_in_order.set(true);
    }
}

impl Deref for Metered {
    type Target = Watched<TcpStream>;

    fn deref(&self) -> &Watched<TcpStream> {
        &self.0.socket
    }
}

impl Counted {
    fn tell(&self, purpose: Purpose, more: Sum) {
        if let Some(sum) = self.since.borrow_mut().get_mut(purpose as usize) {
            sum.count += more.count;
            sum.bytes += more.bytes;
        }
    }

    /// Asks the kernel, and shares out what it has counted since it was asked last.
    fn count(&self) {
        let told = self.since.take();
        let weights = told.map(|sum| sum.bytes);
        let asked = tcp_info(self.socket.get()).ok();
        let known = asked.and_then(|(info, length)| Count::of(info.get(..length)?, self.ip_header_bytes));
        // A kernel that does not count (before 4.2): what was said is all there is.
        let last = self.last.get();
        let said = Count { sent_bytes: last.sent_bytes + weights.iter().sum::<u64>(), ..last };
        let mut more = self.last_was(known.unwrap_or(said));
        more.received_bytes += more.received_twice(told.iter().map(|sum| sum.count).sum());
        let bytes = more.sent_bytes + more.received_bytes;
        // The handshake is what the first exchanges leave over; later there is none.
        let fits = self.is_new.get() && weights.iter().sum::<u64>() <= bytes;
        let parts = if fits { weights } else { shares(bytes, weights) };
        self.meter.take(more);
        self.meter.bytes.set(self.meter.bytes.get() + bytes);
        let [today, _] = &mut *self.meter.days.borrow_mut();
        for ((sum, told), part) in today.sums.iter_mut().zip(told).zip(parts) {
            sum.count += told.count;
            sum.bytes += part;
        }
        if let Some(sum) = today.of(Purpose::Handshake) {
            sum.bytes += bytes - parts.iter().sum::<u64>();
        }
    }

    /// What has come since the kernel was asked last.
    fn last_was(&self, now: Count) -> Count {
        let last = self.last.replace(now);
        Count {
            sent_bytes: now.sent_bytes.saturating_sub(last.sent_bytes),
            received_bytes: now.received_bytes.saturating_sub(last.received_bytes),
            packets: now.packets.saturating_sub(last.packets),
            repeated: now.repeated.saturating_sub(last.repeated),
            content_bytes: now.content_bytes.saturating_sub(last.content_bytes),
            content_packets: now.content_packets.saturating_sub(last.content_packets),
            ..now
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.count();
        let mut end = Sum { count: u64::from(self.is_new.get()), bytes: 0 };
        if self.last.get().is_open {
            let packets = if self.ends_in_order.get() { PACKETS_OF_END } else { 1 };
            let bytes = packets * (self.ip_header_bytes + TCP_HEADER_BYTES + TIMESTAMPS_BYTES);
            self.meter.take(Count { sent_bytes: bytes, packets, ..Count::default() });
            end.bytes = bytes;
        }
        self.meter.add(Purpose::Handshake, end);
    }
}

impl Count {
    /// What came a second time, because an acknowledgement of ours was lost: its headers are counted, and what it carried is
    /// not. As many acknowledgements of ours are lost as other packets of ours are, if so many packets more have come than the
    /// answers need.
    fn received_twice(&self, answers: u64) -> u64 {
        let needed = answers.max(self.content_bytes.div_ceil(self.most_bytes.max(1)));
        let twice = self.repeated.min(self.content_packets.saturating_sub(needed));
        self.content_bytes.checked_div(needed).unwrap_or(0) * twice
    }

    /// From `struct tcp_info`, as far as this kernel knows it.
    fn of(info: &[u8], ip_header_bytes: u64) -> Option<Count> {
        const ESTABLISHED: u8 = 1;
        const CLOSE_WAIT: u8 = 8;
        const HAS_TIMESTAMPS: u8 = 1;
        let word = |at: usize| Some(u64::from(u32::from_ne_bytes(*info.get(at..)?.first_chunk()?)));
        let long = |at: usize| Some(u64::from_ne_bytes(*info.get(at..)?.first_chunk()?));
        let (state, options) = (*info.first()?, *info.get(5)?);
        let (repeated, acknowledged, received) = (word(100)?, long(120)?, long(128)?);
        let (sent_packets, received_packets) = (word(136)?, word(140)?);
        // With all that was sent again, since 4.19.
        let sent = long(200).unwrap_or(acknowledged);
        let timestamps = if options & HAS_TIMESTAMPS == 0 { 0 } else { TIMESTAMPS_BYTES };
        let header = ip_header_bytes + TCP_HEADER_BYTES + timestamps;
        let of_syn = SYN_BYTES - TCP_HEADER_BYTES - timestamps;
        // As long as nothing was answered, there was nothing but attempts.
        let syns = if received_packets == 0 { sent_packets } else { 1 };
        Some(Count {
            sent_bytes: sent + sent_packets * header + syns * of_syn,
            received_bytes: received + received_packets * header + received_packets.min(1) * of_syn,
            packets: sent_packets + received_packets,
            repeated,
            content_bytes: received,
            // Since 4.6.
            content_packets: word(152).unwrap_or(0),
            most_bytes: word(20)?,
            is_open: matches!(state, ESTABLISHED | CLOSE_WAIT),
        })
    }
}

#[cfg(test)]
mod tests;
