//! Cables, routes and addresses that go away under a connection, and how soon the Lease is renewed over another one.

use super::super::agent::Nodepulse;
use super::super::cluster::{Cluster, NodeIdentity, Result, condition, wait_until};
use super::super::requests::{SOON, is_renewal, now_us, wait_for_event, wait_for_node, wait_until_ready};
use super::Case;
use super::site::{Link, Site, run};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nodepulse::io::clock;
use nodepulse::io::reactor::Reactor;
use nodepulse::io::watches::LinkWatch;
use serde_json::Value;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

pub fn cases() -> Vec<Case> {
    cases![
        a_black_holed_connection_is_replaced_within_fifteen_seconds,
        a_carrier_that_returns_is_used_at_once,
        a_router_that_knows_no_way_at_first_is_not_waited_for,
        a_default_route_that_moves_takes_the_connection_with_it,
        another_router_on_the_same_cable_takes_the_connection_with_it,
        an_address_that_changes_takes_the_connection_with_it,
        a_try_before_the_look_at_a_network_that_is_back_opens_the_only_connection,
        a_try_that_a_carrier_finds_on_its_way_opens_the_only_connection,
        an_address_more_while_the_first_answer_is_on_its_way_costs_no_second_connection,
        an_agent_that_was_frozen_uses_no_connection_of_before,
        a_carrier_that_comes_up_is_heard_once_for_all_its_messages,
        a_cable_that_comes_loose_again_and_again_is_a_condition_of_the_node,
    ]
}

/// The controller gives a silent node up after twelve seconds, and looks every few.
const FROZEN_WITHIN: Duration = Duration::from_secs(40);

/// After which a pause between two tries has its full length.
const LONG_OUTAGE: Duration = Duration::from_secs(30);

/// A figure for whoever reads the log.
pub fn say(what: &str, span: Duration) {
    eprintln!("  {what}: {:.2} s", span.as_secs_f64());
}

/// How long after `since_us` the server got a renewal that it accepted.
pub fn wait_for_renewal(cluster: &Cluster, node: &NodeIdentity, since_us: u64, within: Duration) -> Result<Duration> {
    wait_until("a renewal", within, || {
        let all = cluster.audit_of(node)?;
        let found = all.iter().find(|e| is_renewal(e) && e.received_at_us > since_us);
        found.map(|e| Duration::from_micros(e.received_at_us - since_us)).ok_or_else(|| "none yet".to_owned())
    })
}

/// An agent with a second between renewals, over one connection, in a site of its own.
fn settled(cluster: &Cluster, hint: &str) -> Result<(Site, NodeIdentity, Nodepulse)> {
    let site = Site::new(cluster)?;
    let node = cluster.node(hint)?;
    let agent = site.agent(cluster, &cluster.api, &node)?;
    wait_until_ready(cluster, &node)?;
    wait_for_renewal(cluster, &node, now_us(), SOON)?;
    Ok((site, node, agent))
}

fn a_black_holed_connection_is_replaced_within_fifteen_seconds(cluster: &Cluster) -> Result<()> {
    let (site, node, mut agent) = settled(cluster, "swallowed")?;
    let port = site.connection(cluster.api.port)?;
    let text = port.to_string();
    site.swallow(&[&["ipproto", "tcp", "sport", &text], &["ipproto", "tcp", "dport", &text]])?;
    let cut_us = now_us();
    // The first that is accepted can only have come over another connection.
    let after = wait_for_renewal(cluster, &node, cut_us, Duration::from_secs(15))?;
    say("a black-holed connection, to the renewal over a new one", after);
    let now = site.connection(cluster.api.port)?;
    assert_ne!(now, port, "a connection is never used again after a time-out");
    agent.check()
}

fn a_carrier_that_returns_is_used_at_once(cluster: &Cluster) -> Result<()> {
    let (site, node, mut agent) = settled(cluster, "unplugged")?;
    for seconds in [1, 6] {
        site.cut(0)?;
        let cut = Instant::now();
        wait_until("the end of the outage", SOON, || {
            if cut.elapsed() >= Duration::from_secs(seconds) { Ok(()) } else { Err("not yet".to_owned()) }
        })?;
        site.mend(0)?;
        let after = wait_for_renewal(cluster, &node, now_us(), SOON)?;
        say(&format!("a carrier that returns after {seconds} s, to the next renewal"), after);
        assert!(after < Duration::from_secs(3), "{after:?}");
        wait_for_renewal(cluster, &node, now_us(), SOON)?;
    }
    agent.check()
}

/// As one whose own uplink comes up after ours, or which is still being asked for its address. Several boards: pauses are drawn.
fn a_router_that_knows_no_way_at_first_is_not_waited_for(cluster: &Cluster) -> Result<()> {
    let boards = ["turned-1", "turned-2", "turned-3", "turned-4"].map(|hint| settled(cluster, hint));
    let mut boards = boards.into_iter().collect::<Result<Vec<_>>>()?;
    for (site, ..) in &boards {
        site.turn_away(cluster.api.port)?;
        site.cut(0)?;
    }
    // By then a pause has its full length.
    let cut = Instant::now();
    wait_until("an outage of half a minute", LONG_OUTAGE * 2, || {
        if cut.elapsed() >= LONG_OUTAGE { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    let mut afters = Vec::new();
    for (site, node, agent) in &mut boards {
        site.mend(0)?;
        let mended = Instant::now();
        // The first try comes after a quarter of a second.
        wait_until("half a second with a router that knows no way", SOON, || {
            if mended.elapsed() >= Duration::from_millis(500) { Ok(()) } else { Err("not yet".to_owned()) }
        })?;
        site.let_through(cluster.api.port)?;
        let after = wait_for_renewal(cluster, node, now_us(), SOON)?;
        say("a router that knows the way again, to the next renewal", after);
        afters.push(after);
        agent.check()?;
    }
    assert!(afters.iter().all(|after| *after < Duration::from_secs(2)), "{afters:?}");
    Ok(())
}

fn a_default_route_that_moves_takes_the_connection_with_it(cluster: &Cluster) -> Result<()> {
    let (site, node, mut agent) = settled(cluster, "rerouted")?;
    site.plug(1)?;
    wait_for_renewal(cluster, &node, now_us(), SOON)?;
    let (old, new) = (site.address(0).to_string(), site.gateway(1).to_string());
    // The modem has lost its network, and says nothing; then somebody notices.
    site.swallow(&[&["from", &old], &["to", &old]])?;
    let swallowed = Instant::now();
    wait_until("a request to be on its way", SOON, || {
        if swallowed.elapsed() >= Duration::from_millis(1500) { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    let moved_us = now_us();
    site.inside(&["ip", "route", "replace", "default", "via", &new])?;
    let after = wait_for_renewal(cluster, &node, moved_us, SOON)?;
    say("a default route that moved, to the next renewal", after);
    assert!(after < Duration::from_secs(3), "{after:?}");
    agent.check()
}

fn another_router_on_the_same_cable_takes_the_connection_with_it(cluster: &Cluster) -> Result<()> {
    let (site, node, mut agent) = settled(cluster, "handed-over")?;
    let [first, second, third, _] = site.gateway(0).octets();
    let spare = format!("{first}.{second}.{third}.254");
    run(&["ip", "address", "add", &format!("{spare}/24"), "dev", &site.near(0)])?;
    // The first has forgotten what it translated, and says nothing; the second never knew.
    let port = site.connection(cluster.api.port)?.to_string();
    site.swallow(&[&["ipproto", "tcp", "sport", &port], &["ipproto", "tcp", "dport", &port]])?;
    let moved_us = now_us();
    site.inside(&["ip", "route", "replace", "default", "via", &spare])?;
    let after = wait_for_renewal(cluster, &node, moved_us, SOON)?;
    say("another router on the same cable, to the next renewal", after);
    assert!(after < Duration::from_secs(3), "{after:?}");
    agent.check()
}

fn an_address_that_changes_takes_the_connection_with_it(cluster: &Cluster) -> Result<()> {
    let (site, node, mut agent) = settled(cluster, "readdressed")?;
    let (old, gateway) = (site.address(0), site.gateway(0).to_string());
    let [first, second, third, _] = old.octets();
    let fresh = format!("{first}.{second}.{third}.9/24");
    let changed_us = now_us();
    site.inside(&["ip", "address", "del", &format!("{old}/24"), "dev", "eth0"])?;
    site.inside(&["ip", "address", "add", &fresh, "dev", "eth0"])?;
    site.inside(&["ip", "route", "replace", "default", "via", &gateway])?;
    let after = wait_for_renewal(cluster, &node, changed_us, SOON)?;
    say("an address that changed, to the next renewal", after);
    assert!(after < Duration::from_secs(3), "{after:?}");
    agent.check()
}

fn a_try_before_the_look_at_a_network_that_is_back_opens_the_only_connection(cluster: &Cluster) -> Result<()> {
    let (site, node, mut agent) = settled(cluster, "tried-early")?;
    let (address, gateway) = (format!("{}/24", site.address(0)), site.gateway(0).to_string());
    site.inside(&["ip", "address", "del", &address, "dev", "eth0"])?;
    agent.wait_for_line(&["Lease renewal fail", "cannot connect"], SOON)?;
    site.inside(&["ip", "address", "add", &address, "dev", "eth0"])?;
    site.inside(&["ip", "route", "replace", "default", "via", &gateway])?;
    // The kernel's messages wait for a quarter of a second until they are looked at; a reload tries at once.
    agent.signal(Signal::SIGHUP)?;
    let back_us = now_us();
    let seen = connections_until_the_look(&site, cluster)?;
    let after = wait_for_renewal(cluster, &node, back_us, SOON)?;
    say("a try just after an address is back, to the next renewal", after);
    assert_eq!(seen.len(), 1, "local ports of connections: {seen:?}; {}", agent.said()?);
    agent.check()
}

fn a_try_that_a_carrier_finds_on_its_way_opens_the_only_connection(cluster: &Cluster) -> Result<()> {
    let (site, node, mut agent) = settled(cluster, "on-its-way")?;
    // The router's address is known: then nothing but the carrier keeps a try from arriving.
    site.know_gateway()?;
    site.cut(0)?;
    // It comes back just before TCP asks once more, and the agent looks a quarter of a second after it.
    wait_until("a try that asks once more in a moment", SOON, || match site.asks_again_in_ms(cluster.api.port)? {
        Some(50..150) => Ok(()),
        other => Err(format!("asks again in {other:?} ms")),
    })?;
    site.mend(0)?;
    let back_us = now_us();
    let seen = connections_until_the_look(&site, cluster)?;
    let after = wait_for_renewal(cluster, &node, back_us, SOON)?;
    say("a try that was on its way, to the next renewal", after);
    assert_eq!(seen.len(), 1, "local ports of connections: {seen:?}; {}", agent.said()?);
    agent.check()
}

/// The local ports of all that there are before and just after the agent looks at the network.
fn connections_until_the_look(site: &Site, cluster: &Cluster) -> Result<BTreeSet<u16>> {
    let (back, mut seen) = (Instant::now(), BTreeSet::new());
    wait_until("the look at the network", SOON, || {
        seen.extend(site.connections(cluster.api.port)?);
        if back.elapsed() >= Duration::from_secs(2) { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    Ok(seen)
}

/// As IPv6 brings one, a second or more after the link.
fn an_address_more_while_the_first_answer_is_on_its_way_costs_no_second_connection(cluster: &Cluster) -> Result<()> {
    // Between the server's part of the handshake and its first answer lies a whole way there and back.
    let link = Link { delay: Duration::from_millis(600), mtu_bytes: 1400, forgets_after: None };
    let (site, node) = (Site::over(cluster, link)?, cluster.node("one-more")?);
    let mut agent = site.agent(cluster, &cluster.api, &node)?;
    wait_until_ready(cluster, &node)?;
    agent.wait_for_line(&["status-sent"], SOON)?;
    agent.wait_for_line(&["lease-held"], SOON)?;
    let (address, gateway) = (format!("{}/24", site.address(0)), site.gateway(0).to_string());
    site.inside(&["ip", "address", "del", &address, "dev", "eth0"])?;
    agent.wait_for_line(&["Lease renewal fail", "cannot connect"], SOON)?;
    let mut seen = BTreeSet::new();
    site.inside(&["ip", "address", "add", &address, "dev", "eth0"])?;
    site.inside(&["ip", "route", "replace", "default", "via", &gateway])?;
    wait_until("the server's part of a handshake", SOON, || {
        seen.extend(site.connections(cluster.api.port)?);
        if site.has_heard_from(cluster.api.port)? { Ok(()) } else { Err("not yet".to_owned()) }
    })?;
    let back_us = now_us();
    site.inside(&["ip", "-6", "address", "add", &format!("fd77:{:x}::3/64", site.number()), "dev", "eth0"])?;
    // The second request is a report: all of them went over that one.
    wait_until("two renewals", SOON, || {
        seen.extend(site.connections(cluster.api.port)?);
        let all = cluster.audit_of(&node)?;
        let count = all.iter().filter(|e| is_renewal(e) && e.received_at_us > back_us).count();
        if count >= 2 { Ok(()) } else { Err(format!("{count} so far")) }
    })?;
    assert_eq!(seen.len(), 1, "local ports of connections: {seen:?}; {}", agent.said()?);
    agent.check()
}

fn an_agent_that_was_frozen_uses_no_connection_of_before(cluster: &Cluster) -> Result<()> {
    let (site, node, mut agent) = settled(cluster, "frozen")?;
    let port = site.connection(cluster.api.port)?.to_string();
    agent.freeze()?;
    site.swallow(&[&["ipproto", "tcp", "sport", &port], &["ipproto", "tcp", "dport", &port]])?;
    cluster.wait_for_condition(&node.name, "Ready", "Unknown", FROZEN_WITHIN)?;
    let thawed_us = now_us();
    agent.thaw()?;
    let after = wait_for_renewal(cluster, &node, thawed_us, SOON)?;
    say("a process that was frozen, to the next renewal", after);
    assert!(after < Duration::from_secs(3), "{after:?}");
    agent.wait_for_line(&["awake again after"], SOON)?;
    wait_until_ready(cluster, &node)?;
    agent.check()
}

/// By the part of the agent that listens, in a network of this thread's own.
fn a_carrier_that_comes_up_is_heard_once_for_all_its_messages(_: &Cluster) -> Result<()> {
    let listen = || -> Result<()> {
        unshare(CloneFlags::CLONE_NEWNET).map_err(|e| e.to_string())?;
        let reactor = Reactor::new().map_err(|e| e.to_string())?;
        let links = LinkWatch::new(&reactor).map_err(|e| e.to_string())?;
        let heard = |within_ms| {
            let until = clock::up() + Duration::from_millis(within_ms);
            matches!(reactor.block_on(reactor.before(until, links.changed())), Ok(Some(Ok(()))))
        };
        assert!(!heard(20), "nothing has changed yet");
        for _ in 0..10 {
            run(&["ip", "link", "set", "lo", "up"])?;
            run(&["ip", "link", "set", "lo", "down"])?;
        }
        assert!(heard(10_000), "a carrier came up");
        // The kernel goes on telling of IPv6 for a moment; of the rest there were a hundred messages.
        let more = (0..100).take_while(|_| heard(50)).count();
        assert!(more < 20, "{more} times after the first");
        Ok(())
    };
    std::thread::scope(|scope| scope.spawn(listen).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// The carrier is read with each sixth look, which come every second here.
fn a_cable_that_comes_loose_again_and_again_is_a_condition_of_the_node(cluster: &Cluster) -> Result<()> {
    let site = Site::new(cluster)?;
    // The interfaces of the site, not of the machine.
    site.inside(&["mount", "-t", "sysfs", "sysfs", "/sys"])?;
    let node = cluster.node("loose")?;
    let mut agent = site.agent(cluster, &cluster.api, &node)?;
    wait_until_ready(cluster, &node)?;
    let uplink = |status: &'static str, reason: &'static str| {
        let is_so = move |node: &Value| {
            let found = condition(node, "UplinkDegraded")?;
            (found["status"] == status && found["reason"] == reason).then(|| found["message"].clone())
        };
        wait_for_node(cluster, &node, &format!("UplinkDegraded {status}"), 2 * SOON, is_so)
    };
    uplink("False", "UplinkOK")?;
    for _ in 0..3 {
        site.cut(0)?;
        site.mend(0)?;
        wait_for_renewal(cluster, &node, now_us(), SOON)?;
    }
    let message = uplink("True", "LinkFlapping")?.to_string();
    assert!(message.contains("eth0, 6 changes of its carrier in ten minutes"), "{message}");
    wait_for_event(cluster, &node, "UplinkDegraded")?;
    agent.check()
}
