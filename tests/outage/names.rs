//! Names of servers: the real resolver, a DNS that dies, addresses that lead nowhere.

use super::super::agent::{Launch, Nodepulse};
use super::super::cluster::{Cluster, NodeIdentity, Result};
use super::super::requests::{now_us, wait_until_ready};
use super::Case;
use super::links::{say, wait_for_renewal};
use super::name_server::NameServer;
use super::site::{SERVER_ADDRESSES, Site};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// One that the server's certificate carries.
const NAME: &str = "kubernetes.default.svc";

pub fn cases() -> Vec<Case> {
    cases![
        a_dns_that_dies_after_the_start_is_survived_even_by_the_next_start,
        an_ipv6_address_that_leads_nowhere_costs_a_quarter_of_a_second,
        an_ipv4_address_that_leads_nowhere_costs_a_quarter_of_a_second,
    ]
}

fn start(cluster: &Cluster, site: &Site, node: &NodeIdentity) -> Result<Nodepulse> {
    let kubeconfig = site.kubeconfig(node, &cluster.api, NAME)?;
    Launch::quick(node).kubeconfig(&kubeconfig).inside(site.pid()).start(cluster)
}

fn a_dns_that_dies_after_the_start_is_survived_even_by_the_next_start(cluster: &Cluster) -> Result<()> {
    let site = Site::new(cluster)?;
    let names = NameServer::start(site.gateway(0), &SERVER_ADDRESSES[..1])?;
    let node = cluster.node("nameless")?;
    let mut agent = start(cluster, &site, &node)?;
    wait_until_ready(cluster, &node)?;
    // In the midst of its first requests it would be others that hang, one after another.
    agent.wait_for_line(&["lease-held:"], Duration::from_secs(15))?;
    assert!(names.asked() > 0, "it found the server without asking");
    names.fall_silent();
    let port = site.connection(cluster.api.port)?.to_string();
    site.swallow(&[&["ipproto", "tcp", "sport", &port], &["ipproto", "tcp", "dport", &port]])?;
    let cut_us = now_us();
    let after = wait_for_renewal(cluster, &node, cut_us, Duration::from_secs(15))?;
    say("a dead connection and a silent DNS, to the renewal over a new one", after);
    agent.check()?;
    // As after a loss of power: what was known by then must be on disk.
    agent.kill()?;
    let killed_us = now_us();
    let mut next = start(cluster, &site, &node)?;
    let after = wait_for_renewal(cluster, &node, killed_us, Duration::from_secs(15))?;
    say("a start with a silent DNS, to the first renewal", after);
    next.check()
}

fn an_ipv6_address_that_leads_nowhere_costs_a_quarter_of_a_second(cluster: &Cluster) -> Result<()> {
    one_address_leads_nowhere(cluster, ["fd77::bad".parse::<IpAddr>().map_err(|e| e.to_string())?, SERVER_ADDRESSES[0]])
}

fn an_ipv4_address_that_leads_nowhere_costs_a_quarter_of_a_second(cluster: &Cluster) -> Result<()> {
    one_address_leads_nowhere(
        cluster,
        ["10.77.0.99".parse::<IpAddr>().map_err(|e| e.to_string())?, SERVER_ADDRESSES[1]],
    )
}

fn one_address_leads_nowhere(cluster: &Cluster, addresses: [IpAddr; 2]) -> Result<()> {
    let site = Site::new(cluster)?;
    let _names = NameServer::start(site.gateway(0), &addresses)?;
    let node = cluster.node("forked")?;
    let began = Instant::now();
    let mut agent = start(cluster, &site, &node)?;
    wait_until_ready(cluster, &node)?;
    say("a start with an address that leads nowhere, to Ready", began.elapsed());
    // Without the other address the first request would have lasted its ten seconds.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    agent.check()
}
