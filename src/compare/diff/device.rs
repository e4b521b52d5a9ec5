//! One device on both sides.

use serde::Serialize;

use super::figures::Figures;
use super::holders::{HeldOnBothSides, Holders, Others, StackChange, StackCounts};
use super::limit::Growth;
use super::lines::LineChange;
use super::moment::{ComparedMemory, HeldStack};
use super::options::{At, DiffOptions};
use super::space::{PoolChange, StreamChange, pools, streams};
use super::steps::{CommonSteps, ComparedPart, PhaseChange, StepChange};
use super::summary::{failures, moment, summary};
use crate::base::units::size;
use crate::stacks::frames::StackReader;
use crate::stacks::matching::{FrameTable, pair_stacks};
use crate::study::figures::Figure;
use crate::study::{DeviceStudy, TracePosition};

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
    pub before_moment: Option<TracePosition>,
    /// The same of the recording after.
    pub after_moment: Option<TracePosition>,
    /// The figures before; `None` where that snapshot does not have the device.
    pub before: Option<Figures>,
    /// The figures after; `None` where that snapshot does not have the device.
    pub after: Option<Figures>,
    /// What they changed by; a device that a snapshot does not have counts as 0.
    pub delta: Figures,
    /// The training steps compared; `None` where they cannot be told or counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<CommonSteps>,
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

/// A device of both snapshots.
pub(super) struct DevicePair<'s, 'a> {
    pub(super) number: u64,
    /// Before and after; at least one of them has it.
    pub(super) devices: [Option<DeviceStudy<'s, 'a>>; 2],
    pub(super) readers: [&'s StackReader<'a>; 2],
    pub(super) words: &'s FrameTable,
}

/// Compares a device.
pub(super) fn device_diff(both: &DevicePair<'_, '_>, options: DiffOptions) -> DeviceDiff {
    let at = both.moment(options.at);
    let recorded = ComparedPart::of(both.devices, at);
    let memories = [0, 1].map(|side| {
        let (until, peak) = (recorded.until[side], &recorded.peaks[side]);
        let new = |device| ComparedMemory::new((side, device), both.words, at, until, peak);
        both.devices[side].map(new)
    });
    let figures = [0, 1].map(|side| {
        let ooms = both.devices[side]?.failed_requests().count() as u64;
        Some(Figures::of(memories[side].as_ref()?.memory.state(), recorded.peaks[side], ooms))
    });
    let moments = memories.each_ref().map(|it| it.as_ref().map(|it| it.moment));
    let memories = memories.map(Option::unwrap_or_default);
    let stacks = memories
        .each_ref()
        .map(|it| it.stacks.iter().map(HeldStack::candidate).collect::<Vec<_>>());
    let pairs = pair_stacks(&stacks[0], &stacks[1], both.words);
    let holders = Holders {
        readers: both.readers,
        words: both.words,
        sides: memories.each_ref(),
        pairs: &pairs,
    };
    let (mut lines, mut other_lines) = holders.by_line(usize::MAX);
    let moment = moment(at, recorded.steps);
    let summary = summary_of(&moment, &figures, &lines);
    for line in lines.split_off(options.top.min(lines.len())) {
        other_lines.add(&line.held);
    }
    let (stacks, other_stacks) = holders.by_stack(options.top);
    let [before, after] = figures.map(Option::unwrap_or_default);
    let memories = memories.each_ref().map(|it| &it.memory);
    DeviceDiff {
        device: both.number,
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
        by_step: recorded.by_step(),
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

impl DevicePair<'_, '_> {
    /// What is compared: a file without a trace has no peak to hold against another's.
    fn moment(&self, asked: At) -> At {
        match self.devices.map(|device| device.map(|device| device.device().is_empty())) {
            [Some(before), Some(after)] if before != after => At::Snapshot,
            _ => asked,
        }
    }
}

/// The finding in a sentence.
fn summary_of(moment: &str, figures: &[Option<Figures>; 2], lines: &[LineChange]) -> String {
    match figures {
        [None, Some(after)] => only(moment, "after", after),
        [Some(before), None] => only(moment, "before", before),
        [None, None] => String::new(),
        [Some(before), Some(after)] => {
            let number = |figure| [before.number(figure), after.number(figure)];
            summary(moment, number(Figure::Allocated), lines) + &failures(number(Figure::Ooms))
        }
    }
}

fn only(moment: &str, side: &str, figures: &Figures) -> String {
    format!(
        "only in the snapshot {side}, with {} allocated {moment}",
        size(figures.number(Figure::Allocated))
    )
}

impl DeviceDiff {
    /// What is allocated at the moment compared.
    pub fn growth(&self) -> Growth<'_> {
        let allocated = |figures: Option<Figures>| {
            figures.map_or(0, |figures| figures.number(Figure::Allocated))
        };
        Growth {
            name: None,
            device: self.device,
            moment: &self.moment,
            before_bytes: allocated(self.before),
            after_bytes: allocated(self.after),
            is_gone: self.before.is_some() && self.after.is_none(),
        }
    }
}
