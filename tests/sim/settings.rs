//! Turns what a person asked into the settings of the agent: the words of the agent for it.

use std::time::Duration;

use nodepulse::config::Settings;
use nodepulse::config::quantity::Quantity;
use nodepulse::config::settings::{self, Family};
use nodepulse::config::taint::{Effect, Taint};

use super::board::DUAL_STACK;
use super::judge::budget::renewals_bytes;
use super::wanted::{Amount, NodeIp, Reserved, Signal, Wanted};

pub fn settings(wanted: &Wanted) -> Settings {
    let owned = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(first, second)| ((*first).to_owned(), (*second).to_owned())).collect()
    };
    let taints = wanted.taints.iter().map(|(key, value, effect)| Taint {
        key: (*key).to_owned(),
        value: (*value).to_owned(),
        effect: if *effect == "NoSchedule" { Effect::NoSchedule } else { Effect::NoExecute },
    });
    let settings = Settings {
        register_node: wanted.register_node,
        reregister: wanted.reregister,
        podless: wanted.podless,
        node_labels: owned(&wanted.node_labels).into_iter().collect(),
        register_with_taints: taints.collect(),
        node_ip: match wanted.node_ip {
            NodeIp::Detect => settings::NodeIp::Detect,
            NodeIp::PreferV6 => settings::NodeIp::Family(Family::V6),
            NodeIp::Both => settings::NodeIp::Two(DUAL_STACK.0, DUAL_STACK.1),
        },
        provider_id: wanted.provider_id.to_owned(),
        instance_type: wanted.instance_type.to_owned(),
        zone: wanted.zone.to_owned(),
        region: wanted.region.to_owned(),
        extra_addresses: owned(&wanted.extra_addresses),
        node_status_update_frequency: Duration::from_micros(wanted.update_us),
        node_status_report_frequency: Duration::from_micros(wanted.report_us),
        status_assert_frequency: Duration::from_micros(wanted.assert_us),
        node_lease_duration_seconds: wanted.lease_s,
        max_pods: wanted.max_pods,
        pods_per_core: wanted.pods_per_core,
        enable_controller_attach_detach: wanted.attach_detach,
        local_storage_capacity_isolation: wanted.isolates_storage,
        port: wanted.port,
        kube_reserved: reserved(wanted.kube_reserved),
        system_reserved: reserved(wanted.system_reserved),
        journal_quota_bytes: wanted.journal_quota_bytes,
        daily_bytes: wanted.others_bytes.map(|others_bytes| others_bytes + renewals_bytes(wanted.lease_s)),
        node_watch: wanted.watches,
        eviction_hard: settings::PerSignal::new(),
        eviction_pressure_transition_period: Duration::from_micros(wanted.eviction.transition_us),
        ..Settings::default()
    };
    with_thresholds(settings, wanted)
}

fn reserved(reserved: Reserved) -> settings::Reserved {
    let all = [
        ("cpu", format!("{}m", reserved.cpu_milli), reserved.cpu_milli),
        ("memory", reserved.memory_bytes.to_string(), reserved.memory_bytes),
        ("ephemeral-storage", reserved.storage_bytes.to_string(), reserved.storage_bytes),
    ];
    let all = all.into_iter().filter(|(_, _, amount)| *amount > 0);
    all.filter_map(|(name, text, _)| Some((name, Quantity::parse(&text).ok()?))).collect()
}

fn with_thresholds(mut settings: Settings, wanted: &Wanted) -> Settings {
    for threshold in &wanted.eviction.thresholds {
        let signal = match threshold.signal {
            Signal::Memory => settings::Signal::MemoryAvailable,
            Signal::Disk => settings::Signal::NodefsAvailable,
            Signal::Inodes => settings::Signal::NodefsInodesFree,
            Signal::Pids => settings::Signal::PidAvailable,
        };
        match threshold.grace_us {
            None => drop(settings.eviction_hard.insert(signal, amount(threshold.below))),
            Some(grace_us) => {
                let _ = settings.eviction_soft.insert(signal, amount(threshold.below));
                let _ = settings.eviction_soft_grace_period.insert(signal, Duration::from_micros(grace_us));
            }
        }
        if let Some(reclaim) = threshold.reclaim {
            let _ = settings.eviction_minimum_reclaim.insert(signal, amount(reclaim));
        }
    }
    settings
}

fn amount(amount: Amount) -> settings::Threshold {
    match amount {
        Amount::Count(count) => settings::Threshold::Quantity(count),
        Amount::Percent(percent) => settings::Threshold::Percentage(percent),
        Amount::SmallBoard => settings::Threshold::SmallBoardMemory,
    }
}
