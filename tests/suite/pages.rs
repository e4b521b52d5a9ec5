//! The default page of each command is one screen at any width, and what it says of a snapshot it says once.
//! Slow: every recording has five pages drawn.

use std::collections::BTreeSet;

use crate::dry_run::{read, recording};
use crate::linear::{BASE, segment};
use crate::support::fixtures;
use crate::support::program::{file, result_of, run, run_with, text};
use oomscope::analysis::timeline::timeline;
use oomscope::analysis::{AnalyzeReport, Options, analyze};
use oomscope::base::units::{MIB, size};
use oomscope::compare::diff::{DiffOptions, File, diff};
use oomscope::output::document::{Document, Style, markdown, terminal};
use oomscope::output::report;
use oomscope::snapshot::Snapshot;
use oomscope::study::Scope;
use oomscope::whatif::{Overrides, replay_with, verify_study};
use serde_json::{Value, json};

const LINES: usize = 40;
const WORDS: usize = 300;
const WIDTHS: [usize; 4] = [60, 80, 100, 200];
const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
/// The other side of each diff.
const BEFORE: &str = "2.15.0-gpt_varlen-at-oom";

pub(crate) fn style(width: usize) -> Style {
    Style { width, unicode: true, colour: false }
}

/// Words without the cells of bars.
fn words(page: &str) -> usize {
    page.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

/// No line of a page is wider than `width`, and one of 100 columns is a screen. A command is broken at spaces only,
/// so that it can be pasted.
pub(crate) fn assert_fits(what: &str, page: &str, width: usize) {
    let broken = page.lines().filter(|line| line.trim().contains(' ') && !line.starts_with("copy"));
    assert!(broken.map(|line| line.chars().count()).all(|columns| columns <= width), "{what} at {width}:\n{page}");
    let is_small = page.lines().count() <= LINES && words(page) <= WORDS;
    assert!(is_small || width != 100, "{what}, {} words at {width}:\n{page}", words(page));
}

/// The pages of `name`, that of `analyze` first.
fn pages(name: &str, report: &AnalyzeReport) -> Vec<Document> {
    let path = format!("fixtures/{name}.pickle.gz");
    let study = fixtures::study(name);
    let snapshot = study.snapshot();
    let smaller = Overrides { capacity: Some(64 * MIB), ..Overrides::default() };
    let file = |snapshot, path| File { snapshot, path };
    let sides = [file(fixtures::study(BEFORE).snapshot(), "fixtures/before.pickle.gz"), file(snapshot, &path)];
    let mut pages = vec![
        report::analyze(report),
        report::replay(&verify_study(study, &path)),
        report::replay(&replay_with(study, &path, &smaller, false).0),
        report::timeline(&timeline(snapshot, &path, Scope::default(), 512)),
        report::diff(&diff(sides[0], sides[1], DiffOptions::default())),
    ];
    pages.iter_mut().for_each(Document::shorten_locations);
    pages
}

#[test]
fn pages_of_every_recording_fit_on_a_screen() {
    for name in fixtures::names() {
        let report = AnalyzeReport::new(vec![fixtures::report(&name).clone()], Vec::new(), 10);
        let pages = pages(&name, &report);
        for (document, width) in pages.iter().flat_map(|document| WIDTHS.map(|width| (document, width))) {
            assert_fits(&name, &terminal(document, style(width)), width);
        }
        let page = terminal(&pages[0], style(100));
        says_each_fact_once(&name, &page);
        has_figures_of_json(&name, &page, &report);
    }
}

/// No place with its directory twice, no sentence twice.
fn says_each_fact_once(name: &str, page: &str) {
    let without_command = page.lines().filter(|line| !line.starts_with("next"));
    let text = without_command.collect::<Vec<_>>().join("\n");
    let places = text.split_whitespace().filter(|word| word.contains(".py:"));
    let mut seen = BTreeSet::new();
    for place in places.filter(|place| place.contains("app/")) {
        assert!(seen.insert(place), "{name}: {place} twice\n{page}");
    }
    let mut sentences = BTreeSet::new();
    for line in page.lines().filter(|line| line.split_whitespace().count() > 4) {
        assert!(sentences.insert(line.trim()), "{name}: '{line}' twice\n{page}");
    }
}

/// Every size on the page is that of an integer in the JSON, or what a table leaves over.
fn has_figures_of_json(name: &str, page: &str, report: &AnalyzeReport) {
    let mut known = BTreeSet::new();
    collect_sizes(&serde_json::to_value(report).unwrap(), &mut known);
    for oom in report.snapshots.iter().flat_map(|snapshot| &snapshot.devices).flat_map(|device| &device.ooms) {
        let reach = oom.reserved_bytes + oom.device_free_bytes;
        let needed = oom.allocated_bytes + oom.requested_bytes;
        known.extend([needed, reach, reach - oom.allocated_bytes, needed.saturating_sub(reach)].map(size));
    }
    let rows = page.lines().filter(|line| !line.contains("everything else") && !line.contains("on the device"));
    for line in rows {
        let words: Vec<&str> = line.split_whitespace().collect();
        for pair in words.windows(2) {
            let unit = pair[1].trim_matches(|c: char| !c.is_alphanumeric());
            let number = pair[0].trim_start_matches(['(', '~']);
            if UNITS.contains(&unit) && number.starts_with(|c: char| c.is_ascii_digit()) {
                let figure = format!("{number} {unit}");
                assert!(known.contains(&figure), "{name}: {figure} is not in the JSON\n{page}");
            }
        }
    }
}

fn collect_sizes(value: &Value, sizes: &mut BTreeSet<String>) {
    match value {
        Value::Number(number) => sizes.extend(number.as_u64().map(size)),
        Value::Array(items) => items.iter().for_each(|item| collect_sizes(item, sizes)),
        Value::Object(keys) => keys.values().for_each(|value| collect_sizes(value, sizes)),
        Value::String(_) | Value::Null | Value::Bool(_) => {}
    }
}

#[test]
fn terminals_without_colour_or_unicode_lose_nothing() {
    for name in ["2.15.0-oom_varlen-at-oom", "2.15.0-graphs", "recorded/2.15.0-losses_kept"] {
        let mut document = report::analyze(&AnalyzeReport::new(vec![fixtures::report(name).clone()], Vec::new(), 10));
        document.shorten_locations();
        let plain = terminal(&document, style(100));
        let coloured = terminal(&document, Style { colour: true, ..style(100) });
        assert_eq!(anstream::adapter::strip_str(&coloured).to_string(), plain);
        let ascii = terminal(&document, Style { unicode: false, ..style(100) });
        assert!(ascii.is_ascii(), "{ascii}");
        // An ellipsis of three dots leaves room for fewer words.
        assert!(words(&ascii).abs_diff(words(&plain)) <= 5, "{ascii}");
    }
}

#[test]
fn full_adds_sections_bytes_are_exact_and_a_wide_page_is_not_cut() {
    const SNAPSHOT: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
    let [short, full, exact, wide] =
        ["analyze", "--full", "--bytes", "--wide"].map(|option| result_of(&[option, SNAPSHOT]));
    assert!(full.starts_with(short.trim_end()) && full.lines().count() > 80, "{full}");
    assert!(exact.contains("requested 418,535,424 B"), "{exact}");
    let longest = wide.lines().map(|line| line.chars().count()).max().unwrap();
    assert!(longest > 100 && !wide.contains('…') && words(&wide) + 20 > words(&short), "{wide}");
    for format in ["json", "markdown"] {
        let args = ["analyze", "--format", format, SNAPSHOT];
        assert_eq!(result_of(&args), result_of(&[&["--wide"], &args[..]].concat()));
    }
}

#[test]
fn limits_of_many_ranks_fit_on_a_screen() {
    let paths: Vec<String> = fixtures::names().iter().map(|name| format!("fixtures/{name}.pickle.gz")).collect();
    let limits = ["check", "--max-ooms", "0", "--max-peak-reserved", "1GiB", "--max-gap-ratio", "1%"];
    let args: Vec<&str> = limits.into_iter().chain(paths.iter().map(String::as_str)).collect();
    let ran = run(&args);
    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_fits("check", &ran.out, 100);
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
        let path = text(&entry.unwrap().path());
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
            let ran = run_with(&args, &[("COLUMNS", &width.to_string())]);
            assert_eq!(ran.code, 0, "{args:?}: {}", ran.err);
            assert_fits(&command.join(" "), &ran.out, width);
        }
    }
}

#[test]
fn pages_of_dry_runs_fit_on_a_screen() {
    let directory = tempfile::tempdir().unwrap();
    let reads: Vec<_> = (0..20).map(|n| read("_local_scalar_dense item", 3, 900_000 + n, 88 + n)).collect();
    for (reads, cudnn, fails) in [(json!([]), 0, false), (json!(reads), 3, false), (json!(reads), 0, true)] {
        let path = file(&directory, "dry.json", recording(&reads, cudnn, fails).to_string().as_bytes());
        for width in [80, 100] {
            let page = run_with(&["analyze", &path], &[("COLUMNS", &width.to_string())]).out;
            assert!(page.contains("would") || page.contains("may"), "{page}");
            assert_fits("a dry run", &page, width);
        }
    }
}

#[test]
fn streams_beyond_a_hundred_are_counted() {
    let streams = |n: u64| {
        let segments: Vec<_> = (0..n).map(|i| segment(0, BASE + i * 256 * MIB, i, 0, &[(2 + i) * MIB])).collect();
        let snapshot = Snapshot::read(json!({ "segments": segments }).to_string().as_bytes(), &|_| ()).unwrap();
        let analysis = analyze(&snapshot, "a", 0, Options { top: 10, ..Options::default() });
        markdown(&report::analyze(&AnalyzeReport::new(vec![analysis], Vec::new(), 10)).in_full())
    };
    let all = streams(100);
    assert!(all.contains("| 99 |") && !all.contains("others"), "{all}");
    let most = streams(120);
    assert!(most.contains("and 20 others, which reserve no more than these"), "{most}");
    assert!(most.contains("| 119 |") && !most.contains("| 19 |"), "the largest are listed: {most}");
}
