//! Whatever damage a snapshot takes, it is read or refused in one sentence: no panic, no hang.
//!
//! Thousands of seeded mutants of real recordings: flipped bits, changed bytes, swapped opcodes,
//! spliced, doubled, dropped and truncated chunks.

use crate::support::{fixtures, plain_json};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::support::mutate::{Random, mutant};
use oomscope::pickle::tree::Tree;
use oomscope::snapshot::Snapshot;

/// Small recordings that differ in what they hold.
const FIXTURES: [&str; 8] = [
    "2.15.0-gpt_varlen-no-history",
    "2.5.1-mempool-expandable",
    "2.5.1-graphs",
    "2.8.0-graphs-expandable",
    "2.12.1-graphs",
    "2.15.0-mempool",
    "2.1.2-holes-at-oom",
    "2.15.0-holes-at-oom",
];
const MUTANTS_OF_EACH: u64 = 800;

/// What is done with every mutant; the kind of outcome.
fn exercise(bytes: &[u8]) -> &'static str {
    let mut outcome = "read";
    if let Err(error) = Snapshot::read(bytes, &|_| ()) {
        assert_clean(&error.to_string());
        outcome = "refused";
    }
    if let Err(error) = Tree::read(bytes) {
        assert_clean(&error.to_string());
        assert!(error.offset <= bytes.len() as u64, "{error}");
    }
    outcome
}

fn assert_clean(message: &str) {
    assert!(!message.is_empty());
    assert!(message.len() < 700, "{message}");
    assert!(!message.chars().any(char::is_control), "{message:?}");
}

/// Runs `exercise` on mutants of `originals`; how often each outcome came. A panic names the mutant.
fn run(originals: &[(&str, Vec<u8>)], mutants_of_each: u64) -> BTreeMap<&'static str, u64> {
    let threads = std::thread::available_parallelism().map_or(2, usize::from);
    let work: Vec<(usize, u64)> = (0..originals.len())
        .flat_map(|original| (0..mutants_of_each).map(move |seed| (original, seed)))
        .collect();
    let share = work.len().div_ceil(threads);
    std::thread::scope(|scope| {
        let workers: Vec<_> = work
            .chunks(share)
            .map(|work| {
                scope.spawn(move || {
                    let mut outcomes = BTreeMap::<_, u64>::new();
                    for &(original, seed) in work {
                        let (name, bytes) = &originals[original];
                        let other = &originals[(original + 1) % originals.len()].1;
                        let mut random = Random::new(seed << 8 | original as u64);
                        let mutant = mutant(&mut random, bytes, other);
                        let outcome = catch_unwind(AssertUnwindSafe(|| exercise(&mutant)));
                        let outcome =
                            outcome.unwrap_or_else(|_| panic!("mutant {seed} of {name} panics"));
                        *outcomes.entry(outcome).or_default() += 1;
                    }
                    outcomes
                })
            })
            .collect();
        let mut all = BTreeMap::new();
        for worker in workers {
            for (outcome, count) in worker.join().unwrap() {
                *all.entry(outcome).or_default() += count;
            }
        }
        all
    })
}

#[test]
fn no_mutant_of_a_recording_makes_the_reader_panic() {
    let originals: Vec<_> = FIXTURES.map(|name| (name, fixtures::pickle(name))).into();
    for (name, bytes) in &originals {
        assert_eq!(exercise(bytes), "read", "{name} unharmed");
    }
    let outcomes = run(&originals, MUTANTS_OF_EACH);
    // Damage of both kinds: noticed, and such that the file still says something.
    let count = |outcome| outcomes.get(outcome).copied().unwrap_or(0);
    assert!(count("read") + count("refused") >= 5000, "{outcomes:?}");
    assert!(count("read") >= 500 && count("refused") >= 500, "{outcomes:?}");
}

#[test]
fn no_mutant_of_a_json_dump_makes_the_reader_panic() {
    let originals: Vec<_> = ["2.5.1-graphs", "2.15.0-mempool"]
        .map(|name| {
            let tree = Tree::read(&fixtures::pickle(name)).unwrap();
            (name, plain_json::dump(&tree).into_bytes())
        })
        .into();
    let outcomes = run(&originals, 150);
    assert_eq!(outcomes.values().sum::<u64>(), 300);
}

#[test]
fn no_mutant_of_a_compressed_file_makes_the_reader_panic() {
    use std::io::Write as _;

    use oomscope::input::Source;

    let plain = fixtures::pickle("2.5.1-graphs");
    let gzip = std::fs::read(fixtures::path("2.5.1-graphs")).unwrap();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let zstd = ruzstd::encoding::compress_to_vec(&*plain, level);
    assert!(zstd.len() < plain.len() / 2);
    let mut file = tempfile::NamedTempFile::new().unwrap();
    for (packed, count) in [(gzip, 200), (zstd, 800)] {
        for seed in 0..count {
            let bytes = mutant(&mut Random::new(seed), &packed, &plain);
            file.as_file().set_len(0).unwrap();
            std::io::Seek::rewind(&mut file).unwrap();
            file.write_all(&bytes).unwrap();
            match Source::open(file.path()) {
                Ok(source) => drop(exercise(&source)),
                Err(error) => assert_clean(&error.to_string()),
            }
        }
    }
}
