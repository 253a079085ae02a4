//! Turns `README.md` into complaints about settings it leaves out or makes up.

use super::hold;
use super::tree::page;
use nodepulse::config::table::SETTINGS;

/// Where the settings are listed, up to the next heading of that level; each is a row that starts with its name.
const HEADING: &str = "## Settings";

/// Settings that are missing from the page, and rows that name none. A page without the section says nothing yet.
fn settings(readme: &str, known: &[&str]) -> Vec<String> {
    let Some((_, section)) = readme.split_once(&format!("\n{HEADING}\n")) else { return Vec::new() };
    let section = section.split("\n## ").next().unwrap_or_default();
    let named: Vec<&str> =
        section.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name).collect();
    let missing = known.iter().filter(|name| !named.contains(name));
    let invented = named.iter().filter(|name| !known.contains(name));
    let missing = missing.map(|name| format!("README.md: the setting {name} is not in its table"));
    missing.chain(invented.map(|name| format!("README.md: there is no setting {name}"))).collect()
}

#[test]
fn the_readme_names_every_setting_and_no_other() {
    let known: Vec<&str> = SETTINGS.iter().map(|setting| setting.name).collect();
    hold(settings(&page("README.md").unwrap_or_default(), &known));
}

#[test]
fn a_setting_left_out_or_made_up_is_caught() {
    let readme =
        "# x\n\n## Settings\n\n| Name | x |\n|---|---|\n| `podless` | y |\n| `podlike` | y |\n\n## More\n| `z` |\n";
    assert_eq!(
        settings(readme, &["podless", "maxPods"]),
        ["README.md: the setting maxPods is not in its table", "README.md: there is no setting podlike"]
    );
    assert_eq!(settings("# x\n", &["podless"]), [""; 0]);
}
