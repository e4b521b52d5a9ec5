//! The rows of the tables, and sentences about them.

use serde_json::Value;

use super::super::words::pool;
use crate::diff::{
    At, DeviceDiff, DiffReport, Figures, Held, Moment, PhaseChange, PoolChange, RankChange,
    RanksDiff, SettingChange, Space, Status, StepChange, StreamChange,
};
use crate::document::{Cell, code};
use crate::units::{count, counted, percent, ratio, signed_count, signed_size, size, stream};

/// The heads of [`figures`].
pub(super) const FIGURES: [&str; 5] = ["", "before", "after", "change", ""];
/// The heads of [`settings`].
pub(super) const SETTINGS: [&str; 3] = ["setting", "before", "after"];
/// The heads of [`pools`] and, with another first one, of [`streams`].
pub(super) const SPACES: [&str; 6] =
    ["pool", "reserved before", "after", "change", "allocated", "free"];
/// The heads of [`ranks`].
pub(super) const RANKS: [&str; 8] =
    ["rank", "device", "before", "after", "change", "", "peak reserved", "failed"];

/// The word of a status.
pub(super) fn word(status: Status) -> &'static str {
    match status {
        Status::New => "new",
        Status::Gone => "gone",
        Status::Grown => "grown",
        Status::Shrunk => "shrunk",
    }
}

/// `+14%`, or `x25` for many times as much; nothing where nothing was before or nothing changed.
pub(super) fn share(before: u64, by: i64) -> String {
    const MANY: u64 = 10;
    match (before, by.signum()) {
        (0, _) | (_, 0) => String::new(),
        (_, 1) if by.unsigned_abs() / before >= MANY => {
            format!("x{}", count(by.unsigned_abs() / before + 1))
        }
        (_, sign) => {
            let share = percent(ratio(by.unsigned_abs(), before));
            let sign = if sign > 0 { "+" } else { "-" };
            if share.starts_with('<') { share } else { format!("{sign}{share}") }
        }
    }
}

/// `3 → 5`, or the one number of both.
pub(super) fn blocks(held: &Held) -> String {
    let (before, after) = (count(held.before_blocks), count(held.after_blocks));
    if before == after { after } else { format!("{before} → {after}") }
}

/// Totals, segments, blocks and fragmentation.
pub(super) fn figures(device: &DeviceDiff, at: At) -> Vec<Vec<Cell>> {
    let (before, after) = (device.before.unwrap_or_default(), device.after.unwrap_or_default());
    let delta = &device.delta;
    let row = |depth,
               name: &str,
               show: fn(u64) -> String,
               of: fn(&Figures<u64>) -> u64,
               by: &str,
               share: String| {
        let name = Cell::Part(depth, name.into());
        vec![name, show(of(&before)).into(), show(of(&after)).into(), by.into(), share.into()]
    };
    let bytes = |depth, name, of: fn(&Figures<u64>) -> u64, by: i64| {
        row(depth, name, size, of, &signed_size(by), share(of(&before), by))
    };
    let counts = |depth, name, of: fn(&Figures<u64>) -> u64, by: i64| {
        row(depth, name, count, of, &signed_count(by), share(of(&before), by))
    };
    let mut rows = Vec::new();
    // Elsewhere one of the two has no peak.
    if device.at == at {
        rows.push(bytes(
            0,
            "peak allocated",
            |f| f.peak_allocated_bytes,
            delta.peak_allocated_bytes,
        ));
        rows.push(bytes(0, "peak reserved", |f| f.peak_reserved_bytes, delta.peak_reserved_bytes));
    }
    rows.push(vec![
        format!("{}:", device.moment).into(),
        "".into(),
        "".into(),
        "".into(),
        "".into(),
    ]);
    rows.push(bytes(1, "allocated", |f| f.allocated_bytes, delta.allocated_bytes));
    rows.push(bytes(1, "reserved", |f| f.reserved_bytes, delta.reserved_bytes));
    let (pending, by) = (|f: &Figures<u64>| f.blocks.active_pending_free, delta.blocks);
    if pending(&before).count + pending(&after).count > 0 {
        let by = by.active_pending_free.bytes;
        rows.push(bytes(1, "pending free", |f| f.blocks.active_pending_free.bytes, by));
    }
    let free = &delta.fragmentation;
    rows.extend([
        bytes(1, "free", |f| f.blocks.inactive.bytes, by.inactive.bytes),
        bytes(2, "releasable", |f| f.fragmentation.releasable_bytes, free.releasable_bytes),
        bytes(2, "stranded", |f| f.fragmentation.stranded_bytes, free.stranded_bytes),
        bytes(
            2,
            "largest block",
            |f| f.fragmentation.largest_free_block_bytes,
            free.largest_free_block_bytes,
        ),
        bytes(1, "rounding", |f| f.fragmentation.rounding_bytes, free.rounding_bytes),
        gap(device, [&before, &after]),
        counts(1, "segments", |f| f.segments.count, delta.segments.count),
        counts(1, "blocks in use", |f| f.blocks.active_allocated.count, by.active_allocated.count),
        counts(1, "free blocks", |f| f.blocks.inactive.count, by.inactive.count),
    ]);
    if before.ooms + after.ooms > 0 {
        rows.push(counts(0, "failed requests", |f| f.ooms, delta.ooms));
    }
    rows
}

fn gap(device: &DeviceDiff, sides: [&Figures<u64>; 2]) -> Vec<Cell> {
    let [before, after] = sides.map(|f| percent(f.fragmentation.gap_ratio));
    let name = Cell::Part(1, "gap".into());
    vec![name, before.into(), after.into(), points(device).into(), "".into()]
}

/// What the gap changed by, in points of a percentage.
fn points(device: &DeviceDiff) -> String {
    let by = device.delta.fragmentation.gap_ratio;
    let sign = if by > 0.0 { "+" } else { "-" };
    match percent(by.abs()).as_str() {
        "0%" => "0".to_owned(),
        share => format!("{sign}{} points", share.trim_end_matches('%')),
    }
}

/// The heads of [`phases`].
pub(super) const PHASES: [&str; 5] = ["phase", "before", "after", "change", ""];

/// What each phase needed at most.
pub(super) fn phases(device: &DeviceDiff) -> Vec<Vec<String>> {
    let row = |change: &PhaseChange| {
        let by = change.delta_peak_allocated_bytes;
        vec![
            change.phase.word().to_owned(),
            size(change.before_peak_allocated_bytes),
            size(change.after_peak_allocated_bytes),
            signed_size(by),
            share(change.before_peak_allocated_bytes, by),
        ]
    };
    let occurs = |change: &&PhaseChange| {
        change.before_peak_allocated_bytes.max(change.after_peak_allocated_bytes) > 0
    };
    device.by_phase.iter().filter(occurs).map(row).collect()
}

/// Which steps are compared, where not all are.
pub(super) fn compared(device: &DeviceDiff) -> Option<String> {
    let steps = device.steps?;
    if (steps.before_until, steps.after_until) == (None, None) {
        return None;
    }
    let compared = match steps.compared_steps {
        1 => "Only the first step is compared".to_owned(),
        n => format!("Only the first {} are compared", counted(n, "step")),
    };
    Some(format!(
        "{compared}: {} began before, {} after",
        count(steps.before_steps),
        count(steps.after_steps)
    ))
}

/// Where in the two recordings the peaks are.
pub(super) fn moments(device: &DeviceDiff) -> String {
    let of = |moment: Moment| match moment {
        Moment::Snapshot => "at the snapshot".to_owned(),
        Moment::Start => "before the first entry".to_owned(),
        Moment::Entry { event } => format!("at entry {}", count(event)),
    };
    let sides = [("before", device.before_moment), ("after", device.after_moment)];
    let sides: Vec<String> = sides
        .into_iter()
        .filter_map(|(side, moment)| Some(format!("{side} {}", of(moment?))))
        .collect();
    sides.join(", ")
}

/// How many stacks were found again on other lines or in other files.
pub(super) fn moved(device: &DeviceDiff) -> Option<String> {
    let counts = &device.stack_counts;
    let all = counts.new + counts.gone + counts.grown + counts.shrunk + counts.unchanged;
    (counts.moved > 0).then(|| {
        format!(
            "{} of {} found again on other lines or in other files than before",
            count(counts.moved),
            counted(all, "stack")
        )
    })
}

/// Between what the steps changed by, where several are compared.
pub(super) fn steps(device: &DeviceDiff) -> Option<String> {
    let by = |step: &&StepChange| step.delta_peak_allocated_bytes;
    let least = device.by_step.iter().min_by_key(by)?;
    let most = device.by_step.iter().max_by_key(by)?;
    let of = |step: &StepChange| {
        format!("{} in step {}", signed_size(step.delta_peak_allocated_bytes), count(step.step))
    };
    let steps = counted(device.by_step.len() as u64, "step");
    Some(match (by(&least), by(&most)) {
        (0, 0) => format!("{steps} compared: each peaks as before"),
        (least, most) if least == most => {
            format!("{steps} compared: the peak of each changed by {}", signed_size(most))
        }
        _ => format!("{steps} compared: the peak changed by {} to {}", of(least), of(most)),
    })
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => "not recorded".to_owned(),
        Value::String(text) if text.is_empty() => "none".to_owned(),
        Value::String(text) => text.replace(',', ", "),
        other => other.to_string(),
    }
}

/// A setting that differs.
pub(super) fn settings(changes: &[SettingChange]) -> Vec<Vec<String>> {
    let name = |key: &str| match key {
        "torch_version" => "PyTorch".to_owned(),
        "settings_string" => "PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        "found_settings" => "found by a replay".to_owned(),
        key => key.to_owned(),
    };
    changes
        .iter()
        .map(|change| vec![name(&change.key), value(&change.before), value(&change.after)])
        .collect()
}

fn space(name: String, before: Space<u64>, after: Space<u64>, by: Space<i64>) -> Vec<String> {
    vec![
        name,
        size(before.reserved_bytes),
        size(after.reserved_bytes),
        signed_size(by.reserved_bytes),
        signed_size(by.allocated_bytes),
        signed_size(by.inactive_bytes),
    ]
}

/// The pools, where there are several.
pub(super) fn pools(device: &DeviceDiff) -> Vec<Vec<String>> {
    let row = |p: &PoolChange| space(pool(p.pool_id), p.before, p.after, p.delta);
    match device.pools.as_slice() {
        [] | [_] => Vec::new(),
        pools => pools.iter().map(row).collect(),
    }
}

/// The streams, where there are several.
pub(super) fn streams(device: &DeviceDiff) -> Vec<Vec<String>> {
    let row = |s: &StreamChange| {
        let name = match (s.before_stream, s.after_stream) {
            (Some(before), Some(after)) if before != after => {
                format!("{} (was {})", stream(after), stream(before))
            }
            (before, after) => after.or(before).map(stream).unwrap_or_default(),
        };
        space(name, s.before, s.after, s.delta)
    };
    match device.streams.as_slice() {
        [] | [_] => Vec::new(),
        streams => streams.iter().map(row).collect(),
    }
}

/// The ranks, their names without the ending that all have.
pub(super) fn ranks(ranks: &RanksDiff) -> Vec<Vec<Cell>> {
    let ending = [".pickle", ".pkl", ".json"]
        .into_iter()
        .find(|ending| ranks.rows.iter().all(|row| row.name.ends_with(ending)))
        .unwrap_or_default();
    ranks.rows.iter().map(|row| rank(row, ending)).collect()
}

fn rank(row: &RankChange, ending: &str) -> Vec<Cell> {
    let ooms = match (row.before_ooms, row.after_ooms) {
        (before, after) if before == after => count(after),
        (before, after) => format!("{} → {}", count(before), count(after)),
    };
    vec![
        code(row.name.strip_suffix(ending).unwrap_or(&row.name)).into(),
        row.device.to_string().into(),
        size(row.before_allocated_bytes).into(),
        size(row.after_allocated_bytes).into(),
        signed_size(row.delta_allocated_bytes).into(),
        share(row.before_allocated_bytes, row.delta_allocated_bytes).into(),
        signed_size(row.delta_peak_reserved_bytes).into(),
        ooms.into(),
    ]
}

/// Ranks of one side only, and the verdict of `--fail-on`: what stands below the tables.
pub(super) fn remarks(report: &DiffReport) -> Vec<String> {
    let mut remarks = Vec::new();
    if let Some(ranks) = &report.ranks {
        for (side, names) in [("before", &ranks.only_before), ("after", &ranks.only_after)] {
            if !names.is_empty() {
                remarks.push(format!("only {side}, not compared: {}", names.join(", ")));
            }
        }
        for file in &ranks.unreadable {
            let said = format!("not compared: {}: {}", file.path, file.message);
            remarks.push(said);
        }
    }
    for warning in &report.warnings {
        let side = match warning.side {
            "both" => "both files",
            side => side,
        };
        remarks.push(format!("{side}: {}: {}", warning.warning.code, warning.warning.message));
    }
    remarks
}
