//! What is said of the board to whoever asks (`nodepulse status`).

use super::*;

fn overview(script: &Script) -> Value {
    script.agent.overview(script.now())
}

#[test]
fn a_board_that_fares_well_says_so_with_its_times_and_nothing_that_should_not_be() {
    let mut script = Script::new();
    script.pass(Duration::from_secs(60));
    let said = overview(&script);
    assert_eq!((&said["node"], &said["state"]), (&json!("n1"), &json!("ready")));
    assert_eq!(said["ready"]["status"], "True");
    assert!(said["ready"]["since"].as_str().is_some_and(|since| since.starts_with("2026-01-01T00:00:0")), "{said}");
    assert_eq!(said["lease"]["period"], 10);
    assert!(said["lease"]["renewedAgo"].as_u64().is_some_and(|ago| ago <= 20), "{said}");
    assert_eq!((&said["conditions"], &said["offline"]), (&json!([]), &Value::Null));
    assert_eq!((&said["clock"]["ahead"], &said["journal"]["records"]), (&json!(0), &json!(0)));
}

#[test]
fn each_stage_has_its_word() {
    let mut script = Script::new();
    assert_eq!(overview(&script)["state"], "registering");
    script.register();
    assert_eq!(overview(&script)["state"], "not-renewed");
    script.pass(Duration::from_secs(30));
    assert_eq!(overview(&script)["state"], "ready");
    script.play(Lane::Lease, refused(403, "Forbidden"));
    let said = overview(&script);
    assert_eq!(said["state"], "not-renewed");
    assert!(said["line"].as_str().is_some_and(|line| line.contains("`patch leases`")), "{said}");
}

#[test]
fn an_outage_says_for_how_long_and_what_waits() {
    let mut script = Script::new();
    script.pass(Duration::from_secs(30));
    script.offline(Duration::from_secs(120));
    let said = overview(&script);
    assert_eq!((&said["state"], &said["offline"]["grace"]), (&json!("offline"), &json!(50)));
    assert!(said["offline"]["for"].as_u64().is_some_and(|lost| (90..=120).contains(&lost)), "{said}");
    assert_eq!(said["journal"]["records"], 1, "that it began");
    assert!(said["journal"]["since"].as_str().is_some_and(|since| since.starts_with("2026-01-01T00:00")), "{said}");
    assert_eq!(said["ready"]["status"], "True", "as the server said last");
}

#[test]
fn a_condition_that_should_not_be_is_named_with_its_words_and_whether_the_server_has_it() {
    let mut script = Script::new();
    script.pass(Duration::from_secs(30));
    script.press_memory(true);
    script.offline(Duration::from_secs(60));
    let said = overview(&script);
    let [pressure] = said["conditions"].as_array().unwrap().as_slice() else { panic!("{said}") };
    assert_eq!((&pressure["type"], &pressure["status"]), (&json!("MemoryPressure"), &json!("True")));
    assert_eq!(pressure["message"], "kubelet has insufficient memory available");
    assert_eq!(pressure["told"], false);
    let since = pressure["since"].clone();
    script.pass(Duration::from_secs(60));
    let said = overview(&script);
    assert_eq!((&said["conditions"][0]["told"], &said["conditions"][0]["since"]), (&json!(true), &since));
}

#[test]
fn a_clock_that_is_wrong_is_told_by_its_seconds() {
    let mut script = Script::new();
    script.clock_error_seconds = -340;
    script.pass(Duration::from_secs(60));
    let ahead = overview(&script)["clock"]["ahead"].as_i64();
    assert!(ahead.is_some_and(|ahead| (-341..=-339).contains(&ahead)), "{ahead:?}");
}

#[test]
fn the_resources_of_this_board_are_told_as_the_server_has_them_and_nobody_elses() {
    let mut script = Script::new();
    assert_eq!(overview(&script)["resources"], json!([]));
    let mut node = registered_node();
    let ours = ("nodepulse.dev/extended-resources".to_owned(), "example.com/relay,example.com/usb".to_owned());
    node.metadata.annotations.extend([ours]);
    for (name, all, usable) in
        [("example.com/relay", "4", "4"), ("example.com/usb", "3", "2"), ("vendor.example/theirs", "7", "7")]
    {
        node.status.capacity.insert(name.to_owned(), all.to_owned());
        node.status.allocatable.insert(name.to_owned(), usable.to_owned());
    }
    script.play_healthy(Lane::Status);
    script.play(Lane::Status, refused(409, "AlreadyExists"));
    script.play(Lane::Status, Ok(Document::Node(Box::new(node))));
    let one = |name: &str, all: &str, usable: &str| json!({"name": name, "capacity": all, "allocatable": usable});
    let expected = json!([one("example.com/relay", "4", "4"), one("example.com/usb", "3", "2")]);
    assert_eq!(overview(&script)["resources"], expected);
}
