//! Compares one device of two snapshots: its figures, and their changes.

use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::holders::{ComparedMemory, DeviceHolders, LiveStack, OtherRows, StackChange, VariablesDiff};
use super::lines::LineChange;
use super::steps::{CommonSteps, ComparedMoment, ComparedPart, DiffOptions, PeakChange};
use crate::base::units::{counted, percent, ratio, saturated, signed_difference, signed_size, size};
use crate::stacks::frames::StackReader;
use crate::stacks::matching::{FrameTable, pair_stacks};
use crate::study::figures::{Amount, Figure, MemoryState};
use crate::study::{DeviceStudy, Peak, TracePosition};

/// The changes of one device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceDiff {
    /// Device number.
    pub device: u64,
    /// The compared position; the snapshot instead of the peak if one of the two has no trace.
    pub at: ComparedMoment,
    /// The finding in one sentence.
    pub summary: String,
    /// The compared position in words: `at peak`, `at the snapshot`, `after 3 steps`.
    pub moment: String,
    /// The compared position before; null if that snapshot lacks the device.
    pub before_moment: Option<TracePosition>,
    /// The compared position after; null if that snapshot lacks the device.
    pub after_moment: Option<TracePosition>,
    /// The figures before; null if that snapshot lacks the device.
    pub before: Option<Figures>,
    /// The figures after; null if that snapshot lacks the device.
    pub after: Option<Figures>,
    /// The figures after minus those before; a snapshot without the device counts as 0.
    pub delta: Figures,
    /// The compared training steps; absent if steps are unknown or cannot be aligned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<CommonSteps>,
    /// The peak of each phase; absent if there are no phases.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_phase: Vec<PeakChange>,
    /// The lines of user code whose live memory changed, largest change first, `--top` of them.
    pub lines: Vec<LineChange>,
    /// The sum of all other lines.
    pub other_lines: OtherRows,
    /// Changes by variable, from snapshot to snapshot; absent unless the recorder named the variables of both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub variables: Option<VariablesDiff>,
    /// The stacks whose live memory changed, largest change first, `--top` of them.
    pub stacks: Vec<StackChange>,
    /// The sum of all other stacks, changed or not: together with `stacks` all allocated memory.
    pub other_stacks: OtherRows,
}

/// Compares a device, before and after; at least one is present.
pub(super) fn device_diff<'s, 'a>(
    devices: [Option<DeviceStudy<'s, 'a>>; 2],
    readers: [&'s StackReader<'a>; 2],
    words: &FrameTable,
    options: DiffOptions,
) -> DeviceDiff {
    // Without a trace there is no peak.
    let lacks_trace = devices.iter().flatten().any(|device| device.device().is_empty());
    let at = if lacks_trace { ComparedMoment::Snapshot } else { options.at };
    let recorded = ComparedPart::new(devices, at);
    let memories = [0, 1].map(|side| {
        let (until, peak) = (recorded.until[side], &recorded.peaks[side]);
        devices[side].map(|device| ComparedMemory::new((side, device), words, at, until, peak))
    });
    let figures = [0, 1].map(|side| {
        let ooms = devices[side]?.failed_requests().count() as u64;
        Some(Figures::new(memories[side].as_ref()?.memory.state, recorded.peaks[side], ooms))
    });
    let moments = memories.each_ref().map(|it| it.as_ref().map(|it| it.moment));
    let memories = memories.map(Option::unwrap_or_default);
    let stacks = memories.each_ref().map(|it| it.stacks.iter().map(LiveStack::candidate).collect::<Vec<_>>());
    let pairs = pair_stacks(&stacks[0], &stacks[1], words);
    let holders = DeviceHolders { readers, words, sides: memories.each_ref(), pairs: &pairs };
    let (mut lines, mut other_lines) = holders.by_line(usize::MAX);
    let moment = moment(at, recorded.steps);
    let summary = summarize(&moment, &figures, &lines);
    for line in lines.split_off(options.top.min(lines.len())) {
        other_lines.add(&line.held);
    }
    let (stacks, other_stacks) = holders.by_stack(options.top);
    let [before, after] = figures.map(Option::unwrap_or_default);
    DeviceDiff {
        // The number of the second snapshot, if two numbers are paired.
        device: devices.iter().rev().find_map(|device| Some((*device)?.id())).unwrap_or_default(),
        at,
        summary,
        moment,
        before_moment: moments[0],
        after_moment: moments[1],
        before: figures[0],
        after: figures[1],
        delta: before.change_to(&after),
        steps: recorded.steps,
        by_phase: recorded.by_phase(),
        lines,
        other_lines,
        variables: VariablesDiff::new(devices, options.top),
        stacks,
        other_stacks,
    }
}

fn summarize(moment: &str, figures: &[Option<Figures>; 2], lines: &[LineChange]) -> String {
    match figures {
        [None, Some(after)] => only_on_side(moment, "after", after),
        [Some(before), None] => only_on_side(moment, "before", before),
        [None, None] => String::new(), // a device is listed because one of the snapshots has it
        [Some(before), Some(after)] => {
            let [allocated, ooms] =
                [Figure::Allocated, Figure::Ooms].map(|figure| [before.number(figure), after.number(figure)]);
            summary(moment, allocated, lines) + &failures(ooms)
        }
    }
}

fn only_on_side(moment: &str, side: &str, figures: &Figures) -> String {
    format!("only in the snapshot {side}, with {} allocated {moment}", size(figures.number(Figure::Allocated)))
}

/// The compared position: `at peak`, `at the snapshot`, `after 3 steps`.
fn moment(at: ComparedMoment, steps: Option<CommonSteps>) -> String {
    match (at, steps) {
        (ComparedMoment::Peak, _) => "at peak".to_owned(),
        (ComparedMoment::Snapshot, Some(steps)) if steps.before_until.is_some() => {
            format!("after {}", counted(steps.compared_steps, "step"))
        }
        (ComparedMoment::Snapshot, _) => "at the snapshot".to_owned(),
    }
}

/// `grew 1.20 GiB (+14%) to 9.77 GiB`
fn growth(before: u64, after: u64) -> String {
    let (verb, sign) = if after > before { ("grew", "+") } else { ("shrank", "-") };
    let by = after.abs_diff(before);
    let share = if before == 0 { String::new() } else { format!(" ({sign}{})", percent(ratio(by, before))) };
    format!("{verb} {}{share} to {}", size(by), size(after))
}

/// Describes the change of allocated memory at `moment`, with the line that contributes most. `lines` are the changed
/// lines, largest change first.
fn summary(moment: &str, [before, after]: [u64; 2], lines: &[LineChange]) -> String {
    let by = signed_difference(before, after);
    if by == 0 {
        let more = lines.iter().filter(|line| line.held.delta_bytes > 0).count() as u64;
        let less = lines.iter().filter(|line| line.held.delta_bytes < 0).count() as u64;
        let though = match (more, less) {
            (0, 0) => String::new(),
            _ => format!(
                ", though {} of code {} more and {} less",
                counted(more, "line"),
                if more == 1 { "holds" } else { "hold" },
                crate::base::units::count(less)
            ),
        };
        return format!("allocated {moment} is the same, {}{though}", size(after));
    }
    let first = lines.iter().find(|line| line.held.delta_bytes.signum() == by.signum());
    let most = first.map_or_else(String::new, |line| {
        let place = line.location.label();
        let bytes = line.held.delta_bytes;
        if bytes == by {
            format!(", all of it from {place}")
        } else if bytes.unsigned_abs() < by.unsigned_abs() {
            format!(", {} of it from {place}", size(bytes.unsigned_abs()))
        } else {
            let opposite = lines.iter().find(|line| line.held.delta_bytes.signum() == -by.signum());
            let opposite = opposite.map_or_else(String::new, |line| {
                format!(", {} at {}", signed_size(line.held.delta_bytes), line.location.label())
            });
            format!(", with {} at {place}{opposite}", signed_size(bytes))
        }
    });
    format!("allocated {moment} {}{most}", growth(before, after))
}

/// Describes failed requests, if only one snapshot has them.
fn failures([before, after]: [u64; 2]) -> String {
    match (before, after) {
        (0, 1..) => format!("; {} failed after, none before", counted(after, "request")),
        (1.., 0) => format!("; {} failed before, none after", counted(before, "request")),
        _ => String::new(),
    }
}

/// The compared figures with their paths in the JSON. All but the peaks and `ooms` apply to the compared position.
const JSON_PATHS: [(&str, Figure); 26] = [
    ("reserved_bytes", Figure::Reserved),
    ("allocated_bytes", Figure::Allocated),
    ("active_bytes", Figure::Active),
    ("requested_bytes", Figure::Requested),
    ("peak_allocated_bytes", Figure::PeakAllocated),
    ("peak_reserved_bytes", Figure::PeakReserved),
    ("ooms", Figure::Ooms),
    ("segments.count", Figure::Segments),
    ("segments.small.count", Figure::SmallSegments),
    ("segments.small.bytes", Figure::SmallSegmentMemory),
    ("segments.large.count", Figure::LargeSegments),
    ("segments.large.bytes", Figure::LargeSegmentMemory),
    ("segments.expandable.count", Figure::ExpandableSegments),
    ("segments.expandable.bytes", Figure::ExpandableSegmentMemory),
    ("blocks.active_allocated.count", Figure::AllocatedBlocks),
    ("blocks.active_allocated.bytes", Figure::Allocated),
    ("blocks.active_pending_free.count", Figure::PendingBlocks),
    ("blocks.active_pending_free.bytes", Figure::Pending),
    ("blocks.inactive.count", Figure::FreeBlocks),
    ("blocks.inactive.bytes", Figure::Free),
    ("fragmentation.gap_ratio", Figure::GapRatio),
    ("fragmentation.inactive_split_bytes", Figure::InactiveSplit),
    ("fragmentation.releasable_bytes", Figure::Releasable),
    ("fragmentation.stranded_bytes", Figure::Stranded),
    ("fragmentation.largest_free_block_bytes", Figure::LargestFreeBlock),
    ("fragmentation.rounding_bytes", Figure::Rounding),
];

/// The figures of a device, or their changes. `reserved_bytes`, `allocated_bytes`, `active_bytes`, `requested_bytes`,
/// `segments`, `blocks` and `fragmentation` mean the same as in `analyze`, at the compared position.
/// `peak_allocated_bytes` and `peak_reserved_bytes` are the peaks of the compared steps; if the snapshots are compared
/// for lack of a trace, they are current figures. `ooms` counts the failed requests of the whole trace.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures([Amount; JSON_PATHS.len()]);

impl Figures {
    /// The figures of `state`, with the `peak` of the compared part and the number of failed requests.
    fn new(state: MemoryState, peak: Peak, ooms: u64) -> Self {
        Self(JSON_PATHS.map(|(_, figure)| match figure {
            Figure::PeakReserved => Amount::Bytes(peak.reserved_bytes.into()),
            Figure::PeakAllocated => Amount::Bytes(peak.allocated_bytes.into()),
            Figure::Ooms => Amount::Count(ooms.into()),
            _ => {
                let amount = figure.at(&state);
                debug_assert!(amount.is_some(), "{} is always available here", figure.word());
                amount.unwrap_or(Amount::Count(0))
            }
        }))
    }

    /// `after` minus these figures.
    fn change_to(&self, after: &Self) -> Self {
        Self(std::array::from_fn(|index| after.0[index].minus(self.0[index])))
    }

    /// All figures with their paths in the JSON.
    pub fn json_paths() -> &'static [(&'static str, Figure)] {
        &JSON_PATHS
    }

    /// The value of `figure`, which must be one of [`Figures::json_paths`].
    pub fn amount(&self, figure: Figure) -> Amount {
        let found = JSON_PATHS.iter().zip(&self.0).find(|((_, listed), _)| *listed == figure);
        debug_assert!(found.is_some(), "{} is among the figures compared", figure.word());
        found.map_or(Amount::Count(0), |(_, amount)| *amount)
    }

    /// The figure of one side as a number of bytes or items.
    pub fn number(&self, figure: Figure) -> u64 {
        let number = u64::try_from(self.amount(figure).as_integer());
        debug_assert!(number.is_ok(), "only a change is negative");
        number.unwrap_or_default()
    }

    /// The change of the figure in bytes or items, in the result of `Self::change_to`.
    pub fn change(&self, figure: Figure) -> i64 {
        saturated(self.amount(figure).as_integer())
    }
}

impl Default for Figures {
    fn default() -> Self {
        Self::new(MemoryState::default(), Peak::default(), 0)
    }
}

impl Serialize for Figures {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let rows: Vec<_> = JSON_PATHS.iter().zip(&self.0).map(|((at, _), it)| (*at, *it)).collect();
        NestedFigures(&rows).serialize(serializer)
    }
}

/// Serializes amounts by path, such as `segments.small.count`, as nested objects.
struct NestedFigures<'a>(&'a [(&'static str, Amount)]);

impl Serialize for NestedFigures<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for rows in self.0.chunk_by(|a, b| first_key(a.0) == first_key(b.0)) {
            let inner: Vec<_> =
                rows.iter().filter_map(|(path, amount)| Some((path.split_once('.')?.1, *amount))).collect();
            match rows {
                [(path, amount)] if inner.is_empty() => map.serialize_entry(path, amount)?,
                [(path, _), ..] => map.serialize_entry(first_key(path), &NestedFigures(&inner))?,
                [] => {}
            }
        }
        map.end()
    }
}

fn first_key(path: &str) -> &str {
    path.split_once('.').map_or(path, |(key, _)| key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::diff::{LiveChange, Status};
    use crate::stacks::frames::CodeLocation;

    #[test]
    fn changes_that_add_up_to_nothing_are_counted() {
        let lines = [9, -5, -4, 0].map(|delta_bytes| LineChange {
            status: Status::Grown,
            held: LiveChange { delta_bytes, ..LiveChange::default() },
            location: CodeLocation::default(),
            operation: None,
            operation_share_ratio: None,
        });
        assert_eq!(summary("at peak", [512, 512], &[]), "allocated at peak is the same, 512 B");
        let text = "allocated at peak is the same, 512 B, though 1 line of code holds more and 2 less";
        assert_eq!(summary("at peak", [512, 512], &lines), text);
        assert_eq!(
            [growth(512, 768), growth(512, 256)],
            ["grew 256 B (+50%) to 768 B", "shrank 256 B (-50%) to 256 B"]
        );
    }
}
