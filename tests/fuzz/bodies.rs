//! What a fuzz target does with its input. Plain functions: the targets call them with what the fuzzer invents,
//! `tests/suite/fuzz_targets.rs` with damaged fixtures on the stable toolchain. Each says whether the input was
//! read, and panics if a promise is broken.

use oomscope::allocator::conf::{self, Settings, UnknownKeys};
use oomscope::allocator::releases::NEWEST;
use oomscope::analysis::{AnalyzeReport, Options, analyze};
use oomscope::cli::Config;
use oomscope::explain::explain;
use oomscope::output::document::{self, Document, Style};
use oomscope::output::formats;
use oomscope::output::report;
use oomscope::snapshot::Snapshot;
use oomscope::study::Scope;

use pickle_tree::Tree;

#[path = "../support/pickle_tree.rs"]
#[allow(clippy::duplicate_mod, reason = "the suite has it too; a fuzz target has nothing but this file")]
mod pickle_tree;

/// Any input is a pickle or an error with a position.
pub fn pickle(bytes: &[u8]) -> bool {
    match Tree::read(bytes) {
        Ok(tree) => {
            tree.to_json(1 << 16);
            true
        }
        Err(error) => {
            assert!(error.offset <= bytes.len() as u64, "{error}");
            refused(&error)
        }
    }
}

/// Any input is a snapshot with valid row references, or one sentence.
pub fn snapshot(bytes: &[u8]) -> bool {
    let snapshot = match Snapshot::read(bytes, &|_| ()) {
        Ok(snapshot) => snapshot,
        Err(error) => return refused(&error),
    };
    for segment in snapshot.segments.iter() {
        assert!(snapshot.blocks.get(segment.blocks.clone()).is_some());
        assert!(snapshot.stacks.frames(segment.stack).len() < bytes.len());
    }
    for rows in &snapshot.traces {
        assert!(rows.clone().all(|row| snapshot.entries.get(row).is_some()));
    }
    snapshot.warnings.to_vec().iter().for_each(|warning| assert_sentence(&warning.message));
    true
}

/// Reading so many bytes takes memory in proportion, whatever they are.
pub fn assert_in_proportion(bytes: usize, heap: usize) {
    let most = (64 << 20) + 4 * bytes;
    assert!(heap <= most, "{heap} bytes of heap for {bytes} bytes, of at most {most}");
}

/// What reads as a snapshot is analyzed, and every renderer lays the answer out; the same twice.
pub fn analysis(bytes: &[u8]) -> bool {
    let Ok(snapshot) = Snapshot::read(bytes, &|_| ()) else { return false };
    let answers = || {
        let scope = Scope { capacity: Some(300 << 20), ..Scope::default() };
        let options = Options { top: 3, request: Some(20 << 20), scope, ..Options::default() };
        let one = || analyze(&snapshot, "a", bytes.len() as u64, options);
        let snapshots = vec![one(), one()];
        let report = AnalyzeReport::new(snapshots, Vec::new(), 10);
        rendered(&report::analyze(&report), &formats::json(&report).expect("JSON"))
    };
    let said = answers();
    said.iter().for_each(|text| assert_harmless(text));
    assert!(said == answers(), "the second answer differs");
    true
}

/// Any input is a log, with or without something to explain.
pub fn log(bytes: &[u8]) -> bool {
    let log = oomscope::explain::message::read(bytes).expect("a slice can be read");
    let Some(report) = explain(&log, "a") else { return false };
    let texts = rendered(&report::explain(&report, 3), &formats::json(&report).expect("JSON"));
    texts.iter().for_each(|text| assert_harmless(text));
    true
}

/// Any input is a string of settings for some release, or an error in PyTorch's words.
pub fn settings(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    let mut is_read = false;
    for minor in 1..=NEWEST {
        for unknown in [UnknownKeys::Refuse, UnknownKeys::Warn] {
            match conf::parse(&text, &Settings::default(), minor, unknown) {
                Ok(parsed) => {
                    is_read |= unknown == UnknownKeys::Refuse;
                    assert!(parsed.warnings.iter().all(|warning| !warning.is_empty()));
                }
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
    is_read
}

/// Any input is a configuration of the gate, or one error.
pub fn config(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(bytes);
    match Config::parse(&text) {
        Ok(config) => {
            config.limits.limits("rank_0.pickle", 0);
            true
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            false
        }
    }
}

fn rendered(document: &Document, json: &str) -> [String; 3] {
    let style = Style { width: 80, unicode: true, colour: false };
    [document::terminal(document, style), document::markdown(document), json.to_owned()]
}

fn refused(error: &dyn std::error::Error) -> bool {
    assert_sentence(&error.to_string());
    false
}

/// One line for a terminal, of bounded length.
pub fn assert_sentence(text: &str) {
    assert!(!text.is_empty() && text.len() < 700, "{text:?}");
    assert!(!text.chars().any(char::is_control), "{text:?}");
}

/// Nothing that commands a terminal or turns text around.
fn assert_harmless(text: &str) {
    let acts = text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
    assert_eq!(acts, None);
}
