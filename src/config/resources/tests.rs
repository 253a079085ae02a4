//! What `extendedResources` may be, and what is refused.

use crate::config::settings::{ExtendedResources, ResourceSource, Settings, lists_devices};
use crate::config::{self, limits};

fn read(yaml: &str) -> Result<Settings, String> {
    let head = "apiVersion: nodepulse.dev/v1\nkind: NodePulseConfiguration\n";
    let loaded = config::settings(Some(("config.yaml", &format!("{head}{yaml}"))), &[]);
    loaded.map(|loaded| loaded.settings).map_err(|problems| problems.iter().map(|one| format!("{one}\n")).collect())
}

fn flag(text: &str) -> ExtendedResources {
    let flags = [("extended-resources".to_owned(), text.to_owned())];
    config::settings(None, &flags).unwrap().settings.extended_resources
}

fn paths_of(paths: &[&str]) -> ResourceSource {
    ResourceSource::Paths(paths.iter().map(|path| (*path).to_owned()).collect())
}

#[test]
fn a_resource_is_a_number_a_pattern_or_several_patterns() {
    let yaml = "extendedResources:\n  example.com/relay: 4\n  example.com/modem: /dev/cdc-wdm?\n  \
                example.com/usb: {paths: ['/dev/serial/by-id/*', /sys/class/gpio]}\n";
    let expected: ExtendedResources = [
        ("example.com/relay", ResourceSource::Count(4)),
        ("example.com/modem", paths_of(&["/dev/cdc-wdm?"])),
        ("example.com/usb", paths_of(&["/dev/serial/by-id/*", "/sys/class/gpio"])),
    ]
    .map(|(name, source)| (name.to_owned(), source))
    .into();
    let read = read(yaml).unwrap().extended_resources;
    assert_eq!(read, expected);
    assert!(lists_devices(&read));
    let of_flag = flag("example.com/relay=4,example.com/modem=/dev/cdc-wdm?");
    assert_eq!(of_flag.len(), 2);
    assert!(of_flag.iter().all(|(name, source)| expected[name] == *source), "{of_flag:?}");
    assert!(!lists_devices(&flag("example.com/relay=4,example.com/x=/dev/ttyS0,example.com/y=/sys/class/gpio/*")));
}

#[test]
fn what_cannot_be_counted_is_refused_with_what_would_be_right() {
    let long = format!("/dev/{}", "x".repeat(limits::RESOURCE_PATTERN_BYTES));
    let many = format!("{{paths: [{}]}}", ["/dev/a"; limits::RESOURCE_PATTERNS + 1].join(", "));
    for (name, value, wrong) in [
        ("relay", "4", "must have a domain"),
        ("kubernetes.io/relay", "4", "kubernetes.io"),
        ("example.com/a", "-1", "must be a number, a pattern"),
        ("example.com/a", "2147483648", "must be a number, a pattern"),
        ("example.com/a", "1.5", "must be a number, a pattern"),
        ("example.com/a", "[/dev/a]", "not a list"),
        ("example.com/a", "{path: /dev/a}", "a map with paths"),
        ("example.com/a", "{paths: []}", "0 patterns; 1 to"),
        ("example.com/a", &many, "patterns; 1 to"),
        ("example.com/a", "{paths: [{a: b}]}", "list of texts"),
        ("example.com/a", "/etc/passwd", "below /dev or /sys"),
        ("example.com/a", "/dev", "below /dev or /sys"),
        ("example.com/a", "/devices/a", "below /dev or /sys"),
        ("example.com/a", "/dev/", "a name between"),
        ("example.com/a", "/dev//a", "a name between"),
        ("example.com/a", "/dev/../etc/*", "a name between"),
        ("example.com/a", "'/dev/tty[0-9]'", "neither brackets"),
        ("example.com/a", &long, "bytes; 256 are allowed"),
    ] {
        let problem = read(&format!("extendedResources: {{{name}: {value}}}\n")).unwrap_err();
        assert!(
            problem.contains(wrong) && problem.contains(&format!("extendedResources.{name}")),
            "{value}: {problem}"
        );
    }
}

#[test]
fn there_are_as_many_as_an_annotation_of_the_node_can_name() {
    let map = |count: usize, name: &str| {
        let entries: Vec<String> = (0..count).map(|number| format!("example.com/{name}{number:02}: 1")).collect();
        read(&format!("extendedResources: {{{}}}\n", entries.join(", ")))
    };
    assert_eq!(map(32, "a").unwrap().extended_resources.len(), 32);
    assert!(map(33, "a").unwrap_err().contains("33 entries; 32 are allowed"));
    assert!(map(32, "long-long-long-long-a").unwrap_err().contains("bytes together; 1024 are allowed"));
}
