//! Named ranges that PyTorch and the program recorded beside the trace (`external_annotations`).

use super::clock::Clock;
use super::phase::Phase;
use crate::base::ids::{SymbolId, row};
use crate::base::intern::SeededMap;
use crate::snapshot::{Annotation, Device};

/// Ranges of one device, matched to entries by time.
#[derive(Debug, Default)]
pub(super) struct Named {
    /// From each entry on, the innermost range and the phase that its name, or that of one around
    /// it, stands for.
    pub(super) changes: Vec<(u32, Option<SymbolId>, Option<Phase>)>,
    /// The first entry of each `Optimizer.step`.
    pub(super) step_starts: Vec<u32>,
    /// The first entry after each outermost `Optimizer.step`.
    pub(super) step_ends: Vec<u32>,
    /// The first entry after each `Optimizer.zero_grad`.
    pub(super) zero_grad_ends: Vec<u32>,
}

/// The ranges that are open at one mark.
#[derive(Default)]
struct Open {
    /// Outermost first, with what they stand for; those that ended before one inside them are `None`.
    ranges: Vec<Option<(SymbolId, Option<Phase>)>>,
    /// Where those of each name stand.
    by_name: SeededMap<SymbolId, Vec<usize>>,
    /// How many are steps of an optimizer.
    steps: usize,
}

impl Open {
    fn begin(&mut self, name: SymbolId, phase: Option<Phase>, is_step: bool) {
        self.by_name.entry(name).or_default().push(self.ranges.len());
        self.ranges.push(Some((name, phase)));
        self.steps += usize::from(is_step);
    }

    /// Ends the innermost range of that name, if there is one.
    fn end(&mut self, name: SymbolId, is_step: bool) {
        let Some(at) = self.by_name.get_mut(&name).and_then(Vec::pop) else { return };
        if let Some(range) = self.ranges.get_mut(at) {
            *range = None;
        }
        while let Some(None) = self.ranges.last() {
            self.ranges.pop();
        }
        self.steps -= usize::from(is_step);
    }

    fn innermost(&self) -> Option<(SymbolId, Option<Phase>)> {
        self.ranges.last().copied().flatten()
    }
}

/// What a name stands for, if it is one thing only.
fn phase_of(name: &str) -> Option<Phase> {
    let name = name.to_ascii_lowercase();
    if name.starts_with("optimizer.zero_grad") {
        return None;
    }
    let mut named = [
        ("optim", Phase::Optimizer),
        ("forward", Phase::Forward),
        ("backward", Phase::Backward),
        ("dataloader", Phase::Data),
    ]
    .into_iter()
    .filter(|(word, _)| name.contains(word));
    let phase = named.next().map(|(_, phase)| phase);
    phase.filter(|_| named.next().is_none())
}

impl Named {
    /// Ranges are recorded for the device that was current: where `device` has none, those of the
    /// others count.
    pub(super) fn of(device: Device<'_>) -> Self {
        let snapshot = device.snapshot();
        let clock = Clock::of(device);
        let own = |a: &&Annotation| a.device == device.id();
        let has_own = snapshot.annotations.iter().any(|a| own(&a));
        let mut marks: Vec<_> =
            snapshot.annotations.iter().filter(|a| !has_own || own(a)).collect();
        marks.sort_by_key(|a| a.time_us); // stable: of one microsecond as recorded
        let mut found = Self::default();
        let mut open = Open::default();
        let mut from = 0;
        for mark in marks {
            // Each search begins where the last one ended: marks and entries are both in order.
            // Entries of the microsecond in which a range ends belong to it.
            let until = mark.time_us.saturating_add(u64::from(!mark.is_start));
            from = clock.first_at(from, until);
            let index = row(from);
            let name = snapshot.text(mark.name);
            let is_step = name.starts_with("Optimizer.step");
            if mark.is_start {
                if is_step {
                    found.step_starts.push(index);
                }
                let phase = phase_of(name).or(open.innermost().and_then(|(_, phase)| phase));
                open.begin(mark.name, phase, is_step);
            } else {
                open.end(mark.name, is_step);
                // One that ended before the recording began says nothing.
                if is_step && open.steps == 0 && index > 0 {
                    found.step_ends.push(index);
                } else if name.starts_with("Optimizer.zero_grad") && index > 0 {
                    found.zero_grad_ends.push(index);
                }
            }
            let (name, phase) =
                open.innermost().map_or((None, None), |(n, phase)| (Some(n), phase));
            match found.changes.last_mut() {
                Some(last) if last.0 == index => (last.1, last.2) = (name, phase),
                _ => found.changes.push((index, name, phase)),
            }
        }
        found
    }

    fn change(&self, entry: usize) -> Option<&(u32, Option<SymbolId>, Option<Phase>)> {
        let after = self.changes.partition_point(|(start, ..)| *start as usize <= entry);
        self.changes.get(after.checked_sub(1)?)
    }

    /// Whether an `Optimizer.step` ended.
    pub(super) fn has_optimizer(&self) -> bool {
        !self.step_ends.is_empty()
    }

    /// The innermost range around `entry`.
    pub(super) fn at(&self, entry: usize) -> Option<SymbolId> {
        self.change(entry).and_then(|(_, name, _)| *name)
    }

    /// The phase that a range around `entry` is named after.
    pub(super) fn phase_at(&self, entry: usize) -> Option<Phase> {
        self.change(entry).and_then(|(.., phase)| *phase)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_one_phase_or_none() {
        for (name, phase) in [
            ("Optimizer.step#AdamW.step", Some(Phase::Optimizer)),
            ("Optimizer.zero_grad#AdamW.zero_grad", None),
            ("## forward ##", Some(Phase::Forward)),
            ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Some(Phase::Data)),
            ("forward_backward", None),
            ("attention", None),
        ] {
            assert_eq!(phase_of(name), phase, "{name}");
        }
    }

    #[test]
    fn ranges_end_in_any_order() {
        let [a, b, c] = [1, 2, 3].map(SymbolId);
        let mut open = Open::default();
        let innermost = |open: &Open| open.innermost().map(|(name, _)| name);
        for name in [a, b, a, c] {
            open.begin(name, None, name == a);
        }
        open.end(a, true);
        assert_eq!((innermost(&open), open.steps), (Some(c), 1), "one around it ended");
        open.end(c, false);
        assert_eq!(innermost(&open), Some(b), "and is skipped");
        open.end(c, false);
        open.end(b, false);
        assert_eq!((innermost(&open), open.steps), (Some(a), 1));
        open.end(a, true);
        assert_eq!((innermost(&open), open.steps, open.ranges.len()), (None, 0, 0));
    }
}
