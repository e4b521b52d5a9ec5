//! The default pages of `replay`, `timeline`, `diff` and `check` are one screen each.

use super::dry_run::{read, recording};
use crate::one_screen::{LINES, WIDTHS, WORDS, is_within, style, words};
use crate::support::{fixtures, program};
use oomscope::analysis::timeline::{TimelineOptions, timeline};
use oomscope::base::units::MIB;
use oomscope::compare::diff::{DiffOptions, File, diff};
use oomscope::output::document::{Document, terminal};
use oomscope::output::report;
use oomscope::study::Window;
use oomscope::whatif::{Overrides, replay_with, verify_study};
use serde_json::json;

/// The other side of each diff.
const BEFORE: &str = "2.15.0-gpt_varlen-at-oom";

fn pages(name: &str) -> Vec<Document> {
    let path = format!("fixtures/{name}.pickle.gz");
    let study = fixtures::study(name);
    let snapshot = study.snapshot();
    let smaller = Overrides { capacity: Some(64 * MIB), ..Overrides::default() };
    let options = TimelineOptions { device: None, window: Window::All, buckets: 512 };
    let file = |snapshot, path| File { snapshot, path };
    let sides = [file(fixtures::study(BEFORE).snapshot(), "fixtures/before.pickle.gz"), file(snapshot, &path)];
    vec![
        report::replay(&verify_study(study, &path)),
        report::replay(&replay_with(study, &path, &smaller, false).0),
        report::timeline(&timeline(snapshot, &path, options)),
        report::diff(&diff(sides[0], sides[1], DiffOptions::default())),
    ]
}

#[test]
fn pages_of_every_recording_fit_on_a_screen() {
    for name in fixtures::names() {
        for mut document in pages(&name) {
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

/// Commands over recordings at several sizes and over logs.
fn pages_of_sizes_and_logs() -> Vec<Vec<String>> {
    let sized = |program: &str, sizes: &[&str]| -> Vec<String> {
        sizes.iter().map(|size| format!("{size}=fixtures/sizes/2.15.0-{program}-{size}.pickle.gz")).collect()
    };
    // The last has an answer, and none: on 1 GiB it would be searched for 8 s.
    let programs: [(&str, &str, &[&str]); 4] = [
        ("dense", "1GiB", &["4", "8", "13"]),
        ("padded", "1GiB", &["4", "8"]),
        ("rnn_steps", "64MiB", &["4", "8"]),
        ("rnn_steps", "16MiB", &["4", "8"]),
    ];
    let mut commands = Vec::new();
    for (program, capacity, sizes) in programs {
        let with = |words: &[&str]| -> Vec<String> {
            words.iter().map(|word| (*word).to_owned()).chain(sized(program, sizes)).collect()
        };
        commands.push(with(&["fit", "--capacity", capacity]));
        if program == "dense" {
            commands.push(with(&["plan", "--gpus", "t4,l4,a10,a100,h100,h200"]));
        }
    }
    for entry in std::fs::read_dir("fixtures/logs").unwrap() {
        let path = program::text(&entry.unwrap().path());
        if path.ends_with(".log") {
            commands.push(vec!["explain".to_owned(), path]);
        }
    }
    for name in ["2.15.0-oom_varlen-at-oom", "recorded/2.15.0-losses_kept"] {
        commands.push(vec!["whatif".to_owned(), format!("fixtures/{name}.pickle.gz")]);
    }
    commands
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn answers_about_sizes_and_logs_fit_on_a_screen() {
    for command in pages_of_sizes_and_logs() {
        let args: Vec<&str> = command.iter().map(String::as_str).collect();
        for width in [80, 100] {
            let ran = program::run_with(&args, &[("COLUMNS", &width.to_string())]);
            assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
            let page = ran.out;
            assert!(is_within(&page, width), "{args:?} at {width}:\n{page}");
            let is_small = page.lines().count() <= LINES && words(&page) <= WORDS;
            assert!(is_small || width < 100, "{args:?}, {} words at {width}:\n{page}", words(&page));
        }
    }
}

#[test]
fn pages_of_dry_runs_fit_on_a_screen() {
    let directory = tempfile::tempdir().unwrap();
    let reads: Vec<_> = (0..20).map(|n| read("_local_scalar_dense item", 3, 900_000 + n, 88 + n)).collect();
    for (reads, cudnn, fails) in [(json!([]), 0, false), (json!(reads), 3, false), (json!(reads), 0, true)] {
        let path = program::file(&directory, "dry.json", recording(&reads, cudnn, fails).to_string().as_bytes());
        for width in [80, 100] {
            let page = program::run_with(&["analyze", &path], &[("COLUMNS", &width.to_string())]).out;
            assert!(page.contains("would") || page.contains("may"), "{page}");
            let is_small = page.lines().count() <= LINES && words(&page) <= WORDS;
            assert!(is_within(&page, width) && is_small, "{} words at {width}:\n{page}", words(&page));
        }
    }
}
