//! Categories against what the recorded programs knew of their own memory (`tests/oracle/categories.py`).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use crate::support::fixtures;
use oomscope::snapshot::{Action, Device};
use oomscope::stacks::phases::Phase;
use oomscope::study::attribution::{Category, Confidence, categorized_blocks};
use oomscope::study::lifetimes::MemoryLifetimes;
use oomscope::study::{Scope, Study};
use serde_json::Value;

/// The keys of a program's lists.
const KEYS: [(&str, Category); 7] = [
    ("parameters", Category::Parameters),
    ("gradients", Category::Gradients),
    ("optimizer_state", Category::OptimizerState),
    ("inputs", Category::Inputs),
    ("activations", Category::Activations),
    ("communication", Category::Communication),
    ("other", Category::Other),
];

/// What a program knew after one entry: the category and bytes of each address.
struct Moment {
    name: String,
    entry: usize,
    truth: BTreeMap<u64, (Category, u64)>,
}

pub(crate) fn runs() -> Vec<String> {
    let runs: Vec<String> = fixtures::all_names().into_iter().filter(|name| name.starts_with("where/")).collect();
    assert!(runs.len() >= 15, "only {} runs found", runs.len());
    runs
}

fn moments(run: &str) -> Vec<Moment> {
    let path = fixtures::directory().join(format!("{run}.truth.json"));
    let moments: Vec<Value> = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
    let block = |block: &Value, category| (block[0].as_u64().unwrap(), (category, block[1].as_u64().unwrap()));
    let moment = |known: &Value| Moment {
        name: format!("{run} {}", known["name"]),
        entry: known["entry"].as_u64().unwrap() as usize,
        truth: KEYS
            .iter()
            .flat_map(|(key, category)| {
                known[key].as_array().into_iter().flatten().map(|known| block(known, *category))
            })
            .collect(),
    };
    moments.iter().map(moment).collect()
}

/// Blocks whose category differs between moments without an entry between them but that of the snapshot, by index of the
/// moment and address: no reader can distinguish these moments.
fn contradicted(moments: &[Moment], device: Device<'_>) -> BTreeSet<(usize, u64)> {
    let is_op = |entry: &usize| device.action(*entry) != Some(Action::Snapshot);
    let last_op = |moment: &Moment| (0..=moment.entry.min(device.len() - 1)).rev().find(is_op);
    let mut groups: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
    for (index, moment) in moments.iter().enumerate() {
        groups.entry(last_op(moment)).or_default().push(index);
    }
    let mut found = BTreeSet::new();
    for group in groups.values() {
        let truth = |index: &usize, address| moments[*index].truth.get(address).map(|(category, _)| *category);
        for address in group.iter().flat_map(|index| moments[*index].truth.keys()) {
            if group.iter().any(|index| truth(index, address) != truth(&group[0], address)) {
                found.extend(group.iter().map(|index| (*index, *address)));
            }
        }
    }
    found
}

/// A block of a moment, as oomscope and as the program classify it.
struct Judged {
    run: String,
    category: Category,
    confidence: Confidence,
    bytes: u64,
    truth: Option<Category>,
}

static JUDGED: LazyLock<Vec<Judged>> = LazyLock::new(|| runs().iter().flat_map(|run| judge(run)).collect());

fn judge(run: &str) -> Vec<Judged> {
    let mut judged = Vec::new();
    let moments = moments(run);
    let snapshot = fixtures::snapshot(run);
    let study = Study::new(&snapshot, Scope::default());
    let contradicted = contradicted(&moments, snapshot.device(0));
    for (index, moment) in moments.into_iter().enumerate() {
        let mut truth = moment.truth;
        for (block, (category, confidence)) in categorized_blocks(study.device(0).unwrap(), moment.entry) {
            let known = truth.remove(&block.address);
            if contradicted.contains(&(index, block.address)) {
                continue;
            }
            assert!(known.is_none_or(|(_, bytes)| bytes <= block.bytes), "{}: {block:?}", moment.name);
            let truth = known.map(|(category, _)| category);
            judged.push(Judged { run: run.to_owned(), category, confidence, bytes: block.bytes, truth });
        }
        assert!(truth.is_empty(), "{}: not live: {truth:?}", moment.name);
    }
    judged
}

/// Bytes that oomscope has in a category, that the program has in it, and that both have.
#[derive(Default, Clone, Copy)]
struct Score {
    found: u64,
    known: u64,
    right: u64,
}

impl Score {
    fn precision(self) -> f64 {
        self.right as f64 / self.found as f64
    }

    fn recall(self) -> f64 {
        self.right as f64 / self.known as f64
    }
}

/// The scores of the runs whose names end with one of `runs`, for categories of at least `confidence`.
fn scores(runs: &[&str], confidence: Confidence) -> BTreeMap<Category, Score> {
    let mut scores: BTreeMap<Category, Score> = BTreeMap::new();
    for block in JUDGED.iter().filter(|block| runs.iter().any(|run| block.run.ends_with(run))) {
        if let Some(truth) = block.truth {
            scores.entry(truth).or_default().known += block.bytes;
        }
        // A program does not know every buffer of the collectives.
        let is_known = block.category != Category::Communication || block.truth.is_some();
        if block.confidence <= confidence && is_known {
            let score = scores.entry(block.category).or_default();
            score.found += block.bytes;
            // Temporaries are in none of the program's lists.
            let expected = Some(block.category).filter(|category| *category != Category::Temporaries);
            score.right += if block.truth == expected { block.bytes } else { 0 };
        }
    }
    scores
}

/// Minimum precision and recall of parameters, gradients, optimizer state, activations and inputs; 0 where a run has none
/// or none are known.
type Bounds = [(f64, f64); 5];
const WHOLE: (f64, f64) = (0.999, 0.999);
const NONE: (f64, f64) = (0.0, 0.0);

const OF_ALL: &[&str] = &[""];

#[test]
fn categories_are_what_the_programs_used_memory_for() {
    use Confidence::{High, Low};
    let table: [(&[&str], Confidence, Bounds); 7] = [
        // The misleading ones, too. Two models in turn confuse what a forward pass leaves, and a block in a backward pass
        // that ends the recording may have the size of a parameter. A noise that serves every pass is an input; the
        // program knows it as saved for the backward pass.
        (OF_ALL, Low, [WHOLE, (0.96, 0.999), (0.98, 0.999), (0.99, 0.96), (0.96, 0.9)]),
        // Buckets that are the gradients have medium confidence at most, as has state of an optimizer that is not PyTorch's.
        (OF_ALL, High, [(0.9999, 0.7), (0.9999, 0.6), (0.9999, 0.65), (0.9999, 0.35), NONE]),
        // Shards, what is gathered of them, and what gradients are reduced from and into.
        (
            &["fsdp1_mixed", "fsdp2_mixed", "fsdp2_mixed_wide", "tp_fsdp2", "ddp_small_buckets", "zero1_view"],
            Low,
            [WHOLE, (0.98, 0.98), WHOLE, NONE, NONE],
        ),
        // Buckets that are the gradients are so until these are freed; not in passes that send nothing.
        (&["ddp_view", "ddp_view_static", "ddp_view_micro"], Low, [WHOLE, (0.97, 0.999), WHOLE, NONE, NONE]),
        // State made before any step, or by no optimizer of PyTorch; copies of weights and gradients; waiting batches.
        (&["lion_master", "sophia", "masters", "averages", "ahead"], Low, [WHOLE, WHOLE, WHOLE, NONE, WHOLE]),
        // Data sets, outputs and caches; most of these programs no rule was made with.
        (
            &[
                "kronecker",
                "ours_cut",
                "write_words",
                "sam",
                "bytes_in_a_class",
                "kept_outputs",
                "kept_graphs",
                "resumed",
            ],
            Low,
            [WHOLE, WHOLE, (0.99, 0.999), (0.99, 0.99), (0.99, 0.9)],
        ),
        // Where a program fails, nothing shows what would have become of its gradients.
        (
            &["cut_backward", "cut_forward", "cut_step", "ours_cut"],
            Low,
            [(0.9999, 0.9999), (0.75, 0.9999), (0.9999, 0.9999), (0.9999, 0.9999), NONE],
        ),
    ];
    for (runs, confidence, bounds) in table {
        let scores = scores(runs, confidence);
        for ((_, category), (precision, recall)) in KEYS[..3].iter().chain([&KEYS[4], &KEYS[3]]).zip(bounds) {
            let score = scores.get(category).copied().unwrap_or_default();
            assert!((score.known > 0 && score.found > 0) || recall == 0.0, "{runs:?}: nothing of {category:?}");
            let (found, known) = (score.precision(), score.recall());
            assert!(
                recall == 0.0 || (found >= precision && known >= recall),
                "{runs:?} {category:?}: {found}, {known}"
            );
        }
    }
    let communication = scores(OF_ALL, Low)[&Category::Communication];
    assert!(communication.precision() >= 0.999 && communication.recall() >= 0.8);
    for (runs, confidence) in [(OF_ALL, High), (&["cut_step"], Low)] {
        // What an optimizer computes with has the sizes of the parameters, and is no state of it.
        let temporaries = scores(runs, confidence)[&Category::Temporaries];
        assert!(temporaries.found > 0 && temporaries.precision() > 0.999, "{runs:?}");
    }
}

/// Parameters and optimizer state that are older than the recording, known by their size alone.
#[test]
fn a_late_recording_is_guessed_well() {
    let late = scores(&["-late", "late_inference"], Confidence::Low);
    for (category, bound) in [
        (Category::Parameters, 0.99),
        (Category::Gradients, 0.9999),
        (Category::OptimizerState, 0.99),
        (Category::Activations, 0.9999),
    ] {
        assert!(late[&category].precision() >= bound && late[&category].recall() >= bound, "{category:?}");
    }
    // A model that only runs is a guess, and the only one.
    let guessed = scores(&["late_inference"], Confidence::Low)[&Category::Parameters];
    assert!(guessed.precision() > 0.999 && guessed.recall() > 0.999);
    let sure = scores(&["late_inference"], Confidence::Medium);
    assert!(sure.get(&Category::Parameters).is_none_or(|score| score.found == 0));
}

/// A server shows neither gradients nor activations, so nothing that it keeps is more than a guess.
#[test]
fn nothing_is_asserted_of_inference_but_parameters_and_temporaries() {
    for (category, score) in scores(&["-decode"], Confidence::Medium) {
        let may = matches!(category, Category::Parameters | Category::Temporaries);
        assert!(may || score.found == 0, "{} bytes of {category:?}", score.found);
    }
}

/// Allocated and freed before a forward pass: temporary, and that is certain.
#[test]
fn memory_that_the_data_phase_frees_is_temporary() {
    let mut seen = 0;
    for name in fixtures::names().into_iter().chain(runs()) {
        for device in fixtures::study(&name).devices() {
            let phases = device.phases();
            let run_of = |entries: u32| phases.runs().partition_point(|run| run.start < entries);
            for one in MemoryLifetimes::from_device(device).allocations {
                let Some(freed) = one.freed_at().filter(|_| one.phase == Some(Phase::Data) && one.start > 0) else {
                    continue;
                };
                let stack = device.device().entry(one.start as usize - 1).stack;
                if run_of(one.start) == run_of(freed) && phases.stack_traits(stack).purpose.is_none() {
                    let expected = (Category::Temporaries, Confidence::High);
                    assert_eq!((one.category, one.confidence), expected, "{name}: {one:?}");
                    seen += 1;
                }
            }
        }
    }
    assert!(seen > 10, "{seen}");
}
