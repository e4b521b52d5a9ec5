//! Where the memory was at a moment of the trace: every live block by what it was for, by the phase and
//! the step it is from, by range, file, line and stack; and what grows with every step.
//!
//! `course` replays the trace once, `category` says what each block was for, `leaks` compares step with
//! step, `tables` sums up.

mod category;
mod course;
mod leaks;
mod tables;

use serde::Serialize;

pub use self::category::{Category, Confidence};
use self::course::Course;
pub use self::leaks::{LeakSuspect, Leaks};
use self::tables::Sheet;
pub use self::tables::{Age, ByAge, ByCategory, ByFile, ByPhase, ByRange};
use super::snapshot::Options;
use crate::conf::Settings;
use crate::frames::StackReader;
use crate::memory::Table;
use crate::memory::{HeldByLine, HeldByStack};
use crate::phases::{Phase, Phases, StepsFrom};
use crate::replay::shown_capacity;
use crate::snapshot::Device;

/// The memory that the program held at one moment. Each table adds up to `allocated_bytes`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct HeldAt {
    /// The last entry before the moment; `None` for the start of the trace.
    pub event: Option<u64>,
    /// What the program was doing.
    pub phase: Phase,
    /// The training step, from 0 at the start of the recording; `None` where none was told.
    pub step: Option<u32>,
    /// Bytes in allocated blocks.
    pub allocated_bytes: u64,
    /// Allocated blocks.
    pub blocks: u64,
    /// By what it was for.
    pub by_category: Vec<ByCategory>,
    /// By the phase that allocated it.
    pub by_phase: Vec<ByPhase>,
    /// By the age of the blocks, in training steps.
    pub by_age: Vec<ByAge>,
    /// By the innermost named range that allocated it; the rest is from outside any.
    pub by_range: Table<ByRange>,
    /// By the file of the user's line that allocated it.
    pub by_file: Table<ByFile>,
    /// By the user's line that allocated it.
    pub by_line: Table<HeldByLine>,
    /// By the whole stack that allocated it.
    pub by_stack: Table<HeldByStack>,
    /// What was allocated before the second step and never freed since, by line; empty in the first.
    pub kept_since_start: Table<HeldByLine>,
}

/// How training steps were told apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StepsReport {
    /// Steps that came to their end in the recording.
    pub completed: u64,
    /// By what they were told apart; `None` where there are none.
    pub told_by: Option<StepsFrom>,
}

/// One live block, with what it was for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldBlock {
    /// Where it begins in device memory.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    /// What it was for.
    pub category: Category,
    /// How sure that is.
    pub confidence: Confidence,
}

/// The entries after which to look; `None` for the start of the trace.
#[derive(Debug, Clone, Copy)]
pub(super) struct Moments {
    /// Where allocated memory peaked.
    pub(super) peak: Option<usize>,
    /// The last failed request, if any failed.
    pub(super) failure: Option<usize>,
}

/// What one replay of a device tells of where its memory was.
#[derive(Default)]
pub(super) struct Whereabouts {
    pub(super) at_peak: Option<HeldAt>,
    pub(super) at_failure: Option<HeldAt>,
    pub(super) steps: StepsReport,
    pub(super) leaks: Leaks,
}

/// Looks at the memory of `device`, of which `reserved_before` bytes were reserved at the start.
pub(super) fn whereabouts(
    device: Device<'_>,
    stacks: &StackReader<'_>,
    settings: &Settings,
    moments: Moments,
    reserved_before: u64,
    options: Options,
) -> Whereabouts {
    let snapshot = device.snapshot();
    let phases = Phases::of(device, stacks);
    let mut wanted = vec![moments.peak];
    wanted.extend(moments.failure.map(Some));
    let course = Course::of(device, stacks, settings, &phases, wanted);
    let held = |entry: Option<usize>| {
        let moment = course.moments.iter().find(|moment| moment.entry == entry)?;
        Some(Sheet::new(snapshot, stacks, &phases, &course, moment).report(options.top))
    };
    let capacity = options.capacity.or_else(|| shown_capacity(device, reserved_before));
    Whereabouts {
        at_peak: held(moments.peak),
        at_failure: moments.failure.and_then(|failure| held(Some(failure))),
        steps: StepsReport {
            completed: phases.completed_steps() as u64,
            told_by: phases.steps_from(),
        },
        leaks: course.leaks.report(stacks, options.top, capacity),
    }
}

/// Every block that the program held after entry `entry` of `device`'s trace, by address, with what it
/// was for.
pub fn held_blocks(device: Device<'_>, settings: &Settings, entry: usize) -> Vec<HeldBlock> {
    let stacks = StackReader::new(device.snapshot());
    let phases = Phases::of(device, &stacks);
    let course = Course::of(device, &stacks, settings, &phases, vec![Some(entry)]);
    let Some(moment) = course.moments.first() else { return Vec::new() };
    let categories = category::sort_out(moment, &course, &phases);
    let blocks = moment.blocks.iter().zip(categories);
    blocks
        .map(|(block, (category, confidence))| HeldBlock {
            address: block.address,
            bytes: block.bytes,
            category,
            confidence,
        })
        .collect()
}
