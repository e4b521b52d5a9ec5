//! Where the memory was at a moment of the trace: every live block by what it was for, by the phase and
//! the step it is from, by range, file, line and stack; and what grows with every step.
//!
//! `lives` replays the trace once, `category` says what each block was for, `buckets` and
//! `sets` what some are together, `leaks` compares step with step, `tables` sums up.

mod buckets;
mod category;
mod every;
mod fates;
mod kinds;
mod layers;
mod leaks;
mod lives;
mod rules;
mod samples;
mod sets;
mod tables;

use serde::Serialize;

pub(crate) use self::every::{Allocation, categories};
pub use self::kinds::{Category, Confidence};
pub use self::layers::Layer;
use self::layers::layers;
pub use self::leaks::{LeakSuspect, Leaks};
use self::lives::Lives;
pub use self::rules::Rule;
use self::samples::Samples;
use self::tables::Summary;
pub use self::tables::{Age, ByAge, ByCategory, ByFile, ByPhase, ByRange, ByRule, HeldAt};
use crate::replay::literal::inferred_capacity;
use crate::stacks::phases::StepMarker;
use crate::study::{DeviceStudy, Moment, OverTime};

/// How training steps were told apart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct StepsReport {
    /// Steps that came to their end in the recording.
    pub completed: u64,
    /// By what they were told apart; `None` where there are none.
    pub told_by: Option<StepMarker>,
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

/// What one replay of a device tells of where its memory was.
#[derive(Default)]
pub(crate) struct Whereabouts {
    pub(crate) at_peak: Option<HeldAt>,
    pub(crate) at_failure: Option<HeldAt>,
    pub(crate) at_asked: Option<HeldAt>,
    pub(crate) steps: StepsReport,
    pub(crate) leaks: Leaks,
    /// By category over time, at [`OverTime::fullest`], if that was asked for.
    pub(crate) layers: Vec<Layer>,
}

/// Looks at the memory of `device`, of which the `over_time` is known, also at the moment
/// `asked` for; tables have `top` rows, and blocks are sorted by `rules` as well.
pub(crate) fn whereabouts(
    device: DeviceStudy<'_, '_>,
    over_time: &OverTime,
    asked: Moment,
    rules: &[Rule],
    top: usize,
    is_layered: bool,
) -> Whereabouts {
    let at_peak = over_time.peak.allocated_event.or(over_time.first.checked_sub(1));
    // What comes before the part that is looked at counts as the state at its beginning.
    let peak = at_peak.and_then(|entry| usize::try_from(entry).ok());
    let failure = device.failed().next_back();
    let mut wanted = vec![peak];
    wanted.extend(failure.map(Some));
    let asked = match asked {
        Moment::Snapshot => None,
        Moment::Start => Some(None),
        Moment::Entry { event } => Some(usize::try_from(event).ok()),
    };
    wanted.extend(asked);
    let fullest = over_time.fullest.iter().filter(|_| is_layered);
    let fullest: Vec<usize> = fullest.filter_map(|n| usize::try_from(*n).ok()).collect();
    let samples = fullest.len();
    let mut lives = Lives::of(device, wanted, Samples::at(fullest));
    let phases = device.phases();
    let layers = match samples {
        0 => Vec::new(),
        _ => layers(device.device(), &mut lives, phases, samples),
    };
    let held = |entry: Option<usize>| {
        let moment = lives.moments.iter().find(|moment| moment.entry == entry)?;
        Some(Summary::new(device, &lives, moment).report(rules, top))
    };
    let reserved_before = over_time.outcome.initial_totals.reserved;
    let capacity = device.scope().capacity;
    let capacity = capacity.or_else(|| inferred_capacity(device.device(), reserved_before));
    let capacity = capacity.or_else(|| device.recorded_capacity());
    Whereabouts {
        at_peak: held(peak),
        at_failure: failure.and_then(|failure| held(Some(failure))),
        at_asked: asked.and_then(held),
        steps: StepsReport {
            completed: phases.completed_steps() as u64,
            told_by: phases.step_marker(),
        },
        leaks: lives.leaks.report(device.stacks(), top, capacity),
        layers,
    }
}

/// Every block that the program held after entry `entry` of `device`'s trace, by address, with what it
/// was for.
pub fn held_blocks(device: DeviceStudy<'_, '_>, entry: usize) -> Vec<HeldBlock> {
    let lives = Lives::of(device, vec![Some(entry)], Samples::at(Vec::new()));
    let Some(moment) = lives.moments.first() else { return Vec::new() };
    let categories = category::sort_out(moment, &lives, device.phases());
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
