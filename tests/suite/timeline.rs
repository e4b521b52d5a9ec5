//! `oomscope timeline`: the series are those of the snapshot and of `analyze`, nothing is lost in a bucket,
//! and what happened is found where it happened. Slow: every recording is followed twice.

use crate::support::cases::random;
use crate::support::describe::read;
use crate::support::{fixtures, garbage, peak_heap, recorded, reference, window};
use std::collections::BTreeSet;

use crate::support::reference::{Reference, snapshot_bytes};
use oomscope::analysis::timeline::{DeviceTimeline, Series, TimelineReport, timeline};
use oomscope::analysis::{Options, analyze};
use oomscope::output::document::{Style, terminal};
use oomscope::output::formats;
use oomscope::output::report;
use oomscope::snapshot::Snapshot;
use oomscope::study::figures::Figure;
use oomscope::study::{Scope, Window};
use proptest::prelude::*;
use serde_json::{Value, json};

const MIB: u64 = 1 << 20;
const EVERY_ENTRY: usize = 100_000;

fn parsed(file: &Value) -> Snapshot {
    read(&serde_json::to_vec(file).unwrap())
}

fn follow(snapshot: &Snapshot, window: Window, buckets: usize) -> TimelineReport {
    timeline(snapshot, "a", Scope { window, ..Scope::default() }, buckets)
}

/// The sizes of `device` as they are listed.
fn bytes_of(device: &DeviceTimeline) -> [&Series<u64>; 9] {
    let sizes: Vec<_> = device.series.sizes().map(|(_, series)| series).collect();
    sizes.try_into().unwrap()
}

fn ratios_of(device: &DeviceTimeline) -> [&Series<f64>; 3] {
    let ratios: Vec<_> = device.series.ratios().map(|(_, series)| series).collect();
    ratios.try_into().unwrap()
}

/// One of the sizes of `device`.
fn size(device: &DeviceTimeline, figure: Figure) -> &Series<u64> {
    device.series.size(figure).unwrap()
}

/// What holds whatever the file says.
fn is_sound(device: &DeviceTimeline, limit: usize) {
    let (first, last) = (&device.buckets.first_event, &device.buckets.last_event);
    let count = first.len();
    assert!((1..=limit).contains(&count) && last.len() == count);
    assert_eq!(device.buckets.time_us.len(), count);
    assert_eq!(first[0], device.first_event);
    assert_eq!(last[count - 1], device.first_event + device.events - 1);
    assert!(first.iter().zip(last).all(|(first, last)| first <= last));
    assert!(first.iter().skip(1).zip(last).all(|(next, last)| *next == last + 1));
    fn keeps_its_extremes<T: PartialOrd + Copy + std::fmt::Debug>(series: &Series<T>, count: usize) {
        assert_eq!((series.min.len(), series.max.len()), (count, count));
        assert!(series.min.iter().zip(&series.max).all(|(min, max)| min <= max));
        assert!(series.max.iter().all(|max| *max <= series.highest));
        assert!(series.max.contains(&series.highest));
        assert!(series.min[count - 1] <= series.last && series.last <= series.max[count - 1]);
    }
    for series in bytes_of(device) {
        keeps_its_extremes(series, count);
        if let Some(event) = series.highest_event {
            let bucket = first.partition_point(|first| *first <= event) - 1;
            assert_eq!(series.max[bucket], series.highest);
        }
    }
    for series in ratios_of(device) {
        keeps_its_extremes(series, count);
        assert!(series.min.iter().chain(&series.max).all(|ratio| (0.0..=1.0).contains(ratio)));
    }
    let s = |figure| size(device, figure);
    for i in 0..count {
        for (part, whole) in [
            (Figure::Allocated, Figure::Reserved),
            (Figure::PrivateFree, Figure::Stranded),
            (Figure::PrivateReserved, Figure::Reserved),
        ] {
            assert!(s(part).max[i] <= s(whole).max[i]);
        }
    }
    let free = s(Figure::Releasable).last + s(Figure::Stranded).last;
    let used = s(Figure::Allocated).last + s(Figure::Pending).last;
    assert_eq!(s(Figure::Reserved).last, used + free);
    let marks = &device.marks;
    for kind in [&marks.oom, &marks.reclaim, &marks.empty_cache, &marks.snapshot] {
        assert_eq!(kind.in_bucket.len(), count);
        assert_eq!(kind.in_bucket.iter().sum::<u64>(), kind.count);
        assert_eq!(kind.largest.len() as u64, kind.count.min(100));
        assert!(kind.largest.windows(2).all(|pair| pair[0].event <= pair[1].event));
        for mark in &kind.largest {
            let bucket = first.partition_point(|first| *first <= mark.event) - 1;
            assert!(kind.in_bucket[bucket] > 0);
        }
    }
}

#[test]
fn the_documentation_lists_every_series_as_the_catalogue_has_it() {
    let page = std::fs::read_to_string("docs/timeline.md").unwrap();
    let failed = read(&fixtures::pickle("2.15.0-oom_varlen-at-oom"));
    let series = &follow(&failed, Window::default(), 1).devices[0].series;
    let figures: Vec<Figure> = series.sizes().map(|(of, _)| of).chain(series.ratios().map(|(of, _)| of)).collect();
    for figure in figures {
        let row = format!("\n| `{}` | {} |\n", figure.json_key(), figure.meaning());
        assert!(page.contains(&row), "docs/timeline.md lacks {row}");
    }
}

#[test]
fn every_recording_ends_in_its_snapshot_and_peaks_as_in_analyze() {
    let mut devices = 0;
    for (i, name) in fixtures::names().iter().enumerate() {
        let snapshot = fixtures::study(name).snapshot();
        let parts = [window::last(300), window::around_failure(50), window::between(Some(100), Some(900))];
        for window in [Window::default(), parts[i % 3]] {
            let scope = Scope { window, ..Scope::default() };
            let part = || analyze(snapshot, "a", 0, Options { scope, ..Options::default() });
            let analyzed = if window == Window::default() { fixtures::report(name).clone() } else { part() };
            for device in follow(snapshot, window, 100).devices {
                is_sound(&device, 100);
                let other = analyzed.devices.iter().find(|d| d.device == device.device).unwrap();
                let peak = &other.peak;
                let [reserved, allocated] = [Figure::Reserved, Figure::Allocated].map(|figure| size(&device, figure));
                // `analyze` knows the end even where the trace falls short of it.
                assert_eq!(reserved.highest, peak.reserved_bytes, "{name}");
                assert_eq!(reserved.highest_event, peak.reserved_event, "{name}");
                assert_eq!(allocated.highest, peak.allocated_bytes, "{name}");
                assert_eq!(allocated.highest_event, peak.allocated_event, "{name}");
                assert_eq!(device.marks.oom.count, other.oom_count, "{name}");
                if device.first_event + device.events < device.trace_events {
                    continue;
                }
                devices += 1;
                let (memory, free) = (&other.memory, &other.memory.fragmentation);
                let private = || memory.pools.iter().filter(|pool| pool.pool_id != [0, 0]);
                assert_eq!(
                    bytes_of(&device).map(|series| series.last),
                    [
                        memory.reserved_bytes,
                        memory.allocated_bytes,
                        memory.active_bytes,
                        memory.active_bytes - memory.allocated_bytes,
                        free.releasable_bytes,
                        free.stranded_bytes,
                        private().map(|pool| pool.bytes.inactive_bytes).sum(),
                        private().map(|pool| pool.bytes.reserved_bytes).sum(),
                        free.largest_free_block_bytes,
                    ],
                    "{name}"
                );
                assert_eq!(
                    ratios_of(&device).map(|series| series.last),
                    [free.gap_ratio, free.stranded_ratio, free.external_ratio],
                    "{name}"
                );
            }
        }
    }
    assert!(devices > 80, "{devices}");
}

/// Coarse buckets hold the extremes of the fine ones in them.
fn nothing_is_lost(fine: &DeviceTimeline, coarse: &DeviceTimeline) {
    let first = &fine.buckets.first_event;
    fn extremes_agree<T: PartialOrd + Copy + std::fmt::Debug>(
        fine: &Series<T>,
        coarse: &Series<T>,
        within: impl Fn(usize) -> std::ops::Range<usize>,
    ) {
        for bucket in 0..coarse.min.len() {
            let (min, max) = (&fine.min[within(bucket)], &fine.max[within(bucket)]);
            let least = min.iter().copied().reduce(|a, b| if b < a { b } else { a });
            let most = max.iter().copied().reduce(|a, b| if b > a { b } else { a });
            assert_eq!((Some(coarse.min[bucket]), Some(coarse.max[bucket])), (least, most));
        }
        assert_eq!((coarse.highest, coarse.last), (fine.highest, fine.last));
        assert_eq!(coarse.highest_event, fine.highest_event);
    }
    let within = |bucket: usize| {
        let (from, to) = (coarse.buckets.first_event[bucket], coarse.buckets.last_event[bucket]);
        first.partition_point(|first| *first < from)..first.partition_point(|first| *first <= to)
    };
    for (fine, coarse) in bytes_of(fine).into_iter().zip(bytes_of(coarse)) {
        extremes_agree(fine, coarse, within);
    }
    for (fine, coarse) in ratios_of(fine).into_iter().zip(ratios_of(coarse)) {
        extremes_agree(fine, coarse, within);
    }
}

#[test]
fn no_spike_is_lost_however_few_the_buckets() {
    for name in ["2.15.0-fuzz_streams-oom-lag", "2.15.0-mempool", "2.15.0-holes-expandable"] {
        let snapshot = read(&fixtures::pickle(name));
        let fine = follow(&snapshot, Window::default(), EVERY_ENTRY);
        for limit in [1, 2, 7, 100, 512] {
            let coarse = follow(&snapshot, Window::default(), limit);
            for (fine, coarse) in fine.devices.iter().zip(&coarse.devices) {
                assert_eq!(fine.buckets.first_event.len() as u64, fine.events);
                is_sound(coarse, limit);
                nothing_is_lost(fine, coarse);
            }
        }
    }
}

/// PyTorch counts a retry for every request that it refused memory at first: those for which something
/// could be given back, and those that failed.
#[test]
fn requests_that_released_memory_or_failed_are_the_retries_pytorch_counted() {
    for name in [
        "2.6.0-fuzz_streams-oom-lag",
        "2.9.1-fuzz_streams-oom-lag",
        "2.5.1-gpt_varlen-oom",
        "2.9.1-oom_varlen-expandable-at-oom",
        "2.11.0-fuzz_streams-oom-lag",
        "2.15.0-fuzz-oom",
        "2.15.0-fuzz-fraction-oom",
        "2.15.0-fuzz-expandable-oom",
        "2.15.0-fuzz_streams-oom-lag",
        "2.15.0-oom_varlen-at-oom",
    ] {
        let snapshot = read(&fixtures::pickle(name));
        let marks = &follow(&snapshot, Window::default(), 512).devices[0].marks;
        let refused: BTreeSet<u64> =
            marks.reclaim.largest.iter().chain(&marks.oom.largest).map(|mark| mark.event).collect();
        let retries = recorded::of(name).unwrap().stat(0, "num_alloc_retries");
        assert_eq!(refused.len() as u64, retries, "{name}");
    }
    let calm = read(&fixtures::pickle("2.15.0-graphs"));
    let marks = &follow(&calm, Window::default(), 512).devices[0].marks;
    assert_eq!((marks.empty_cache.count, marks.reclaim.count, marks.oom.count), (2, 0, 0));
}

#[test]
fn a_block_does_not_wait_within_one_call() {
    let entry = |action: &str, stack: &str| {
        json!({"action": action, "addr": 0x7000_0000, "size": 2 * MIB, "stream": 0,
            "frames": [{"filename": stack, "line": 1, "name": "f"}]})
    };
    let highest = |window: Window, free: &str, completed: &str| {
        let trace = [
            entry("segment_alloc", "a"),
            entry("alloc", "a"),
            entry("free_requested", free),
            entry("free_completed", completed),
        ];
        let snapshot = parsed(&json!({"segments": [], "device_traces": [trace]}));
        size(&follow(&snapshot, window, 512).devices[0], Figure::Pending).highest
    };
    for window in [Window::default(), window::last(2), window::last(1), window::between(None, Some(3))] {
        assert_eq!((highest(window, "b", "b"), highest(window, "b", "c")), (0, 2 * MIB));
    }
}

#[test]
fn memory_does_not_grow_with_the_trace() {
    let heap = |rounds: u64| {
        let mut trace = vec![json!({"action": "segment_alloc", "addr": 0x7000_0000, "size": 20 * MIB, "stream": 0})];
        for round in 0..rounds {
            let label = format!("round {round}");
            for action in ["alloc", "free_requested", "free_completed", "oom", "snapshot"] {
                let key = if action == "oom" { "device_free" } else { "addr" };
                trace.push(json!({"action": action, key: 0x7000_0000, "size": MIB + round, "stream": 0,
                    "user_metadata": label}));
            }
        }
        let snapshot = parsed(&json!({"segments": [], "device_traces": [trace]}));
        let (report, heap) = peak_heap::peak_of(|| follow(&snapshot, Window::default(), 512));
        let device = &report.devices[0];
        is_sound(device, 512);
        assert_eq!((device.marks.oom.count, device.marks.snapshot.count), (rounds, rounds));
        heap
    };
    let (short, long) = (heap(1000), heap(10_000));
    assert!(short > 10_000 && long < short + short / 10, "{short} {long}");
}

proptest! {
    #![proptest_config(random(60))]

    #[test]
    fn every_entry_of_a_program_is_in_the_series(
        program in reference::program(120),
        limit in 1..40usize,
        ends in any::<[prop::sample::Index; 2]>(),
    ) {
        let reference = Reference::run(&program);
        let len = reference.events.len();
        prop_assume!(len > 0);
        let snapshot = read(&snapshot_bytes(&[(&reference, 0)]));
        let fine = &follow(&snapshot, Window::default(), EVERY_ENTRY).devices[0];
        for (i, totals) in reference.after.iter().enumerate() {
            prop_assert_eq!(size(fine, Figure::Reserved).max[i], totals.reserved);
            prop_assert_eq!(size(fine, Figure::Active).max[i], totals.active);
            // A free that is done at once shows when it is done.
            let next = reference.events.get(i + 1);
            if next.is_none_or(|next| next["action"] != "free_completed") {
                prop_assert_eq!(size(fine, Figure::Allocated).max[i], totals.allocated);
            }
        }
        let ends = ends.map(|end| end.index(len + 1));
        let (from, to) = (ends[0].min(ends[1]), ends[0].max(ends[1]));
        prop_assume!(from < to);
        let window = window::between(Some(from as u64), Some(to as u64));
        let part = |limit| follow(&snapshot, window, limit).devices.remove(0);
        let (fine, coarse) = (part(EVERY_ENTRY), part(limit));
        is_sound(&coarse, limit);
        nothing_is_lost(&fine, &coarse);
    }

    #[test]
    fn no_entries_whatever_break_it(file in garbage::snapshot(), limit in 1..40usize, last in 0..50u64) {
        let snapshot = parsed(&file);
        for window in [Window::default(), window::last(last)] {
            let report = follow(&snapshot, window, limit);
            for device in &report.devices {
                is_sound(device, limit);
            }
            for (width, unicode) in [(60, true), (250, false)] {
                let page = terminal(&report::timeline(&report), Style { width, unicode, colour: false });
                prop_assert!(unicode || page.is_ascii(), "{page}");
            }
            formats::json(&report).unwrap();
        }
    }
}
