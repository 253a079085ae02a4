//! Turns what device plug-ins say, messages of protobuf, into how many devices of which resource this board has (DEV-1 to DEV-6).
//!
//! A plug-in registers over one connection and is listened to over another, its own. It is known by that connection, so an old one
//! that ends late takes nothing from the one that registered after it. Of the devices only their number is kept, never their names.

use std::time::Duration;

use crate::config::text_map::TextMap;
use crate::config::{labels, limits};
use crate::probe::Fact;
use crate::protobuf::{Fields, Value};
use crate::time::Up;

/// What a plug-in asks.
pub const REGISTER: &str = "/v1beta1.Registration/Register";
/// What it is asked, both with nothing.
pub const OPTIONS: &str = "/v1beta1.DevicePlugin/GetDevicePluginOptions";
pub const LIST_AND_WATCH: &str = "/v1beta1.DevicePlugin/ListAndWatch";
/// Where plug-ins look for a kubelet, and in it its socket.
pub const DIRECTORY: &str = "/var/lib/kubelet/device-plugins";
pub const SOCKET: &str = "kubelet.sock";

const VERSION: &str = "v1beta1";
/// How long a resource keeps its devices, none of them healthy, after its plug-in has gone (DEV-5).
const REMEMBERED: Duration = Duration::from_secs(300);

/// What a plug-in registers with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registration {
    /// Of its socket, beside the kubelet's.
    pub file_name: String,
    pub resource: String,
}

impl Registration {
    /// `v1beta1.RegisterRequest`; the error is a kubelet's, where it has one.
    pub fn read(message: &[u8]) -> Result<Registration, String> {
        let mut texts = [const { String::new() }; 3];
        for field in Fields::of(message) {
            let (number, value) = field.ok_or("the request is no message")?;
            let place = usize::try_from(number).ok().and_then(|number| texts.get_mut(number.checked_sub(1)?));
            if let (Some(place), Value::Bytes(found)) = (place, value) {
                *place = str::from_utf8(found).map_err(|_| "the request is no text")?.to_owned();
            }
        }
        let [version, file_name, resource] = texts;
        if version != VERSION {
            return Err(format!(
                "requested API version {version:?} is not supported by kubelet. Supported version is [{VERSION:?}]"
            ));
        }
        if labels::check_extended_resource(&resource).is_err() {
            return Err(format!("the ResourceName {resource:?} is invalid"));
        }
        // A kubelet joins paths, and lets `../` through.
        if file_name.is_empty()
            || file_name.contains('/')
            || file_name.contains('\0')
            || [".", "..", SOCKET].contains(&file_name.as_str())
        {
            return Err(format!("the endpoint {file_name:?} is no name of a file beside {SOCKET}"));
        }
        Ok(Registration { file_name, resource })
    }
}

/// How many there are of one resource.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Devices {
    pub all: u64,
    pub healthy: u64,
}

impl Devices {
    /// `v1beta1.ListAndWatchResponse`, which is the whole list; of two devices of one name the last counts.
    pub fn read(message: &[u8]) -> Option<Devices> {
        let mut found: Vec<(&[u8], bool)> = Vec::new();
        for field in Fields::of(message) {
            if let (1, Value::Bytes(device)) = field? {
                let (mut name, mut is_healthy): (&[u8], _) = (b"", false);
                for field in Fields::of(device) {
                    match field? {
                        (1, Value::Bytes(text)) => name = text,
                        (2, Value::Bytes(text)) => is_healthy = text == b"Healthy",
                        _ => {}
                    }
                }
                found.push((name, is_healthy));
            }
        }
        // The sort keeps the order of those of one name.
        found.reverse();
        found.sort_by_key(|(name, _)| *name);
        found.dedup_by_key(|(name, _)| *name);
        let healthy = found.iter().filter(|(_, is_healthy)| *is_healthy).count();
        Some(Devices { all: found.len() as u64, healthy: healthy as u64 })
    }
}

/// A connection to a plug-in; no two have the same.
pub type PluginId = u64;

/// All that have registered.
#[derive(Debug, Default)]
pub struct Plugins {
    all: Vec<Plugin>,
    next: PluginId,
}

#[derive(Debug)]
struct Plugin {
    resource: String,
    /// The last that registered for it.
    id: PluginId,
    devices: Devices,
    /// When its connection ended.
    gone_at: Option<Up>,
}

impl Plugins {
    /// One has registered. Answers what it is known by, and which connection it takes the place of; `None`: there are as many
    /// resources as may be, [`limits::DEVICE_PLUGINS`].
    pub fn registered(&mut self, resource: String) -> Option<(PluginId, Option<PluginId>)> {
        let (id, mut replaced) = (self.next, None);
        if let Some(known) = self.all.iter_mut().find(|plugin| plugin.resource == resource) {
            // Its devices stay until it has told of its own.
            replaced = known.gone_at.take().map_or(Some(known.id), |_| None);
            known.id = id;
        } else if self.all.len() < limits::DEVICE_PLUGINS {
            self.all.push(Plugin { resource, id, devices: Devices::default(), gone_at: None });
        } else {
            return None;
        }
        self.next += 1;
        Some((id, replaced))
    }

    /// It tells of its devices; one that another has taken the place of does not count.
    pub fn listed(&mut self, id: PluginId, devices: Devices) {
        if let Some(plugin) = self.all.iter_mut().find(|plugin| plugin.id == id) {
            plugin.devices = devices;
        }
    }

    /// Its connection ended. Answers whether it was the one that counts.
    pub fn ended(&mut self, id: PluginId, now: Up) -> bool {
        let plugin = self.all.iter_mut().find(|plugin| plugin.id == id);
        plugin.map(|plugin| plugin.gone_at = Some(now)).is_some()
    }

    /// Adds how many devices each resource has now, and how many of them are not healthy.
    pub fn count(&self, now: Up, counts: &mut TextMap<Fact<u64>>, unhealthy: &mut TextMap<u64>) {
        for Plugin { resource, devices, gone_at, .. } in &self.all {
            let (all, healthy) = match gone_at {
                None => (devices.all, devices.healthy),
                Some(at) if now - *at < REMEMBERED => (devices.all, 0),
                Some(_) => (0, 0),
            };
            // What the settings say of a name goes before.
            if !counts.contains_key(resource) {
                counts.insert(resource.clone(), Ok(all));
                if all > healthy {
                    unhealthy.insert(resource.clone(), all - healthy);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protobuf::put_bytes;

    fn at(seconds: u64) -> Up {
        Up::since_boot(Duration::from_secs(seconds))
    }

    fn request(fields: [&str; 3]) -> Vec<u8> {
        let mut message = Vec::new();
        for (number, text) in (1..).zip(fields) {
            put_bytes(&mut message, number, text.as_bytes());
        }
        put_bytes(&mut message, 4, b"\x08\x01");
        message
    }

    fn list(devices: &[(&str, &str)]) -> Vec<u8> {
        let mut message = Vec::new();
        for (name, health) in devices {
            let mut device = Vec::new();
            put_bytes(&mut device, 1, name.as_bytes());
            put_bytes(&mut device, 2, health.as_bytes());
            put_bytes(&mut message, 1, &device);
        }
        message
    }

    /// `name all healthy`, for each.
    fn counts(plugins: &Plugins, now: u64) -> Vec<String> {
        let (mut all, mut unhealthy) = (TextMap::new(), TextMap::new());
        plugins.count(at(now), &mut all, &mut unhealthy);
        let line = |(name, count): (&String, &Fact<u64>)| {
            let count = *count.as_ref().unwrap();
            format!("{name} {count} {}", count - unhealthy.get(name).copied().unwrap_or(0))
        };
        all.iter().map(line).collect()
    }

    #[test]
    fn a_registration_is_held_against_a_kubelets_rules() {
        let good = Registration::read(&request(["v1beta1", "usb.sock", "example.com/usb"])).unwrap();
        assert_eq!((good.file_name.as_str(), good.resource.as_str()), ("usb.sock", "example.com/usb"));
        for (fields, why) in [
            (
                ["v1alpha1", "a", "b.c/d"],
                "requested API version \"v1alpha1\" is not supported by kubelet. Supported version is [\"v1beta1\"]",
            ),
            (["v1beta1", "a", "cpu"], "the ResourceName \"cpu\" is invalid"),
            (["v1beta1", "a", "x.kubernetes.io/d"], "the ResourceName \"x.kubernetes.io/d\" is invalid"),
            (["v1beta1", "a", "requests.b.c/d"], "the ResourceName \"requests.b.c/d\" is invalid"),
            (["v1beta1", "", "b.c/d"], "the endpoint \"\" is no name of a file beside kubelet.sock"),
            (["v1beta1", "../x", "b.c/d"], "the endpoint \"../x\" is no name of a file beside kubelet.sock"),
            (["v1beta1", "..", "b.c/d"], "the endpoint \"..\" is no name of a file beside kubelet.sock"),
            (
                ["v1beta1", "kubelet.sock", "b.c/d"],
                "the endpoint \"kubelet.sock\" is no name of a file beside kubelet.sock",
            ),
        ] {
            assert_eq!(Registration::read(&request(fields)), Err(why.to_owned()));
        }
        let whole = request(["v1beta1", "usb.sock", "example.com/usb"]);
        for cut in 0..whole.len() {
            // Its options are of no account.
            assert!(Registration::read(&whole[..cut]).is_err() || cut == whole.len() - 4, "{cut}");
        }
    }

    #[test]
    fn a_list_is_counted_by_its_names_and_only_healthy_is_healthy() {
        let message =
            list(&[("a", "Healthy"), ("b", "Unhealthy"), ("c", "healthy"), ("", "Healthy"), ("a", "Unhealthy")]);
        assert_eq!(Devices::read(&message), Some(Devices { all: 4, healthy: 1 }));
        assert_eq!(Devices::read(&list(&[("a", ""), ("a", "Healthy")])), Some(Devices { all: 1, healthy: 1 }));
        assert_eq!(Devices::read(b""), Some(Devices::default()));
        for cut in 1..message.len() {
            if let Some(found) = Devices::read(&message[..cut]) {
                assert!(found.all < 5 && found.healthy <= found.all, "{cut}: {found:?}");
            }
        }
    }

    #[test]
    fn a_plug_in_that_goes_leaves_none_healthy_and_after_five_minutes_none_at_all() {
        let mut plugins = Plugins::default();
        let (usb, _) = plugins.registered("b.c/usb".to_owned()).unwrap();
        assert_eq!(counts(&plugins, 0), ["b.c/usb 0 0"], "nobody has told of any yet");
        plugins.listed(usb, Devices { all: 3, healthy: 2 });
        assert_eq!(counts(&plugins, 9), ["b.c/usb 3 2"]);
        assert!(plugins.ended(usb, at(10)));
        assert_eq!([counts(&plugins, 309), counts(&plugins, 310)], [["b.c/usb 3 0"], ["b.c/usb 0 0"]]);
        let (again, replaced) = plugins.registered("b.c/usb".to_owned()).unwrap();
        assert_eq!(replaced, None, "that one is gone");
        plugins.listed(again, Devices { all: 1, healthy: 1 });
        assert_eq!(counts(&plugins, 400), ["b.c/usb 1 1"]);
    }

    #[test]
    fn an_old_connection_that_ends_late_takes_nothing_from_the_one_after_it() {
        let mut plugins = Plugins::default();
        let (old, _) = plugins.registered("b.c/usb".to_owned()).unwrap();
        plugins.listed(old, Devices { all: 3, healthy: 3 });
        let (new, replaced) = plugins.registered("b.c/usb".to_owned()).unwrap();
        assert_eq!(replaced, Some(old));
        assert_eq!(counts(&plugins, 1), ["b.c/usb 3 3"], "until the new one has told of its own");
        plugins.listed(new, Devices { all: 2, healthy: 2 });
        plugins.listed(old, Devices::default());
        assert!(!plugins.ended(old, at(2)));
        assert_eq!(counts(&plugins, 1000), ["b.c/usb 2 2"]);
    }

    #[test]
    fn what_the_settings_count_goes_before_and_there_are_no_more_than_may_be() {
        let mut plugins = Plugins::default();
        for number in 0..limits::DEVICE_PLUGINS {
            assert!(plugins.registered(format!("b.c/{number}")).is_some());
        }
        assert_eq!(
            (plugins.registered("b.c/more".to_owned()), plugins.registered("b.c/0".to_owned()).is_some()),
            (None, true)
        );
        let (mut all, mut unhealthy) = (TextMap::from([("b.c/0".to_owned(), Ok(7))]), TextMap::new());
        plugins.count(at(0), &mut all, &mut unhealthy);
        assert_eq!((all.len(), all.get("b.c/0")), (limits::DEVICE_PLUGINS, Some(&Ok(7))));
    }
}
