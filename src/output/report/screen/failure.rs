//! A failed request, as a compiler shows an error: the place, why, who holds the memory, what helps.

use itertools::Itertools as _;

use super::holders::{add_blockers, add_growth, add_holders};
use super::usage::add_sleep;
use crate::allocator::verdict::Verdict;
use crate::analysis::failure::OomReport;
use crate::analysis::{DeviceReport, SnapshotReport};
use crate::base::units::{count, size};
use crate::output::document::{BarKind, BarPart, Document, Source, Text, amount, code, faint};
use crate::output::report::notes::add_notes;
use crate::output::report::phrases::{describe_engines, describe_private_pools, step_label};
use crate::output::report::tried::tried_table;
use crate::output::wording::{command_line, describe_cause, failure_headline, frame_label};
use crate::stacks::frames::{FrameReport, Origin};

/// Rows of a table of holders beside one of what grows or is in the way.
const ROWS_BESIDE_GROWTH: usize = 3;

/// Appends the screen of `oom`, the last failure of `device`.
pub(super) fn show_failure(
    document: &mut Document,
    snapshot: &SnapshotReport,
    device: &DeviceReport,
    oom: &OomReport,
    rows: usize,
) {
    document.headline(failure_headline(snapshot, device, oom), faint(context(device, oom)));
    if let Some(source) = &oom.source {
        document.source(Source {
            first: source.first_line.into(),
            lines: source.lines.clone(),
            marked: source.line.into(),
            note: size(oom.requested_bytes),
        });
    }
    document.callers(callers(&oom.frames, oom.location.frame.as_ref(), oom.location.called_from.as_ref()));
    add_notes(document, &snapshot.warnings);
    add_memory(document, device, oom);
    // The pools are those of the snapshot, which may be later.
    let pools = describe_private_pools(&device.memory, oom.held.as_ref())
        .filter(|_| device.memory.reserved_bytes == oom.reserved_bytes);
    document.fields("pools", pools);
    document.fields("engine", describe_engines(oom.held.as_ref()));
    document.field("why", describe_cause(oom, device));
    if let Some(sleep) = &device.sleep {
        add_sleep(document, sleep, (oom.verdict_reason.asleep_bytes, "at the failure"));
    }
    let grows = device.explaining_growth(oom).is_some();
    if grows {
        add_growth(document, device, ROWS_BESIDE_GROWTH);
    }
    let has_blockers = add_blockers(document, oom);
    let rows = if grows || has_blockers { rows.min(ROWS_BESIDE_GROWTH) } else { rows };
    // Holders are only known at the last failure.
    if device.later_failures == 0 {
        add_holders(document, device, oom.held.as_ref(), rows);
    }
    let before = oom.as_recorded.map_or(0, |replay| replay.reserved_before_bytes);
    document.table(tried_table(&device.tried, MAX_TRIED, None, before));
    add_advice(document, snapshot, device, oom);
    document.fields("next", command_line("report -o oom.html", &snapshot.path).map(code));
}

fn context(device: &DeviceReport, oom: &OomReport) -> String {
    let failures = match (device.oom_count, device.later_failures) {
        (0 | 1, _) => None,
        (failures, 0) => Some(format!("last of {} failures", count(failures))),
        (failures, later) => Some(format!("failure {} of {}", count(failures.saturating_sub(later)), count(failures))),
    };
    let moment = oom.held.as_ref().and_then(|held| step_label(held.step, held.phase));
    moment.into_iter().chain(failures).join(" · ")
}

/// The program's own frames of a stack around its line `first`; those of one file without its name.
pub(in crate::output::report) fn callers(
    frames: &[FrameReport],
    first: Option<&FrameReport>,
    called_from: Option<&FrameReport>,
) -> Vec<Text> {
    let Some(first) = first else { return Vec::new() };
    let outer = frames.iter().skip_while(|frame| *frame != first).skip_while(|frame| *frame == first);
    let callers = outer.filter(|frame| frame.origin == Origin::User);
    let mut file = first.file.as_str();
    let mut labels = Vec::new();
    for (index, frame) in callers.enumerate() {
        let is_same_file = index > 0 && frame.file == file;
        file = &frame.file;
        let line = format!(":{} {}", frame.line, frame.name);
        labels.push(if is_same_file { code(line) } else { frame_label(frame) });
    }
    // The stack of a thread of the backward pass has no line of the program.
    if labels.is_empty() { called_from.into_iter().map(frame_label).collect() } else { labels }
}

/// The whole device when the request failed.
fn add_memory(document: &mut Document, device: &DeviceReport, oom: &OomReport) {
    let pending = oom.reserved_bytes.saturating_sub(oom.allocated_bytes).saturating_sub(oom.cached_bytes);
    let asleep = oom.verdict_reason.asleep_bytes;
    let (allocated, free) = (oom.allocated_bytes.saturating_sub(asleep), oom.device_free_bytes);
    let largest = match oom.largest_free_block_bytes {
        0 => "none of it usable".to_owned(),
        bytes if oom.verdict == Verdict::Spurious => format!("largest piece {}", size(bytes)),
        bytes => format!("largest usable {}", size(bytes)),
    };
    let (kind, free_where) = match oom.verdict {
        Verdict::MemoryLimit => (BarKind::Outside, ", beyond the limit of this process".to_owned()),
        Verdict::Capacity if oom.requested_bytes <= free => {
            let segment = size(oom.segment_bytes);
            (BarKind::Free, format!(" on the device, where this request needs a segment of {segment}"))
        }
        _ => (BarKind::Free, " on the device".to_owned()),
    };
    let reach = oom.reserved_bytes.saturating_sub(asleep).saturating_add(free);
    let outside = device.capacity_bytes.map_or(0, |capacity| capacity.saturating_sub(reach));
    document.bar([
        BarPart::new(allocated, BarKind::Allocated, amount(allocated).and(" allocated")),
        BarPart::new(pending, BarKind::Peak, amount(pending).and(" freed, in use by another stream")),
        BarPart::new(oom.cached_bytes, BarKind::Cached, format!("{} cached ({largest})", size(oom.cached_bytes))),
        BarPart::new(free, kind, format!("{} free{free_where}", size(free))),
        BarPart::new(outside, BarKind::Outside, amount(outside).and(" outside PyTorch")),
    ]);
}

/// Rows of the table of what was tried.
const MAX_TRIED: usize = 6;

/// The best advice, and its text to copy.
pub(super) fn add_advice(document: &mut Document, snapshot: &SnapshotReport, device: &DeviceReport, oom: &OomReport) {
    if let Some(first) = device.advice.first() {
        document.field("do", first.to_string());
        let settings = snapshot.settings_string.as_deref();
        // A source line to copy is part of the advice.
        let copy = first.copy(oom, settings).filter(|text| !text.contains(".py:"));
        document.fields("copy", copy.map(code));
    }
}
