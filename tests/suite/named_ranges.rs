//! Ranges that the program or PyTorch named, and the requests for which memory went back to the device, are found where
//! they happened.

#![allow(clippy::single_range_in_vec_init)]

use std::collections::BTreeSet;
use std::ops::Range;

use oomscope::replay::ops::device_frees;
use oomscope::snapshot::{Action, Snapshot};
use oomscope::study::named_ranges::{SpanEntries, annotation_spans, named_ranges};
use serde_json::{Value, json};

use crate::support::{fixtures, recorded};

const MIB: u64 = 1 << 20;

/// The spans of the whole trace, by name.
fn named(snapshot: &Snapshot, window: Range<usize>) -> Vec<(String, &'static str, Vec<Range<usize>>)> {
    let ranges = named_ranges(snapshot.device(0), &window);
    ranges.into_iter().map(|range| (range.name, range.source, range.spans)).collect()
}

fn all(snapshot: &Snapshot) -> Range<usize> {
    0..snapshot.device(0).len()
}

/// PyTorch counts a retry for every request that it refused memory at first: those for which something could be given
/// back, and those that failed.
#[test]
fn requests_that_had_memory_given_back_or_failed_are_the_retries_pytorch_counted() {
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
        let device = fixtures::study(name).device(0).unwrap();
        let reserved = device.history().unwrap().outcome.initial_totals.reserved;
        let given_back = device_frees(device.device(), reserved).filter(|free| free.is_for_request);
        let refused: BTreeSet<usize> =
            given_back.map(|free| free.entry_index).chain(device.failed_requests()).collect();
        let retries = recorded::of(name).unwrap().stat(0, "num_alloc_retries");
        assert_eq!(refused.len() as u64, retries, "{name}");
    }
    let calm = fixtures::study("2.15.0-graphs").device(0).unwrap();
    let frees: Vec<bool> = device_frees(calm.device(), 0).map(|free| free.is_for_request).collect();
    assert_eq!(frees, [false, false]);
}

#[test]
fn optimizer_steps_have_the_entries_of_their_times() {
    let snapshot = fixtures::snapshot("2.15.0-conv_train");
    let trace = snapshot.device(0);
    let (step, others): (Vec<_>, Vec<_>) = named(&snapshot, all(&snapshot))
        .into_iter()
        .partition(|(name, source, _)| (&**name, *source) == ("Optimizer.step#SGD.step", "annotation"));
    assert_eq!((step.len(), others.len(), step[0].2.len()), (1, 1, 12));
    let spans = annotation_spans(trace);
    let is_step = |span: &&SpanEntries| snapshot.text(span.name) == "Optimizer.step#SGD.step";
    for (span, kept) in spans.iter().filter(is_step).zip(&step[0].2) {
        assert_eq!(&span.entries, kept);
        let [start, end] = span.times.map(Option::unwrap);
        for index in 0..trace.len() {
            let is_in = span.entries.contains(&index);
            assert_eq!(is_in, (start..=end).contains(&trace.time_us(index).unwrap()), "entry {index}");
        }
    }
}

#[test]
fn spans_that_ended_before_the_window_are_not_counted() {
    let snapshot = fixtures::snapshot("2.15.0-gpt_varlen-wrapped");
    let counts = |window| -> Vec<usize> { named(&snapshot, window).iter().map(|(.., spans)| spans.len()).collect() };
    // Six steps are annotated; the ring has kept the entries of the last. It ends at entry 1,551.
    assert_eq!(counts(0..2000), [1, 1]);
    assert_eq!(counts(1551..2000), [1]);
    assert_eq!(counts(1552..2000), [0; 0]);
}

/// A trace of allocations of 2 MiB, one a millisecond, `labels` their metadata, with annotations.
fn labelled(labels: &[&str], annotations: Value) -> Snapshot {
    let mut trace =
        vec![json!({"action": "segment_alloc", "addr": 0x7000_0000, "size": 100 * MIB, "stream": 0, "time_us": 999})];
    trace.extend(labels.iter().zip(0u64..).map(|(label, i)| {
        json!({"action": "alloc", "addr": 0x7000_0000 + i * 2 * MIB, "size": 2 * MIB, "stream": 0,
            "time_us": 1000 * (i + 1), "user_metadata": label})
    }));
    let file = json!({"segments": [], "device_traces": [trace], "external_annotations": annotations});
    let snapshot = Snapshot::read(&serde_json::to_vec(&file).unwrap(), &|_| {}).unwrap();
    assert!(snapshot.device(0).indexes_with_action(Action::Alloc).count() == labels.len());
    snapshot
}

#[test]
fn a_span_without_its_start_or_end_goes_to_that_of_the_trace() {
    let annotation = |name, stage, time| json!({"name": name, "stage": stage, "device": 0, "time_us": time});
    let snapshot = labelled(
        &["", "a", "a", "b", "", "b"],
        json!([
            annotation("lost", "END", 2000),
            annotation("outer", "START", 2500),
            annotation("outer", "START", 3500),
            annotation("outer", "END", 4500),
            annotation("outer", "END", 5500),
            annotation("open", "START", 5000),
            annotation("brief", "START", 2100),
            annotation("brief", "END", 2200),
            json!({"name": "elsewhere", "stage": "START", "device": 1, "time_us": 1}),
        ]),
    );
    let range = |name: &str, source, spans: &[Range<usize>]| (name.to_owned(), source, spans.to_vec());
    // Entry 0 is the segment, entry n was recorded at n milliseconds.
    assert_eq!(
        named(&snapshot, all(&snapshot)),
        [
            range("outer", "annotation", &[3..6, 4..5]),
            range("lost", "annotation", &[0..3]),
            range("a", "user_metadata", &[2..4]),
            range("b", "user_metadata", &[4..5, 6..7]),
            range("open", "annotation", &[5..7]),
            range("brief", "annotation", &[3..3]),
        ]
    );
    let part = [range("outer", "annotation", &[4..5, 4..5]), range("b", "user_metadata", &[4..5])];
    assert_eq!(named(&snapshot, 4..5), part);
}

#[test]
fn ranges_do_not_grow_with_the_trace() {
    let labels: Vec<String> = (0..1000).map(|round| format!("round {round}")).collect();
    let labels: Vec<&str> = labels.iter().map(String::as_str).collect();
    let many = labelled(&labels, json!([]));
    assert_eq!(named(&many, all(&many)).len(), 64);
    let alternating: Vec<&str> = (0..1000).map(|n| if n % 2 == 0 { "a" } else { "b" }).collect();
    let two = labelled(&alternating, json!([]));
    let spans: Vec<usize> = named(&two, all(&two)).iter().map(|(.., spans)| spans.len()).collect();
    assert_eq!(spans, [100, 100]);
}
