//! What is asked when no server answers that a board was given: learned with the CAs (JOIN-7).

use super::*;

/// A control plane that moves is found there by whoever has no other server (JOIN-7).
#[test]
fn with_the_cas_the_control_planes_own_addresses_are_learned_and_kept_only_where_one_is_new() {
    let mut case = Case::slow();
    let old = case.old.clone();
    let week = |case: &mut Case| {
        let before = std::mem::take(&mut case.endpoints_asked);
        drop((case.live(DAY * 8, None, &|_| info(&[&old], SECRET)), before));
        assert!((1..=3).contains(&case.endpoints_asked), "{}", case.endpoints_asked);
        case.script.last_resorts.iter().map(Server::authority).collect::<Vec<_>>()
    };
    assert_eq!(week(&mut case), [""; 0], "nobody may read them");
    case.listed = vec!["10.0.0.7", "127.0.0.1"];
    assert_eq!(week(&mut case), ["10.0.0.7:6443"]);
    case.script.last_resorts.push(parse_server("https://10.0.0.8:6443").unwrap());
    assert_eq!(week(&mut case), ["10.0.0.7:6443", "10.0.0.8:6443"], "what is there already is not written again");
    case.listed = vec!["10.0.0.9"];
    assert_eq!(week(&mut case), ["10.0.0.9:6443", "10.0.0.7:6443", "10.0.0.8:6443"]);
    assert_eq!(case.bundle(), vec![old.clone()].into());
    // Where cluster-info is shown to nobody as well, and not while nobody answers.
    case.endpoints_asked = 0;
    case.live(DAY * 8, None, &|_| refused(401, "Unauthorized"));
    assert!((1..=2).contains(&case.endpoints_asked), "{}", case.endpoints_asked);
    let mut case = Case::slow();
    case.live(DAY, None, &|_| stranger());
    assert_eq!(case.endpoints_asked, 0);
}
