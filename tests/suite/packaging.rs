//! What builds and publishes the program says the same as Cargo.toml, and runs nothing that can change by itself.

use std::collections::BTreeMap;
use std::fs::{read_dir, read_to_string};
use std::path::PathBuf;

fn text(path: &str) -> String {
    read_to_string(path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[test]
fn the_recipes_are_of_this_version() {
    let version = env!("CARGO_PKG_VERSION");
    for (path, says) in [
        ("packaging/conda-forge/recipe.yaml", format!("  version: \"{version}\"\n")),
        ("packaging/homebrew/oomscope.rb", format!("/oomscope-{version}.tar.gz\"\n")),
    ] {
        assert!(text(path).contains(&says), "{path} lacks {says:?}");
    }
}

#[test]
fn everything_names_the_same_oldest_rust() {
    let oldest = env!("CARGO_PKG_RUST_VERSION");
    for (path, says) in [
        (".github/workflows/ci.yml", format!("RUSTUP_TOOLCHAIN: \"{oldest}\"\n")),
        (".ci/release", format!("cargo +{oldest} check")),
        ("README.md", format!("Rust {oldest} or later")),
        ("CONTRIBUTING.md", format!("Rust {oldest} or later")),
    ] {
        assert!(text(path).contains(&says), "{path} lacks {says:?}");
    }
}

#[test]
fn actions_are_pinned_by_commit_and_everywhere_the_same() {
    let workflows = read_dir(".github/workflows").unwrap().map(|entry| entry.unwrap().path());
    let mut pins: BTreeMap<String, String> = BTreeMap::new();
    for path in workflows.chain([PathBuf::from("action.yml")]) {
        let written = read_to_string(&path).unwrap();
        for pin in written.lines().filter_map(|line| line.split_once("uses: ").map(|(_, pin)| pin)) {
            // OWNER/NAME[/PATH]@COMMIT # vVERSION
            let (action, commit) = pin.split_once('@').unwrap_or((pin, ""));
            let (commit, version) = commit.split_once(" # v").unwrap_or((commit, ""));
            let is_commit = commit.len() == 40 && commit.bytes().all(|b| b.is_ascii_hexdigit());
            assert!(is_commit && !version.is_empty(), "{}: {pin}", path.display());
            let first = pins.entry(action.to_owned()).or_insert_with(|| commit.to_owned());
            assert_eq!(first, commit, "{}: {pin}", path.display());
        }
    }
    assert!(pins.len() > 5, "{pins:?}");
}
