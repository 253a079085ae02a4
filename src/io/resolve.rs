//! Turns the name of a server into addresses. libc's resolver blocks and cannot be cancelled, so a name is looked up on
//! a short-lived helper thread, and what it said last is kept for when DNS is down.

use std::cell::RefCell;
use std::io;
use std::net::{IpAddr, ToSocketAddrs};
use std::rc::Rc;
use std::time::Duration;

use super::clock;
use super::known_servers::KnownServers;
use super::meter::Meter;
use super::reactor::Reactor;
use super::thread::Source;
use crate::api::failure::{Failure, NAME_NOT_RESOLVED};
use crate::config::limits;
use crate::time::Up;

const THREAD_NAME: &str = "name-lookup";
/// How long DNS may take when there are addresses from earlier to fall back to.
const PATIENCE_WITH_KNOWN: Duration = Duration::from_secs(2);

/// Looks names up, and remembers.
pub struct Resolver {
    reactor: Rc<Reactor>,
    known: Rc<KnownServers>,
    meter: Rc<Meter>,
    /// Addresses over which a request failed since they last worked, the latest failure last: tried after the others,
    /// whatever DNS thinks of them.
    failed: RefCell<Vec<IpAddr>>,
    dns: Source,
}

impl Resolver {
    pub fn new(reactor: Rc<Reactor>, known: Rc<KnownServers>) -> Resolver {
        let (meter, dns) = (Meter::new(known.days()), Source::new(THREAD_NAME, limits::NAME_LOOKUPS));
        Resolver { reactor, known, meter, failed: RefCell::default(), dns }
    }

    pub fn known_servers(&self) -> &KnownServers {
        &self.known
    }

    /// Where look-ups count, and all connections that their answers lead to.
    pub fn meter(&self) -> &Rc<Meter> {
        &self.meter
    }

    /// Addresses of a server, in the order to be tried: families alternate (RFC 8305), the resolver's choice first.
    /// When DNS fails or is slow, the last addresses that it gave, the one that worked last first.
    pub async fn server_addresses(&self, host: &str, deadline: Up) -> Result<Vec<IpAddr>, Failure> {
        if let Ok(ip) = host.parse() {
            return Ok(vec![ip]);
        }
        let known = self.known.addresses(host);
        let patience = if known.is_some() { deadline.min(clock::up() + PATIENCE_WITH_KNOWN) } else { deadline };
        let mut addresses = match (self.look_up(host, patience).await, known) {
            (Ok(found), known) => {
                let mut ordered = alternate(found);
                self.known.found(host, &ordered);
                // Where a server was is tried second at the latest: one answer of DNS may be a lie.
                let worked = known.and_then(|known| known.first().copied()).filter(|ip| !ordered.contains(ip));
                worked.into_iter().for_each(|ip| ordered.insert(1, ip));
                ordered
            }
            (Err(_), Some(known)) => known,
            (Err(detail), None) => {
                let advice = "check DNS, or put an IP address into the kubeconfig";
                let text = format!("the name {host} has no address ({detail}); {advice}");
                return Err(Failure::new(NAME_NOT_RESOLVED, text));
            }
        };
        let failed = self.failed.borrow();
        addresses.sort_by_key(|ip| failed.iter().position(|failed| failed == ip));
        Ok(addresses)
    }

    /// A server answered at this address.
    pub fn worked(&self, host: &str, ip: IpAddr) {
        self.failed.borrow_mut().retain(|failed| *failed != ip);
        self.known.worked(host, ip);
    }

    /// A request over a connection to this address came to nothing.
    pub fn failed(&self, ip: IpAddr) {
        let mut failed = self.failed.borrow_mut();
        failed.retain(|failed| *failed != ip);
        failed.push(ip);
        if failed.len() > limits::SERVER_ADDRESSES {
            failed.remove(0);
        }
    }

    /// What the system says of a name, once, until `deadline`.
    pub async fn look_up(&self, host: &str, deadline: Up) -> Result<Vec<IpAddr>, String> {
        let started = clock::up();
        let name = (host.to_owned(), 0);
        let call = move || {
            let found = name.to_socket_addrs()?;
            Ok(found.map(|address| address.ip()).take(limits::LOOKED_UP_ADDRESSES).collect())
        };
        let asked = self.reactor.before(deadline, self.dns.ask(call)).await;
        let answer: io::Result<Vec<IpAddr>> = match asked {
            Some(asked) => asked.map_err(|error| format!("DNS cannot be asked: {error}"))?,
            None => return Err(format!("no answer from DNS within {} ms", (deadline - started).as_millis())),
        };
        self.meter.looked_up(host, answer.as_deref().unwrap_or_default());
        match answer {
            Err(error) => {
                let text = error.to_string();
                Err(text.rsplit("lookup address information: ").next().unwrap_or_default().to_owned())
            }
            Ok(found) if found.is_empty() => Err("no address".to_owned()),
            Ok(found) => Ok(found),
        }
    }
}

/// Families in turn, beginning with that of the first address; each once; at most [`limits::SERVER_ADDRESSES`].
fn alternate(found: Vec<IpAddr>) -> Vec<IpAddr> {
    let first_is_v6 = found.first().is_some_and(IpAddr::is_ipv6);
    // Each with its place among those of its family.
    let mut placed: Vec<(usize, IpAddr)> = Vec::new();
    for ip in found {
        if placed.iter().all(|(_, known)| *known != ip) {
            let place = placed.iter().filter(|(_, known)| known.is_ipv6() == ip.is_ipv6()).count();
            placed.push((place, ip));
        }
    }
    placed.sort_unstable_by_key(|(place, ip)| (*place, ip.is_ipv6() != first_is_v6));
    placed.into_iter().map(|(_, ip)| ip).take(limits::SERVER_ADDRESSES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ips(list: &[&str]) -> Vec<IpAddr> {
        list.iter().map(|ip| ip.parse().unwrap()).collect()
    }

    fn soon() -> Up {
        clock::up() + Duration::from_secs(10)
    }

    #[test]
    fn families_alternate_and_nothing_is_tried_twice() {
        let found = ips(&["fd00::1", "fd00::2", "fd00::1", "10.0.0.1", "10.0.0.2"]);
        assert_eq!(alternate(found), ips(&["fd00::1", "10.0.0.1", "fd00::2", "10.0.0.2"]));
        let many: Vec<IpAddr> = (0..40_u8).map(|last| IpAddr::from([10, 0, 0, last])).collect();
        assert_eq!(alternate(many.clone()), many[..limits::SERVER_ADDRESSES]);
    }

    #[test]
    fn a_literal_is_never_looked_up_and_localhost_is_found() {
        let reactor = Reactor::new().unwrap();
        let resolver = Resolver::new(Rc::clone(&reactor), Rc::default());
        let literal = reactor.block_on(resolver.server_addresses("fd00::1", Up::BOOT)).unwrap();
        assert_eq!(literal.unwrap(), ips(&["fd00::1"]));
        let local = reactor.block_on(resolver.server_addresses("localhost", soon())).unwrap().unwrap();
        assert!(local.iter().all(IpAddr::is_loopback) && !local.is_empty());
    }

    #[test]
    fn the_last_addresses_serve_when_dns_does_not() {
        let reactor = Reactor::new().unwrap();
        let resolver = Resolver::new(Rc::clone(&reactor), Rc::default());
        let name = "no-such-name.invalid";
        let failure = reactor.block_on(resolver.server_addresses(name, soon())).unwrap().unwrap_err();
        assert!(failure.word() == "name-not-resolved" && failure.to_string().contains(name), "{failure}");
        let ask = || reactor.block_on(resolver.server_addresses(name, soon())).unwrap().unwrap();
        resolver.known.found(name, &ips(&["10.0.0.1", "fd00::1", "10.0.0.2"]));
        assert_eq!(ask(), ips(&["10.0.0.1", "fd00::1", "10.0.0.2"]));
        resolver.worked(name, ips(&["fd00::1"])[0]);
        assert_eq!(ask(), ips(&["fd00::1", "10.0.0.1", "10.0.0.2"]));
        resolver.failed(ips(&["fd00::1"])[0]);
        assert_eq!(ask(), ips(&["10.0.0.1", "10.0.0.2", "fd00::1"]));
        resolver.failed(ips(&["10.0.0.1"])[0]);
        assert_eq!(ask(), ips(&["10.0.0.2", "fd00::1", "10.0.0.1"]), "of three that accept two may hang");
        resolver.failed(ips(&["10.0.0.2"])[0]);
        assert_eq!(ask(), ips(&["fd00::1", "10.0.0.1", "10.0.0.2"]), "then each in turn");
        (0..40_u8).for_each(|last| resolver.failed(IpAddr::from([10, 1, 0, last])));
        assert_eq!(resolver.failed.borrow().len(), limits::SERVER_ADDRESSES);
        resolver.worked(name, ips(&["fd00::1"])[0]);
        assert_eq!(ask(), ips(&["fd00::1", "10.0.0.1", "10.0.0.2"]));
    }

    #[test]
    fn an_address_that_worked_is_tried_second_when_dns_names_others() {
        let reactor = Reactor::new().unwrap();
        let resolver = Resolver::new(Rc::clone(&reactor), Rc::default());
        let ask = || reactor.block_on(resolver.server_addresses("localhost", soon())).unwrap().unwrap();
        let named = ask();
        resolver.known.found("localhost", &ips(&["10.0.0.7"]));
        resolver.worked("localhost", ips(&["10.0.0.7"])[0]);
        for _ in 0..2 {
            let found = ask();
            assert_eq!((found[0], found[1], found.len()), (named[0], ips(&["10.0.0.7"])[0], named.len() + 1));
        }
        resolver.worked("localhost", named[0]);
        ask();
        assert_eq!(ask(), named, "the old one is forgotten once another works");
    }

    fn helper_threads() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim_end() == THREAD_NAME).count()
    }

    #[test]
    fn the_helper_thread_is_gone_after_the_answer() {
        let reactor = Reactor::new().unwrap();
        let resolver = Resolver::new(Rc::clone(&reactor), Rc::default());
        assert!(reactor.block_on(resolver.look_up("localhost", soon())).unwrap().is_ok());
        let deadline = soon();
        while helper_threads() > 0 {
            assert!(clock::up() < deadline, "a helper thread stays");
            std::thread::yield_now();
        }
    }

    #[test]
    fn look_ups_that_hang_do_not_pile_up() {
        let reactor = Reactor::new().unwrap();
        let resolver = Resolver::new(Rc::clone(&reactor), Rc::default());
        let soon = clock::up() + Duration::from_millis(1);
        let (release, hang) = std::sync::mpsc::channel::<()>();
        let hang = std::sync::Arc::new(std::sync::Mutex::new(hang));
        for _ in 0..limits::NAME_LOOKUPS {
            let hang = std::sync::Arc::clone(&hang);
            let hangs = resolver.dns.ask(move || hang.lock().map(|hang| hang.recv().is_ok()).ok());
            assert!(reactor.block_on(reactor.before(soon, hangs)).unwrap().is_none());
        }
        let refused = reactor.block_on(resolver.look_up("localhost", self::soon())).unwrap();
        assert_eq!(refused.unwrap_err(), "DNS cannot be asked: earlier calls have not come back yet");
        drop(release);
        let deadline = self::soon();
        while reactor.block_on(resolver.look_up("localhost", deadline)).unwrap().is_err() {
            assert!(clock::up() < deadline, "it is asked again");
            std::thread::yield_now();
        }
    }
}
