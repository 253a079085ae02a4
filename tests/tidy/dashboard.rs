//! Turns `targets/kubernetes/dashboard.json` into what Grafana would show of it wrongly, or not at all: panels that hide each other,
//! queries of series that nobody records, of another data source, or of all clusters at once. These rules are ours: no linter
//! and no schema of Grafana's has judged it. `make test-alerts` lets promtool read the queries.

use super::hold;
use super::tree::page;
use serde_json::Value;

const DASHBOARD: &str = "targets/kubernetes/dashboard.json";
const SOURCE: &str = "${datasource}";
/// Of kube-state-metrics, where the recorded series do not say it.
const EXPORTED: [&str; 1] = ["kube_node_info"];
/// How many columns a dashboard has.
const COLUMNS: u64 = 24;
const KINDS: [&str; 4] = ["stat", "timeseries", "table", "bargauge"];

/// Left and upper edge, and those behind: columns and rows of Grafana's grid.
fn place(panel: &Value) -> Option<[u64; 4]> {
    let [x, y, width, height] = ["x", "y", "w", "h"].map(|key| panel["gridPos"][key].as_u64());
    Some([x?, y?, x? + width?, y? + height?])
}

fn overlap(one: [u64; 4], other: [u64; 4]) -> bool {
    one[0] < other[2] && other[0] < one[2] && one[1] < other[3] && other[1] < one[3]
}

/// Names of series in a query.
fn series(query: &str) -> impl Iterator<Item = &str> {
    let words = query.split(|letter: char| !letter.is_ascii_alphanumeric() && !"_:".contains(letter));
    words.filter(|word| word.starts_with("nodepulse:") || word.starts_with("kube_"))
}

/// What is wrong with a panel by itself.
fn panel_complaints(panel: &Value, rules: &str) -> Vec<String> {
    let mut wrong = Vec::new();
    if !KINDS.iter().any(|kind| panel["type"] == *kind) {
        wrong.push(format!("no type of panel: {}", panel["type"]));
    }
    if ["title", "description"].iter().any(|key| panel[*key].as_str().is_none_or(str::is_empty)) {
        wrong.push("a title or a description is missing".to_owned());
    }
    let targets = panel["targets"].as_array().map(Vec::as_slice).unwrap_or_default();
    if targets.is_empty() {
        wrong.push("asks nothing".to_owned());
    }
    for (index, target) in targets.iter().enumerate() {
        let query = target["expr"].as_str().unwrap_or_default();
        if targets[..index].iter().any(|other| other["refId"] == target["refId"]) || !target["refId"].is_string() {
            wrong.push(format!("a refId of its own is missing: {query}"));
        }
        if target["datasource"]["uid"] != SOURCE || panel["datasource"]["uid"] != SOURCE {
            wrong.push(format!("another data source than the one that was chosen: {query}"));
        }
        if !query.contains("cluster=~\"$cluster\"") {
            wrong.push(format!("of whatever cluster: {query}"));
        }
        let is_there = |name: &&str| rules.contains(&format!("record: {name}\n")) || EXPORTED.contains(name);
        if series(query).next().is_none() || !series(query).all(|name| is_there(&name)) {
            wrong.push(format!("a series that nobody records: {query}"));
        }
    }
    wrong
}

/// What is wrong with a dashboard, given the rules that record its series.
fn complaints(dashboard: &Value, rules: &str) -> Vec<String> {
    let panels = dashboard["panels"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut wrong = Vec::new();
    if panels.is_empty() || !dashboard["uid"].is_string() || !dashboard["schemaVersion"].is_u64() {
        wrong.push(format!("{DASHBOARD}: is no dashboard"));
    }
    let variables = dashboard["templating"]["list"].as_array().map(Vec::as_slice).unwrap_or_default();
    for name in ["datasource", "cluster"] {
        if !variables.iter().any(|variable| variable["name"] == name) {
            wrong.push(format!("{DASHBOARD}: nobody can choose a {name}"));
        }
    }
    for (index, panel) in panels.iter().enumerate() {
        let mut found = panel_complaints(panel, rules);
        let others = &panels[..index];
        if !panel["id"].is_u64() || others.iter().any(|other| other["id"] == panel["id"]) {
            found.push("an id of its own is missing".to_owned());
        }
        match place(panel) {
            Some(here) if here[2] <= COLUMNS && here[0] < here[2] && here[1] < here[3] => {
                if others.iter().filter_map(place).any(|there| overlap(here, there)) {
                    found.push("lies over another panel".to_owned());
                }
            }
            _ => found.push("is nowhere".to_owned()),
        }
        wrong.extend(found.into_iter().map(|what| format!("{DASHBOARD}: panel {}: {what}", panel["title"])));
    }
    wrong
}

#[test]
fn the_dashboard_shows_what_is_recorded_and_hides_nothing() {
    let rules = page("targets/kubernetes/alerts.yaml").unwrap();
    let dashboard: Value = serde_json::from_str(&page(DASHBOARD).unwrap()).unwrap();
    hold(complaints(&dashboard, &rules));
    let planted: [(&str, Value); 9] = [
        ("/panels/1/id", 1.into()),
        ("/panels/1/type", "graph".into()),
        ("/panels/1/gridPos/x", 5.into()),
        ("/panels/3/gridPos/w", 7.into()),
        ("/panels/4/targets/1/refId", "A".into()),
        ("/panels/4/datasource/uid", "prometheus".into()),
        ("/panels/5/targets/0/expr", "nodepulse:node_condition".into()),
        ("/panels/6/targets/0/expr", "nodepulse:node_gone{cluster=~\"$cluster\"}".into()),
        ("/templating/list/1/name", "site".into()),
    ];
    for (path, value) in planted {
        let mut faulty = dashboard.clone();
        *faulty.pointer_mut(path).unwrap() = value;
        assert!(!complaints(&faulty, &rules).is_empty(), "nobody noticed {path}");
    }
}
