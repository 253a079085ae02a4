//! Turns the features of a board into labels of its Node, and takes those away that are no longer true.
//!
//! An annotation says which labels are the board's own, as node-feature-discovery does it: no other is ever changed, be it that
//! of an administrator or of node-feature-discovery itself.

use super::board::Board;
use super::object::Node;
use super::reconcile::make_equal;
use crate::config::labels;
use crate::config::text_map::TextMap;
use crate::probe::{NFD_PREFIX, as_label, whole_key};

/// Annotation with the labels that this board has put on the Node, with commas between them; those of node-feature-discovery
/// without what they all begin with.
pub const FEATURE_LABELS: &str = "nodepulse.dev/feature-labels";
/// The same of the labels of node-feature-discovery's own.
const THEIRS: &str = "nfd.node.kubernetes.io/feature-labels";
/// Annotation with what the board calls itself, where no label may say that as it is.
pub const BOARD_MODEL: &str = "nodepulse.dev/board-model";
/// Label with the serial number, for who wants it.
const BOARD_SERIAL_LABEL: &str = "nodepulse.dev/board-serial";

/// Those of the Node that are ours are made what they should be; a board that was not asked yet changes nothing.
pub(super) fn claim(node: &mut Node, board: &Board) {
    let Some(wanted) = wanted(board) else { return };
    let before: Vec<String> = claimed(node).collect();
    let theirs: Vec<String> = named(node, THEIRS).collect();
    let is_others = |key: &String| theirs.contains(key) || board.settings.node_labels.contains_key(key);
    let labels = &mut node.metadata.labels;
    for key in before.iter().filter(|key| !wanted.contains_key(key) && !is_others(key)) {
        labels.remove(key);
    }
    let mut names = String::new();
    for (key, value) in &wanted {
        let is_free = labels.get(key).is_none_or(|found| found == value || before.contains(key));
        if is_free && !is_others(key) {
            labels.insert(key.clone(), value.clone());
            names.push_str(if names.is_empty() { "" } else { "," });
            names.push_str(key.strip_prefix(NFD_PREFIX).unwrap_or(key));
        }
    }
    let model = board.facts.machine.board_model.as_ref().ok();
    let model = model.filter(|model| board.settings.feature_labels && as_label(model) != **model).cloned();
    let ours = [(FEATURE_LABELS, names), (BOARD_MODEL, model.unwrap_or_default())];
    let ours = ours.map(|(key, text)| (key.to_owned(), text)).into_iter().collect();
    make_equal(&mut node.metadata.annotations, &ours, [FEATURE_LABELS, BOARD_MODEL]);
}

/// `None`: not known yet.
fn wanted(board: &Board) -> Option<TextMap<String>> {
    let (settings, machine) = (board.settings, &board.facts.machine);
    let features = machine.features.as_ref().map(|features| features.labels.clone());
    let mut wanted = if settings.feature_labels { features? } else { TextMap::new() };
    let serial = machine.board_serial.as_ref().ok().filter(|_| settings.board_serial_label);
    let serial = serial.filter(|serial| labels::check_value(serial).is_ok());
    wanted.extend(serial.map(|serial| (BOARD_SERIAL_LABEL.to_owned(), serial.clone())));
    Some(wanted)
}

/// The keys of those that are ours. Somebody may have written there what never was.
pub(super) fn claimed(node: &Node) -> impl Iterator<Item = String> {
    named(node, FEATURE_LABELS)
}

fn named<'a>(node: &'a Node, annotation: &str) -> impl Iterator<Item = String> + use<'a> {
    let names = node.metadata.annotations.get(annotation).map_or("", String::as_str);
    names.split(',').map(whole_key).filter(|key| labels::check_feature_label(key, "").is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::limits;
    use crate::node::board::Update;
    use crate::node::claims::{differ, keep};
    use crate::node::desired::{initial, updated};
    use crate::node::patch::create_body;
    use crate::node::remembered::Remembered;
    use crate::node::tests::samples::{self, LATER, START};
    use crate::probe::{Facts, Features};

    const SWAP: &str = "feature.node.kubernetes.io/memory-swap";
    const MODEL: &str = "nodepulse.dev/board-model";

    fn facts(labels: &[(&str, &str)]) -> Facts {
        let mut facts = samples::facts();
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        facts.machine.features = Some(Features { labels, left_out: Vec::new() });
        facts
    }

    fn new(facts: &Facts) -> Node {
        initial(&samples::board(&samples::settings(), facts, START), &Remembered::default()).node
    }

    fn next(base: &Node, facts: &Facts) -> Update {
        updated(base, &samples::board(&samples::settings(), facts, LATER), &mut Remembered::default(), false)
    }

    fn labelled(node: &Node, key: &str) -> Option<String> {
        node.metadata.labels.get(key).cloned()
    }

    fn annotated(node: &Node, key: &str) -> Option<String> {
        node.metadata.annotations.get(key).cloned()
    }

    #[test]
    fn a_node_has_them_from_its_creation_and_says_whose_they_are() {
        let node = new(&facts(&[(SWAP, "true"), (MODEL, "Raspberry_Pi_4_Model_B_Rev_1.1")]));
        assert_eq!(labelled(&node, SWAP).as_deref(), Some("true"));
        assert_eq!(annotated(&node, FEATURE_LABELS).as_deref(), Some("memory-swap,nodepulse.dev/board-model"));
        assert_eq!(annotated(&node, BOARD_MODEL).as_deref(), Some("Raspberry Pi 4 Model B Rev 1.1"));
        assert!(!next(&node, &facts(&[(SWAP, "true"), (MODEL, "Raspberry_Pi_4_Model_B_Rev_1.1")])).changed);
    }

    #[test]
    fn what_is_true_no_longer_goes_and_what_somebody_took_away_returns() {
        let base = new(&facts(&[(SWAP, "true"), ("example.com/relays", "4")]));
        let after = next(&base, &facts(&[("example.com/relays", "8")]));
        assert!(after.changed);
        assert_eq!(
            (labelled(&after.node, SWAP), labelled(&after.node, "example.com/relays").as_deref()),
            (None, Some("8"))
        );
        assert_eq!(annotated(&after.node, FEATURE_LABELS).as_deref(), Some("example.com/relays"));
        let mut robbed = after.node.clone();
        robbed.metadata.labels.remove("example.com/relays");
        let after = next(&robbed, &facts(&[("example.com/relays", "8")]));
        assert!(after.changed && labelled(&after.node, "example.com/relays").as_deref() == Some("8"));
    }

    #[test]
    fn with_none_left_nothing_of_them_is_left() {
        let base = new(&facts(&[(SWAP, "true")]));
        for off in [false, true] {
            let (facts, mut settings) = (facts(&[]), samples::settings());
            settings.feature_labels = !off;
            let mut board = samples::board(&settings, &facts, LATER);
            let mut unknown = facts.clone();
            unknown.machine.features = None;
            if off {
                board.facts = &unknown;
            }
            let after = updated(&base, &board, &mut Remembered::default(), false).node;
            assert_eq!((labelled(&after, SWAP), annotated(&after, FEATURE_LABELS)), (None, None), "{off}");
            assert_eq!(annotated(&after, BOARD_MODEL).is_none(), off);
        }
    }

    /// As many and as long as the probe tells: read from the server, they are no change.
    #[test]
    fn the_longest_names_are_read_back_whole() {
        let key = |number: usize| format!("{number:02}.{}example.com/x", "y.".repeat(23));
        let keys: Vec<String> = (0..limits::FEATURE_LABELS).map(key).collect();
        let bytes: usize = keys.iter().map(|key| 2 * (key.len() + 1)).sum();
        assert!((7800..=limits::FEATURE_LABEL_BYTES).contains(&bytes), "{bytes}");
        let all = facts(&keys.iter().map(|key| (key.as_str(), "")).collect::<Vec<_>>());
        let body = create_body(&new(&all));
        let stored: Node = serde_json::from_str(&body).unwrap();
        assert_eq!(claimed(&stored).count(), keys.len());
        assert!(!next(&stored, &all).changed);
    }

    #[test]
    fn a_board_that_was_not_asked_changes_nothing() {
        let base = new(&facts(&[(SWAP, "true")]));
        let after = next(&base, &samples::facts());
        assert!(!after.changed && after.node.metadata == base.metadata);
    }

    #[test]
    fn nobody_elses_label_is_touched() {
        let mut base = new(&facts(&[]));
        for (key, value) in [(SWAP, "theirs"), ("example.com/same", "1"), ("feature.node.kubernetes.io/nfds", "1")] {
            base.metadata.labels.insert(key.to_owned(), value.to_owned());
        }
        base.metadata.annotations.insert(THEIRS.to_owned(), "nfds".to_owned());
        let all = [(SWAP, "true"), ("example.com/same", "1"), ("feature.node.kubernetes.io/nfds", "2")];
        let after = next(&base, &facts(&all)).node;
        assert_eq!(after.metadata.labels, base.metadata.labels);
        assert_eq!(
            annotated(&after, FEATURE_LABELS).as_deref(),
            Some("example.com/same"),
            "what says the same is ours"
        );
        // And not taken away with ours.
        let mut claimed = after.clone();
        claimed.metadata.annotations.insert(FEATURE_LABELS.to_owned(), "nfds,example.com/same,not a label".to_owned());
        let after = next(&claimed, &facts(&[])).node;
        assert_eq!(labelled(&after, "feature.node.kubernetes.io/nfds").as_deref(), Some("1"));
        assert_eq!(labelled(&after, "example.com/same"), None);
    }

    #[test]
    fn the_users_own_labels_go_before() {
        let (facts, mut settings) = (facts(&[(SWAP, "true")]), samples::settings());
        settings.node_labels.insert(SWAP.to_owned(), "mine".to_owned());
        let node = initial(&samples::board(&settings, &facts, START), &Remembered::default()).node;
        assert_eq!((labelled(&node, SWAP).as_deref(), annotated(&node, FEATURE_LABELS)), (Some("mine"), None));
    }

    #[test]
    fn the_serial_number_is_a_label_for_who_wants_it_and_where_it_can_be_one() {
        for (is_wanted, serial, told) in [
            (false, "10000000abcdef12", None),
            (true, "10000000abcdef12", Some("10000000abcdef12")),
            (true, "no label", None),
        ] {
            let mut facts = facts(&[]);
            facts.machine.board_serial = Ok(serial.to_owned());
            let mut settings = samples::settings();
            settings.board_serial_label = is_wanted;
            let node = initial(&samples::board(&settings, &facts, START), &Remembered::default()).node;
            assert_eq!(labelled(&node, BOARD_SERIAL_LABEL).as_deref(), told);
        }
    }

    #[test]
    fn what_has_to_wait_for_a_version_stays_whole() {
        let base = new(&facts(&[(SWAP, "true"), ("example.com/relays", "4")]));
        let wanted = next(&base, &facts(&[("example.com/relays", "8"), ("example.com/new", "1")])).node;
        assert!(differ(&base, &wanted) && !differ(&wanted, &wanted));
        let mut kept = wanted.clone();
        keep(&base, &mut kept);
        assert_eq!(kept.metadata, base.metadata);
        assert!(!differ(&base, &kept));
        let mut other = base.clone();
        other.metadata.labels.insert("example.com/relays".to_owned(), "5".to_owned());
        assert!(differ(&other, &base), "a value is a difference, too");
    }
}
