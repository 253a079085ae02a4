//! Turns what is known to have gone wrong on real networks and boards, and what somebody could do on purpose, into a table.

use super::answers as a;
use super::attack::Act::{Answer, Connection, Session};
use super::attack::{Attack, EVENTS, From, Hold, Kind, LEASE, Launch, NODE, NOT_THE_LEASE, Renewals};
use super::attack::{STATUS, USUAL, VERSION};
use super::strangers as s;
use super::{local, wire};

/// Renewals are attacked as well, and come back.
const HIT: Attack = Attack { renewals: Renewals::ComeBack, ..USUAL };
/// Renewals are spared, and go on.
const SPARED: Attack = Attack { hits: NOT_THE_LEASE, settings: EAGER, ..USUAL };
/// A status in each period, so that there is something to hit; the Lease stays as it is by default.
const EAGER: &str = "nodeStatusReportFrequency: 10s\n";
/// A board starts where nobody is what they should be, and starts again.
const AT_START: Attack = Attack {
    from: From::StartAndAgain,
    renewals: Renewals::ComeBack,
    holds: &[Hold::Told("Starting", 2), Hold::Told("NodeHasSufficientMemory", 1), Hold::Ready],
    seconds: 40,
    ..USUAL
};
/// Long enough for an outage that is worth a record, after a renewal that may be just over.
const OUTAGE: u64 = 45;
const OUTAGE_TOLD: &[Hold] = &[Hold::Told("UplinkRestored", 1)];
/// Long enough for a rate to show.
const LONG: u64 = 64;

/// An answer to every request but the Lease's, and the same to the Lease's requests too.
macro_rules! both {
    ($spared:literal, $hit:literal, $script:path) => {
        [Attack { name: $spared, act: Answer($script), ..SPARED }, Attack { name: $hit, act: Answer($script), ..HIT }]
    };
}

/// Every attack, those first that take longest.
pub fn all() -> Vec<Attack> {
    let parts = [strangers, refusals, floods, slowness, forms, times, objects, connections, local_ones];
    let mut all: Vec<Attack> = parts.into_iter().flat_map(|part| part()).collect();
    all.sort_by_key(|attack| std::cmp::Reverse(attack.seconds));
    all
}

type Script = fn(&super::server::Hit, &mut super::server::Stream) -> std::io::Result<()>;

fn at_start(name: &'static str, script: Script) -> Attack {
    Attack { name, act: Answer(script), ..AT_START }
}

/// It was registered before, and is started again where it is told nothing but nonsense.
fn restart(name: &'static str, script: Script) -> Attack {
    Attack { from: From::PeaceAndAgain, ..at_start(name, script) }
}

fn strangers() -> Vec<Attack> {
    let never_again = &[Hold::Never(Kind::CreateNode), Hold::Ready];
    vec![
        at_start("start-403-html", s::html_403),
        at_start("start-404-html", s::html_404),
        at_start("start-422-html", s::html_422),
        at_start("start-200-html", s::html_200),
        at_start("start-200-json", s::json_200),
        at_start("start-502-html", s::html_502),
        at_start("start-302", s::redirect),
        at_start("start-silence", a::silence),
        at_start("start-message-of-900-kb", s::long_foul_message),
        at_start("start-403-status-without-audit-id", s::status_403_without_audit_id),
        restart("restart-403-html", s::html_403),
        restart("restart-404-html", s::html_404),
        restart("restart-422-html", s::html_422),
        restart("restart-200-json", s::json_200),
        restart("restart-403-status-without-audit-id", s::status_403_without_audit_id),
        restart("restart-silence", a::silence),
        Attack { holds: never_again, seconds: LONG, act: Answer(s::html_404), name: "all-404-html", ..HIT },
        Attack { holds: never_again, act: Answer(s::html_403), name: "all-403-html", ..HIT },
        Attack { holds: OUTAGE_TOLD, seconds: OUTAGE, act: Answer(s::json_200), name: "all-200-json", ..HIT },
        Attack { holds: OUTAGE_TOLD, seconds: OUTAGE, act: Answer(s::protobuf_200), name: "all-200-protobuf", ..HIT },
        Attack { holds: OUTAGE_TOLD, seconds: OUTAGE, act: Answer(s::html_200), name: "all-200-html", ..HIT },
        Attack { holds: never_again, act: Answer(s::html_404), name: "nodes-404-html", ..SPARED },
        Attack {
            holds: never_again,
            act: Answer(s::status_404_without_audit_id),
            name: "nodes-404-status-without-audit-id",
            ..SPARED
        },
        Attack {
            act: Answer(s::wrong_audit_id),
            hits: LEASE,
            holds: OUTAGE_TOLD,
            seconds: OUTAGE,
            name: "wrong-audit-id",
            ..HIT
        },
        Attack { act: Answer(s::redirect), hits: LEASE, name: "lease-302", ..HIT },
        Attack {
            act: Answer(s::html_403),
            hits: EVENTS,
            from: From::StartAndAgain,
            holds: &[Hold::Told("Starting", 2)],
            name: "events-403-html",
            ..USUAL
        },
    ]
}

fn refusals() -> Vec<Attack> {
    let registered = &[Hold::RegisteredWithin(30), Hold::Ready];
    let version = |name, script| Attack {
        name,
        act: Answer(script),
        hits: VERSION,
        from: From::Start,
        holds: registered,
        ..USUAL
    };
    let patience = |name, script| Attack { name, act: Answer(script), ..HIT };
    vec![
        version("version-502-html", s::html_502),
        version("version-302", s::redirect),
        version("version-200-html", s::html_200),
        version("version-404-html", s::html_404),
        version("version-200-garbage", s::json_200),
        version("version-of-600-kb", a::version_of_600_kb),
        version("version-with-escapes", a::foul_version),
        Attack {
            act: Answer(s::forbidden),
            hits: EVENTS,
            from: From::StartAndAgain,
            holds: &[Hold::Told("Starting", 2)],
            name: "events-403-status",
            ..USUAL
        },
        Attack { act: Answer(s::invalid), hits: NODE, name: "nodes-422-status", ..SPARED },
        Attack { act: Answer(s::conflict), hits: STATUS, name: "status-409", ..SPARED },
        Attack { act: Answer(s::conflict), hits: LEASE, name: "lease-409", ..HIT },
        Attack { act: Answer(s::invalid), hits: LEASE, name: "lease-422", ..HIT },
        Attack { act: Answer(s::not_found), hits: LEASE, name: "lease-404", ..HIT },
        Attack { act: Answer(s::unauthorized), name: "all-401", ..HIT },
        Attack { act: Answer(s::forbidden), name: "all-403-status", holds: &[Hold::Ready], ..HIT },
        Attack { act: Answer(s::not_found), hits: STATUS, seconds: LONG, name: "status-404", settings: EAGER, ..HIT },
        Attack {
            act: Answer(s::deleted_at_once),
            hits: &[Kind::CreateNode],
            from: From::Start,
            renewals: Renewals::ComeBackWithin(60),
            seconds: LONG,
            name: "node-deleted-at-once",
            ..USUAL
        },
        Attack {
            act: Answer(s::deleted_at_once),
            hits: STATUS,
            renewals: Renewals::ComeBackWithin(60),
            seconds: LONG,
            name: "node-deleted-after-status",
            settings: EAGER,
            ..USUAL
        },
        patience("retry-after-1000000000", s::patience_for_ever),
        patience("retry-after-minus-1", s::patience_below_zero),
        patience("retry-after-0", s::patience_of_nothing),
        patience("retry-after-overflow", s::patience_beyond_numbers),
        Attack { act: Answer(s::long_foul_message), name: "message-of-900-kb", seconds: LONG, ..HIT },
        Attack { act: Answer(s::long_foul_reason), name: "reason-of-900-kb", ..HIT },
        Attack { act: Answer(s::long_foul_message), name: "message-of-900-kb-not-lease", ..SPARED },
        Attack { act: Answer(s::another_refusal_each_time), name: "another-refusal-each-time", seconds: LONG, ..HIT },
        Attack { act: Answer(s::another_stranger_each_time), name: "another-stranger-each-time", seconds: LONG, ..HIT },
        Attack { act: Answer(s::foul_redirect), name: "redirect-with-escapes", ..HIT },
        Attack { act: Answer(s::foul_content_type), name: "content-type-with-escapes", ..HIT },
    ]
}

fn floods() -> Vec<Attack> {
    [
        both!("chunk-size-without-end", "lease-chunk-size-without-end", a::chunk_size_without_end),
        both!("chunk-extension-without-end", "lease-chunk-extension-without-end", a::chunk_extension_without_end),
        both!("trailers-without-end", "lease-trailers-without-end", a::trailers_without_end),
        both!("100-continue-flood", "lease-100-continue-flood", a::continue_flood),
        both!("headers-without-end", "lease-headers-without-end", a::headers_without_end),
        both!("body-of-a-gigabyte", "lease-body-of-a-gigabyte", a::body_of_a_gigabyte),
    ]
    .into_iter()
    .flatten()
    .chain([
        Attack { name: "chunks-of-one-byte", act: Answer(a::chunks_of_one_byte), ..HIT },
        Attack { name: "chunks-with-extensions", act: Answer(a::chunks_with_extensions), ..HIT },
        Attack { name: "103-early-hints-flood", act: Answer(a::early_hints_flood), ..HIT },
        Attack { name: "header-without-end", act: Answer(a::header_without_end), ..HIT },
        Attack { name: "status-line-without-end", act: Answer(a::status_line_without_end), ..HIT },
        Attack { name: "empty-lines-without-end", act: Answer(a::empty_lines_without_end), ..HIT },
        Attack { name: "http-0.9", act: Answer(a::body_alone), ..HIT },
        Attack { name: "body-without-end", act: Answer(a::body_without_end), ..HIT },
        Attack { name: "refusal-of-a-gigabyte", act: Answer(a::refusal_of_a_gigabyte), ..HIT },
        Attack { name: "huge-chunk", act: Answer(a::huge_chunk), ..HIT },
        Attack { name: "http-2", act: Answer(a::http2), ..HIT },
    ])
    .collect()
}

fn slowness() -> Vec<Attack> {
    [
        both!("one-byte-a-second", "lease-one-byte-a-second", a::one_byte_a_second),
        both!("body-of-one-byte-a-second", "lease-body-of-one-byte-a-second", a::body_of_one_byte_a_second),
        both!("silence", "lease-silence", a::silence),
    ]
    .into_iter()
    .flatten()
    .chain([Attack { name: "tiny-records", act: Answer(a::tiny_records), ..USUAL }])
    .collect()
}

fn forms() -> Vec<Attack> {
    vec![
        Attack { name: "two-answers-to-one-request", act: Answer(a::two_answers), ..USUAL },
        Attack { name: "gzip", act: Answer(a::gzip), ..HIT },
        Attack { name: "strange-lengths", act: Answer(a::strange_lengths), ..HIT },
        Attack { name: "cut-answers", act: Answer(a::cut), ..HIT },
        Attack { name: "close-instead-of-an-answer", act: Answer(a::close), ..HIT },
        Attack { name: "protobuf-with-huge-lengths", act: Answer(a::protobuf_with_huge_lengths), ..HIT },
        Attack { name: "protobuf-cut", act: Answer(a::protobuf_cut), ..HIT },
        Attack { name: "nested-json", act: Answer(a::nested_json), ..HIT },
    ]
}

fn times() -> Vec<Attack> {
    let date = |name, script| Attack { name, act: Answer(script), new_certificate: true, ..USUAL };
    vec![
        date("date-2035", a::date_2035),
        date("date-9999", a::date_9999),
        date("date-1970", a::date_1970),
        date("date-garbage", a::date_garbage),
        Attack { from: From::StartAndAgain, ..date("start-date-2035", a::date_2035) },
        Attack {
            name: "lease-of-9999",
            act: Answer(a::lease_of_9999),
            hits: &[Kind::ReadLease],
            from: From::StartAndAgain,
            renewals: Renewals::OrHeartbeats,
            seconds: LONG,
            ..USUAL
        },
    ]
}

fn objects() -> Vec<Attack> {
    let node = |name, script| Attack { name, act: Answer(script), hits: NODE, from: From::Start, ..SPARED };
    vec![
        node("80000-capacities", a::node_with_80000_capacities),
        node("60000-labels", a::node_with_60000_labels),
        node("60000-annotations", a::node_with_60000_annotations),
        node("10000-conditions", a::node_with_10000_conditions),
        node("20000-addresses", a::node_with_20000_addresses),
        node("node-with-escapes", a::foul_node),
        Attack { name: "version-that-is-no-number", act: Answer(a::version_that_is_no_number), ..USUAL },
        Attack { name: "another-uid-each-time", act: Answer(a::another_uid_each_time), seconds: LONG, ..USUAL },
    ]
}

fn connections() -> Vec<Attack> {
    let raw = |name, script| Attack { name, act: Connection(script), ..HIT };
    let session = |name, script| Attack { name, act: Session(script), ..HIT };
    let proxy = |name, script| Attack { name, act: Connection(script), launch: Launch::Proxy, ..HIT };
    vec![
        raw("accept-and-hang", wire::accept_and_hang),
        raw("reset", wire::reset),
        raw("close-at-once", wire::close_at_once),
        raw("handshake-without-end", wire::handshake_without_end),
        raw("alert-flood", wire::alert_flood),
        raw("cipher-change-flood", wire::cipher_change_flood),
        raw("renegotiation-flood", wire::renegotiation_flood),
        raw("empty-record-flood", wire::empty_record_flood),
        raw("noise", wire::noise),
        raw("plain-http", wire::plain_http),
        session("closes-after-the-handshake", wire::session_closes),
        session("breaks-after-the-handshake", wire::session_breaks),
        session("never-reads", wire::session_never_reads),
        session("speaks-first", wire::session_speaks_first),
        session("key-change-flood", wire::session_changes_keys),
        Attack { tickets: 5000, ..session("5000-tickets", wire::session_goes_on) },
        proxy("proxy-refuses", wire::proxy_refuses),
        proxy("proxy-drips", wire::proxy_drips),
        proxy("proxy-floods", wire::proxy_floods),
        Attack {
            launch: Launch::ThreeAddresses,
            from: From::Start,
            renewals: Renewals::GoOn,
            holds: &[Hold::RegisteredWithin(45)],
            seconds: LONG,
            ..raw("two-of-three-addresses-hang", wire::accept_and_hang)
        },
    ]
}

fn local_ones() -> Vec<Attack> {
    let registered = &[Hold::RegisteredWithin(15)];
    let found = |name, change| Attack { name, prepare: Some(change), holds: registered, from: From::Start, ..USUAL };
    let strike = |name, change| Attack { name, strike: Some(change), ..USUAL };
    vec![
        Attack { name: "peace", ..USUAL },
        Attack { launch: Launch::FullPipe, ..strike("stderr-is-full", local::nothing) },
        found("uplink-is-a-pipe", local::uplink_is_a_pipe),
        found("journal-is-a-pipe", local::journal_is_a_pipe),
        found("journal-is-a-directory", local::journal_is_a_directory),
        found("journal-of-beginnings", local::journal_of_beginnings),
        strike("kubeconfig-becomes-a-pipe", local::kubeconfig_becomes_a_pipe),
        strike("kubeconfig-becomes-a-directory", local::kubeconfig_becomes_a_directory),
        strike("kubeconfig-becomes-the-kernels-log", local::kubeconfig_becomes_the_kernels_log),
        strike("settings-become-a-pipe", local::settings_become_a_pipe),
        strike("key-becomes-a-pipe", local::key_becomes_a_pipe),
        strike("authority-becomes-endless", local::authority_becomes_endless),
    ]
}
