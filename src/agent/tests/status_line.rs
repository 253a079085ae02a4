//! What is said of the Node to whoever looks at the service.

use super::*;

fn status_line(script: &Script) -> (bool, String) {
    let StatusLine { is_settled, text } = script.agent.status_line();
    (is_settled, text)
}

#[test]
fn a_start_is_settled_when_the_node_exists_and_then_tells_of_the_lease() {
    let mut script = Script::new();
    assert_eq!(status_line(&script), (false, "registering Node n1".to_owned()));
    script.register();
    assert_eq!(status_line(&script), (true, "Node n1: no Lease yet".to_owned()));
    script.pass(Duration::from_secs(10));
    assert_eq!(status_line(&script), (true, "Node n1: Lease renewed every 10 s".to_owned()));
}

#[test]
fn a_start_without_a_server_is_settled_by_the_first_failure_and_stays_so_between_two_tries() {
    let mut script = Script::new();
    script.play(Lane::Status, unreachable());
    let told = (true, "Node n1 is not registered: no complete answer within 10000 ms".to_owned());
    assert_eq!(status_line(&script), told);
    script.offline(Duration::from_secs(60));
    assert_eq!(status_line(&script), told);
}

#[test]
fn an_outage_says_offline_until_a_renewal_comes_through() {
    let mut script = Script::new();
    script.pass(Duration::from_secs(30));
    script.offline(Duration::from_secs(60));
    assert_eq!(status_line(&script), (true, "offline: no complete answer within 10000 ms".to_owned()));
    script.pass(Duration::from_secs(60));
    assert_eq!(status_line(&script), (true, "Node n1: Lease renewed every 10 s".to_owned()));
}

#[test]
fn a_refusal_is_not_called_offline_and_names_what_is_refused() {
    let mut script = Script::new();
    script.pass(Duration::from_secs(30));
    script.play(Lane::Lease, refused(403, "Forbidden"));
    let (_, text) = status_line(&script);
    assert!(text.starts_with("the Lease of Node n1 is not renewed: ") && text.contains("`patch leases`"), "{text}");

    let mut script = Script::new();
    script.pass(Duration::from_secs(30));
    script.play(Lane::Status, refused(403, "Forbidden"));
    let (_, text) = status_line(&script);
    let start = "Node n1: Lease renewed every 10 s, but its status cannot be sent: ";
    assert!(text.starts_with(start) && text.contains("`patch nodes/status`"), "{text}");
}
