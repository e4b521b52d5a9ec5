//! Pages and summaries compared with `tests/golden`, to be read when they change: `cargo insta review`.
//!
//! `commands.txt` lists the pages, `summaries.txt` the commands whose summaries are in `summaries.snap`.
//! Slow: many runs of the program.

use std::collections::BTreeSet;

use crate::support::{fixtures, program};

const COMMANDS: &str = include_str!("../golden/commands.txt");
const SUMMARIES: &str = include_str!("../golden/summaries.txt");
/// What GitHub takes for a comment, in characters.
const COMMENT: usize = 65_536;

struct Golden {
    name: &'static str,
    code: i32,
    columns: Option<&'static str>,
    args: Vec<&'static str>,
}

fn lines(file: &'static str) -> impl Iterator<Item = &'static str> {
    file.lines().filter(|line| !line.starts_with('#'))
}

fn goldens() -> impl Iterator<Item = Golden> {
    lines(COMMANDS).map(|line| {
        let (head, command) = line.split_once(": ").unwrap();
        let mut golden = Golden { name: "", code: 0, columns: None, args: command.split(' ').collect() };
        for word in head.split(' ') {
            if let Some(code) = word.strip_prefix('[') {
                golden.code = code.trim_end_matches(']').parse().unwrap();
            } else if let Some(columns) = word.strip_prefix("COLUMNS=") {
                golden.columns = Some(columns);
            } else {
                golden.name = word;
            }
        }
        golden
    })
}

pub(crate) fn compare(name: &str, command: &str, text: &str) {
    assert!(!text.contains(env!("CARGO_MANIFEST_DIR")), "{name}: a path of this machine");
    let mut settings = insta::Settings::new();
    settings.set_snapshot_path("../golden");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.set_description(format!("oomscope {command}"));
    settings.add_filter(&format!("\"version\": \"{}\"", env!("CARGO_PKG_VERSION")), "\"version\": \"[own]\"");
    settings.bind(|| insta::assert_snapshot!(name, text));
}

fn compare_pages(is_chosen: impl Fn(&Golden) -> bool) {
    for golden in goldens().filter(is_chosen) {
        let columns = golden.columns.map(|columns| ("COLUMNS", columns));
        let ran = program::run_with(&golden.args, columns.as_slice());
        assert_eq!((ran.code, ran.err.as_str()), (golden.code, ""), "{}", golden.name);
        let is_comment = golden.args.contains(&"markdown");
        assert!(!is_comment || ran.out.chars().count() <= COMMENT, "{}: too long", golden.name);
        compare(golden.name, &golden.args.join(" "), &ran.out);
    }
}

#[test]
fn pages_of_analyze_are_as_read() {
    compare_pages(|golden| golden.args[0] == "analyze");
}

#[test]
fn pages_of_other_commands_are_as_read() {
    compare_pages(|golden| golden.args[0] != "analyze");
}

/// The answer, who holds most, what to do, and what to copy.
#[test]
fn summaries_are_as_read() {
    let mut all = String::new();
    for command in lines(SUMMARIES) {
        let args: Vec<&str> = command.split(' ').chain(["--format", "json"]).collect();
        let report: serde_json::Value = serde_json::from_str(&program::run(&args).out).unwrap();
        all += &format!("oomscope {command}\n{:#}\n\n", report["summary"]);
    }
    compare("summaries", "COMMAND --format json", &all);
}

#[test]
fn every_golden_file_is_compared_and_all_are_small() {
    let names = goldens().map(|golden| golden.name).chain(["summaries"]).chain(crate::serving::GOLDEN);
    let mut expected: BTreeSet<String> = names.map(|name| format!("{name}.snap")).collect();
    let texts = "answers answers_to_mutants answers_to_stirred commands keepers summaries";
    expected.extend(texts.split(' ').map(|name| format!("{name}.txt")));
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
