//! Turns the simulator's sources into complaints where its judge would measure the agent by the agent's own code.

use super::hold;
use super::source::Source;
use super::tree::sources;

/// What says how things must be names nothing of the agent.
const JUDGE: [&str; 13] = [
    "tests/sim/judge",
    "tests/model/",
    "tests/sim/board.rs",
    "tests/sim/identity/cluster.rs",
    "tests/sim/identity/der.rs",
    "tests/sim/identity/judge.rs",
    "tests/sim/identity/plan.rs",
    "tests/sim/identity/planted.rs",
    "tests/sim/identity/supervisor.rs",
    "tests/sim/plan.rs",
    "tests/sim/quarrel.rs",
    "tests/sim/random.rs",
    "tests/sim/wanted.rs",
];

/// What the rest of the simulator needs to start the agent, to feed it and to hear it: types that are made and taken apart.
const TO_DRIVE: &[(&str, &[&str])] = &[
    (
        "agent",
        &[
            "Access",
            "Agent",
            "CredentialDates",
            "IdentityStep",
            "Input",
            "JoinedCluster",
            "Means",
            "Output",
            "Ticket",
            "Trust",
        ],
    ),
    (
        "api",
        &[
            "Answer",
            "AuditId",
            "Document",
            "Exchange",
            "Failure",
            "PatchAnswer",
            "Progress",
            "Refusal",
            "Seen",
            "StatusError",
            "Target",
            "Operation",
            "traffic",
        ],
    ),
    ("config", &["Settings", "absence", "kubeconfig", "quantity", "settings", "taint"]),
    ("identity", &["Bundle", "CertificateDer", "Renewal", "SigningRequest", "files", "supervisor", "unwritten"]),
    ("io", &["turns"]),
    ("journal", &["BootId", "Journal", "Write"]),
    ("node", &["Leaving"]),
    ("probe", &["Facts", "LastReset", "facts"]),
    ("time", &["Now", "Up", "Wall"]),
];

/// What these types say of the world: the judge finds that out by itself.
const OPINIONS: [&str; 8] = [
    "class",
    "is_of_content",
    "is_told",
    "label",
    "parse_http_date",
    "parse_stamp",
    "to_micro_stamp",
    "to_seconds_stamp",
];

fn measures(sources: &[Source]) -> Vec<String> {
    let mut complaints = Vec::new();
    for source in sources {
        let path = &source.path;
        let is_judge = JUDGE.iter().any(|judge| path.starts_with(judge));
        if !is_judge && !path.starts_with("tests/sim/") {
            continue;
        }
        for (segments, line) in source.paths() {
            let ["nodepulse", module, rest @ ..] = segments.as_slice() else { continue };
            let allowed = TO_DRIVE.iter().find(|(drive, _)| drive == module).map_or(&[][..], |(_, names)| *names);
            let is_allowed = rest.first().is_some_and(|name| allowed.contains(name));
            if is_judge {
                complaints
                    .push(format!("{path}:{line}: the judge names `nodepulse::{module}`: it must know that by itself"));
            } else if !is_allowed {
                let name = rest.join("::");
                complaints.push(format!("{path}:{line}: `{module}::{name}` is not what it takes to drive the agent"));
            }
        }
        for (place, token) in source.tokens.iter().enumerate() {
            let is_call = source.word(place + 1) == "(" && place > 0 && [".", ":"].contains(&source.word(place - 1));
            let is_own = path.starts_with("tests/model/")
                || ["/pair.rs", "/identity/network.rs"].iter().any(|end| path.ends_with(end)) && token.text == "label";
            if OPINIONS.contains(&token.text.as_str()) && is_call && !is_own {
                complaints.push(format!("{path}:{}: `{}` is the agent's opinion", token.line, token.text));
            }
        }
    }
    complaints
}

#[test]
fn the_simulator_measures_the_agent_by_nothing_of_the_agent() {
    hold(measures(sources()));
}

#[test]
fn a_measure_of_the_agents_own_is_caught() {
    for (path, text) in [
        ("tests/sim/judge/node.rs", "use nodepulse::time::Wall;"),
        ("tests/sim/judge.rs", "fn f() { nodepulse::node::desired::updated() }"),
        ("tests/model/http.rs", "use nodepulse::time::Wall;"),
        ("tests/sim/world.rs", "use nodepulse::node::event::event_name;"),
        ("tests/sim/world.rs", "use nodepulse::api::{Answer, Class};"),
        ("tests/sim/network.rs", "fn f() { refusal.class() }"),
        ("tests/sim/process.rs", "fn f() { Wall::parse_stamp(text) }"),
    ] {
        assert_eq!(measures(&[Source::new(path, text)]).len(), 1, "{path}: {text}");
    }
    let drives = "use nodepulse::agent::{Agent, Input};\nuse nodepulse::time::Wall;\nfn f() { class(x.class); }";
    assert_eq!(measures(&[Source::new("tests/sim/world.rs", drives)]), [""; 0]);
    assert_eq!(measures(&[Source::new("tests/journal/power.rs", "use nodepulse::journal::Record;")]), [""; 0]);
}
