//! The default pages of `replay`, `timeline`, `diff` and `check` are one screen each.

use crate::one_screen::{LINES, WIDTHS, WORDS, is_within, style, words};
use crate::support::{fixtures, program};
use oomscope::base::units::MIB;
use oomscope::compare::diff::{DiffOptions, File, diff};
use oomscope::output::document::{Document, terminal};
use oomscope::output::report;
use oomscope::snapshot::Snapshot;
use oomscope::study::timeline::{TimelineOptions, timeline};
use oomscope::study::{Scope, Study, Window};
use oomscope::whatif::{Overrides, replay_with, verify_study};

/// The other side of each diff.
const BEFORE: &str = "2.15.0-gpt_varlen-at-oom";

fn pages(name: &str, snapshot: &Snapshot, before: &Snapshot) -> Vec<Document> {
    let path = format!("fixtures/{name}.pickle.gz");
    let study = Study::new(snapshot, Scope::default());
    let smaller = Overrides { capacity: Some(64 * MIB), ..Overrides::default() };
    let options = TimelineOptions { device: None, window: Window::All, minor: None, buckets: 512 };
    let file = |snapshot, path| File { snapshot, path };
    let sides = [file(before, "fixtures/before.pickle.gz"), file(snapshot, &path)];
    vec![
        report::replay(&verify_study(&study, &path)),
        report::replay(&replay_with(&study, &path, &smaller, false).0),
        report::timeline(&timeline(snapshot, &path, options)),
        report::diff(&diff(sides[0], sides[1], DiffOptions::default())),
    ]
}

#[test]
fn pages_of_every_recording_fit_on_a_screen() {
    let before = fixtures::snapshot(BEFORE);
    for name in fixtures::names() {
        for mut document in pages(&name, &fixtures::snapshot(&name), &before) {
            document.shorten_locations();
            for width in WIDTHS {
                let page = terminal(&document, style(width));
                assert!(is_within(&page, width), "{name} at {width}:\n{page}");
            }
            let page = terminal(&document, style(100));
            assert!(page.lines().count() <= LINES && words(&page) <= WORDS, "{name}, {} words:\n{page}", words(&page));
        }
    }
}

#[test]
fn limits_of_many_ranks_fit_on_a_screen() {
    let paths: Vec<String> = fixtures::names().iter().map(|name| format!("fixtures/{name}.pickle.gz")).collect();
    let limits = ["check", "--max-ooms", "0", "--max-peak-reserved", "1GiB", "--max-gap-ratio", "1%"];
    let args: Vec<&str> = limits.into_iter().chain(paths.iter().map(String::as_str)).collect();
    let ran = program::run(&args);
    assert_eq!(ran.code, 1, "{}", ran.err);
    let page = ran.out;
    assert!(is_within(&page, 100) && page.lines().count() <= LINES && words(&page) <= WORDS, "{page}");
    assert!(page.starts_with("FAILED: "), "{page}");
}
