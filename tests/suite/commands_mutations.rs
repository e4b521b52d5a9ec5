//! Whatever a snapshot or a log says, every command has an answer to it: no panic, no overflow (the tests
//! are built with checks for it), no hang, nothing that commands a terminal, the same bytes every time.
//!
//! Recordings with records lost, doubled, exchanged and with other numbers and names in them, so that
//! most are read. Their figures are in `tests/golden`. Slow: every command answers to each mutant.

use std::collections::BTreeSet;
use std::sync::Mutex;

use crate::answers::checksum;
use crate::support::cases::cases;
use crate::support::mutate::{Random, with_seeds};
use crate::support::{fixtures, plain_json, window};
use oomscope::analysis::timeline::timeline;
use oomscope::analysis::{AnalyzeReport, Options, analyze};
use oomscope::cli::{Config, EXAMPLE};
use oomscope::compare::diff::{self, ComparedMoment, diff};
use oomscope::compare::gate::{AllowMissing, BaselineEntry, CheckReport, Gate, Limits, NamedEntry, RankCount, judge};
use oomscope::output::document::{self, Style};
use oomscope::output::formats;
use oomscope::output::report;
use oomscope::snapshot::Snapshot;
use oomscope::study::attribution::categorized_blocks;
use oomscope::study::{Scope, Study, Window};
use oomscope::whatif::fit::{FitInput, FitOptions, fit};
use oomscope::whatif::{
    Overrides, Tries, WhatIfOptions, compare_settings, replay_with, run_model, verify_study, write_snapshot,
};
use rayon::prelude::*;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const MUTANTS_OF_EACH: u64 = 20;
const FIXTURES: [&str; 6] = [
    "2.1.2-holes-at-oom",
    "2.5.1-mempool-expandable",
    "2.8.0-graphs-expandable",
    "2.12.1-graphs",
    "2.15.0-holes-at-oom",
    "2.15.0-two_devices",
];
/// Recordings of programs whose stacks show what they do, for [`stirred`].
const STIRRED: &str = "\
    advised/adamw_at_peak advised/kept_cache advised/kept_list advised/kept_weights advised/validation_losses \
    advised/retained_losses advised/first_turn dead_ends/load_checkpoint \
    dead_ends/grows_in_holes goes_on/buckets-430 goes_on/first_gradients-420 where/2.15.0-cut_step \
    where/2.15.0-sgd where/2.15.0-masters where/2.15.0-late where/2.15.0-leak_third where/2.15.0-recompute \
    where/2.15.0-momentum where/2.15.0-kronecker where/2.15.0-fsdp1_mixed where/2.15.0-late_inference \
    mistakes/val_losses mistakes/exception_kept mistakes/one_long_batch mistakes/per_sample_gradients \
    recorded/2.15.0-annotated changes/2.15.0-kept diff/leak gate/more failures/pending_free-training \
    failures/kept_large-training lines/2.15.0-nodes programs/2.15.0-whole_step_graph \
    failures/private_pool-training engines/2.14.0-colocated-no-history";
/// Programs of `fixtures/sizes`.
const FITTED: [&str; 7] = ["dense", "encoder", "gan", "padded", "pairs", "rnn_steps", "vary_data"];
const WORDS: [&str; 18] = [
    "alloc",
    "free_requested",
    "free_completed",
    "segment_alloc",
    "segment_free",
    "segment_map",
    "segment_unmap",
    "oom",
    "snapshot",
    "inactive",
    "active_pending_free",
    "small",
    "START",
    "END",
    "",
    "`|\n\r::error::%0A]]>\u{1b}[2J\u{202e}",
    "expandable_segments:True,max_split_size_mb:21",
    "roundup_power2_divisions:[256:1,>:8],x",
];
const STYLE: Style = Style { width: 80, unicode: true, colour: false };

/// What `json.dump` writes of a recording, with ranges that the program named.
fn recorded(name: &str) -> Value {
    let mut file = plain_json::recording(name);
    let times: Vec<Value> = file["device_traces"][0]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| entry["time_us"].clone())
        .filter(|time| !time.is_null())
        .collect();
    let named = times.chunks(10).enumerate().map(|(i, entries)| {
        let stage = ["START", "END"][i % 2];
        json!({"name": "step", "stage": stage, "time_us": entries[0], "device": 0})
    });
    file["external_annotations"] = named.collect();
    file
}

/// An end of a range that numbers have somewhere on their way.
fn limit(random: &mut Random) -> i128 {
    let power = 1_i128 << [0, 9, 21, 32, 47, 62, 63, 64][random.below(8)];
    [power, power - 1, power + 1, power + 512, -power][random.below(5)]
}

/// One thing wrong, somewhere inside.
fn wound(random: &mut Random, value: &mut Value) {
    match value {
        Value::Array(items) if !items.is_empty() => {
            let (at, other) = (random.below(items.len()), random.below(items.len()));
            match random.below(12) {
                0 => drop(items.remove(at)),
                1 => items.insert(other, items[at].clone()),
                2 => items.swap(at, other),
                _ => wound(random, &mut items[at]),
            }
        }
        Value::Object(record) if !record.is_empty() => {
            let key = record.keys().nth(random.below(record.len())).unwrap().clone();
            match random.below(12) {
                0 => drop(record.remove(&key)),
                _ => wound(random, &mut record[&key]),
            }
        }
        Value::Number(number) => {
            let was = i128::from(number.as_i64().unwrap_or_default());
            let is = match random.below(6) {
                0 => was + 512,
                1 => was - 1,
                2 => was * 2,
                _ => limit(random),
            };
            *value = u64::try_from(is).map_or_else(|_| json!(is as i64), Value::from);
        }
        Value::String(text) => *text = WORDS[random.below(WORDS.len())].to_owned(),
        other => *other = [json!(true), json!([]), json!(0.5)][random.below(3)].clone(),
    }
}

/// A document as a page and as Markdown.
fn shown(document: &document::Document) -> [String; 2] {
    [document::terminal(document, STYLE), document::markdown(document)]
}

/// The recording in which one entry in `one_in` is lost, trades places with the next, or has the stack of another.
fn stirred(name: &str, one_in: usize) -> Snapshot {
    let (mut file, mut random) = (plain_json::recording(name), Random::new(1));
    let trace = file["device_traces"][0].as_array_mut().unwrap();
    for _ in 0..trace.len() / one_in {
        let (at, other) = (random.below(trace.len() - 1), random.below(trace.len()));
        match random.below(8) {
            0 => drop(trace.remove(at)),
            1 => trace.swap(at, at + 1),
            _ => trace[at]["frames"] = trace[other]["frames"].clone(),
        }
    }
    Snapshot::read(file.to_string().as_bytes(), &|_| ()).unwrap()
}

/// What every command answers, one after the other: pages and lines for people and CI, and JSON.
fn answers(snapshot: &Snapshot, other: &Snapshot) -> (Vec<String>, Vec<Value>) {
    let value = |report: serde_json::Result<Value>| report.unwrap();
    let (mut said, mut data) = (Vec::new(), Vec::new());
    for window in [Window::default(), window::around_failure(3)] {
        let scope = Scope { window, capacity: Some(300 * MIB), ..Scope::default() };
        let options = Options { top: 3, scope, request: Some(20 * MIB), ..Options::default() };
        let ranks = [("rank_0", other), ("rank_1", snapshot), ("rank_2", other)];
        let snapshots = ranks.map(|(path, snapshot)| analyze(snapshot, path, 1, options)).into();
        let report = AnalyzeReport::new(snapshots, Vec::new(), 10);
        said.extend(shown(&report::analyze(&report)));
        data.push(value(serde_json::to_value(&report)));

        let report = timeline(snapshot, "a", Scope { window, ..Scope::default() }, 50);
        said.extend(shown(&report::timeline(&report)));
        data.push(value(serde_json::to_value(&report)));
    }

    let study = Study::new(snapshot, Scope::default());
    let report = verify_study(&study, "a");
    said.extend(shown(&report::replay(&report)));
    data.push(value(serde_json::to_value(&report)));
    let mut file = Vec::new();
    let emitted = run_model(&study);
    write_snapshot(&study, &Overrides::default(), &emitted, &mut file).unwrap();
    said.push(format!("{} bytes", file.len()));
    let smaller = Overrides { capacity: Some(64 * MIB), ..Overrides::default() };
    let (report, _) = replay_with(&study, "a", &smaller, false);
    said.extend(shown(&report::replay(&report)));
    data.push(value(serde_json::to_value(&report)));
    let options = ["expandable_segments:True".to_owned(), "max_split_size_mb:30".to_owned()];
    for capacity in [None, Some(64 * MIB)] {
        let asked = WhatIfOptions { options: &options, capacity, tries: Tries::Both };
        said.push(match compare_settings(&study, "a", asked, &|_, _| {}) {
            Ok(report) => {
                data.push(value(serde_json::to_value(&report)));
                shown(&report::whatif(&report)).concat()
            }
            Err(sentence) => sentence.escape_debug().to_string(),
        });
    }

    let (rules, flags, allow_missing) =
        (Config::parse(&EXAMPLE).unwrap().limits, Limits::default(), AllowMissing::default());
    let gate = |entry| Gate {
        entry,
        is_measured: true,
        rules: &rules,
        flags: &flags,
        is_only: true,
        allow_missing: &allow_missing,
        device: None,
        source: &|_| None,
    };
    let before = BaselineEntry { devices: judge(other, "a", "", &gate(None)).measured, ..BaselineEntry::default() };
    let gate = gate(Some(NamedEntry { name: "a", entry: Some(&before) }));
    let judged = vec![judge(snapshot, "a", "", &gate)];
    let missing = gate.missing_findings(&judged, &BTreeSet::new());
    let ranks = RankCount::new(Some(2), &judged);
    let report = CheckReport::new(judged, CheckReport { findings: missing, ranks, ..CheckReport::default() });
    said.extend(shown(&report::check(&report)));
    said.extend([formats::github(&report), formats::junit(&report)]);
    data.push(value(serde_json::to_value(&report)));
    data.push(formats::sarif(&report, "1"));

    for pair in [[snapshot, other], [other, snapshot]] {
        for at in [ComparedMoment::Peak, ComparedMoment::Snapshot] {
            let [before, after] = pair.map(|snapshot| diff::File { snapshot, path: "a" });
            let options = diff::DiffOptions { at, top: 3, ..diff::DiffOptions::default() };
            let report = diff(before, after, options);
            said.extend(shown(&report::diff(&report)));
            data.push(value(serde_json::to_value(&report)));
        }
    }
    (said, data)
}

/// The categories of live blocks at eight moments.
fn categories(snapshot: &Snapshot) -> Value {
    let study = Study::new(snapshot, Scope::default());
    let device = study.device(0).unwrap();
    let entries = device.device().len();
    let moments = (1..=8).flat_map(|part| categorized_blocks(device, (entries * part / 8).saturating_sub(1)));
    moments.map(|(block, (category, sure))| json!(format!("{}{category:?}{sure:?}", block.bytes))).collect()
}

fn assert_clean(text: &str) {
    let acts = text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
    assert_eq!(acts, None);
}

/// About half of the mutants are read: one of this many surely is.
const ATTEMPTS: usize = 20;

/// The number of mutants of each recording whose answers are in `tests/golden`: as many as the gate tries.
const KNOWN_OF_EACH: u64 = 5;

/// Panics unless the answers in `tests/golden/FILE` are among those `found`. If one changes, compare it with that of the
/// commit before, and write the file anew with `UPDATE_ANSWERS=1 PROPTEST_CASES=64`.
fn assert_known(file: &str, found: &BTreeSet<String>) {
    let path = fixtures::directory().with_file_name("tests").join("golden").join(file);
    if std::env::var_os("UPDATE_ANSWERS").is_some() {
        std::fs::write(&path, found.iter().map(String::as_str).collect::<String>()).unwrap();
    }
    let known = std::fs::read_to_string(&path).unwrap();
    let changed: Vec<&str> = known.split_inclusive('\n').filter(|answer| !found.contains(*answer)).collect();
    assert!(changed.is_empty(), "{} answers changed:\n{changed:?}", changed.len());
}

fn line(name: &str, answers: &[Value]) -> String {
    format!("{:016x} {name}\n", checksum(answers))
}

#[test]
fn every_command_answers_to_any_snapshot() {
    let found = Mutex::new(BTreeSet::new());
    for name in FIXTURES {
        let (file, sound) = (recorded(name), fixtures::snapshot(name));
        with_seeds(name, cases(MUTANTS_OF_EACH), |random| {
            let mut mutants = (0..ATTEMPTS).map(|_| {
                let mut file = file.clone();
                (0..1 + random.below(8)).for_each(|_| wound(random, &mut file));
                Snapshot::read(file.to_string().as_bytes(), &|_| ())
            });
            let snapshot = mutants.find_map(Result::ok).expect("a mutant that is read");
            let said = answers(&snapshot, &sound);
            said.0.iter().for_each(|page| assert_clean(page));
            assert!(random.below(8) > 0 || said == answers(&snapshot, &sound), "said otherwise");
            found.lock().unwrap().insert(line(name, &said.1));
            true
        });
    }
    if cases(MUTANTS_OF_EACH) >= KNOWN_OF_EACH {
        assert_known("answers_to_mutants.txt", &found.into_inner().unwrap());
    }
}

/// Programs in which most sizes and lifetimes are those of a real one, and many stacks are not.
#[test]
fn figures_of_stirred_recordings_change_only_where_they_are_meant_to() {
    let names: Vec<&str> = STIRRED.split_whitespace().collect();
    let answer = |name: &&str| {
        let (sound, snapshot) = (fixtures::snapshot(name), stirred(name, 16));
        let held = [&sound, &snapshot].map(categories);
        line(name, &[&held[..], &answers(&snapshot, &sound).1].concat())
    };
    let fitted = |name: &&str| {
        let [before, after] = [4, 8].map(|size| format!("sizes/2.15.0-{name}-{size}"));
        let (sound, snapshot) = (fixtures::snapshot(&before), stirred(&after, 64));
        let studies = [&sound, &snapshot].map(|snapshot| Study::new(snapshot, Scope::default()));
        let inputs = [4, 8].map(|size| FitInput { size, path: "a", study: &studies[size as usize / 8] });
        let answers = [None, Some(512 * MIB)].map(|capacity| {
            let options = FitOptions { sizes: &[2, 16, 40], capacity, gpu: None, settings: None, multiple: 1 };
            let report = fit(&inputs, &options);
            report.map_or_else(|refusal| json!(refusal), |report| json!(report))
        });
        line(name, &answers)
    };
    let all = names.par_iter().map(answer).chain(FITTED.par_iter().map(fitted));
    assert_known("answers_to_stirred.txt", &all.collect());
}
