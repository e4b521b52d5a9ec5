//! One device on both sides.

use serde::Serialize;

use super::course::{Course, Length, PhaseChange, StepChange, Steps, by_phase, by_step};
use super::figures::Figures;
use super::holders::{HeldOnBothSides, Holders, Others, StackChange, StackCounts};
use super::limit::Growth;
use super::lines::LineChange;
use super::matching::matched;
use super::names::Vocabulary;
use super::report::{At, Options};
use super::side::{Moment, Of, Side};
use super::space::{PoolChange, StreamChange, pools, streams};
use super::summary::{failures, moment, summary};
use crate::analysis::DeviceReport;
use crate::conf::Settings;
use crate::frames::StackReader;
use crate::phases::Phases;
use crate::snapshot::Snapshot;
use crate::units::size;

/// What changed on one device.
#[derive(Debug, Clone, Serialize)]
pub struct DeviceDiff {
    /// Device number.
    pub device: u64,
    /// What is compared: not the peak, even if asked for, where one of the two recorded no trace.
    pub at: At,
    /// The finding in a sentence.
    pub summary: String,
    /// The moment compared, in words: `at peak`, `at the snapshot`, `after 3 steps`.
    pub moment: String,
    /// The moment compared of the recording before; `None` where that snapshot does not have the device.
    pub before_moment: Option<Moment>,
    /// The same of the recording after.
    pub after_moment: Option<Moment>,
    /// The figures before; `None` where that snapshot does not have the device.
    pub before: Option<Figures<u64>>,
    /// The figures after; `None` where that snapshot does not have the device.
    pub after: Option<Figures<u64>>,
    /// What they changed by; a device that a snapshot does not have counts as 0.
    pub delta: Figures<i64>,
    /// The training steps compared; `None` where they cannot be told or counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Steps>,
    /// What each phase needed at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_phase: Vec<PhaseChange>,
    /// What each of the steps compared needed at most.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub by_step: Vec<StepChange>,
    /// By pool.
    pub pools: Vec<PoolChange>,
    /// By stream.
    pub streams: Vec<StreamChange>,
    /// The lines of the user's code that hold more or less, most first.
    pub lines: Vec<LineChange>,
    /// The sum of all other lines.
    pub other_lines: Others,
    /// How many stacks there are, by what became of them.
    pub stack_counts: StackCounts,
    /// The stacks that hold more or less, most first.
    pub stacks: Vec<StackChange>,
    /// The sum of all other stacks.
    pub other_stacks: Others,
    /// Every stack, for a flame graph.
    #[serde(skip)]
    pub all_stacks: Vec<HeldOnBothSides>,
}

/// What the devices of two snapshots are looked at with.
pub(super) struct Both<'a> {
    pub(super) snapshots: [&'a Snapshot; 2],
    pub(super) settings: [&'a Settings; 2],
    pub(super) readers: [&'a StackReader<'a>; 2],
    pub(super) words: &'a Vocabulary,
}

/// Compares a device, of which at least one side has a report.
pub(super) fn device_diff(
    both: &Both<'_>,
    device: u64,
    reports: [Option<&DeviceReport>; 2],
    options: Options,
) -> DeviceDiff {
    let devices = both.snapshots.map(|snapshot| snapshot.device(device));
    let of = |side: usize| Of {
        device: devices[side],
        side,
        settings: both.settings[side],
        words: both.words,
    };
    let phases = [0, 1].map(|side| {
        let device = devices[side];
        (!device.is_empty()).then(|| Phases::of(device, both.readers[side]))
    });
    // A file without a trace has no peak to hold against another's.
    let one_has_no_peak =
        reports.iter().all(Option::is_some) && phases[0].is_some() != phases[1].is_some();
    let at = if one_has_no_peak { At::Snapshot } else { options.at };
    let length = |side: usize| {
        let (phases, report) = (phases[side].as_ref()?, reports[side]?);
        Some(Length { device: devices[side], phases, truncated: report.truncated })
    };
    let steps = length(0).zip(length(1));
    let steps = steps.and_then(|(before, after)| Steps::common([before, after], at));
    let until = [steps.and_then(|s| s.before_until), steps.and_then(|s| s.after_until)];
    let courses = [0, 1].map(|side| {
        let replayed = phases[side].as_ref();
        let course = replayed.map(|phases| Course::new(of(side), phases, until[side]));
        course.unwrap_or_default()
    });
    let peaks = [0, 1].map(|side| match (until[side], reports[side]) {
        (None, Some(report)) => report.peak,
        _ => courses[side].peak,
    });
    let sides = [0, 1].map(|side| {
        let new = |report| Side::new(of(side), report, at, until[side], &peaks[side]);
        reports[side].map(new).unwrap_or_default()
    });
    let figures = [0, 1].map(|side| {
        let memory = &sides[side].memory;
        reports[side].map(|report| Figures::of(memory, &peaks[side], report.oom_count))
    });
    let [before, after] = figures.map(Option::unwrap_or_default);
    let pairs = matched(&sides[0].stacks, &sides[1].stacks, both.words);
    let holders = Holders {
        readers: both.readers,
        words: both.words,
        sides: sides.each_ref(),
        pairs: &pairs,
    };
    let (mut lines, mut other_lines) = holders.by_line(usize::MAX);
    let moment = moment(at, steps);
    let failures = failures(before.ooms, after.ooms);
    let summary = match figures {
        [None, Some(after)] => only(&moment, "after", &after),
        [Some(before), None] => only(&moment, "before", &before),
        _ => summary(&moment, before.allocated_bytes, after.allocated_bytes, &lines) + &failures,
    };
    for line in lines.split_off(options.top.min(lines.len())) {
        other_lines.add(&line.held);
    }
    let (stacks, other_stacks) = holders.by_stack(options.top);
    let memories = sides.each_ref().map(|side| &side.memory);
    DeviceDiff {
        device,
        at,
        summary,
        moment,
        before_moment: reports[0].map(|_| sides[0].moment),
        after_moment: reports[1].map(|_| sides[1].moment),
        before: figures[0],
        after: figures[1],
        delta: before.change_to(&after),
        steps,
        by_phase: by_phase(courses.each_ref()),
        by_step: by_step(courses.each_ref(), steps),
        pools: pools(memories),
        streams: streams(memories),
        lines,
        other_lines,
        stack_counts: holders.counts(),
        stacks,
        other_stacks,
        all_stacks: if options.all_stacks { holders.all() } else { Vec::new() },
    }
}

fn only(moment: &str, side: &str, figures: &Figures<u64>) -> String {
    format!(
        "only in the snapshot {side}, with {} allocated {moment}",
        size(figures.allocated_bytes)
    )
}

impl DeviceDiff {
    /// What is allocated at the moment compared.
    pub fn growth(&self) -> Growth<'_> {
        let allocated = |figures: Option<Figures<u64>>| figures.map_or(0, |f| f.allocated_bytes);
        Growth {
            name: None,
            device: self.device,
            moment: &self.moment,
            before_bytes: allocated(self.before),
            after_bytes: allocated(self.after),
        }
    }
}
