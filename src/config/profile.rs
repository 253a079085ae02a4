//! Turns the name of a kind of network into how often a board talks over it, and holds what is set beside it against the
//! patience of the controller (node-monitor-grace-period).

use std::time::Duration;

use super::field::Field;
use super::problem::Findings;
use super::settings::{Profile, Settings};
use super::values::MOST;

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

/// Of the grace: two renewals at least, so that one may be lost.
const LONGEST_PERIOD_TENTHS: u128 = 4;

/// The longest `nodeLeaseDurationSeconds` that keeps a Node Ready over a lost renewal.
fn most_seconds(grace: Duration) -> u32 {
    u32::try_from(4 * LONGEST_PERIOD_TENTHS * grace.as_millis() / 10_000).unwrap_or(MOST)
}

/// The cadences of the profile; each setting that is given goes before.
pub(super) fn apply(settings: &mut Settings) {
    let most = most_seconds(settings.node_monitor_grace_period).max(1);
    let (lease_seconds, update, report, assertion) = match settings.profile {
        Profile::Lan => (most.min(40), MINUTE / 6, 5 * MINUTE, MINUTE),
        Profile::Metered => (most, MINUTE, HOUR, 10 * MINUTE),
        Profile::Satellite => (most, 5 * MINUTE, 12 * HOUR, HOUR),
    };
    settings.node_lease_duration_seconds = lease_seconds;
    settings.node_status_update_frequency = update;
    settings.node_status_report_frequency = report;
    settings.status_assert_frequency = assertion;
}

/// `given` is where a setting was given last.
pub(super) fn check<'a>(settings: &Settings, given: impl Fn(&str) -> Option<Field<'a>>, findings: &mut Findings) {
    const LEASE: &str = "nodeLeaseDurationSeconds";
    let (seconds, grace) = (settings.node_lease_duration_seconds, settings.node_monitor_grace_period);
    let most = most_seconds(grace);
    let Some(field) = given(LEASE).filter(|_| seconds > most) else { return };
    let period = settings.lease_renew_period();
    let text = format!(
        "{seconds} is a renewal every {period:?}: with one lost the Node would not stay Ready for a controller that waits {grace:?} \
         (nodeMonitorGracePeriod); at most {most}, or name the node-monitor-grace-period that it has"
    );
    // Who says nothing of profile or grace may know why: a kubelet takes it as well.
    let is_judged = given("profile").is_some() || given("nodeMonitorGracePeriod").is_some();
    if is_judged { findings.refuse(field.problem(text)) } else { findings.notice(field.problem(text)) }
}

#[cfg(test)]
mod tests {
    use crate::config;

    fn load(text: &str) -> Result<config::Loaded, Vec<String>> {
        let text = format!("apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n{text}");
        let loaded = config::settings(Some(("config.yaml", &text)), &[]);
        loaded.map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    /// Lease, look, report and assertion, in seconds.
    fn cadences(text: &str) -> [u64; 4] {
        let settings = load(text).unwrap().settings;
        [
            u64::from(settings.node_lease_duration_seconds),
            settings.node_status_update_frequency.as_secs(),
            settings.node_status_report_frequency.as_secs(),
            settings.status_assert_frequency.as_secs(),
        ]
    }

    #[test]
    fn a_profile_is_a_set_of_cadences_and_each_is_settable() {
        assert_eq!(cadences(""), [40, 10, 300, 60]);
        assert_eq!(cadences("profile: lan"), [40, 10, 300, 60]);
        assert_eq!(cadences("profile: metered"), [80, 60, 3600, 600]);
        assert_eq!(cadences("profile: metered\nnodeMonitorGracePeriod: 2m"), [192, 60, 3600, 600]);
        assert_eq!(cadences("profile: satellite\nnodeMonitorGracePeriod: 10m"), [960, 300, 43_200, 3600]);
        assert_eq!(
            cadences("statusAssertFrequency: 5m\nprofile: metered\nnodeLeaseDurationSeconds: 60"),
            [60, 60, 3600, 300]
        );
        assert_eq!(cadences("profile: lan\nnodeMonitorGracePeriod: 20s"), [32, 10, 300, 60]);
        assert_eq!(
            cadences("profile: metered\nnodeStatusUpdateFrequency: 20s"),
            [80, 20, 20, 600],
            "the kubelet's rule"
        );
    }

    #[test]
    fn a_period_that_loses_ready_with_one_renewal_is_refused_with_field_value_and_limit() {
        for text in [
            "profile: metered\nnodeLeaseDurationSeconds: 81",
            "nodeMonitorGracePeriod: 50s\nnodeLeaseDurationSeconds: 81",
        ] {
            let problems = load(text).unwrap_err();
            let expected = "config.yaml:4: nodeLeaseDurationSeconds: 81 is a renewal every 20.25s";
            assert!(problems.len() == 1 && problems[0].starts_with(expected), "{problems:?}");
            assert!(problems[0].contains("waits 50s (nodeMonitorGracePeriod); at most 80"), "{problems:?}");
        }
        assert!(load("nodeMonitorGracePeriod: 50s\nnodeLeaseDurationSeconds: 80").is_ok());
        assert!(load("profile: metered\nnodeMonitorGracePeriod: 1m\nnodeLeaseDurationSeconds: 96").is_ok());
        let loaded = load("nodeLeaseDurationSeconds: 81").unwrap();
        assert!(loaded.notices.iter().any(|notice| notice.contains("at most 80")), "{:?}", loaded.notices);
        assert_eq!(load("profile: lan").unwrap().notices, [""; 0]);
    }

    #[test]
    fn a_network_that_nobody_knows_is_refused() {
        let problems = load("profile: wifi").unwrap_err();
        assert_eq!(problems, ["config.yaml:3: profile: must be lan, metered or satellite, not \"wifi\""]);
        assert!(load("nodeMonitorGracePeriod: 5s").unwrap_err()[0].contains("at least 10s"));
    }
}
