//! Pages as they are, to be read when they change: `cargo insta review`.
//!
//! Human pages of `analyze` that together contain every shape of line that the fixtures produce; one JSON of each
//! command (schemas.rs checks every key); Markdown, replays and diffs of each kind; the gate in every form.

use crate::support::{fixtures, program};
use std::collections::BTreeSet;

const PAGES: [&str; 33] = [
    "2.1.2-cpp_pickler-streams",
    "2.1.2-fuzz-max_split-oom",
    "2.1.2-fuzz_streams-oom-lag",
    "2.1.2-holes-at-oom",
    "2.2.2-streams-lag",
    "2.5.1-gpt_varlen-oom",
    "2.5.1-graphs",
    "2.9.1-gpt_varlen-gc",
    "2.9.1-oom_varlen-expandable-at-oom",
    "2.11.0-fuzz_streams-oom-lag",
    "2.12.1-graphs",
    "2.14.1-gpt_varlen-oom",
    "2.15.0-conv_train",
    "2.15.0-fuzz-expandable-oom",
    "2.15.0-fuzz-fraction-oom",
    "2.15.0-fuzz-max_split-gc-oom",
    "2.15.0-fuzz-max_split-oom",
    "2.15.0-fuzz-non_split-oom",
    "2.15.0-fuzz-oom",
    "2.15.0-fuzz-roundup",
    "2.15.0-fuzz_streams-expandable-oom-lag",
    "2.15.0-fuzz_streams-oom-lag",
    "2.15.0-gpt_train-cpp_stacks",
    "2.15.0-gpt_varlen-at-oom",
    "2.15.0-gpt_varlen-late",
    "2.15.0-gpt_varlen-no-history",
    "2.15.0-gpt_varlen-wrapped",
    "2.15.0-graphs-expandable",
    "2.15.0-holes-expandable",
    "2.15.0-mempool-expandable",
    "2.15.0-oom_varlen-at-oom",
    "2.15.0-stacks_of_allocations",
    "2.15.0-two_devices",
];
/// Those that also stand at 80 columns, and with all sections.
const NARROW: [&str; 10] = [
    "2.1.2-holes-at-oom",
    "2.9.1-oom_varlen-expandable-at-oom",
    "2.12.1-graphs",
    "2.14.1-gpt_varlen-oom",
    "2.15.0-conv_train",
    "2.15.0-fuzz-max_split-gc-oom",
    "2.15.0-fuzz_streams-oom-lag",
    "2.15.0-gpt_varlen-no-history",
    "2.15.0-oom_varlen-at-oom",
    "2.15.0-two_devices",
];
const FULL: [&str; 6] = [
    "2.12.1-graphs",
    "2.15.0-fuzz_streams-oom-lag",
    "2.15.0-gpt_varlen-no-history",
    "2.15.0-gpt_varlen-wrapped",
    "2.15.0-oom_varlen-at-oom",
    "2.15.0-two_devices",
];
const JSON: [&str; 1] = ["2.9.1-oom_varlen-expandable-at-oom"];
const MARKDOWN: [&str; 3] = ["2.15.0-graphs-expandable", "2.15.0-oom_varlen-at-oom", "2.15.0-streams-lag"];
/// A recording that names variables, and the Markdown of the other commands.
const COMMANDS: [(&str, &[&str]); 6] = [
    ("losses_kept", &["analyze", "fixtures/recorded/2.15.0-losses_kept.pickle.gz"]),
    ("losses_kept.md", &["analyze", "--format", "markdown", "fixtures/recorded/2.15.0-losses_kept.pickle.gz"]),
    (
        "replay.md",
        &[
            "replay",
            "--format",
            "markdown",
            "--set",
            "expandable_segments:True",
            "fixtures/2.15.0-two_devices.pickle.gz",
        ],
    ),
    ("timeline.md", &["timeline", "--format", "markdown", "fixtures/2.15.0-graphs.pickle.gz"]),
    (
        "whatif.md",
        &["whatif", "--format", "markdown", "--set", "max_split_size_mb:512", "fixtures/2.15.0-two_devices.pickle.gz"],
    ),
    ("explain.md", &["explain", "--format", "markdown", "fixtures/logs/2.15.0-fragmentation.log"]),
];
/// What GitHub takes for a comment, in characters.
const COMMENT: usize = 65_536;
/// The ranks of one job: two alike, one that failed, one that is much larger.
const RANKS: [&str; 4] = ["2.15.0-streams", "2.15.0-streams-lag", "2.15.0-holes-at-oom", "2.15.0-fuzz-roundup"];

/// Replays, by what is to be seen: one that is exact, one that is not (read by the rules of a release
/// that it was not written by), what-ifs.
const REPLAYS: [(&str, &[&str]); 6] = [
    ("replay-exact", &["fixtures/2.15.0-oom_varlen-at-oom.pickle.gz"]),
    ("replay-late", &["fixtures/2.15.0-gpt_varlen-late.pickle.gz"]),
    ("replay-parted", &["--torch-version", "2.4", "fixtures/2.3.1-fuzz-roundup.pickle.gz"]),
    ("replay-parted.json", &["--format", "json", "--torch-version", "2.4", "fixtures/2.3.1-fuzz-roundup.pickle.gz"]),
    ("replay-what-if", &["--set", "expandable_segments:True", "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz"]),
    ("replay-small", &["--capacity", "64MiB", "fixtures/2.15.0-two_devices.pickle.gz"]),
];

/// Courses over time, by what is to be seen: a failure, private pools, streams, parts.
const TIMELINES: [(&str, &[&str]); 5] = [
    ("timeline-failed", &["fixtures/2.15.0-oom_varlen-at-oom.pickle.gz"]),
    ("timeline-pools", &["fixtures/2.15.0-graphs.pickle.gz"]),
    ("timeline-streams", &["fixtures/2.15.0-fuzz_streams-oom-lag.pickle.gz"]),
    ("timeline-part", &["--from", "4150", "--to", "4350", "fixtures/2.9.1-gpt_varlen-gc.pickle.gz"]),
    ("timeline-late", &["--from", "end-500", "fixtures/2.15.0-gpt_varlen-wrapped.pickle.gz"]),
];
/// The gate: one snapshot in every form, several in those for people.
const CHECKED: [(&str, &[&str], &[&str]); 2] = [
    (
        "check",
        &["human", "json", "github", "junit", "sarif", "markdown"],
        &[
            "--allow-missing",
            "truncated",
            "--baseline",
            "fixtures/baselines/gate.json",
            "--entry",
            "none",
            "--max-growth-ratio",
            "1%",
            "fixtures/gate/more.pickle.gz",
        ],
    ),
    (
        "check-ranks",
        &["human", "github", "markdown"],
        &[
            "fixtures/2.15.0-streams.pickle.gz",
            "fixtures/2.15.0-holes-at-oom.pickle.gz",
            "fixtures/2.15.0-gpt_varlen-no-history.pickle.gz",
            "fixtures/2.15.0-gpt_varlen-at-oom.pickle.gz",
        ],
    ),
];

/// Diffs, by what is to be seen: one line that holds more, a step more, another release and settings, variables, a
/// device that only one side has.
const DIFFS: [(&str, &[&str], &[&str]); 5] = [
    ("diff-renamed", &["diff/base", "diff/renamed"], &["human", "json", "markdown"]),
    ("diff-later", &["--at", "end", "diff/base", "diff/later"], &["human"]),
    (
        "diff-releases",
        &["--top", "4", "2.9.1-oom_varlen-expandable-at-oom", "2.15.0-oom_varlen-at-oom"],
        &["human", "markdown"],
    ),
    ("diff-variables", &["recorded/2.15.0-losses_as_numbers", "recorded/2.15.0-losses_kept"], &["human"]),
    ("diff-devices", &["--top", "2", "2.15.0-streams", "2.15.0-two_devices"], &["human"]),
];

fn fixture(name: &str) -> String {
    format!("fixtures/{name}.pickle.gz")
}

/// Compares what `oomscope analyze ARGS` writes with `tests/golden/NAME.snap`.
fn compare(name: &str, args: &[&str]) {
    let all: Vec<&str> = ["analyze"].iter().chain(args).copied().collect();
    compare_text(name, &all, &program::result_of(&all));
}

fn compare_text(name: &str, all: &[&str], text: &str) {
    assert!(!all.contains(&"markdown") || text.chars().count() <= COMMENT, "{name}: too long");
    assert!(!text.contains(env!("CARGO_MANIFEST_DIR")), "{name}: a path of this machine");
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path("../golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_description(format!("oomscope {}", all.join(" ")));
    settings.add_filter(&format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION")), "\"version\": \"[own]\"");
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn pages_stand_as_read() {
    for name in PAGES {
        compare(name, &[&fixture(name)]);
    }
}

#[test]
fn narrow_and_full_pages_stand_as_read() {
    for name in NARROW {
        let args = ["analyze", &fixture(name)];
        compare_text(&format!("{name}.80"), &args, &program::run_with(&args, &[("COLUMNS", "80")]).out);
    }
    for name in FULL {
        compare(&format!("{name}.full"), &["--full", &fixture(name)]);
    }
}

#[test]
fn json_stands_as_read() {
    for name in JSON {
        compare(&format!("{name}.json"), &["--format", "json", "--top", "3", &fixture(name)]);
    }
}

#[test]
fn markdown_and_named_variables_stand_as_read() {
    for name in MARKDOWN {
        compare(&format!("{name}.md"), &["--format", "markdown", &fixture(name)]);
    }
    for (name, args) in COMMANDS {
        compare_text(name, args, &program::result_of(args));
    }
}

#[test]
fn replays_stand_as_read() {
    for (name, args) in REPLAYS {
        let all = [&["replay"], args].concat();
        let ran = program::run(&all);
        assert_eq!((ran.code, ran.err.as_str()), (i32::from(args.contains(&"2.4")), ""));
        compare_text(name, &all, &ran.out);
    }
}

#[test]
fn courses_over_time_stand_as_read() {
    for (name, args) in TIMELINES {
        let all = [&["timeline"], args].concat();
        compare_text(name, &all, &program::result_of(&all));
    }
    let all = ["timeline", "--format", "json", "--to", "5", &fixture("2.15.0-mempool")];
    compare_text("timeline.json", &all, &program::result_of(&all));
}

#[test]
fn checks_stand_as_read() {
    for (name, formats, args) in CHECKED {
        for format in formats {
            let config = ["check", "--config", "fixtures/gate/limits.toml", "--format", format];
            let all = [&config[..], args].concat();
            let ran = program::run(&all);
            assert_eq!((ran.code, ran.err.as_str()), (1, ""));
            compare_text(&format!("{name}.{format}"), &all, &ran.out);
        }
    }
}

#[test]
fn diffs_stand_as_read() {
    for (name, args, formats) in DIFFS {
        let (options, names) = args.split_at(args.len() - 2);
        let paths: Vec<String> = names.iter().map(|name| fixture(name)).collect();
        let paths: Vec<&str> = paths.iter().map(String::as_str).collect();
        for format in formats {
            let all = [&["diff", "--format", format], options, &paths].concat();
            let ran = program::run(&all);
            assert_eq!(ran.code, 0, "{}", ran.err);
            compare_text(&format!("{name}.{format}"), &all, &ran.out);
        }
    }
}

#[test]
fn ranks_stand_as_read() {
    let paths = RANKS.map(fixture);
    let paths = paths.each_ref().map(String::as_str);
    compare("ranks", &paths);
    compare("ranks.md", &[&["--format", "markdown"], &paths[..]].concat());
}

#[test]
fn nothing_golden_is_left_over_and_all_of_it_is_small() {
    let json = JSON.iter().map(|name| format!("{name}.json.snap"));
    let markdown = MARKDOWN.iter().map(|name| format!("{name}.md.snap"));
    let commands = COMMANDS.iter().map(|(name, _)| format!("{name}.snap"));
    let ranks = ["ranks.snap".to_owned(), "ranks.md.snap".to_owned()];
    let pages = PAGES.iter().map(|name| format!("{name}.snap"));
    let narrow = NARROW.iter().map(|name| format!("{name}.80.snap"));
    let full = FULL.iter().map(|name| format!("{name}.full.snap"));
    let replays = REPLAYS.iter().map(|(name, _)| format!("{name}.snap"));
    let timelines = TIMELINES.iter().map(|(name, _)| format!("{name}.snap"));
    let timelines = timelines.chain(["timeline.json.snap".to_owned()]);
    let diffs =
        DIFFS.iter().flat_map(|(name, _, formats)| formats.iter().map(move |format| format!("{name}.{format}.snap")));
    let checks =
        CHECKED.iter().flat_map(|(name, formats, _)| formats.iter().map(move |format| format!("{name}.{format}.snap")));
    let serving = crate::serving::GOLDEN.map(|name| format!("{name}.snap"));
    let expected: BTreeSet<String> = pages
        .chain(serving)
        .chain(narrow)
        .chain(full)
        .chain(json)
        .chain(markdown)
        .chain(commands)
        .chain(ranks)
        .chain(replays)
        .chain(timelines)
        .chain(diffs)
        .chain(checks)
        .collect();
    let (mut found, mut bytes) = (BTreeSet::new(), 0);
    let directory = fixtures::directory().with_file_name("tests").join("golden");
    for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        // What a run that failed leaves for review.
        if !name.ends_with(".snap.new") {
            bytes += entry.metadata().unwrap().len();
            found.insert(name);
        }
    }
    assert_eq!(found, expected);
    assert!(bytes < 3_000_000, "{bytes} bytes");
}
