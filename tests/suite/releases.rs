//! No rule is inherited silently: whatever depends on a release asks the list of releases, and that ends with
//! the newest one that was recorded.

use std::path::Path;

use oomscope::releases::{NEWEST, OLDEST};

use crate::support::fixtures;
use crate::support::rust_source::code_of;

/// Comparisons of a release with a number, in code that is not the list.
fn open_ended(code: &str) -> Vec<String> {
    let flat: String = code.split_whitespace().collect::<Vec<_>>().join(" ");
    let is_number = |text: &str| text.trim_start().starts_with(|c: char| c.is_ascii_digit());
    let mut found = Vec::new();
    for (at, _) in flat.match_indices("minor") {
        let rest = flat[at + "minor".len()..].trim_start();
        let sign =
            [">=", "<=", "==", "!=", ">", "<"].into_iter().find(|sign| rest.starts_with(sign));
        let is_compared = sign.is_some_and(|sign| is_number(&rest[sign.len()..]));
        if is_compared || (flat[..at].ends_with("match ") && rest.starts_with('{')) {
            found.push(flat[at..].chars().take(40).collect());
        }
    }
    found
}

#[test]
fn only_the_list_of_releases_compares_them() {
    for (path, source) in crate::layers::sources() {
        if path != "src/releases.rs" && !path.contains("/tests") {
            let found = open_ended(&code_of(&source));
            assert!(found.is_empty(), "{path}: {found:?}: ask crate::releases");
        }
    }
    for planted in ["minor >= 9", "if self.minor < 4 {", "match minor { ..=9 => 1, 10.. => 2 }"] {
        assert_eq!(open_ended(planted).len(), 1, "{planted}");
    }
    assert!(open_ended("minor <= known.minor && minor >= OLDEST").is_empty());
}

#[test]
fn the_newest_release_listed_is_the_newest_recorded() {
    let minors = fixtures::names().into_iter().map(|name| {
        name.split('.').nth(1).and_then(|minor| minor.parse::<u32>().ok()).expect(&name)
    });
    assert_eq!(minors.max(), Some(NEWEST));
    let conf = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/conf");
    assert!((OLDEST..=NEWEST).all(|minor| {
        let of_minor = format!("2.{minor}.");
        std::fs::read_dir(&conf)
            .unwrap()
            .any(|file| file.unwrap().file_name().to_string_lossy().starts_with(&of_minor))
    }));
}
