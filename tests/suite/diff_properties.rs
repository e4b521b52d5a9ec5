//! `diff` holds what it promises on whatever two snapshots: the diff the other way round is its negative,
//! that of a snapshot with itself is empty, and the rows of every table add up to the total.
//! Slow: every recording is analyzed.

use crate::support::cases::random;
use crate::support::{fixtures, generator};
use oomscope::compare::diff::{
    ComparedMoment, DeviceDiff, DiffOptions, DiffReport, Figures, File, LiveChange, MatchedBy, StackChange, Status,
    diff,
};
use oomscope::snapshot::Snapshot;
use oomscope::stacks::frames::FrameReport;
use oomscope::study::figures::Figure;
use proptest::prelude::*;
use serde_json::{Value, json};

const ALL: usize = usize::MAX;

fn compare(before: &Snapshot, after: &Snapshot, at: ComparedMoment, top: usize) -> DiffReport {
    let file = |snapshot, path| File { snapshot, path };
    let options = DiffOptions { at, top, ..DiffOptions::default() };
    diff(file(before, "before"), file(after, "after"), options)
}

fn opposite(status: Status) -> Status {
    match status {
        Status::New => Status::Gone,
        Status::Gone => Status::New,
        Status::Grown => Status::Shrunk,
        Status::Shrunk => Status::Grown,
    }
}

fn turned(held: LiveChange) -> LiveChange {
    LiveChange {
        before_bytes: held.after_bytes,
        after_bytes: held.before_bytes,
        delta_bytes: -held.delta_bytes,
        before_blocks: held.after_blocks,
        after_blocks: held.before_blocks,
    }
}

/// A stack before and after, and what became of it.
type Row = (String, LiveChange, Option<MatchedBy>, Vec<FrameReport>, Vec<FrameReport>);

fn row(stack: &StackChange) -> Row {
    let own = stack.frames.to_vec();
    let (before, after) = match (stack.status, &stack.moved_from) {
        (Status::New, _) => (Vec::new(), own),
        (Status::Gone, _) => (own, Vec::new()),
        (_, None) => (own.clone(), own),
        (_, Some(from)) => (from.to_vec(), own),
    };
    (format!("{:?}", stack.status), stack.held, stack.matched_by, before, after)
}

fn sorted<T: std::fmt::Debug>(rows: impl Iterator<Item = T>) -> Vec<String> {
    let mut rows: Vec<String> = rows.map(|row| format!("{row:?}")).collect();
    rows.sort();
    rows
}

fn negated(figures: &Figures) -> Value {
    fn turn(value: &mut Value) {
        match value {
            Value::Object(pairs) => pairs.values_mut().for_each(turn),
            Value::Number(n) => {
                *value = match n.as_i64() {
                    Some(n) => json!(-n),
                    None => json!(-n.as_f64().unwrap()),
                }
            }
            other => panic!("{other}"),
        }
    }
    let mut value = serde_json::to_value(figures).unwrap();
    turn(&mut value);
    value
}

/// Numbers that are the same whether written 0 or -0.0.
fn plain(value: &Value) -> String {
    value.to_string().replace("-0.0", "0.0")
}

fn is_negative_of(there: &DiffReport, back: &DiffReport) {
    assert_eq!(there.devices.len(), back.devices.len());
    for (there, back) in there.devices.iter().zip(&back.devices) {
        assert_eq!((&there.before, &there.after), (&back.after, &back.before));
        assert_eq!(plain(&serde_json::to_value(there.delta).unwrap()), plain(&negated(&back.delta)));
        let rows = sorted(there.stacks.iter().map(row));
        let turned_rows = sorted(back.stacks.iter().map(|stack| {
            let (_, held, matched_by, before, after) = row(stack);
            let status = format!("{:?}", opposite(stack.status));
            (status, turned(held), matched_by, after, before)
        }));
        assert_eq!(rows, turned_rows);
        let lines = sorted(there.lines.iter().map(|line| (line.status, line.held)));
        let turned_lines = sorted(back.lines.iter().map(|line| (opposite(line.status), turned(line.held))));
        assert_eq!(lines, turned_lines);
        let phases = |d: &DeviceDiff, sign: i64| {
            sorted(d.by_phase.iter().map(|p| (p.phase, sign * p.delta_peak_allocated_bytes)))
        };
        assert_eq!(phases(there, 1), phases(back, -1));
    }
}

fn is_empty(report: &DiffReport) {
    assert_eq!(report.settings_changed, []);
    for device in &report.devices {
        assert_eq!(device.before, device.after);
        assert_eq!(device.delta, Figures::default());
        assert_eq!((device.stacks.len(), device.lines.len()), (0, 0));
        assert!(device.by_phase.iter().all(|phase| phase.delta_peak_allocated_bytes == 0));
    }
}

fn sum(rows: impl Iterator<Item = LiveChange>) -> (u64, u64, i64, u64, u64) {
    rows.fold((0, 0, 0, 0, 0), |sum, held| {
        assert_eq!(held.delta_bytes, held.after_bytes as i64 - held.before_bytes as i64);
        (
            sum.0 + held.before_bytes,
            sum.1 + held.after_bytes,
            sum.2 + held.delta_bytes,
            sum.3 + held.before_blocks,
            sum.4 + held.after_blocks,
        )
    })
}

fn adds_up(report: &DiffReport) {
    for device in &report.devices {
        let (before, after) = (device.before.unwrap_or_default(), device.after.unwrap_or_default());
        let total = (
            before.number(Figure::Allocated),
            after.number(Figure::Allocated),
            device.delta.change(Figure::Allocated),
            before.number(Figure::AllocatedBlocks),
            after.number(Figure::AllocatedBlocks),
        );
        let stacks = device.stacks.iter().map(|stack| stack.held);
        assert_eq!(sum(stacks.chain([device.other_stacks.held])), total);
        let lines = device.lines.iter().map(|line| line.held);
        assert_eq!(sum(lines.chain([device.other_lines.held])), total);
    }
}

fn check(before: &Snapshot, after: &Snapshot) {
    for at in [ComparedMoment::Peak, ComparedMoment::Snapshot] {
        let there = compare(before, after, at, ALL);
        is_negative_of(&there, &compare(after, before, at, ALL));
        for top in [0, 1, 3, ALL] {
            adds_up(&compare(before, after, at, top));
        }
        is_empty(&compare(before, before, at, ALL));
    }
}

// Made-up snapshots: few files, functions and lines, so that much is in doubt

/// File, name and line of a frame, the first two as indices.
type MadeFrame = (u8, u8, u8);
/// Units of 512 bytes, state, stack.
type MadeBlock = (u16, u8, Vec<MadeFrame>);
/// Device, stream, pool, blocks.
type MadeSegment = (u8, u8, u8, Vec<MadeBlock>);

#[derive(Clone, Debug)]
struct Made {
    segments: Vec<MadeSegment>,
}

const FILES: [&str; 6] = ["/a/p/m.py", "/b/p/m.py", "/a/p/n.py", "q.py", "/v/site-packages/torch/nn/x.py", "??"];
const NAMES: [&str; 3] = ["forward", "step", "main"];

fn frame() -> impl Strategy<Value = MadeFrame> {
    (0u8..6, 0u8..3, 0u8..5)
}

fn made() -> impl Strategy<Value = Made> {
    let stack = prop::collection::vec(frame(), 0..3);
    let block = (1u16..9, 0u8..4, stack);
    let segment = (0u8..2, 0u8..3, 0u8..2, prop::collection::vec(block, 1..6));
    prop::collection::vec(segment, 0..6).prop_map(|segments| Made { segments })
}

fn read(made: &Made, handles: u64) -> Snapshot {
    let mut segments = Vec::new();
    let mut next = [1u64 << 32; 2];
    for (device, stream, pool, blocks) in &made.segments {
        let next = &mut next[usize::from(*device)];
        let start = *next;
        let blocks: Vec<Value> = blocks
            .iter()
            .map(|(units, state, frames)| {
                let size = u64::from(*units) * 512;
                let address = *next;
                *next += size;
                let frames: Vec<Value> = frames
                    .iter()
                    .map(|(file, name, line)| {
                        json!({"filename": FILES[usize::from(*file)], "line": line,
                               "name": NAMES[usize::from(*name)]})
                    })
                    .collect();
                let state = match state {
                    0 => "inactive",
                    1 => "active_pending_free",
                    _ => "active_allocated",
                };
                json!({"address": address, "size": size, "requested_size": size - 1,
                       "state": state, "frames": frames})
            })
            .collect();
        let stream = if *stream == 0 { 0 } else { handles + u64::from(*stream) };
        segments.push(json!({
            "device": device, "address": start, "total_size": *next - start, "stream": stream,
            "segment_type": "large", "segment_pool_id": [pool, 0], "is_expandable": false,
            "blocks": blocks,
        }));
        *next += 1 << 21;
    }
    let snapshot = json!({"segments": segments, "device_traces": []});
    Snapshot::read(snapshot.to_string().as_bytes(), &|_| {}).unwrap()
}

proptest! {
    #![proptest_config(random(300))]

    #[test]
    fn promises_hold_on_made_up_snapshots((a, b) in (made(), made())) {
        check(&read(&a, 1 << 20), &read(&b, 1 << 21));
    }
}

#[test]
fn promises_hold_on_generated_traces() {
    let generated = |seed, target_bytes| {
        let mut bytes = Vec::new();
        let distinct_stacks = Some(40);
        let options =
            generator::Options { seed, target_bytes, depth: 8, distinct_stacks, ..generator::Options::default() };
        generator::write_snapshot(&mut bytes, &options).unwrap();
        Snapshot::read(&bytes, &|_| {}).unwrap()
    };
    let snapshots = [generated(1, 60_000), generated(2, 60_000), generated(1, 120_000)];
    for before in &snapshots {
        for after in &snapshots {
            check(before, after);
        }
    }
}

#[test]
fn promises_hold_on_recorded_pairs() {
    for (before, after) in [
        ("2.15.0-holes", "2.15.0-holes-expandable"),
        ("2.9.1-holes-at-oom", "2.15.0-holes-at-oom"),
        ("2.15.0-gpt_varlen-at-oom", "2.15.0-gpt_varlen-late"),
        ("2.15.0-gpt_varlen-wrapped", "2.15.0-gpt_varlen-no-history"),
        ("2.15.0-graphs", "2.5.1-graphs"),
        ("2.15.0-two_devices", "2.15.0-streams"),
        ("2.15.0-mempool", "2.15.0-mempool-expandable"),
        ("2.1.2-cpp_pickler-streams", "2.15.0-cpp_pickler-streams"),
        ("diff/base", "diff/renamed"),
        ("diff/later", "diff/leak"),
    ] {
        let read = fixtures::snapshot;
        check(&read(before), &read(after));
    }
}

/// What is compared is what `analyze` says of each file.
#[test]
fn the_figures_are_those_of_analyze() {
    for name in fixtures::names() {
        let (snapshot, alone) = (fixtures::study(&name).snapshot(), fixtures::report(&name));
        for at in [ComparedMoment::Peak, ComparedMoment::Snapshot] {
            let report = compare(snapshot, snapshot, at, 3);
            for (device, alone) in report.devices.iter().zip(&alone.devices) {
                let figures = device.before.unwrap();
                let allocated = match at {
                    ComparedMoment::Peak => alone.peak.allocated_bytes,
                    ComparedMoment::Snapshot => alone.memory.allocated_bytes,
                };
                assert_eq!(figures.number(Figure::Allocated), allocated, "{name} {at:?}");
                assert_eq!(figures.number(Figure::PeakReserved), alone.peak.reserved_bytes, "{name}");
                // Without a history there is no peak.
                let has_peak = at == ComparedMoment::Peak && alone.timeline.is_some();
                assert_eq!(device.moment == "at the snapshot", !has_peak, "{name}: {}", device.moment);
                if at == ComparedMoment::Snapshot {
                    assert_eq!(figures.number(Figure::Segments), alone.memory.segments.count);
                    assert_eq!(figures.number(Figure::Stranded), alone.memory.fragmentation.stranded_bytes);
                }
            }
        }
    }
}
