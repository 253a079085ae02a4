//! Turns a slow link into what each program costs there: 80 ms there and back, packets of at most 1400 bytes, each program in a
//! network of its own behind such a link of its own, over IPv4 and over IPv6.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::cluster::{Result, binaries};
use super::figures::{self, Figures, Plan};
use super::outage::{self, site};
use super::programs;
use super::subject::{Place, Subject};
use super::table;
use super::wire::{Capture, Sees};

pub const ARGUMENT: &str = "--link";
/// Where the second life finds it.
const KUBE_RS: &str = "BENCH_KUBE_RS";

pub const LINK: site::Link = site::Link { delay: Duration::from_millis(40), mtu_bytes: 1400, forgets_after: None };

/// In the second life, which prints.
pub fn measure(quick: bool, program: &Path, kube_rs: &Path) -> Result<()> {
    let mut command =
        outage::in_own_network(program, &[binaries::CONTROL_PLANE.as_slice(), binaries::KUBELET.as_slice()])?;
    command.arg(ARGUMENT).args(quick.then_some(outage::QUICK)).env(KUBE_RS, kube_rs);
    outage::run_to_its_end(command)
}

pub fn inside(quick: bool) -> Result<()> {
    let plan =
        Plan { traced: Duration::ZERO, rest: Duration::from_secs(if quick { 0 } else { 300 }), ..Plan::new(quick) };
    let (program, triple) = programs::nodepulse()?;
    let kube_rs = PathBuf::from(std::env::var_os(KUBE_RS).ok_or("no kube-rs client was named")?);
    let cluster = outage::cluster_of_sites(Duration::from_secs(50))?;
    let capture = Capture::open(cluster.api.port, Sees::EveryCable)?;
    let sites = (0..5).map(|_| site::Site::over(&cluster, LINK)).collect::<Result<Vec<_>>>()?;
    let [one, two, three, four, five] = sites.as_slice() else { return Err("there are five".to_owned()) };
    let seconds = plan.seconds_per_renewal;
    let subjects = [
        Subject::nodepulse(&cluster, &program, &Place::behind(one, &cluster, false), seconds)?,
        Subject::kubelet(&cluster, &Place::behind(two, &cluster, false), seconds)?,
        Subject::kube_rs(&cluster, &kube_rs, &Place::behind(three, &cluster, false), seconds)?,
        Subject::nodepulse(&cluster, &program, &Place::behind(four, &cluster, true), seconds)?,
        Subject::kubelet(&cluster, &Place::behind(five, &cluster, true), seconds)?,
    ];
    for subject in &subjects {
        cluster.wait_for_condition(&subject.node, "Ready", "True", Duration::from_secs(60))?;
    }
    let say = |what: &str| eprintln!("bench: {what}");
    let figures = figures::measure(&plan, &cluster, Some(&capture), &subjects, &say)?;
    for subject in &subjects {
        let longest = capture.longest_packet_bytes(subject.address);
        if longest > u64::from(LINK.mtu_bytes) {
            return Err(format!("a packet of {longest} bytes was seen, which no such link carries"));
        }
    }
    print(&plan, &triple, &subjects, &figures);
    Ok(())
}

fn print(plan: &Plan, triple: &str, subjects: &[Subject], figures: &[Figures]) {
    let mut rows = figures::bytes_on_the_wire(figures, None);
    rows.extend(figures::wake_ups(figures));
    let family = |one: &Subject| if one.address.is_ipv4() { "" } else { ", IPv6" };
    let titles: Vec<String> = subjects.iter().map(|one| format!("{}{}", one.title, family(one))).collect();
    println!(
        "nodepulse for {triple}, behind a link of {} ms there and back and an MTU of {}; a renewal every {} s, counted over {} s.\n",
        2 * LINK.delay.as_millis(),
        LINK.mtu_bytes,
        plan.seconds_per_renewal,
        plan.window.as_secs()
    );
    table::print(&titles, &rows);
    for (title, one) in titles.iter().zip(figures) {
        println!("{title}: {}.", one.in_words());
    }
}
