//! Turns the cadence of renewals into the bytes that they take in a day, and refuses a budget (`dailyBytes`) that not even
//! these fit into.

use std::time::Duration;

use super::alpn::AlpnProtocol;
use super::field::Field;
use super::problem::Findings;
use super::settings::Settings;
use crate::time::DAY;

/// How long an API server keeps a connection on which nothing is under way (`IdleTimeout` of apiserver/pkg/server).
pub const SERVER_KEEPS: Duration = Duration::from_secs(90);
/// The least that a renewal takes, over IPv4: three packets, two records of TLS, and all that can be left out is.
const RENEWAL_BYTES: u64 = 331;
const RENEWAL_BYTES_HTTP1: u64 = 1038;

impl Settings {
    /// The least that one renewal takes.
    pub fn least_renewal_bytes(&self) -> u64 {
        if self.alpn_protocol == Some(AlpnProtocol::Http1) { RENEWAL_BYTES_HTTP1 } else { RENEWAL_BYTES }
    }

    /// Each renewal makes a connection of its own: they are further apart than a server keeps one.
    pub fn renewals_connect(&self) -> bool {
        self.lease_renew_period() > SERVER_KEEPS
    }

    /// What all renewals of a day take, each so many bytes.
    pub fn renewals_bytes_per_day(&self, each_bytes: u64) -> u64 {
        let period_ms = u64::try_from(self.lease_renew_period().as_millis()).unwrap_or(u64::MAX).max(1);
        (DAY.as_secs() * 1000).saturating_mul(each_bytes) / period_ms
    }
}

/// `given` is where a setting was given last.
pub(super) fn check<'a>(settings: &Settings, given: impl Fn(&str) -> Option<Field<'a>>, findings: &mut Findings) {
    let each_bytes = settings.least_renewal_bytes();
    let least_bytes = settings.renewals_bytes_per_day(each_bytes);
    let Some((field, bytes)) = given("dailyBytes").zip(settings.daily_bytes).filter(|(_, bytes)| *bytes < least_bytes)
    else {
        return;
    };
    let period = settings.lease_renew_period();
    let text = format!(
        "{bytes} is less than what renewals alone take, and these are never put off: one every {period:?} of {each_bytes} bytes is \
         {least_bytes} a day; give more than that, or renew less often (profile, nodeMonitorGracePeriod, nodeLeaseDurationSeconds)"
    );
    findings.refuse(field.problem(text));
}

#[cfg(test)]
mod tests {
    use crate::config;

    fn load(text: &str) -> Result<Option<u64>, Vec<String>> {
        let text = format!("apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n{text}");
        let loaded = config::settings(Some(("config.yaml", &text)), &[]);
        loaded
            .map(|loaded| loaded.settings.daily_bytes)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn a_budget_is_a_quantity_and_by_default_there_is_none() {
        assert_eq!(load(""), Ok(None));
        assert_eq!(load("dailyBytes: 5M"), Ok(Some(5_000_000)));
        assert_eq!(load("dailyBytes: 4Mi"), Ok(Some(4 << 20)));
        assert_eq!(load("dailyBytes: 2859840"), Ok(Some(2_859_840)));
        for wrong in ["much", "-1", "0", "2T"] {
            let problems = load(&format!("dailyBytes: {wrong}")).unwrap_err();
            assert!(problems.len() == 1 && problems[0].contains("dailyBytes: must be a quantity"), "{problems:?}");
        }
    }

    #[test]
    fn a_budget_that_not_even_renewals_fit_into_is_refused_with_their_figure() {
        let refused = |text: &str| load(text).unwrap_err().join(";");
        let text = refused("dailyBytes: 2M");
        assert!(text.starts_with("config.yaml:3: dailyBytes: 2000000 is less than what renewals alone take"), "{text}");
        assert!(text.contains("one every 10s of 331 bytes is 2859840 a day"), "{text}");
        // By any profile, patience and protocol as the other settings have them.
        assert_eq!(load("dailyBytes: 2M\nprofile: metered"), Ok(Some(2_000_000)));
        assert_eq!(load("dailyBytes: 700k\nprofile: metered\nnodeMonitorGracePeriod: 2m"), Ok(Some(700_000)));
        assert!(refused("dailyBytes: 500k\nprofile: metered\nnodeMonitorGracePeriod: 2m").contains("595800 a day"));
        assert!(refused("dailyBytes: 8M\nalpnProtocol: http/1.1").contains("8968320 a day"));
        assert!(refused("dailyBytes: 100k\nprofile: satellite\nnodeMonitorGracePeriod: 10m").contains("119160 a day"));
    }
}
