//! Turns cloud-init's instance data into the region, the zone and the provider ID of a machine.
//!
//! ```text
//! /run/cloud-init/instance-data.json   {"v1": {"cloud_name": "aws", "region": "eu-west-1", "availability_zone": "eu-west-1a",
//!                                       "instance_id": "i-0abc"}}
//! ```
//!
//! A metadata service is never asked: at the edge whoever is on the cable can answer for one.

use serde_json::Value;

use super::facts::{Absent, Fact, Why};
use super::root::Root;
use crate::config::settings::{CloudMetadata, CloudProvider};
use crate::config::{Settings, labels, limits};

const INSTANCE_DATA: &str = "/run/cloud-init/instance-data.json";
/// What some clouds say where they have none; `nova` is what OpenStack calls the only one.
const NO_PLACE: [&str; 3] = ["null", "None", "nova"];
/// Whoever flashed the board made these up.
const FLASHED: [&str; 2] = ["nocloud", "configdrive"];

/// What a cloud says of one of its machines; empty: nothing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Instance {
    region: String,
    zone: String,
    provider_id: String,
}

/// Puts what the instance data says where the settings ask for it, and neither they nor an external provider say it.
pub fn complete(settings: &mut Settings, root: &Root) -> Fact<()> {
    if settings.cloud_metadata == CloudMetadata::None || settings.cloud_provider == CloudProvider::External {
        return Ok(());
    }
    let text = root.read_document(INSTANCE_DATA, limits::INSTANCE_DATA_BYTES)?;
    let found = instance(&text).map_err(|why| Absent::new(INSTANCE_DATA, why))?;
    for (place, value) in [
        (&mut settings.region, found.region),
        (&mut settings.zone, found.zone),
        (&mut settings.provider_id, found.provider_id),
    ] {
        if place.is_empty() {
            *place = value;
        }
    }
    Ok(())
}

fn instance(text: &[u8]) -> Result<Instance, Why> {
    let data: Value = serde_json::from_slice(text).map_err(|error| Why::Malformed(error.to_string()))?;
    let standard = data.get("v1").ok_or_else(|| Why::Malformed("no key v1".to_owned()))?;
    // Each becomes a label, or a part of an ID that is made of no other characters.
    let word = |key: &str| {
        let word = standard.get(key).and_then(Value::as_str).unwrap_or_default();
        if labels::check_value(word).is_ok() { word } else { "" }
    };
    let place = |key: &str| Some(word(key)).filter(|word| !NO_PLACE.contains(word)).unwrap_or_default();
    let (cloud, id, zone) = (word("cloud_name"), word("instance_id"), place("availability_zone"));
    if cloud.is_empty() || FLASHED.contains(&cloud) {
        return Ok(Instance::default());
    }
    let provider_id = match cloud {
        _ if id.is_empty() => String::new(),
        "aws" if !zone.is_empty() => format!("aws:///{zone}/{id}"),
        "hetzner" => format!("hcloud://{id}"),
        "openstack" => format!("openstack:///{id}"),
        "digitalocean" => format!("digitalocean://{id}"),
        // Azure's and GCE's are made of more than this.
        _ => String::new(),
    };
    Ok(Instance { region: place("region").to_owned(), zone: zone.to_owned(), provider_id })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(v1: &str) -> [String; 3] {
        let Instance { region, zone, provider_id } = instance(format!(r#"{{"v1": {{{v1}}}}}"#).as_bytes()).unwrap();
        [region, zone, provider_id]
    }

    #[test]
    fn each_cloud_has_its_form_of_a_provider_id_and_others_none() {
        for (cloud, zone, expected) in [
            ("aws", "eu-west-1a", "aws:///eu-west-1a/42"),
            ("aws", "", ""),
            ("hetzner", "", "hcloud://42"),
            ("openstack", "az1", "openstack:///42"),
            ("digitalocean", "", "digitalocean://42"),
            ("azure", "1", ""),
            ("gce", "europe-west1-b", ""),
        ] {
            let found = of(&format!(
                r#""cloud_name": "{cloud}", "region": "r", "availability_zone": "{zone}", "instance_id": "42""#
            ));
            assert_eq!(found, ["r", zone, expected], "{cloud}");
        }
    }

    #[test]
    fn a_board_that_was_flashed_and_places_that_are_none_give_nothing() {
        let rest = r#""region": "r", "availability_zone": "z", "instance_id": "i""#;
        for cloud in ["nocloud", "configdrive", ""] {
            assert_eq!(of(&format!(r#""cloud_name": "{cloud}", {rest}"#)), ["", "", ""], "{cloud}");
        }
        assert_eq!(of(rest), ["", "", ""]);
        for none in [r#""null""#, r#""None""#, r#""nova""#, "null", "7", r#""a b""#, r#""""#] {
            let found = of(&format!(
                r#""cloud_name": "openstack", "region": {none}, "availability_zone": {none}, "instance_id": "i""#
            ));
            assert_eq!(found, ["", "", "openstack:///i"], "{none}");
        }
        assert_eq!(of(r#""cloud_name": "hetzner", "instance_id": "a/../b""#), ["", "", ""]);
        assert_eq!(of(r#""cloud_name": "hetzner""#), ["", "", ""]);
    }

    #[test]
    fn what_is_no_instance_data_says_why() {
        let why = |text: &str| instance(text.as_bytes()).unwrap_err().to_string();
        assert_eq!(why("{}"), "malformed: no key v1");
        assert_eq!(why("[1]"), "malformed: no key v1");
        assert!(why("{\"v1\": ").starts_with("malformed: EOF"), "{}", why("{\"v1\": "));
        assert!(why(&"[".repeat(1000)).starts_with("malformed: recursion limit"), "{}", why(&"[".repeat(1000)));
    }
}
