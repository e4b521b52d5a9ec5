//! The README and the documentation say what the program does: every example is run and compared, and every
//! key of the JSON is described.

use crate::support::program;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// What is run to see keys, by command; `~` stands for `fixtures/2.15.0-`.
const JSON: [(&str, &[&str]); 7] = [
    (
        "oomscope analyze",
        &[
            "~oom_varlen-at-oom.pickle.gz",
            "--brief ~oom_varlen-at-oom.pickle.gz",
            "--request 1GiB --capacity 3GiB ~fuzz_streams-oom-lag.pickle.gz",
            "--request 1KiB ~gpt_varlen-late.pickle.gz",
            "fixtures/2.1.2-fuzz-max_split-oom.pickle.gz",
            "--capacity 1GiB fixtures/where/2.15.0-leak_cache.pickle.gz",
            "fixtures/recorded/ranks",
            "~graphs.pickle.gz ~two_devices.pickle.gz ~gpt_varlen-no-history.pickle.gz Cargo.toml",
        ],
    ),
    (
        "oomscope replay",
        &[
            "~oom_varlen-at-oom.pickle.gz",
            "--set expandable_segments:True ~oom_varlen-at-oom.pickle.gz",
            "--torch-version 2.4 fixtures/2.3.1-fuzz-roundup.pickle.gz",
            "fixtures/recorded/ranks Cargo.toml",
        ],
    ),
    ("oomscope timeline", &["~oom_varlen-at-oom.pickle.gz", "~graphs.pickle.gz", "fixtures/recorded/ranks Cargo.toml"]),
    (
        "oomscope whatif",
        &[
            "--set max_split_size_mb:512 ~two_devices.pickle.gz",
            "--program fixtures/changes/2.15.0-dense-320MiB.pickle.gz",
            "~oom_varlen-at-oom.pickle.gz ~two_devices.pickle.gz Cargo.toml",
        ],
    ),
    ("oomscope explain", &["fixtures/logs/ranks.log", "fixtures/logs/2.15.0-full.log"]),
    (
        "oomscope diff",
        &[
            "--fail-on growth=1% fixtures/diff/base.pickle.gz fixtures/diff/renamed.pickle.gz",
            "--at snapshot fixtures/diff/base.pickle.gz fixtures/diff/later.pickle.gz",
            "--fail-on growth=1% fixtures/gate fixtures/gate",
            "~streams-lag.pickle.gz ~two_devices.pickle.gz",
        ],
    ),
    (
        "oomscope check",
        &[
            "--max-growth 0 --baseline fixtures/gate/none.pickle.gz fixtures/gate/more.pickle.gz",
            "--max-ooms 0 ~oom_varlen-at-oom.pickle.gz ~streams.pickle.gz Cargo.toml",
            "--max-reserved 0 ~oom_varlen-at-oom.pickle.gz ~gpt_varlen-no-history.pickle.gz",
        ],
    ),
];

const SKILL: &str = "skills/oomscope/SKILL.md";

/// README, the pages of docs/ and the skill for agents: path and text.
fn pages() -> Vec<(PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<PathBuf> = docs.chain(["README.md", SKILL].map(|page| root.join(page))).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "md"));
    paths.sort();
    let with_text = |path: PathBuf| {
        let text = std::fs::read_to_string(&path).unwrap();
        (path, text)
    };
    paths.into_iter().map(with_text).collect()
}

/// Every `$ oomscope ..` of a page, without the `$`, and what it is said to print.
fn examples(page: &str) -> Vec<(String, String)> {
    let fenced = page.split("\n```").skip(1).step_by(2);
    let mut examples = Vec::new();
    for block in fenced.filter_map(|block| Some(block.split_once('\n')?.1)) {
        let block = format!("\n{}", block.replace("\\\n", " "));
        for example in block.split("\n$ ").skip(1).filter(|example| example.starts_with("oomscope ")) {
            let (command, printed) = example.split_once('\n').unwrap();
            examples.push((command.to_owned(), format!("{printed}\n")));
        }
    }
    examples
}

/// Whether `printed` is `said`, in which a line of three dots stands for any lines or none.
fn is_as_said(printed: &str, said: &str) -> bool {
    let (printed, said) = (format!("\n{printed}"), format!("\n{said}"));
    let mut parts: Vec<&str> = said.split("\n...").collect();
    let last = parts.pop().unwrap();
    let mut rest = printed.as_str();
    for (index, part) in parts.iter().enumerate() {
        let part = format!("{part}\n");
        let Some(at) = rest.find(&part).filter(|at| index > 0 || *at == 0) else { return false };
        // The end of this line is the beginning of the next.
        rest = &rest[at + part.len() - 1..];
    }
    if parts.is_empty() { rest == last } else { rest.ends_with(last) }
}

/// `said` with its lines replaced by those that `printed` has in their place; lines of three dots stay.
fn updated(printed: &str, said: &str) -> String {
    let printed: Vec<&str> = printed.lines().collect();
    let likeness = |at: usize, part: &[&str]| -> f64 {
        let pairs = part.iter().zip(&printed[at..]);
        pairs.map(|(old, new)| strsim::normalized_levenshtein(old, new)).sum()
    };
    let said: Vec<&str> = said.lines().collect();
    let parts: Vec<&[&str]> = said.split(|line| *line == "...").collect();
    let last = parts.len() - 1;
    let mut shown: Vec<&str> = Vec::new();
    let mut from = 0;
    for (index, part) in parts.iter().enumerate() {
        let fits = printed.len().saturating_sub(part.len());
        let at = match index {
            0 => 0,
            _ if index == last => fits,
            _ => (from..=fits)
                .fold(from.min(fits), |best, at| if likeness(at, part) > likeness(best, part) { at } else { best }),
        };
        let end = if last == 0 { printed.len() } else { (at + part.len()).min(printed.len()) };
        shown.extend(&printed[at..end]);
        shown.extend((index < last).then_some("..."));
        from = end;
    }
    shown.join("\n") + "\n"
}

#[test]
fn examples_print_what_the_pages_say() {
    let updates = std::env::var_os("UPDATE_DOCS").is_some();
    let mut count = 0;
    for (path, mut page) in pages() {
        let name = path.file_name().unwrap().to_str().unwrap();
        for (command, said) in examples(&page) {
            let args: Vec<&str> = command.split_whitespace().skip(1).collect();
            let ran = program::run(&args);
            let printed = ran.err + &ran.out;
            count += 1;
            if is_as_said(&printed, &said) {
                continue;
            }
            assert!(updates, "{name}: $ {command}\nprinted\n{printed}\nsaid\n{said}");
            let said = said.trim_end_matches('\n');
            page = page.replacen(said, updated(&printed, said).trim_end_matches('\n'), 1);
            std::fs::write(&path, &page).unwrap();
        }
    }
    assert!(count >= 16, "only {count} examples found");
}

#[test]
fn examples_are_updated_around_their_dots() {
    let printed = "first\nsecond line, new\nthird\nfourth\nlast, new\n";
    assert_eq!(updated(printed, "a\nb\n"), printed);
    assert_eq!(updated(printed, "old\n...\nlast\n"), "first\n...\nlast, new\n");
    let middle = updated(printed, "old\n...\nsecond line, old\n...\nlast\n");
    assert_eq!(middle, "first\n...\nsecond line, new\n...\nlast, new\n");
}

#[test]
fn dots_stand_for_lines_and_nothing_else_is_forgiven() {
    let printed = "a\nb\nc\nd\n";
    for said in ["a\nb\nc\nd\n", "a\n...\nd\n", "...\nc\nd\n", "a\n...\n", "...\nb\n...\n", "a\nb\n...\nc\nd\n"] {
        assert!(is_as_said(printed, said), "{said}");
    }
    for said in
        ["a\nb\nc\n", "b\nc\nd\n", "a\n...\nc\n", "...\nd\n...\na\n", "a\n...\nx\n...\n", "a\n ...\nd\n", "...\nc d\n"]
    {
        assert!(!is_as_said(printed, said), "{said}");
    }
}

/// Every key in `value`, but for those of what PyTorch calls its settings and statistics.
fn keys(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                into.insert(key.clone());
                if !["settings", "statistics", "settings_changed"].contains(&key.as_str()) {
                    keys(value, into);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| keys(item, into)),
        _ => {}
    }
}

#[test]
fn every_key_of_the_json_is_described() {
    let pages = pages();
    let (_, page) = pages.iter().find(|(path, _)| path.ends_with("json.md")).unwrap();
    let words: BTreeSet<&str> = page.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').collect();
    for (section, runs) in JSON {
        let mut seen = BTreeSet::new();
        for args in runs {
            let args = format!("{section} --format json {args}").replace('~', "fixtures/2.15.0-");
            let ran = program::run(&args.split_whitespace().skip(1).collect::<Vec<_>>());
            let report = serde_json::from_str(&ran.out).unwrap_or_else(|e| panic!("{args}: {e}"));
            keys(&report, &mut seen);
        }
        let missing: Vec<_> = seen.iter().filter(|key| !words.contains(key.as_str())).collect();
        assert!(missing.is_empty(), "docs/json.md does not describe {missing:?} of `{section}`");
    }
}
