//! Where the memory was: held against what the recorded programs knew of it (`tests/oracle/categories.py`).

use crate::support::{fixtures, program};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crate::support::program::{analyze_in, result_of, text};
use oomscope::snapshot::{Action, Device};
use oomscope::stacks::phases::Phase;
use oomscope::study::attribution::{Category, Confidence, categorized_blocks};
use oomscope::study::lifetimes::MemoryLifetimes;
use oomscope::study::{Scope, Study};
use serde_json::{Value, json};

/// What a program knew at one moment: what each address was for.
struct Moment {
    run: String,
    name: String,
    entry: usize,
    truth: BTreeMap<u64, (Category, u64)>,
}

fn runs() -> Vec<String> {
    let mut runs: Vec<String> = std::fs::read_dir(fixtures::directory().join("where"))
        .unwrap()
        .filter_map(|entry| {
            let name = entry.unwrap().file_name().into_string().unwrap();
            name.strip_suffix(".pickle.gz").map(|name| format!("where/{name}"))
        })
        .collect();
    runs.sort();
    assert!(runs.len() >= 15, "only {} runs found", runs.len());
    runs
}

fn moments(run: &str) -> Vec<Moment> {
    let path = fixtures::directory().join(format!("{run}.truth.json"));
    let told: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let moment = |told: &Value| Moment {
        run: run.to_owned(),
        name: told["name"].as_str().unwrap().to_owned(),
        entry: told["entry"].as_u64().unwrap() as usize,
        truth: [
            ("parameters", Category::Parameters),
            ("gradients", Category::Gradients),
            ("optimizer_state", Category::OptimizerState),
            ("inputs", Category::Inputs),
            ("activations", Category::Activations),
            ("communication", Category::Communication),
            ("other", Category::Other),
        ]
        .iter()
        .flat_map(|(key, category)| {
            let places = told[key].as_array().into_iter().flatten();
            places.map(|at| (at[0].as_u64().unwrap(), (*category, at[1].as_u64().unwrap())))
        })
        .collect(),
    };
    told.as_array().unwrap().iter().map(moment).collect()
}

/// Bytes: said to be of a category, really of it, and both.
#[derive(Default, Clone, Copy)]
struct Score {
    said: u64,
    is: u64,
    right: u64,
}

impl Score {
    fn precision(self) -> f64 {
        self.right as f64 / self.said as f64
    }

    fn recall(self) -> f64 {
        self.right as f64 / self.is as f64
    }
}

type Scores = BTreeMap<Category, Score>;

/// What was for different things at moments between which the trace has nothing but that a snapshot was taken, by
/// number of the moment and address: no reader can tell those apart.
fn contradicted(moments: &[Moment], device: Device<'_>) -> BTreeSet<(usize, u64)> {
    let is_told = |entry: &usize| device.action(*entry) != Some(Action::Snapshot);
    let last = |moment: &Moment| (0..=moment.entry.min(device.len() - 1)).rev().find(is_told);
    let mut alike: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (number, moment) in moments.iter().enumerate() {
        alike.entry(last(moment)).or_default().push(number);
    }
    let mut found = BTreeSet::new();
    for group in alike.values() {
        let truth = |number: &usize, address| moments[*number].truth.get(address).map(|(is, _)| *is);
        for address in group.iter().flat_map(|number| moments[*number].truth.keys()) {
            if group.iter().any(|number| truth(number, address) != truth(&group[0], address)) {
                found.extend(group.iter().map(|number| (*number, *address)));
            }
        }
    }
    found
}

/// Judges every moment of the runs that `keep`, counting what is said with `least` confidence.
fn judge(keep: impl Fn(&Moment) -> bool, least: Confidence) -> Scores {
    let mut scores = Scores::new();
    for run in runs() {
        let kept: Vec<Moment> = moments(&run).into_iter().filter(&keep).collect();
        if kept.is_empty() {
            continue;
        }
        let snapshot = fixtures::snapshot(&run);
        let study = Study::new(&snapshot, Scope::default());
        let contradicted = contradicted(&kept, snapshot.device(0));
        for (number, moment) in kept.into_iter().enumerate() {
            let mut truth = moment.truth;
            for block in categorized_blocks(study.device(0).unwrap(), moment.entry) {
                if contradicted.contains(&(number, block.address)) {
                    truth.remove(&block.address);
                    continue;
                }
                let is = truth.remove(&block.address).map(|(category, bytes)| {
                    assert!(bytes <= block.bytes, "{run} {}: {block:?}", moment.name);
                    category
                });
                if let Some(is) = is {
                    scores.entry(is).or_default().is += block.bytes;
                }
                // A program does not know every buffer of the collectives.
                let is_known = block.category != Category::Communication || is.is_some();
                if block.confidence <= least && is_known {
                    let score = scores.entry(block.category).or_default();
                    score.said += block.bytes;
                    // What is temporary is in none of the program's lists.
                    let told = block.category != Category::Temporaries;
                    let is_right = is == told.then_some(block.category);
                    score.right += if is_right { block.bytes } else { 0 };
                }
            }
            assert!(truth.is_empty(), "{run} {}: not held: {truth:?}", moment.name);
        }
    }
    for (category, score) in &scores {
        let (precision, recall) = (score.precision(), score.recall());
        println!("{:>15} precision {precision:.4} recall {recall:.4}", category.word());
    }
    scores
}

fn held_to(scores: &Scores, bounds: &[(Category, f64, f64)]) {
    for (category, precision, recall) in bounds {
        let score = scores[category];
        assert!(score.is > 0 && score.said > 0, "nothing to judge {category:?} by");
        assert!(score.precision() >= *precision, "{category:?} precision {}", score.precision());
        assert!(score.recall() >= *recall, "{category:?} recall {}", score.recall());
    }
}

/// All runs, the misleading ones too. What is wrong: two models in turn confuse what a forward pass leaves,
/// and a block in a backward pass that ends the recording may happen to have the size of a parameter.
#[test]
fn categories_are_what_the_programs_used_memory_for() {
    let scores = judge(|_| true, Confidence::Low);
    held_to(
        &scores,
        &[
            (Category::Parameters, 0.999, 0.999),
            (Category::Gradients, 0.96, 0.999),
            (Category::OptimizerState, 0.98, 0.999),
            (Category::Activations, 0.99, 0.96),
            // A noise that serves every pass is an input; the program knows it as saved for the backward pass.
            (Category::Inputs, 0.96, 0.9),
            (Category::Communication, 0.999, 0.8),
        ],
    );
}

fn is_one_of(moment: &Moment, runs: &[&str]) -> bool {
    runs.iter().any(|run| moment.run.ends_with(run))
}

/// Shards and what is gathered of them (with the rows that make them equal), what gradients are reduced from and into,
/// buckets. Buckets that are the gradients are so until these are given up; not in passes that send nothing, and not
/// before the end of one that sends all of them then.
#[test]
fn sharded_and_replicated_training_is_classified_like_any_other() {
    let sharded = ["fsdp1_mixed", "fsdp2_mixed", "fsdp2_mixed_wide", "tp_fsdp2", "ddp_small_buckets", "zero1_view"];
    let whole = (0.999, 0.999);
    let bounds = |gradients: (f64, f64)| {
        [
            (Category::Parameters, whole.0, whole.1),
            (Category::Gradients, gradients.0, gradients.1),
            (Category::OptimizerState, whole.0, whole.1),
        ]
    };
    held_to(&judge(|moment| is_one_of(moment, &sharded), Confidence::Low), &bounds((0.98, 0.98)));
    let views = ["ddp_view", "ddp_view_static", "ddp_view_micro"];
    let views = judge(|moment| is_one_of(moment, &views), Confidence::Low);
    held_to(&views, &bounds((0.97, 0.999)));
}

/// State made before any step, in no file of optimizers, or of no class of PyTorch's; weights kept twice, averages
/// of them, copies of gradients; batches that wait for their turn.
#[test]
fn memory_in_the_sizes_of_the_parameters_is_told_apart() {
    let own = ["lion_master", "sophia", "masters", "averages", "ahead"];
    let scores = judge(|moment| is_one_of(moment, &own), Confidence::Low);
    held_to(
        &scores,
        &[
            (Category::Parameters, 0.999, 0.999),
            (Category::Gradients, 0.999, 0.999),
            (Category::OptimizerState, 0.999, 0.999),
            (Category::Inputs, 0.999, 0.999),
        ],
    );
}

/// Buckets that are the gradients are so with medium confidence at most.
#[test]
fn high_confidence_is_deserved() {
    let scores = judge(|_| true, Confidence::High);
    held_to(
        &scores,
        &[
            (Category::Parameters, 0.9999, 0.7),
            (Category::Gradients, 0.9999, 0.6),
            // State of optimizers that are not PyTorch's is never sure.
            (Category::OptimizerState, 0.9999, 0.65),
            (Category::Activations, 0.9999, 0.35),
        ],
    );
    let precision = scores[&Category::Temporaries].precision();
    assert!(precision > 0.9999, "temporaries precision {precision}");
}

/// Nothing tells what a server keeps: neither gradients nor activations, and at most a guess.
#[test]
fn nothing_is_asserted_of_inference_but_parameters_and_what_is_gone() {
    let told = judge(|moment| moment.run.contains("-decode"), Confidence::Medium);
    for (category, score) in told {
        let may = matches!(category, Category::Parameters | Category::Temporaries);
        assert!(may || score.said == 0, "{} bytes of {category:?}", score.said);
    }
}

/// Where a program fails, nothing tells what would have become of its blocks.
#[test]
fn a_recording_that_ends_there_shows_nearly_as_much() {
    let scores = judge(|moment| moment.run.contains("cut"), Confidence::Low);
    held_to(
        &scores,
        &[
            (Category::Parameters, 0.9999, 0.9999),
            (Category::Gradients, 0.75, 0.9999),
            (Category::OptimizerState, 0.9999, 0.9999),
            (Category::Activations, 0.9999, 0.9999),
        ],
    );
}

/// Parameters and optimizer state are older than the recording: told by size alone.
/// State of optimizers of one's own (also in the making), a data set, outputs and caches: programs that no rule was made
/// with (`tests/oracle/kept_again.py`), and some of those that rules were made with.
#[test]
fn memory_that_programs_keep_is_recognized() {
    let kept =
        ["kronecker", "ours_cut", "write_words", "sam", "bytes_in_a_class", "kept_outputs", "kept_graphs", "resumed"];
    let scores = judge(|moment| is_one_of(moment, &kept), Confidence::Low);
    held_to(
        &scores,
        &[
            (Category::Parameters, 0.999, 0.999),
            (Category::Gradients, 0.999, 0.999),
            (Category::OptimizerState, 0.99, 0.999),
            (Category::Activations, 0.99, 0.99),
            (Category::Inputs, 0.99, 0.9),
        ],
    );
}

/// Validation without `no_grad` is named with the line that runs the model, also if nothing fails.
#[test]
fn graphs_that_no_backward_pass_uses_are_named() {
    let graphs = &devices("where/2.15.0-kept_graphs", &[])[0]["at_peak"]["unused_graphs"];
    assert!(graphs["passes"].as_u64().unwrap() >= 2, "{graphs}");
    assert_eq!(graphs["called_at"]["name"], "loss_of");
    assert!(devices("where/2.15.0-adam", &[])[0]["at_peak"]["unused_graphs"].is_null());
}

#[test]
fn a_late_recording_is_guessed_well() {
    let scores = judge(|moment| moment.run.contains("-late"), Confidence::Low);
    held_to(
        &scores,
        &[
            (Category::Parameters, 0.99, 0.99),
            (Category::Gradients, 0.9999, 0.9999),
            (Category::OptimizerState, 0.99, 0.99),
            (Category::Activations, 0.9999, 0.9999),
        ],
    );
}

fn devices(name: &str, more: &[&str]) -> Vec<Value> {
    let path = format!("fixtures/{name}.pickle.gz");
    let args = [&["analyze", "--format", "json"], more, &[path.as_str()]].concat();
    let report: Value = crate::support::program::read_with_details(&result_of(&args));
    report["snapshots"][0]["devices"].as_array().unwrap().clone()
}

fn sum(rows: &Value, key: &str) -> u64 {
    rows.as_array().unwrap().iter().map(|row| row[key].as_u64().unwrap()).sum()
}

/// Every table adds up to what the program held, cut or not.
fn adds_up(held: &Value, allocated: &Value, place: &str) {
    assert_eq!(&held["allocated_bytes"], allocated, "{place}");
    for (key, of) in [("bytes", "allocated_bytes"), ("blocks", "blocks")] {
        let all = held[of].as_u64().unwrap();
        for table in ["by_category", "by_phase", "by_age"] {
            assert_eq!(sum(&held[table], key), all, "{place} {table}");
        }
        for table in ["by_line", "by_stack"] {
            let rest = held[table]["rest"][key].as_u64().unwrap();
            assert_eq!(sum(&held[table]["rows"], key) + rest, all, "{place} {table}");
        }
    }
}

/// The column of categories in a table of holders adds up to the sum of the category, and no row mixes what the
/// recording saw allocated without a stack with what is older.
fn holders_add_up(held: &Value, place: &str) {
    let by_line = held["by_line"]["rows"].as_array().unwrap();
    let by_variable = held["by_variable"].as_array().map_or(&[][..], Vec::as_slice);
    for of in held["by_category"].as_array().unwrap() {
        let bytes_in = |rows: &[Value]| -> u64 {
            let rows = rows.iter().filter(|row| row["category"] == of["category"]);
            rows.map(|row| row["bytes"].as_u64().unwrap()).sum()
        };
        let bytes = of["bytes"].as_u64().unwrap();
        assert_eq!(bytes_in(by_line), bytes, "{place} {of}");
        assert!(by_variable.is_empty() || bytes_in(by_variable) <= bytes, "{place} {of}");
    }
    let older = |row: &&Value| row["before_recording"] == true;
    let older: u64 = by_line.iter().filter(older).map(|row| row["bytes"].as_u64().unwrap()).sum();
    let ages = held["by_age"].as_array().unwrap();
    let age = ages.iter().find(|row| row["name"] == "before-recording").map_or(0, |row| row["bytes"].as_u64().unwrap());
    let no_line = |row: &&Value| row["frame"].is_null() && row.get("backward").is_none() && row["has_stack"] == false;
    let no_line: u64 = by_line.iter().filter(no_line).map(|row| row["bytes"].as_u64().unwrap()).sum();
    assert!(older <= age && older <= no_line, "{place}: {older} of {no_line}, {age}");
}

#[test]
#[ignore = "slow: .ci/release runs it"]
fn every_table_of_holders_adds_up_to_the_categories() {
    let (mut named, mut mixed) = (0, 0);
    for name in fixtures::all_names() {
        for device in devices(&name, &["--top", "100000"]) {
            let ooms = device["ooms"].as_array().unwrap().iter().map(|oom| &oom["held"]);
            let shown = ooms.chain([&device["at_peak"], &device["at_moment"]]).filter(|held| held.is_object());
            for held in shown {
                holders_add_up(held, &name);
                let rows = held["by_line"]["rows"].as_array().unwrap();
                let lines = |row: &Value| (row["frame"].clone(), row["called_from"].clone());
                mixed += rows
                    .windows(2)
                    .filter(|pair| !pair[0]["frame"].is_null() && lines(&pair[0]) == lines(&pair[1]))
                    .count();
                named += usize::from(held["by_variable"].is_array());
            }
        }
    }
    assert!(named > 3 && mixed > 20, "{named} with names, {mixed} lines of two categories");
}

/// Two blocks without a stack: one is older than the recording, the other is not.
#[test]
fn memory_without_a_stack_is_not_all_from_before_the_recording() {
    const MIB: u64 = 1 << 20;
    let block = |index: u64| json!({ "address": index * MIB, "size": MIB, "requested_size": MIB, "state": "active_allocated", "frames": [] });
    let segment = json!({ "device": 0, "address": MIB, "total_size": 2 * MIB, "stream": 0, "segment_type": "large",
        "segment_pool_id": [0, 0], "is_expandable": false, "frames": [], "blocks": [block(1), block(2)] });
    let entry = |action: &str, index: u64| json!({ "action": action, "addr": index * MIB, "size": MIB, "stream": 0, "frames": [], "time_us": index });
    let trace = [entry("alloc", 2), entry("free_requested", 2), entry("free_completed", 2), entry("alloc", 2)];
    let snapshot = json!({ "segments": [segment], "device_traces": [trace] });
    let directory = tempfile::TempDir::new().unwrap();
    let path = directory.path().join("snapshot.json");
    std::fs::write(&path, snapshot.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let report: Value = crate::support::program::read_with_details(&result_of(&["analyze", "--format", "json", path]));
    let rows = report["snapshots"][0]["devices"][0]["at_peak"]["by_line"]["rows"].as_array().unwrap().clone();
    let mut rows: Vec<(u64, bool)> =
        rows.iter().map(|row| (row["bytes"].as_u64().unwrap(), row["before_recording"] == true)).collect();
    rows.sort_unstable();
    assert_eq!(rows, [(MIB, false), (MIB, true)]);
    let page = result_of(&["analyze", path]);
    for holder in ["allocated before the recording", "no stack recorded"] {
        assert!(page.lines().any(|line| line.contains(holder) && line.contains("1 MiB")), "{page}");
    }
}

/// Every recording's devices, with two rows a table.
static DEVICES: LazyLock<Vec<(String, Vec<Value>)>> = LazyLock::new(|| {
    let names = fixtures::names().into_iter().chain(runs());
    names.map(|name| (name.clone(), devices(&name, &["--top", "2"]))).collect()
});

#[test]
fn every_table_adds_up_in_every_recording() {
    let mut failures = 0;
    for (name, devices) in &*DEVICES {
        for device in devices {
            if device["at_peak"].is_null() {
                assert!(name.contains("no-history"), "{name}");
                continue;
            }
            adds_up(&device["at_peak"], &device["peak"]["allocated_bytes"], name);
            if let Some(oom) = device["ooms"].as_array().unwrap().last() {
                adds_up(&oom["held"], &oom["allocated_bytes"], name);
                failures += 1;
            }
        }
    }
    assert!(failures > 20, "{failures}");
}

#[test]
fn a_part_of_the_trace_has_its_own_peak() {
    let device = &devices("2.15.0-gpt_train-cpp_stacks", &["--from", "900", "--to", "1000"])[0];
    let event = device["at_peak"]["event"].as_u64().unwrap();
    assert!((899..1000).contains(&event), "{event}");
    adds_up(&device["at_peak"], &device["peak"]["allocated_bytes"], "window");
}

/// What PyTorch's optimizer computes with has the sizes of the parameters as well, and is no state of it.
#[test]
fn a_step_that_ends_the_recording_has_its_state_and_its_scratch() {
    let scores = judge(|moment| moment.run.ends_with("cut_step"), Confidence::Low);
    let (state, scratch) = (scores[&Category::OptimizerState], scores[&Category::Temporaries]);
    assert!(state.precision() > 0.999 && state.recall() > 0.999);
    assert!(scratch.said > 0 && scratch.precision() > 0.999);
}

/// Older than the recording and without a stack: a guess, and the only one there is.
#[test]
fn a_model_that_only_runs_is_guessed() {
    let is_late = |moment: &Moment| moment.run.ends_with("late_inference");
    let guessed = judge(is_late, Confidence::Low)[&Category::Parameters];
    assert!(guessed.precision() > 0.999 && guessed.recall() > 0.999);
    let told = judge(is_late, Confidence::Medium);
    assert!(told.get(&Category::Parameters).is_none_or(|score| score.said == 0));
}

/// A configuration above the working directory counts within a repository only: anybody may write to `/tmp`.
#[test]
fn a_configuration_above_counts_within_a_repository() {
    let above = tempfile::tempdir().unwrap();
    let job = above.path().join("job");
    std::fs::create_dir(&job).unwrap();
    std::fs::write(above.path().join("oomscope.toml"), "[[category]]\nname = 'all'\nfunction = 'train'\n").unwrap();
    let arguments = ["--full", &text(&fixtures::path("where/2.15.0-adam"))];
    assert!(!analyze_in(&job, &arguments).contains("by rule"));
    std::fs::create_dir(above.path().join(".git")).unwrap();
    assert!(analyze_in(&job, &arguments).contains("by rule"));
}

/// Rules of the reader's own sort the same memory once more: the first that fits counts.
#[test]
fn categories_of_ones_own_are_beside_the_others() {
    let place = tempfile::tempdir().unwrap();
    let config = place.path().join("oomscope.toml");
    let rules = "max-ooms = 0\n\
        [[category]]\nname = 'blocks'\nfile = 'categories.py'\nfunction = 'forward'\n\
        [[category]]\nname = 'optimizer'\nannotation = 'Optimizer.step#*'\n\
        [[category]]\nname = 'all'\nfunction = 'train'\n\
        [[category]]\nname = 'optimizer'\nfunction = '_init_group'\n";
    std::fs::write(&config, rules).unwrap();
    let file = text(&fixtures::path("where/2.15.0-adam"));
    let report: Value =
        crate::support::program::read_with_details(&analyze_in(place.path(), &["--format", "json", &file]));
    let device = &report["snapshots"][0]["devices"][0];
    let held = &device["at_peak"];
    assert_eq!(sum(&held["by_rule"], "bytes"), held["allocated_bytes"].as_u64().unwrap());
    let of = |table: &str, key: &str, name: &Value| {
        let rows = held[table].as_array().unwrap().iter();
        rows.filter(|row| &row[key] == name).map(|row| row["bytes"].as_u64().unwrap()).sum::<u64>()
    };
    let (blocks, optimizer) = (of("by_rule", "name", &"blocks".into()), of("by_rule", "name", &"optimizer".into()));
    assert!(blocks > 0 && blocks <= of("by_phase", "name", &"forward".into()), "{held}");
    assert_eq!(optimizer, of("by_category", "category", &"optimizer-state".into()));
    assert!(of("by_rule", "name", &Value::Null) > 0, "parameters are of none");
    let page = analyze_in(place.path(), &["--full", &file]);
    assert!(page.contains("by rule") && page.contains("no rule"), "{page}");
    let plain = &devices("where/2.15.0-adam", &[])[0];
    assert!(plain["at_peak"]["by_rule"].is_null());
}

fn suspects(name: &str) -> Vec<Value> {
    devices(name, &[])[0]["leaks"]["suspects"].as_array().unwrap().clone()
}

/// `categories.py` keeps two tensors of 300 x 1024 floats a step, and one that a larger one replaces after each step.
#[test]
fn accumulation_with_every_step_is_found_with_its_slope() {
    let found: Vec<(u64, f64, u64, u64)> = suspects("where/2.15.0-leak_cache")
        .iter()
        .map(|one| {
            assert_eq!(one["frame"]["name"], "each");
            (
                one["bytes_per_step"].as_u64().unwrap(),
                one["blocks_per_step"].as_f64().unwrap(),
                one["steps"].as_u64().unwrap(),
                one["since_step"].as_u64().unwrap(),
            )
        })
        .collect();
    // The program makes them after each of its nine steps, which is when the next one begins.
    assert_eq!(found, [(256 * 4096 * 4, 0.0, 8, 1), (2 * 300 * 1024 * 4, 2.0, 9, 1)]);
}

/// `categories.py` keeps a tensor of 300 x 1024 floats after each third step.
#[test]
fn growth_with_every_third_step_is_found() {
    let found = suspects("where/2.15.0-leak_third");
    assert_eq!(found.len(), 1);
    let told = ["bytes_per_step", "every_steps", "steps", "since_step", "blocks"];
    let told = told.map(|key| found[0][key].as_u64().unwrap());
    assert_eq!(found[0]["frame"]["name"], "each");
    // After steps 2, 5, 8, 11 and 14, which is when the next one has begun.
    assert_eq!(told, [300 * 1024 * 4 / 3, 3, 5, 3, 5]);
    let page = result_of(&["analyze", "fixtures/where/2.15.0-leak_third.pickle.gz"]);
    let row = page.split_once("grows at").unwrap().1.lines().nth(1).unwrap();
    assert!(row.contains("categories.py") && row.contains("400 KiB"), "{page}");
}

/// Optimizers that step in the midst of a backward pass end one step, not one each.
#[test]
fn a_step_has_at_least_one_backward_pass() {
    for (name, steps) in [("in_backward", 4), ("penalty", 4), ("sgd", 3), ("sgd_by_hand", 3)] {
        let device = &devices(&format!("where/2.15.0-{name}"), &[])[0];
        assert_eq!(device["steps"]["completed"], steps, "{name}");
    }
}

#[test]
fn graphs_that_are_kept_are_found_by_their_lines() {
    for name in ["where/2.15.0-leak_graph", "where/2.9.1-leak_graph"] {
        let suspects = suspects(name);
        assert!(suspects.len() >= 5, "{name}: {}", suspects.len());
        for one in &suspects {
            let function = one["frame"]["name"].as_str().unwrap();
            assert!(["forward", "loss_of", "batch"].contains(&function), "{name}: {one}");
            assert_eq!(one["steps"], 6, "{name}");
        }
    }
}

#[test]
fn programs_that_keep_nothing_are_not_suspected() {
    // A graph of `rivals` that is not gone through stays: what is saved of it refers to it again.
    // The cache of `write_words` becomes larger with every word.
    let is_growing = |name: &str| ["leak", "rivals", "write_words"].iter().any(|part| name.contains(part));
    for (name, devices) in DEVICES.iter().filter(|(name, _)| !is_growing(name)) {
        for device in devices {
            assert_eq!(device["leaks"]["suspects"], Value::Array(Vec::new()), "{name}");
        }
    }
}

#[test]
fn the_steps_left_follow_from_the_capacity() {
    let leaks = |more: &[&str]| devices("where/2.15.0-leak_cache", more)[0]["leaks"].clone();
    assert!(leaks(&[])["steps_left"].is_null(), "nothing shows how large the device is");
    let leaks = leaks(&["--capacity", "1GiB"]);
    let [left, rate, steps] =
        ["remaining_bytes", "bytes_per_step", "steps_left"].map(|key| leaks[key].as_u64().unwrap());
    assert_eq!(rate, 4 * (2 * 300 * 1024 + 256 * 4096));
    assert_eq!(steps, left / rate);
    assert!(left < 1 << 30);
}

#[test]
fn the_page_shows_where_the_memory_was() {
    let page = result_of(&["analyze", "--full", "fixtures/2.15.0-oom_varlen-at-oom.pickle.gz"]);
    assert!(page.contains("Where the memory was at the failure (step 24, forward)"));
    let page = result_of(&["analyze", "--full", "fixtures/where/2.15.0-leak_cache.pickle.gz"]);
    assert!(page.contains("Where the memory was at its peak"), "{page}");
    assert_eq!(page.split_once("grows at").unwrap().1.lines().skip(1).take_while(|line| !line.is_empty()).count(), 2);
}

/// What it was for cannot be told of a program that trains nothing, but who held it can.
#[test]
fn without_phases_the_page_shows_who_held_the_memory() {
    let holder = |args: &[&str]| -> String {
        let page = result_of(&[&["analyze"], args].concat());
        let rows = page.lines().skip_while(|line| !line.replace("| ", "").starts_with("held "));
        rows.skip(1).find(|line| !line.contains("---")).unwrap_or_default().to_owned()
    };
    let held = holder(&["fixtures/2.15.0-fuzz.pickle.gz"]);
    assert!(held.contains("workloads.py:187 fuzz"), "{held}");
    // Its failure was survived: at the snapshot others hold the memory.
    let held = holder(&["fixtures/2.15.0-fuzz_streams-oom-lag.pickle.gz"]);
    assert!(held.contains(" 100% "), "{held}");
    let held = holder(&["--format", "markdown", "fixtures/2.15.0-fuzz.pickle.gz"]);
    assert!(held.contains("`workloads.py:187 fuzz`"), "{held}");
    // Without a stack there is nothing to tell.
    let entry = |action: &str, size: u64| json!({"action": action, "addr": 0x1000, "size": size, "stream": 0});
    let trace = [
        entry("segment_alloc", 2 << 20),
        entry("alloc", 512),
        entry("free_requested", 512),
        entry("free_completed", 512),
        entry("segment_free", 2 << 20),
    ];
    let snapshot = json!({"segments": [], "device_traces": [trace]});
    let directory = tempfile::TempDir::new().unwrap();
    let path = program::file(&directory, "no-stacks.json", snapshot.to_string().as_bytes());
    let page = result_of(&["analyze", "--full", &path]);
    assert!(page.contains("512 B at the peak") && !page.contains("Where the memory was"), "{page}");
}

/// Allocated and freed before a forward pass: temporary, and that is certain.
#[test]
fn memory_that_the_data_phase_frees_is_temporary() {
    let mut seen = 0;
    for name in fixtures::names().into_iter().chain(runs()) {
        for device in fixtures::study(&name).devices() {
            let runs = device.phases().runs();
            let run_of = |entries: u32| runs.partition_point(|run| run.start < entries);
            for one in MemoryLifetimes::from_device(device).allocations {
                let Some(freed) = one.freed_at.filter(|_| one.phase == Some(Phase::Data) && one.start > 0) else {
                    continue;
                };
                let is_known =
                    device.phases().stack_traits(device.device().entry(one.start as usize - 1).stack).purpose.is_some();
                if run_of(one.start) == run_of(freed) && !is_known {
                    assert_eq!(
                        (one.category, one.confidence),
                        (Category::Temporaries, Confidence::High),
                        "{name}: {one:?}"
                    );
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 10, "{seen}");
}

/// Each step needs its peak again, so only a whole step without it shows that the cache is idle.
#[test]
fn a_cache_is_idle_only_after_a_whole_step_without_it() {
    for (name, bytes) in [("2.15.0-gpt_varlen-late", Some(2_445_000_704)), ("2.15.0-gpt_varlen-wrapped", None)] {
        let report = fixtures::report(name);
        assert_eq!(report.devices[0].idle_cache.map(|idle| idle.bytes), bytes, "{name}");
    }
}
