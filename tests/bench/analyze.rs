//! Throughput of the reader, the literal replay, the allocator model and the whole of `analyze`, on
//! generated snapshots.
//!
//! `cargo bench`; the figures and how they compare with CPython are in docs/performance.md.
#![allow(missing_docs, clippy::unwrap_used)]

#[path = "../support/generator/mod.rs"]
mod generator;
#[path = "../support/pickle_tree.rs"]
mod pickle_tree;

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use oomscope::allocator::releases::NEWEST;
use oomscope::analysis::{Options, analyze};
use oomscope::replay::literal::{LiteralReplay, Tracking, recorded_settings};
use oomscope::replay::model::{simulate, verify};
use oomscope::replay::ops::Program;
use oomscope::snapshot::Snapshot;
use oomscope::study::{Scope, Study};
use oomscope::whatif::fit::{FitInput, FitOptions, fit};
use oomscope::whatif::{Overrides, WhatIfOptions, compare_settings, replay_with, write_snapshot};

const SIZE: u64 = 30_000_000;

fn generated(distinct_stacks: Option<usize>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let options = generator::Options { target_bytes: SIZE, distinct_stacks, ..generator::Options::default() };
    generator::write_snapshot(&mut bytes, &options).unwrap();
    bytes
}

/// The snapshot that the model itself makes of the calls in `bytes`: one that it can reproduce.
fn made_by_the_model(bytes: &[u8]) -> Snapshot {
    let snapshot = Snapshot::read(bytes, &|_| ()).unwrap();
    let study = Study::new(&snapshot, Scope::default());
    // The newest release, whatever the generator writes like.
    let overrides = Overrides { minor: Some(NEWEST), ..Overrides::default() };
    let (_, emitted) = replay_with(&study, "bench", &overrides, true);
    let mut written = Vec::new();
    write_snapshot(&study, &overrides, &emitted, &mut written).unwrap();
    Snapshot::read(&written, &|_| ()).unwrap()
}

/// The model: entries a second, once the file is loaded, on one core.
fn model(c: &mut Criterion) {
    let snapshot = made_by_the_model(&generated(Some(2000)));
    let study = Study::new(&snapshot, Scope::default());
    let one = study.inference().devices.first().unwrap();
    assert!(one.verification.is_exact());
    let mut group = c.benchmark_group("model");
    group.sample_size(20).throughput(Throughput::Elements(one.verification.recorded as u64));
    group.bench_function("verify", |b| {
        b.iter(|| verify(black_box(one.device), &one.hypothesis, None));
    });
    group.bench_function("what-if", |b| {
        b.iter(|| {
            let program = Program::from_trace(black_box(one.device), &one.hypothesis.settings);
            simulate(&program, &one.hypothesis, None)
        });
    });
    group.finish();
}

/// 64 settings, each with its smallest device, on a ring of about 100,000 entries.
fn many_settings(c: &mut Criterion) {
    let mut bytes = Vec::new();
    let options =
        generator::Options { target_bytes: 19_000_000, distinct_stacks: Some(2000), ..generator::Options::default() };
    generator::write_snapshot(&mut bytes, &options).unwrap();
    let snapshot = made_by_the_model(&bytes);
    let study = Study::new(&snapshot, Scope::default());
    let limits = [32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024];
    let divisions = [2, 4, 8, 16, 32];
    let expandable = ["expandable_segments:True".to_owned()];
    let split = limits.map(|limit| format!("max_split_size_mb:{limit}"));
    let rounded = divisions.map(|d| format!("roundup_power2_divisions:{d}"));
    let both = split.iter().flat_map(|s| rounded.iter().map(move |r| format!("{s},{r}")));
    let settings: Vec<String> = expandable.iter().chain(&split).chain(&rounded).cloned().chain(both).take(64).collect();
    assert_eq!(settings.len(), 64);
    let asked = WhatIfOptions { options: &settings, ..WhatIfOptions::default() };
    let mut group = c.benchmark_group("whatif");
    group.sample_size(10).throughput(Throughput::Elements(snapshot.entries.len() as u64));
    group.bench_function("64 settings", |b| {
        b.iter(|| compare_settings(&study, "bench", asked, &|_, _| ()).unwrap());
    });
    group.finish();
}

/// The largest batch that fits, recorded settings and grid, from two recordings of about 100,000 entries each.
fn other_sizes(c: &mut Criterion) {
    let batches = [4, 8];
    let recorded = batches.map(|batch| {
        let mut bytes = Vec::new();
        let options = generator::Options { target_bytes: 19_000_000, batch, ..generator::Options::default() };
        generator::write_snapshot(&mut bytes, &options).unwrap();
        made_by_the_model(&bytes)
    });
    let options = FitOptions { sizes: &[], capacity: Some(80 << 30), gpu: None, settings: None, multiple: 1 };
    let mut group = c.benchmark_group("fit");
    let entries = recorded.iter().map(|snapshot| snapshot.entries.len() as u64).sum();
    group.sample_size(10).throughput(Throughput::Elements(entries));
    group.bench_function("largest of a grid", |b| {
        b.iter(|| {
            let studies = [&recorded[0], &recorded[1]].map(|s| Study::new(s, Scope::default()));
            let sized: Vec<FitInput<'_, '_>> = batches
                .iter()
                .zip(&studies)
                .map(|(size, study)| FitInput { size: *size, path: "bench", study })
                .collect();
            fit(&sized, &options).unwrap()
        });
    });
    group.finish();
}

fn benches(c: &mut Criterion) {
    for (name, distinct_stacks) in [("2000 stacks", Some(2000)), ("all stacks distinct", None)] {
        let bytes = generated(distinct_stacks);
        let snapshot = Snapshot::read(&bytes, &|_| ()).unwrap();
        let settings = recorded_settings(&snapshot);
        let mut group = c.benchmark_group(name);
        group.sample_size(20).throughput(Throughput::Bytes(bytes.len() as u64));
        group.bench_function("read", |b| {
            b.iter(|| Snapshot::read(black_box(&bytes), &|_| ()).unwrap());
        });
        group.bench_function("replay", |b| {
            let literal = LiteralReplay { device: snapshot.device(0), settings: &settings, settings_changes: &[] };
            b.iter(|| literal.run(Tracking::Totals, |step| _ = black_box(step.tiling.totals())));
        });
        group.bench_function("read and analyze", |b| {
            b.iter(|| {
                let snapshot = Snapshot::read(black_box(&bytes), &|_| ()).unwrap();
                analyze(&snapshot, "bench", bytes.len() as u64, Options { top: 10, ..Options::default() })
            });
        });
        group.bench_function("read as a plain tree", |b| {
            b.iter(|| pickle_tree::Tree::read(black_box(&bytes)).unwrap());
        });
        group.finish();
    }
}

criterion_group!(all, benches, model, many_settings, other_sizes);
criterion_main!(all);
