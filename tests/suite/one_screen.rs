//! The default page of a snapshot is one screen, says each fact once, and is the same in every terminal.

use std::collections::BTreeSet;

use crate::support::{fixtures, program};
use oomscope::analysis::AnalyzeReport;
use oomscope::base::units::size;
use oomscope::output::document::{Document, Style, terminal};
use oomscope::output::report;
use serde_json::Value;

pub(crate) const LINES: usize = 40;
pub(crate) const WORDS: usize = 300;
pub(crate) const WIDTHS: [usize; 4] = [60, 80, 100, 200];
const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];

pub(crate) fn style(width: usize) -> Style {
    Style { width, unicode: true, colour: false }
}

fn report_of(name: &str) -> AnalyzeReport {
    AnalyzeReport::new(vec![fixtures::report(name)], Vec::new(), 10)
}

fn screen(report: &AnalyzeReport) -> Document {
    let mut document = report::analyze(report);
    document.shorten_locations();
    document
}

/// Words without the cells of bars.
pub(crate) fn words(page: &str) -> usize {
    page.split_whitespace().filter(|word| word.chars().any(char::is_alphanumeric)).count()
}

/// Whether no line is wider than `width`. A command is broken at spaces only, so that it can be pasted.
pub(crate) fn is_within(page: &str, width: usize) -> bool {
    let broken = page.lines().filter(|line| line.trim().contains(' ') && !line.starts_with("copy"));
    broken.map(|line| line.chars().count()).all(|columns| columns <= width)
}

#[test]
fn every_recording_fits_on_a_screen() {
    for name in fixtures::names() {
        let report = report_of(&name);
        let document = screen(&report);
        for width in WIDTHS {
            let page = terminal(&document, style(width));
            assert!(is_within(&page, width), "{name} at {width}:\n{page}");
        }
        let page = terminal(&document, style(100));
        assert!(page.lines().count() <= LINES && words(&page) <= WORDS, "{name}, {} words:\n{page}", words(&page));
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
        let document = screen(&report_of(name));
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
fn full_adds_the_sections_and_bytes_are_exact() {
    const SNAPSHOT: &str = "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz";
    let (short, full) =
        (program::result_of(&["analyze", SNAPSHOT]), program::result_of(&["analyze", "--full", SNAPSHOT]));
    assert!(full.starts_with(short.trim_end()) && full.lines().count() > 80, "{full}");
    let exact = program::result_of(&["--bytes", SNAPSHOT]);
    assert!(exact.contains("requested 418,535,424 B"), "{exact}");
}
