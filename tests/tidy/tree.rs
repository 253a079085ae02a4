//! Turns the folder of this package into its files: every Rust source, every script, and the pages that rules read.

use super::source::Source;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// A file that a shell runs.
pub struct Script {
    /// Below the root of the package.
    pub path: String,
    pub text: String,
}

/// Every Rust file of the package, in the order of their paths.
pub fn sources() -> &'static [Source] {
    static SOURCES: OnceLock<Vec<Source>> = OnceLock::new();
    SOURCES.get_or_init(|| {
        let is_rust = |path: &&PathBuf| path.extension().is_some_and(|extension| extension == "rs");
        let files = files();
        let mut sources: Vec<_> =
            files.iter().filter(is_rust).map(|path| Source::new(&below(path), &read(path))).collect();
        let test_modules: Vec<String> = sources.iter().flat_map(Source::test_modules).collect();
        for source in &mut sources {
            let path = format!("{}::", source.module_path().join("::"));
            if test_modules.iter().any(|module| path.starts_with(&format!("{module}::"))) {
                source.mark_as_test();
            }
        }
        assert!(sources.len() > 50, "found only {} Rust files", sources.len());
        sources
    })
}

/// Every file that starts with `#!` and a shell.
pub fn scripts() -> Vec<Script> {
    let is_script =
        |text: &[u8]| text.starts_with(b"#!") && text.split(|byte| *byte == b'\n').next().is_some_and(names_shell);
    let read_bytes = |path: &PathBuf| fs::read(path).ok().filter(|text| is_script(text));
    let scripts = files().into_iter().filter_map(|path| Some((below(&path), read_bytes(&path)?)));
    scripts.map(|(path, text)| Script { path, text: String::from_utf8_lossy(&text).into_owned() }).collect()
}

/// The paths of every page of prose; each board has one of its own (`tests/boards.rs`).
pub fn pages() -> Vec<String> {
    let paths = files().into_iter().filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.map(|path| below(&path)).chain(["tests/boards/NAME/SOURCE.md".to_owned()]).collect()
}

/// A page of the package, if it is there.
pub fn page(path: &str) -> Option<String> {
    fs::read_to_string(root().join(path)).ok()
}

fn names_shell(line: &[u8]) -> bool {
    String::from_utf8_lossy(line).ends_with("sh")
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn below(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).to_string_lossy().into_owned()
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Files in the order of their paths, without what git, builds and captured boards bring.
fn files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut folders = vec![root().to_owned()];
    while let Some(folder) = folders.pop() {
        let is_board = folder.parent().is_some_and(|above| above.ends_with("tests/boards"));
        if folder.ends_with(".git") || is_board {
            continue;
        }
        let ignored = fs::read_to_string(folder.join(".gitignore")).unwrap_or_default();
        let entries = fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
        for entry in entries.map(|entry| entry.unwrap()) {
            if is_ignored(&ignored, &entry.file_name().to_string_lossy()) {
                continue;
            }
            match entry.file_type().unwrap() {
                kind if kind.is_dir() => folders.push(entry.path()),
                kind if kind.is_file() => files.push(entry.path()),
                _ => {}
            }
        }
    }
    files.sort();
    files
}

/// Whether the `.gitignore` of a folder names what is in it: `target`, `/target` or `target/`.
fn is_ignored(ignored: &str, name: &str) -> bool {
    ignored.lines().any(|line| line.trim_matches('/') == name)
}

#[test]
fn what_a_folder_ignores_is_left_out_whoever_made_it() {
    assert_eq!(
        ["target", "result", "src"].map(|name| is_ignored("/target\nresult/\n*.profraw\n", name)),
        [true, true, false]
    );
    assert!(files().iter().all(|path| !path.starts_with(root().join("target"))), "a build is read");
}
