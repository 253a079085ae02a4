//! Turns the recipes of image builders into complaints: files that are not there, another version, a licence that changed.

use super::hold;
use super::tree::page;
use std::process::Command;

/// A recipe, and the service files that it installs.
const RECIPES: [(&str, &[&str]); 3] = [
    (
        "targets/yocto/nodepulse_0.1.0.bb",
        &["targets/systemd/nodepulse.service", "targets/systemd/nodepulse.tmpfiles", "targets/sysv/nodepulse"],
    ),
    (
        "targets/buildroot/nodepulse.mk",
        &[
            "targets/openrc/nodepulse",
            "targets/systemd/nodepulse.service",
            "targets/systemd/nodepulse.tmpfiles",
            "targets/sysv/nodepulse",
        ],
    ),
    ("targets/openwrt/Makefile", &["targets/procd/nodepulse"]),
];

/// What the recipe takes from the tarball, in order and once each: `${S}/`, `$(@D)/` and `$(PKG_BUILD_DIR)/` are its folder.
fn taken(recipe: &str) -> Vec<&str> {
    let words = recipe.split(|c: char| c.is_whitespace() || c == '"');
    let of_tarball =
        |word: &&str| ["${S}/", "$(@D)/", "$(PKG_BUILD_DIR)/"].iter().any(|folder| word.starts_with(folder));
    let words = words.filter(of_tarball).filter_map(|word| word.split_once('/'));
    let mut files: Vec<&str> = words.map(|(_, file)| file).filter(|file| file.starts_with("targets/")).collect();
    files.sort_unstable();
    files.dedup();
    files
}

/// Versions that stand in a recipe and in its name.
fn versions<'a>(path: &'a str, recipe: &'a str) -> Vec<&'a str> {
    let in_name = path.split_once("nodepulse_").map(|(_, rest)| rest.trim_end_matches(".bb"));
    let version = |line: &'a str| {
        let set = line.strip_prefix("NODEPULSE_VERSION = ").or_else(|| line.strip_prefix("PKG_VERSION:="));
        set.or_else(|| line.split_once("nodepulse-")?.1.split_once(".tar.gz").map(|(version, _)| version))
    };
    let is_number = |version: &&str| version.starts_with(|first: char| first.is_ascii_digit());
    in_name.into_iter().chain(recipe.lines().filter_map(version).filter(is_number)).collect()
}

fn complaints(path: &str, recipe: &str, files: &[&str], version: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    if taken(recipe) != files {
        complaints.push(format!("{path} takes {:?}, not {files:?}", taken(recipe)));
    }
    complaints
        .extend(files.iter().filter(|file| page(file).is_none()).map(|file| format!("{path}: {file} is not there")));
    let versions = versions(path, recipe);
    if versions.is_empty() || versions.iter().any(|found| *found != version) {
        complaints.push(format!("{path} is for {versions:?}, Cargo.toml says {version}"));
    }
    if recipe.lines().take(20).filter(|line| line.contains("make test-recipes")).count() != 1 {
        complaints.push(format!("{path} does not say first how it was checked"));
    }
    complaints
}

fn sum(program: &str, path: &str) -> String {
    let output = Command::new(program).arg(path).current_dir(env!("CARGO_MANIFEST_DIR")).output().unwrap();
    String::from_utf8_lossy(&output.stdout).split(' ').next().unwrap_or_default().to_owned()
}

#[test]
fn recipes_name_files_that_are_there_and_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    for (path, files) in RECIPES {
        let recipe = page(path).unwrap_or_else(|| panic!("{path} is not there: rename it with the version"));
        hold(complaints(path, &recipe, files, version));
    }
    let hash = page("targets/buildroot/nodepulse.hash").unwrap();
    assert!(hash.contains(&format!("  nodepulse-{version}.tar.gz\n")), "{hash}");
}

#[test]
fn recipes_know_the_licence_and_leave_the_hash_of_the_tarball_to_make_source() {
    let [yocto, hash, openwrt] = ["yocto/nodepulse_0.1.0.bb", "buildroot/nodepulse.hash", "openwrt/Makefile"]
        .map(|path| page(&format!("targets/{path}")).unwrap());
    assert!(yocto.contains(&format!("file://LICENSE;md5={}\"", sum("md5sum", "LICENSE"))));
    assert!(hash.contains(&format!("sha256  {}  LICENSE\n", sum("sha256sum", "LICENSE"))));
    for text in [yocto, hash, openwrt] {
        assert_eq!(text.matches("@SHA256@").count(), 1, "{text}");
    }
}

#[test]
fn a_recipe_with_a_file_or_a_version_of_its_own_is_caught() {
    let recipe =
        "# make test-recipes\nPKG_VERSION:=0.1.0\n\tinstall $(PKG_BUILD_DIR)/targets/procd/nodepulse $(1)/etc\n";
    let of = |recipe: &str| complaints("targets/openwrt/Makefile", recipe, &["targets/procd/nodepulse"], "0.1.0").len();
    assert_eq!(of(recipe), 0);
    assert_eq!(of(&recipe.replace("procd", "proc")), 1);
    assert_eq!(of(&recipe.replace("0.1.0", "0.1.1")), 1);
    assert_eq!(of(&recipe.replace("test-", "")), 1);
    assert_eq!(complaints("x/nodepulse_0.2.0.bb", recipe, &["targets/procd/nodepulse"], "0.1.0").len(), 1);
}
