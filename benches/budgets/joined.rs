//! Turns a board that joined with a token, beside one that was given a kubeconfig, into what joining leaves in memory and what
//! the renewal of a certificate costs on the wire.

use std::path::Path;
use std::time::Duration;

use super::cluster::joining::REQUESTS;
use super::cluster::{AuditEntry, Cluster, Options, Result, wait_until};
use super::process::Usage;
use super::requests;
use super::subject::{self, Subject};
use super::table::{self, Row};
use super::wire::{Capture, Kind, Sees};

/// A certificate of it is due after 72 to 96 s.
const LIFE: Duration = Duration::from_secs(240);
const SECONDS_PER_RENEWAL: u32 = 10;
/// After the last Node is Ready, until start-up work is over.
const SETTLE: Duration = Duration::from_secs(45);
/// From the request on: approval, proof, change-over, and the end of the connection before.
const RENEWING: Duration = Duration::from_secs(25);
const RENEWAL_BYTES: f64 = 8000.0;

pub fn measure(program: &Path) -> Result<()> {
    let grace = Duration::from_secs(50);
    let cluster = Cluster::start(Options {
        node_monitor_grace_period: grace,
        node_startup_grace_period: grace,
        more_addresses: subject::addresses(),
        signing_duration: LIFE,
        ..Options::default()
    })?;
    let capture = Capture::open(cluster.api.port, Sees::Loopback)?;
    let given = Subject::nodepulse_here(&cluster, program, SECONDS_PER_RENEWAL)?;
    let joined = Subject::joined(&cluster, program, SECONDS_PER_RENEWAL)?;
    for one in [&given, &joined] {
        cluster.wait_for_condition(&one.node, "Ready", "True", Duration::from_secs(60))?;
    }
    std::thread::sleep(SETTLE);
    let (of_given, before) = (given.usage()?, joined.usage()?);
    let request = wait_until("the renewal of the certificate", LIFE, || {
        let asked = |e: &AuditEntry| e.verb == "create" && e.uri.starts_with(REQUESTS);
        joined.audit(&cluster)?.into_iter().find(asked).ok_or_else(|| "none yet".to_owned())
    })?;
    std::thread::sleep(RENEWING);
    let after = joined.usage()?;
    let window = request.received_at_us - 500_000..request.received_at_us + RENEWING.as_micros() as u64;
    // What a board says anyway is not part of it.
    let is_usual = |kinds: &[Kind]| matches!(kinds, [Kind::Renewal | Kind::Report | Kind::Assertion]);
    let audit = joined.audit(&cluster)?;
    let mut exchanges = capture.exchanges(joined.address, &audit);
    exchanges.retain(|one| window.contains(&one.at_us) && !is_usual(&one.requests));
    let bytes = exchanges.iter().map(|one| one.ip_bytes).sum();
    let packets = exchanges.iter().map(|one| one.packets).sum();
    let rss = |of: fn(&Usage) -> u64| [&before, &after, &of_given].map(|one| Some(of(one) as f64 * 1024.0));
    let once = |count: u64| [Some(count as f64), None, None];
    table::print(
        &["joined with a token", "and renewed", "given a kubeconfig"].map(str::to_owned),
        &[
            Row::new("memory (RSS)", Some(2.5e6), &rss(|one| one.rss_kib), table::megabytes),
            Row::new("of it not the program file's", None, &rss(|one| one.rss_anon_kib), table::megabytes),
            Row::new("IP bytes of a certificate's renewal", Some(RENEWAL_BYTES), &once(bytes), table::whole),
            Row::new("packets of it", None, &once(packets), table::whole),
        ],
    );
    let after_ms = |at_us: u64| at_us.saturating_sub(request.received_at_us) / 1000;
    println!("\nThe renewal, from its request on:");
    for one in &exchanges {
        let what = if one.requests.is_empty() { "a handshake, or an end" } else { "requests" };
        println!("  {:6} ms  {:5} bytes  {:2} packets  {what}", after_ms(one.at_us), one.ip_bytes, one.packets);
    }
    for one in audit.iter().filter(|one| window.contains(&one.received_at_us) && Kind::of(one) == Kind::Other) {
        println!("  {:6} ms  {}", after_ms(one.received_at_us), requests::line(one));
    }
    Ok(())
}
