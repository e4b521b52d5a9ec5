//! Named ranges that PyTorch and the program recorded beside the trace (`external_annotations`).

use super::clock::Clock;
use super::phase::Phase;
use crate::ids::{SymbolId, row};
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
        let mut open: Vec<(SymbolId, Option<Phase>)> = Vec::new();
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
                let phase = phase_of(name).or(open.last().and_then(|(_, phase)| *phase));
                open.push((mark.name, phase));
            } else {
                if let Some(at) = open.iter().rposition(|(name, _)| *name == mark.name) {
                    open.remove(at);
                }
                let within =
                    open.iter().any(|(n, _)| snapshot.text(*n).starts_with("Optimizer.step"));
                // One that ended before the recording began says nothing.
                if is_step && !within && index > 0 {
                    found.step_ends.push(index);
                } else if name.starts_with("Optimizer.zero_grad") && index > 0 {
                    found.zero_grad_ends.push(index);
                }
            }
            let (name, phase) = open.last().map_or((None, None), |(n, phase)| (Some(*n), *phase));
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
}
