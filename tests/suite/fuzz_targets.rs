//! What the fuzz targets hold any input to (`tests/fuzz/bodies.rs`), held for damaged fixtures: seeded mutants with
//! flipped bits, changed bytes, swapped opcodes, spliced, doubled, dropped and truncated chunks.
//! Slow: thousands of mutants are read.

#[path = "../fuzz/bodies.rs"]
mod bodies;

use crate::support::cases::cases;
use crate::support::mutate::{Random, mutant, with_seeds};
use crate::support::{fixtures, peak_heap, plain_json};
use oomscope::base::input::Source;
use oomscope::cli::EXAMPLE;

type Body = fn(&[u8]) -> bool;

/// Small recordings that differ in what they hold.
const RECORDINGS: [&str; 8] = [
    "2.15.0-gpt_varlen-no-history",
    "2.5.1-mempool-expandable",
    "2.5.1-graphs",
    "2.8.0-graphs-expandable",
    "2.12.1-graphs",
    "2.15.0-mempool",
    "2.1.2-holes-at-oom",
    "2.15.0-holes-at-oom",
];

fn recordings() -> Vec<Vec<u8>> {
    RECORDINGS.map(fixtures::pickle).into()
}

/// [`bodies::snapshot`] within its memory.
fn snapshot_in_proportion(bytes: &[u8]) -> bool {
    let (is_read, heap) = peak_heap::peak_of(|| bodies::snapshot(bytes));
    bodies::assert_in_proportion(bytes.len(), heap);
    is_read
}

/// Gives `body` the `originals`, which it must read, and mutants of each: how many were read, of how many.
fn exercise(body: Body, originals: &[Vec<u8>], mutants_of_each: u64) -> (usize, usize) {
    let (mut read, mutants_of_each) = (0, cases(mutants_of_each));
    for (index, original) in originals.iter().enumerate() {
        assert!(body(original), "original {index}");
        let other = &originals[(index + 1) % originals.len()];
        read +=
            with_seeds(&format!("original {index}"), mutants_of_each, |random| body(&mutant(random, original, other)));
    }
    (read, originals.len() * mutants_of_each as usize)
}

#[test]
fn no_mutant_of_a_recording_makes_the_reader_panic() {
    let (read, of) = exercise(snapshot_in_proportion, &recordings(), 800);
    // Damage of both kinds: noticed, and such that the file still says something.
    assert!(read >= of / 13 && of - read >= of / 13, "{read} of {of}");
    let (read, of) = exercise(bodies::pickle, &recordings(), 400);
    assert!(read >= of / 16 && of - read >= of / 16, "{read} of {of}");
}

#[test]
fn no_mutant_of_a_json_dump_makes_the_reader_panic() {
    let dumps = ["2.5.1-graphs", "2.15.0-mempool"].map(|name| plain_json::recording(name).to_string().into_bytes());
    exercise(snapshot_in_proportion, &dumps, 150);
    // Opcodes that make a container of each byte: within the memory, or refused.
    for opcodes in [&b"\x85"[..], b"]", b"]a", b"}", b"(l", b"\x8f"] {
        let mut bomb = [&b"\x80\x04}\x8c\x01x"[..], b"]"].concat();
        bomb.extend(opcodes.iter().cycle().take(8 << 20));
        bomb.extend(b"s.");
        snapshot_in_proportion(&bomb);
    }
}

#[test]
fn no_mutant_of_a_compressed_file_makes_the_reader_panic() {
    let plain = fixtures::pickle("2.5.1-graphs");
    let gzip = std::fs::read(fixtures::path("2.5.1-graphs")).unwrap();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let zstd = ruzstd::encoding::compress_to_vec(&*plain, level);
    assert!(zstd.len() < plain.len() / 2);
    let file = tempfile::NamedTempFile::new().unwrap();
    for (packed, count) in [(gzip, 200), (zstd, 800)] {
        for seed in 0..cases(count) {
            std::fs::write(file.path(), mutant(&mut Random::new(seed), &packed, &plain)).unwrap();
            match Source::open(file.path()) {
                Ok(source) => drop(bodies::snapshot(&source)),
                Err(error) => bodies::assert_sentence(&error.to_string()),
            }
        }
    }
}

#[test]
fn a_readable_mutant_is_analyzed_and_laid_out() {
    let (read, of) = exercise(bodies::analysis, &recordings(), 20);
    assert!(read >= of / 20, "{read} of {of}");
}

#[test]
fn any_log_is_explained_or_has_no_finding() {
    let logs = ["2.15.0-fragmentation", "2.15.0-private-pool", "2.9.1-expandable", "ranks"]
        .map(|name| std::fs::read(format!("fixtures/logs/{name}.log")).unwrap());
    let (read, of) = exercise(bodies::log, &logs, 250);
    assert!(read > of / 2, "{read} of {of}");
}

#[test]
fn any_string_of_settings_is_read_or_refused() {
    let strings = [
        "expandable_segments:True,max_split_size_mb:64,garbage_collection_threshold:0.5",
        "roundup_power2_divisions:[256:1,512:2,1024:4,>:8],pinned_use_background_threads:True",
        "backend:native,max_non_split_rounding_mb:40,release_lock_on_cudamalloc:False",
    ]
    .map(|string| string.as_bytes().to_vec());
    let (read, of) = exercise(bodies::settings, &strings, 600);
    // Few are read: among a hundred there may be none.
    assert!(read < of && (read > 0 || of < 400), "{read} of {of}");
}

#[test]
fn any_configuration_of_the_gate_is_read_or_refused() {
    let limits = std::fs::read("fixtures/gate/limits.toml").unwrap();
    let (read, of) = exercise(bodies::config, &[EXAMPLE.as_bytes().to_vec(), limits], 1000);
    assert!(read > of / 100 && of - read > of / 4, "{read} of {of}");
}
