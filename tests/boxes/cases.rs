//! What happens to boxes, and to the servers behind them, one case each.

use super::agent::Launch;
use super::cluster::{ApiServer, AuditEntry, Cluster, NodeIdentity, Result, Validity, wait_until};
use super::programs::Middle;
use super::requests::{SOON, is_renewal, line, now_us};
use super::site::Site;
use super::trials::{Case, Need};
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// A list of cases, each named as its function is.
macro_rules! cases {
    ($($run:ident),+ $(,)?) => {
        vec![$(Case { name: stringify!($run), needs: &[Need::Boxes], run: $run }),+]
    };
}

pub fn all() -> Vec<Case> {
    cases![
        both_servers_behind_haproxy_are_rolled_one_after_the_other,
        a_server_behind_haproxy_that_freezes_is_left,
        a_server_behind_haproxy_that_is_killed_is_left,
        behind_an_nginx_that_ends_tls_a_token_is_enough,
        behind_nginx_every_answer_comes_whether_content_that_nobody_reads_may_or_not,
        what_nginx_says_while_no_server_runs_is_not_believed,
    ]
}

/// With the node's certificate, which passes through.
fn behind_haproxy<'a>(cluster: &'a Cluster, hint: &str) -> Result<Site<'a>> {
    Site::start(cluster, hint, Middle::haproxy, |node, middle| node.kubeconfig_via(&middle.url()))
}

/// With the token of a service account, as a certificate ends where TLS does.
fn behind_nginx<'a>(cluster: &'a Cluster, hint: &str) -> Result<Site<'a>> {
    Site::start(cluster, hint, Middle::nginx, |node, middle| with_token(cluster, node, middle))
}

fn with_token(cluster: &Cluster, node: &NodeIdentity, middle: &Middle) -> Result<PathBuf> {
    let token = cluster.node_token(node)?;
    let file = node.kubeconfig_via(&middle.url())?;
    let text = fs::read_to_string(&file).map_err(|e| e.to_string())?;
    let lines = text.lines().filter(|line| !line.contains("client-key:")).map(|line| {
        if line.contains("client-certificate:") { format!("    token: {token}\n") } else { format!("{line}\n") }
    });
    fs::write(&file, lines.collect::<String>()).map_err(|e| e.to_string())?;
    Ok(file)
}

fn say(what: &str, longest: Duration) {
    eprintln!("  {what}; longest time between two renewals {:.1} s", longest.as_secs_f64());
}

fn a_server_behind_haproxy_that_is_killed_is_left(cluster: &Cluster) -> Result<()> {
    let site = behind_haproxy(cluster, "killed")?;
    let (used, before) = (site.in_use()?, site.counted()?);
    let killed_us = now_us();
    site.servers[used].kill()?;
    let text = format!("a member killed: {}", site.change_over(used, killed_us, before)?);
    say(&text, site.stayed_ready()?);
    Ok(())
}

fn both_servers_behind_haproxy_are_rolled_one_after_the_other(cluster: &Cluster) -> Result<()> {
    let site = behind_haproxy(cluster, "rolled")?;
    let first = site.in_use()?;
    let mut change_overs = Vec::new();
    for used in [first, 1 - first] {
        let (rolled_us, before) = (now_us(), site.counted()?);
        site.servers[used].stop();
        change_overs.push(site.change_over(used, rolled_us, before)?);
        site.servers[used].restart()?;
        site.middle.wait_until_healthy(site.servers.len())?;
    }
    say(&format!("both members rolled: {}", change_overs.join("; then ")), site.stayed_ready()?);
    Ok(())
}

fn a_server_behind_haproxy_that_freezes_is_left(cluster: &Cluster) -> Result<()> {
    let site = behind_haproxy(cluster, "frozen")?;
    let (used, before) = (site.in_use()?, site.counted()?);
    let frozen_us = now_us();
    site.servers[used].freeze()?;
    let text = format!("a member frozen: {}", site.change_over(used, frozen_us, before)?);
    site.servers[used].thaw()?;
    say(&text, site.stayed_ready()?);
    Ok(())
}

fn behind_an_nginx_that_ends_tls_a_token_is_enough(cluster: &Cluster) -> Result<()> {
    let mut site = behind_nginx(cluster, "token")?;
    let since_us = now_us();
    site.wait_for_renewal(since_us, |_| true)?;
    let before = site.middle.answered()?;
    // Its workers end; whoever holds a connection of theirs needs another.
    let reloaded_us = now_us();
    site.middle.reload()?;
    site.wait_for_renewal(reloaded_us, |_| true)?;
    let all = wait_until("nginx to have written it down", SOON, || {
        let all = site.middle.answered()?;
        if all.len() > before.len() { Ok(all) } else { Err(format!("{all:?}")) }
    })?;
    let failed: Vec<_> = all.iter().filter(|[_, _, method, status]| method == "PATCH" && status != "200").collect();
    assert!(failed.is_empty(), "{failed:?}");
    let mut protocols: Vec<&str> = all.iter().map(|[_, protocol, ..]| protocol.as_str()).collect();
    protocols.dedup();
    let mut connections: Vec<&str> = before.iter().map(|[connection, ..]| connection.as_str()).collect();
    connections.sort_unstable();
    connections.dedup();
    assert_eq!(connections.len(), 1, "one connection is enough: {before:?}");
    let text = format!("nginx ended TLS, {} requests over {protocols:?}", all.len());
    say(&text, site.stayed_ready()?);
    Ok(())
}

/// nginx 1.22 holds an answer back whose stream has no window.
fn behind_nginx_every_answer_comes_whether_content_that_nobody_reads_may_or_not(cluster: &Cluster) -> Result<()> {
    const MANY: usize = 12;
    /// An answer that never came would cost as long.
    const DEADLINE: Duration = Duration::from_secs(10);
    let server = cluster.api_server(Validity::Now)?;
    let middle = Middle::nginx(cluster, &[&server])?;
    let mut agents = Vec::new();
    for (place, setting) in [None, Some("true"), Some("false")].into_iter().enumerate() {
        let node = cluster.node(&format!("window-{place}"))?;
        let launch = Launch::quick(&node).kubeconfig(&with_token(cluster, &node, &middle)?);
        let launch = setting.iter().fold(launch, |launch, value| launch.set("http2ZeroWindow", value));
        let agent = launch.start(cluster)?;
        agents.push((node, setting.unwrap_or("unset"), agent));
    }
    for (node, setting, agent) in &mut agents {
        let is_ours = |entry: &AuditEntry| entry.user.ends_with(&format!(":{}", node.name)) && is_renewal(entry);
        let mut all = wait_until("many renewals", SOON * 4, || match server.audit(is_ours)? {
            few if few.len() < MANY => Err(format!("{} so far", few.len())),
            all => Ok(all),
        })?;
        all.sort_by_key(|entry| entry.received_at_us);
        let pairs = all.iter().zip(all.iter().skip(1));
        let longest_us = pairs.map(|(one, next)| next.received_at_us - one.received_at_us).max();
        let longest = Duration::from_micros(longest_us.unwrap_or_default());
        assert!(longest < DEADLINE, "{setting}: {longest:?} without a renewal");
        assert_eq!(agent.count_lines("timed-out")?, 0, "{setting}: {}", agent.said()?);
        agent.check()?;
        say(&format!("nginx, zero window {setting}: {} renewals", all.len()), longest);
    }
    let mut connections: Vec<String> = middle.answered()?.into_iter().map(|[connection, ..]| connection).collect();
    connections.sort_unstable();
    connections.dedup();
    assert_eq!(connections.len(), agents.len(), "none was lost");
    Ok(())
}

fn what_nginx_says_while_no_server_runs_is_not_believed(cluster: &Cluster) -> Result<()> {
    let site = behind_nginx(cluster, "gateway")?;
    let known = site.requests()?.len();
    site.servers.iter().for_each(ApiServer::stop);
    // Each of its 502 is a page of HTML, and says nothing of the Node.
    wait_until("some answers of nginx itself", SOON * 3, || {
        let all = site.middle.answered()?;
        let refused = all.iter().filter(|[.., status]| status.starts_with("50")).count();
        if refused >= 3 { Ok(()) } else { Err(format!("{all:?}")) }
    })?;
    // What changes meanwhile on the server is not lost on whoever comes back.
    let back_us = now_us();
    site.servers.iter().try_for_each(ApiServer::restart)?;
    site.wait_for_renewal(back_us, |_| true)?;
    let since: Vec<_> = site.requests()?.split_off(known);
    let posted: Vec<String> = since
        .iter()
        .filter(|(_, e)| e.uri.starts_with("/api/v1/nodes") && e.verb == "create")
        .map(|(_, e)| line(e))
        .collect();
    assert!(posted.is_empty(), "a Node that was there was registered again: {posted:?}");
    assert!(since.iter().any(|(_, entry)| is_renewal(entry)));
    say("nginx without servers, then with them", site.stayed_ready()?);
    Ok(())
}
