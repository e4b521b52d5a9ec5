//! The rows of the tables of a diff, and sentences about them.

use serde_json::Value;

use crate::base::units::{count, counted, percent, ratio, signed_count, signed_size, size};
use crate::compare::diff::{ComparedMoment, DeviceDiff, PhaseChange, SettingChange, Status, StepChange};
use crate::output::document::{Cell, Table, TableOf};
use crate::output::wording::describe_position;
use crate::study::figures::{Amount, Figure, Unit};

/// The header of [`figures`].
pub(super) fn word(status: Status) -> &'static str {
    match status {
        Status::New => "new",
        Status::Gone => "gone",
        Status::Grown => "grown",
        Status::Shrunk => "shrunk",
    }
}

/// `+14%`, or `x25` for large growth; empty if the value was 0 or did not change.
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

/// A figure on both sides.
pub(super) struct FigureRow {
    name: Cell,
    before: String,
    after: String,
    change: String,
    share: String,
}

/// Totals, segments, blocks and fragmentation.
pub(super) fn figures(device: &DeviceDiff, at: ComparedMoment) -> TableOf<FigureRow> {
    // A recording that lacks the device has nothing on it.
    let (before, after) = (device.before.unwrap_or_default(), device.after.unwrap_or_default());
    let delta = &device.delta;
    let row = |depth, name: &str, figure: Figure| {
        let (change, share) = match figure.unit() {
            Unit::Ratio => (points(delta.amount(figure)), String::new()),
            Unit::Bytes => {
                let by = delta.change(figure);
                (signed_size(by), share(before.number(figure), by))
            }
            Unit::Count => {
                let by = delta.change(figure);
                (signed_count(by), share(before.number(figure), by))
            }
        };
        let name = Cell::Indented(depth, name.into());
        let [before, after] = [before.amount(figure), after.amount(figure)].map(|amount| amount.to_string());
        FigureRow { name, before, after, change, share }
    };
    let occurs = |figure| before.number(figure) + after.number(figure) > 0;
    let mut rows = Vec::new();
    // Otherwise one of the two recordings has no peak.
    if device.at == at {
        rows.push(row(0, "peak allocated", Figure::PeakAllocated));
        rows.push(row(0, "peak reserved", Figure::PeakReserved));
    }
    rows.push(FigureRow {
        name: format!("{}:", device.moment).into(),
        before: String::new(),
        after: String::new(),
        change: String::new(),
        share: String::new(),
    });
    rows.push(row(1, "allocated", Figure::Allocated));
    rows.push(row(1, "reserved", Figure::Reserved));
    if occurs(Figure::PendingBlocks) {
        rows.push(row(1, "pending free", Figure::Pending));
    }
    rows.extend([
        row(1, "free", Figure::Free),
        row(2, "releasable", Figure::Releasable),
        row(2, "stranded", Figure::Stranded),
        row(2, "largest block", Figure::LargestFreeBlock),
        row(1, "rounding", Figure::Rounding),
        row(1, "gap", Figure::GapRatio),
        row(1, "segments", Figure::Segments),
        row(1, "blocks in use", Figure::AllocatedBlocks),
        row(1, "free blocks", Figure::FreeBlocks),
    ]);
    if occurs(Figure::Ooms) {
        rows.push(row(0, "failed requests", Figure::Ooms));
    }
    Table::from_rows(rows)
        .text("", |row| row.name.clone())
        .number("before", |row| row.before.clone())
        .number("after", |row| row.after.clone())
        .number("change", |row| row.change.clone())
        .number("", |row| row.share.clone())
}

/// A difference of ratios, in percentage points.
fn points(by: Amount) -> String {
    let by = by.as_f64();
    let sign = if by > 0.0 { "+" } else { "-" };
    match percent(by.abs()).as_str() {
        "0%" => "0".to_owned(),
        share => format!("{sign}{} points", share.trim_end_matches('%')),
    }
}

/// The peak of each phase.
pub(super) fn phases(device: &DeviceDiff) -> TableOf<&PhaseChange> {
    let occurs =
        |change: &&PhaseChange| change.peak.before_peak_allocated_bytes.max(change.peak.after_peak_allocated_bytes) > 0;
    Table::from_rows(device.by_phase.iter().filter(occurs))
        .text("phase", |change| change.phase.word())
        .number("before", |change| size(change.peak.before_peak_allocated_bytes))
        .number("after", |change| size(change.peak.after_peak_allocated_bytes))
        .number("change", |change| signed_size(change.peak.delta_peak_allocated_bytes))
        .number("", |change| share(change.peak.before_peak_allocated_bytes, change.peak.delta_peak_allocated_bytes))
}

/// The positions of the peaks in both recordings.
pub(super) fn moments(device: &DeviceDiff) -> String {
    let sides = [("old", device.before_moment), ("new", device.after_moment)];
    let sides: Vec<String> = sides
        .into_iter()
        .filter_map(|(side, at)| Some(format!("{} in the {side} recording", describe_position(at?))))
        .collect();
    sides.join(", ")
}

/// The range of changes of the steps, if several are compared.
pub(super) fn steps(device: &DeviceDiff) -> Option<String> {
    let by = |step: &&StepChange| step.peak.delta_peak_allocated_bytes;
    let smallest = device.by_step.iter().min_by_key(by)?;
    let most = device.by_step.iter().max_by_key(by)?;
    let of = |step: &StepChange| {
        format!("{} in step {}", signed_size(step.peak.delta_peak_allocated_bytes), count(step.step))
    };
    let steps = counted(device.by_step.len() as u64, "step");
    Some(match (by(&smallest), by(&most)) {
        (0, 0) => format!("{steps} compared: each has the same peak as before"),
        (smallest, most) if smallest == most => {
            format!("{steps} compared: the peak of each changed by {}", signed_size(most))
        }
        _ => format!("{steps} compared: the peak changed by {} to {}", of(smallest), of(most)),
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

/// The settings that differ: `expandable_segments false → true`.
pub(super) fn settings(changes: &[SettingChange]) -> Vec<String> {
    let name = |key: &str| match key {
        "torch_version" => "PyTorch".to_owned(),
        "settings_string" => "PYTORCH_CUDA_ALLOC_CONF".to_owned(),
        "found_settings" => "inferred by replay".to_owned(),
        key => key.to_owned(),
    };
    let line =
        |change: &SettingChange| format!("{} {} → {}", name(&change.key), value(&change.before), value(&change.after));
    // The settings string repeats the settings that it changes.
    let is_repeated = changes.len() > changes.iter().filter(|change| name(&change.key) != change.key).count();
    let changes: Vec<&SettingChange> =
        changes.iter().filter(|change| !is_repeated || change.key != "settings_string").collect();
    changes.into_iter().map(line).collect()
}

/// The first `shown` of `lines`, and the number of the others.
pub(super) fn first_of(mut lines: Vec<String>, shown: usize) -> Vec<String> {
    let others = lines.len().saturating_sub(shown) as u64;
    lines.truncate(shown);
    lines.extend((others > 0).then(|| format!("and {}: --full", counted(others, "other"))));
    lines
}
