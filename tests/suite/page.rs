//! `oomscope report`: the data in a page says of every moment what `analyze --at` says, and the page is text and its
//! own script, whatever the file holds. Slow: every recording has a page made and read.

use std::path::Path;
use std::sync::OnceLock;

use oomscope::analysis::{AnalyzeReport, Options, analyze_study};
use oomscope::output::page::{PageData, PageOrder};
use oomscope::snapshot::Snapshot;
use oomscope::study::{DeviceStudy, Scope, Study, TracePosition, Window};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::plain_text;
use crate::support::page::{Page, Recording, State};
use crate::support::program::{analyze, file, job, result_of, run};
use crate::support::{fixtures, garbage, generator, page, window};

/// Fixtures of other kinds than those of [`fixtures::names`].
const MORE: [&str; 6] = [
    "where/2.15.0-leak_cache",
    "where/2.15.0-ddp_view",
    "moments/2.15.0-expandable",
    "gate/none",
    "diff/base",
    "diff/later",
];

fn report(args: &[&str]) -> Page {
    let all: Vec<&str> = ["report"].iter().chain(args).copied().collect();
    Page::read(result_of(&all))
}

/// The page of every fixture, by name.
fn all_pages() -> &'static [(String, Page)] {
    static PAGES: OnceLock<Vec<(String, Page)>> = OnceLock::new();
    let page = |name: String| {
        let page = report(&[&relative(&name)]);
        (name, page)
    };
    PAGES.get_or_init(|| fixtures::names().into_iter().map(page).collect())
}

fn relative(name: &str) -> String {
    format!("fixtures/{name}.pickle.gz")
}

/// What the library says of a moment.
fn truth(device: DeviceStudy<'_, '_>, moment: TracePosition) -> State {
    let state = device.memory_at(moment).figures.state;
    State {
        allocated: state.blocks.active_allocated.bytes,
        pending: state.blocks.active_pending_free.bytes,
        reserved: state.reserved,
        requested: state.requested,
        blocks: state.blocks.active_allocated.count,
        pending_blocks: state.blocks.active_pending_free.count,
        free_blocks: state.blocks.inactive.count,
        segments: state.segments.count,
        largest_free_block: state.largest_free_block,
        releasable: state.releasable,
    }
}

/// The moments of `recording` that are looked at: both ends, failures, and some between.
fn moments(recording: &Recording) -> Vec<u64> {
    let entries = recording.number("entries");
    let failures = recording.header["failures"].as_array().unwrap().iter().rev().take(2);
    let failures = failures.map(|failure| failure["moment"].as_u64().unwrap());
    let mut moments: Vec<u64> = (0..=6).map(|n| entries * n / 6).chain(failures).collect();
    moments.sort_unstable();
    moments.dedup();
    moments
}

fn compare(name: &str, page: &Page) {
    compare_with(fixtures::study(name), name, page);
}

fn compare_with(study: &Study<'_>, name: &str, page: &Page) {
    for (row, recording) in page.rows.iter().zip(&page.devices) {
        let device = study.device(row["device"].as_u64().unwrap()).unwrap();
        let first = recording.number("first_event");
        for moment in moments(recording) {
            let asked = match (first + moment).checked_sub(1) {
                _ if recording.number("entries") == 0 => TracePosition::Snapshot,
                None => TracePosition::Start,
                Some(event) => TracePosition::Entry { event },
            };
            assert_eq!(recording.state(moment), truth(device, asked), "{name} at {moment}");
        }
    }
}

#[test]
fn every_moment_adds_up() {
    for (name, page) in all_pages() {
        compare(name, page);
    }
    for name in MORE {
        compare(name, &report(&[&relative(name)]));
    }
}

#[test]
fn columns_of_more_than_a_mebibyte_add_up() {
    let mut bytes = Vec::new();
    let options = generator::Options { seed: 5, target_bytes: 16_000_000, depth: 8, ..generator::Options::default() };
    generator::write_snapshot(&mut bytes, &options).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let page = report(&[&file(&directory, "long.pickle", &bytes)]);
    let columns = page.devices[0].header["columns"].as_array().unwrap();
    let in_columns: u64 = columns.iter().map(|column| column[1].as_u64().unwrap()).sum();
    assert!(in_columns > 1 << 20, "{in_columns}");
    assert!(page.devices[0].header["undrawn"].is_null());
    let snapshot = Snapshot::read(&bytes, &|_| ()).unwrap();
    compare_with(&Study::new(&snapshot, Scope::default()), "long.pickle", &page);
}

#[test]
fn a_part_of_a_trace_adds_up() {
    for name in ["2.15.0-oom_varlen-at-oom", "2.15.0-streams-expandable-lag", "2.15.0-graphs"] {
        for part in [["--from", "end-1000"], ["--from", "failure-300"], ["--to", "777"], ["--from", "30"]] {
            let page = report(&[part[0], part[1], &relative(name)]);
            assert!(page.devices[0].number("entries") > 0);
            compare(name, &page);
        }
    }
}

/// Bytes by category that the analysis tells of a moment.
fn told(held: &Value) -> Vec<(String, u64)> {
    let row = |row: &Value| (row["category"].as_str().unwrap().to_owned(), row["bytes"].as_u64().unwrap());
    let mut rows: Vec<(String, u64)> = held["by_category"].as_array().unwrap().iter().map(row).collect();
    rows.sort();
    rows
}

#[test]
fn categories_and_lines_are_those_of_the_analysis_at_the_peak_and_at_the_failure() {
    // A failure that the program outlived: what it held then was judged to be given up.
    let differ = ["2.14.1-gpt_varlen-oom", "2.5.1-gpt_varlen-oom"];
    let mut seen = 0;
    for (name, page) in all_pages() {
        for (at, recording) in page.devices.iter().enumerate() {
            let device = page.analysis_of(at);
            let peak = &device["at_peak"];
            let failure = device["ooms"].as_array().unwrap().last().map(|oom| &oom["held"]);
            for held in failure.into_iter().chain([peak]).filter(|held| held.is_object()) {
                let moment = held["event"].as_u64().map_or(0, |event| event + 1);
                let own: Vec<(String, u64)> = recording.by_category(moment).into_iter().collect();
                if held != peak || !differ.contains(&name.as_str()) {
                    assert_eq!(own, told(held), "{name} at {moment}");
                }
                let mut lines: Vec<u64> = recording.by_line(moment).into_values().map(|(bytes, _)| bytes).collect();
                let rows = held["by_line"]["rows"].as_array().unwrap();
                let wanted: Vec<u64> = rows.iter().map(|row| row["bytes"].as_u64().unwrap()).collect();
                lines.sort_unstable_by_key(|bytes| std::cmp::Reverse(*bytes));
                assert_eq!(lines.len().min(10), wanted.len(), "{name} at {moment}");
                lines.truncate(wanted.len());
                assert_eq!(lines, wanted, "{name} at {moment}");
                seen += 1;
            }
        }
    }
    assert!(seen > 60, "only {seen} moments");
}

#[test]
fn the_page_holds_what_analyze_prints() {
    for name in ["2.15.0-two_devices", "2.15.0-gpt_varlen-no-history", "2.15.0-oom_varlen-at-oom"] {
        let page = report(&[&relative(name)]);
        assert_eq!(page.analysis, analyze(&[&relative(name)]));
        for (row, recording) in page.rows.iter().zip(&page.devices) {
            assert_eq!(row["device"], recording.header["device"]);
            assert_eq!(row["entries"], recording.header["entries"]);
        }
    }
}

#[test]
fn memory_that_does_not_touch_is_not_joined() {
    let run = |address: u64| {
        let block = json!({"address": address, "size": 2 << 20, "requested_size": 0, "state": "inactive"});
        json!({"device": 0, "address": address, "total_size": 2 << 20, "stream": 0, "segment_type": "small",
               "is_expandable": true, "blocks": [block]})
    };
    let segments = [run(0x2000_0000), run(0x2040_0000), run(0x2080_0000)];
    let directory = tempfile::tempdir().unwrap();
    let snapshot = serde_json::to_vec(&json!({"segments": segments, "device_traces": []})).unwrap();
    let page = report(&[&file(&directory, "gaps.json", &snapshot)]);
    let state = page.devices[0].state(0);
    assert_eq!((state.segments, state.reserved, state.releasable), (3, 6 << 20, 6 << 20));
}

/// A name that would be much in a page, were it more than text.
const HOSTILE: &str = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'><!--\u{202e}evil";

#[test]
fn names_from_a_file_are_text() {
    let directory = tempfile::tempdir().unwrap();
    let path = file(&directory, "a<b>'\"&.json", &plain_text::snapshot(&[HOSTILE]));
    let page = report(&[&path]);
    assert_eq!(page.devices[0].number("allocations"), 1);
    assert!(page.devices[0].strings.iter().any(|name| name.contains("<script>alert(1)")));
    let scripts = page.html.matches("<script").count();
    assert_eq!(scripts, 4, "the analysis, the list, one device and the script");
    assert_eq!(page.html.matches("</script").count(), scripts);
    for markup in ["<img", "<!--", "<b>", "\u{202e}", "onerror=alert(2)\">"] {
        assert!(!page.html.contains(markup), "{markup}");
    }
}

#[test]
fn the_policy_names_the_script_and_the_style_and_nothing_else() {
    let page = report(&[&relative("2.15.0-holes")]);
    let inside = |from: &str, to: &str| page.html.split_once(from).unwrap().1.split_once(to).unwrap().0.to_owned();
    let policy = inside("Content-Security-Policy\" content=\"", "\"");
    let hash = |text: &str| format!("'sha256-{}'", page::base64_of(&Sha256::digest(text.as_bytes())));
    let script = inside("<script>", "</script>");
    let style = inside("<style>", "</style>");
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    assert!(policy.contains(&format!("script-src {}; ", hash(&script))), "{policy}");
    assert!(policy.contains(&format!("style-src {}; ", hash(&style))), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    for forbidden in [" style=", " onclick=", " onload=", "http://", "https://", "@import", "url("] {
        let shown = page.html.split("<script type").next().unwrap();
        assert!(!shown.contains(forbidden), "{forbidden}");
    }
}

#[test]
fn every_file_of_the_script_is_in_the_page() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/output/page");
    let list = std::fs::read_to_string(root.join("web.rs")).unwrap();
    for entry in std::fs::read_dir(root.join("web")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_source = name.ends_with(".js") || name.ends_with(".css");
        let is_listed = ["", "web/"].iter().any(|folder| list.contains(&format!("\"{folder}{name}\"")));
        assert!(!is_source || is_listed, "{name} is not in web.rs");
        let text = std::fs::read_to_string(&path).unwrap_or_default().to_lowercase();
        for end in ["</script", "</style", "<!--"] {
            assert!(!is_source || !text.contains(end), "{end} in {name}");
        }
    }
}

/// Undrawn bytes of the stretch that `moment` lies in.
fn undrawn_at(recording: &Recording, moment: u64) -> u64 {
    let series = recording.column("undrawn");
    let width = (recording.number("entries") + 1).div_ceil(1024);
    series[(moment / width) as usize]
}

#[test]
fn allocations_without_room_are_counted() {
    let name = "2.15.0-oom_varlen-at-oom";
    let study = fixtures::study(name);
    let mut report = analyze_study(study, name, 0, Options { top: 3, ..Options::default() });
    let device = study.devices().next().unwrap();
    let mut read = |budget: usize| {
        let data = PageData::from_device(device, &mut report.devices[0], budget).unwrap();
        let mut html = Vec::new();
        let report = AnalyzeReport::new(vec![report.clone()], Vec::new(), 3);
        oomscope::output::page::write(&report, &[vec![data]], PageOrder::WorstFirst, "0", &mut html).unwrap();
        Page::read(String::from_utf8(html).unwrap())
    };
    let whole = read(usize::MAX);
    let budget = 60_000;
    let small = read(budget);
    assert!(whole.devices[0].header["undrawn"].is_null());
    assert!(small.html.len() < whole.html.len());
    let (whole, small) = (&whole.devices[0], &small.devices[0]);
    let left_out = small.header["undrawn"]["allocations"].as_u64().unwrap();
    assert_eq!(small.number("allocations") + left_out, whole.number("allocations"));
    assert!(left_out > 0 && small.number("allocations") > 1000, "{left_out}");
    for moment in moments(whole) {
        let [of_all, drawn] = [whole, small].map(|one| one.state(moment));
        let missing = of_all.allocated + of_all.pending - drawn.allocated - drawn.pending;
        let told = undrawn_at(small, moment);
        assert!(missing <= told, "{missing} are missing at {moment}, {told} are told");
        assert_eq!(drawn.reserved, of_all.reserved);
    }
}

#[test]
fn a_page_that_leaves_the_house_names_no_directory() {
    for name in ["2.15.0-oom_varlen-at-oom", "2.15.0-gpt_train-cpp_stacks"] {
        let page = report(&["--strip-paths", &relative(name)]);
        let told = report(&[&relative(name)]);
        let data = page.devices[0].strings.join("\n");
        assert!(told.html.contains("/app/") && told.html.contains("fixtures/"));
        for directory in ["/app/", "/venv/", "fixtures/", "/usr/"] {
            assert!(!page.html.contains(directory), "{directory} in {name}");
            assert!(!data.contains(directory), "{directory} in the data of {name}");
        }
        // Nothing else is told otherwise.
        let figures = |page: &Page| {
            let device = page.analysis_of(0);
            let verdicts = device["ooms"].as_array().unwrap().iter().map(|oom| &oom["verdict"]);
            let verdicts: Vec<Value> = verdicts.cloned().collect();
            (verdicts, device["at_peak"]["by_category"].clone(), device["fragmentation"].clone())
        };
        assert_eq!(figures(&page), figures(&told));
        assert_eq!(page.devices[0].allocations.len(), told.devices[0].allocations.len());
    }
}

#[test]
fn ranks_are_in_the_order_of_the_analysis() {
    const NODE: &str = if cfg!(windows) { "node1\\" } else { "node1/" };
    let directory = tempfile::tempdir().unwrap();
    let job = job(&directory);
    for options in [&[][..], &["--strip-paths"]] {
        let args = [&["report"], options, &[job.to_str().unwrap()]].concat();
        let page = Page::read(run(&args).out);
        let ranks = page.analysis["ranks"]["rows"].as_array().unwrap();
        assert_eq!((ranks.len(), page.rows.len()), (3, 3));
        for (at, (rank, row)) in ranks.iter().zip(&page.rows).enumerate() {
            let snapshot = &page.analysis["snapshots"][row["snapshot"].as_u64().unwrap() as usize];
            assert_eq!(rank["path"], snapshot["path"]);
            assert_eq!(rank["peak_allocated_bytes"], row["peak_allocated_bytes"]);
            assert_eq!(page.analysis_of(at)["device"], rank["device"]);
            let course = row["course"]["reserved"].as_array().unwrap();
            assert!(course.len() <= 128 && course.contains(&json!(1000)));
        }
        assert_eq!(page.html.contains(NODE), options.is_empty());
    }
}

proptest! {
    #[test]
    fn no_entries_whatever_keep_a_page_from_being_written(file in garbage::snapshot(), last in 0..60_u64) {
        let snapshot = Snapshot::read(&serde_json::to_vec(&file).unwrap(), &|_| {}).unwrap();
        for (window, budget) in [(Window::default(), usize::MAX), (window::last(last), 200)] {
            let pages = [false, true].map(|keeps_lifetimes| {
                let scope = Scope { window, ..Scope::default() };
                let options = Options { top: 2, keeps_lifetimes, scope, ..Options::default() };
                let study = Study::new(&snapshot, options.scope);
                let mut report = analyze_study(&study, "a", 0, options);
                let devices = study.devices().zip(&mut report.devices);
                let devices = devices.map(|(device, report)| PageData::from_device(device, report, budget).unwrap());
                let data = devices.collect();
                let report = AnalyzeReport::new(vec![report], Vec::new(), 2);
                let mut html = Vec::new();
                oomscope::output::page::write(&report, &[data], PageOrder::WorstFirst, "0", &mut html).unwrap();
                String::from_utf8(html).unwrap()
            });
            prop_assert_eq!(&pages[0], &pages[1]);
            let page = Page::read(pages[0].clone());
            prop_assert_eq!(page.rows.len(), page.devices.len());
        }
    }
}
