//! What every allocation of a recording was for, not those of one moment alone.
//!
//! What a block is for is told from those around it, so it is asked at moments. The last failure and the peak come
//! first: what lives then is for what [`super::whereabouts`] says. The others are judged in stretches of the trace,
//! each with what lived at its beginning and all that came in its course.

use super::category::sort_out;
use super::kinds::{Category, Confidence, Judged};
use super::lives::{LiveBlock, LiveSet, Lives, Point};
use super::samples::Samples;
use crate::base::ids::StackId;
use crate::snapshot::Action;
use crate::stacks::phases::{Phases, StackTraits};
use crate::study::DeviceStudy;

/// Stretches that a trace is judged in, where none is cut by a failure.
const STRETCHES: usize = 32;
/// Failures that cut a stretch.
const CUTS: usize = 64;

/// An allocation, as long as the program held it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allocation {
    /// Where it begins in device memory.
    pub(crate) address: u64,
    /// Bytes.
    pub(crate) bytes: u64,
    /// Bytes that were asked for.
    pub(crate) requested: u64,
    /// Who allocated it.
    pub(crate) made_by: StackId,
    /// The entry that allocated it; `None` for what is older than the trace.
    pub(crate) born: Option<u32>,
    /// How many entries were applied when the program had freed it: 0 for before the first.
    pub(crate) freed_at: Option<u32>,
}

/// What each of `allocations` was for, which are those of `device` in the order of their beginnings.
pub(crate) fn categories(
    device: DeviceStudy<'_, '_>,
    allocations: &[Allocation],
) -> Vec<(Category, Confidence)> {
    let lives = Lives::of(device, Vec::new(), Samples::at(Vec::new()));
    let mut judge = Judge {
        device,
        phases: device.phases(),
        lives: &lives,
        ends: Ends::of(device),
        allocations,
        found: vec![None; allocations.len()],
    };
    let entries = device.device().len();
    let peak = device
        .over_time()
        .map(|over_time| over_time.peak.allocated_event.or(over_time.first.checked_sub(1)));
    let peak = peak.map(|entry| entry.and_then(|entry| usize::try_from(entry).ok()));
    for entry in device.failed().next_back().map(Some).into_iter().chain(peak) {
        let rows = judge.held_after(entry);
        judge.judge(entry, &rows);
    }
    let mut failed: Vec<usize> = device.device().failed().collect();
    let every = failed.len().div_ceil(CUTS).max(1);
    let mut cuts: Vec<usize> = (1..=STRETCHES).map(|n| entries * n / STRETCHES).collect();
    cuts.extend(failed.drain(..).step_by(every).map(|entry| entry + 1));
    cuts.sort_unstable();
    cuts.dedup();
    let (mut next, mut held) = (0, Vec::new());
    let mut from = 0;
    for to in cuts {
        // What was there when the stretch began, and what came since.
        held.retain(|at: &usize| allocations[*at].freed_at.is_none_or(|freed| freed as usize > from));
        while let Some(one) = allocations.get(next)
            && one.born.is_none_or(|born| (born as usize) < to)
        {
            held.push(next);
            next += 1;
        }
        judge.judge(to.checked_sub(1), &held);
        from = to;
    }
    let unknown = (Category::Other, Confidence::Low);
    judge.found.into_iter().map(|found| found.unwrap_or(unknown)).collect()
}

/// Up to where it is seen what becomes of the blocks of a moment: see [`LiveSet::end`].
struct Ends {
    failed: Vec<usize>,
    last_alloc: Option<usize>,
}

impl Ends {
    fn of(device: DeviceStudy<'_, '_>) -> Self {
        let device = device.device();
        let last_alloc = device.with_action(Action::Alloc).next_back();
        Self { failed: device.failed().collect(), last_alloc }
    }

    /// Of the moment after `entry`.
    fn of_moment(&self, entry: Option<usize>) -> usize {
        let now = entry.unwrap_or(0);
        let over = self.last_alloc.map_or(now, |last| last.max(now));
        let failed = self.failed.partition_point(|failed| *failed < now);
        self.failed.get(failed).map_or(over, |failed| over.min(*failed))
    }
}

struct Judge<'a, 'f> {
    device: DeviceStudy<'a, 'f>,
    phases: &'a Phases,
    lives: &'a Lives<'a>,
    ends: Ends,
    allocations: &'a [Allocation],
    found: Vec<Option<Judged>>,
}

impl Judge<'_, '_> {
    /// The rows of what the program held after `entry`.
    fn held_after(&self, entry: Option<usize>) -> Vec<usize> {
        let applied = entry.map_or(0, |entry| entry + 1);
        let is_held = |one: &Allocation| {
            one.born.is_none_or(|born| (born as usize) < applied)
                && one.freed_at.is_none_or(|freed| freed as usize > applied)
        };
        (0..self.allocations.len()).filter(|at| is_held(&self.allocations[*at])).collect()
    }

    /// Judges the allocations of `rows` as they are after `entry`; what was found before stands.
    fn judge(&mut self, entry: Option<usize>, rows: &[usize]) {
        let end = self.ends.of_moment(entry);
        let block = |at: usize| {
            let one = &self.allocations[at];
            let freed = one.freed_at.and_then(|freed| freed.checked_sub(1));
            let freed = freed.filter(|freed| *freed as usize <= end);
            let freed_by = freed.and_then(|freed| self.device.device().stack(freed as usize));
            LiveBlock {
                address: one.address,
                bytes: one.bytes,
                requested: one.requested,
                stack: self.device.stacks().recorded_stack(one.made_by),
                made_by: one.made_by,
                born: one.born.map(|born| self.lives.point(born as usize)),
                freed: freed.map(|freed| self.lives.point(freed as usize)),
                freed_by: freed_by.map_or_else(StackTraits::default, |by| self.phases.stack_traits(by)),
            }
        };
        let mut rows = rows.to_vec();
        rows.sort_by_key(|at| self.allocations[*at].address);
        let moment = LiveSet {
            entry,
            at: entry.map_or(Point { entry: 0, run: 0 }, |entry| self.lives.point(entry)),
            end: Some(self.lives.point(end)),
            blocks: rows.iter().map(|at| block(*at)).collect(),
        };
        for (at, judged) in rows.iter().zip(sort_out(&moment, self.lives, self.phases)) {
            self.found[*at].get_or_insert(judged);
        }
    }
}
