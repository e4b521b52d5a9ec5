//! Named ranges (`record_function`, `Optimizer.step`) from the snapshot's `external_annotations`.

use super::frame_role::Phase;
use crate::base::ids::{SymbolId, to_u32};
use crate::base::intern::SeededMap;
use crate::snapshot::Device;

/// The name of an open range, and the phase named by it or by the closest enclosing range that names one.
type OpenRange = (SymbolId, Option<Phase>);

/// Annotated ranges of one device, matched to trace entries by time.
#[derive(Debug, Default)]
pub(super) struct AnnotatedRanges {
    /// The innermost open range from an entry on.
    pub(super) changes: Vec<(u32, Option<OpenRange>)>,
    /// The first entry in each `Optimizer.step`.
    pub(super) step_starts: Vec<u32>,
    /// The first entry after each outermost `Optimizer.step`, which may be nested.
    pub(super) step_ends: Vec<u32>,
    /// The first entry after each `Optimizer.zero_grad`.
    pub(super) zero_grad_ends: Vec<u32>,
}

/// The ranges that are open at one annotation.
#[derive(Default)]
struct OpenRanges {
    /// Outermost first, with the phase each names; `None` if it closed before a range inside it.
    ranges: Vec<Option<OpenRange>>,
    /// Indexes into `ranges`, by name.
    by_name: SeededMap<SymbolId, Vec<usize>>,
    /// Number of open `Optimizer.step` ranges.
    steps: usize,
}

impl OpenRanges {
    fn begin(&mut self, name: SymbolId, phase: Option<Phase>, is_step: bool) {
        self.by_name.entry(name).or_default().push(self.ranges.len());
        self.ranges.push(Some((name, phase)));
        self.steps += usize::from(is_step);
    }

    /// Ends the innermost range of that name.
    fn end(&mut self, name: SymbolId, is_step: bool) {
        // A range that began before the recording has an end only.
        let Some(at) = self.by_name.get_mut(&name).and_then(Vec::pop) else { return };
        self.ranges[at] = None;
        while let Some(None) = self.ranges.last() {
            self.ranges.pop();
        }
        self.steps -= usize::from(is_step);
    }

    fn innermost(&self) -> Option<OpenRange> {
        self.ranges.last().copied().flatten()
    }
}

/// The phase that a range name mentions; `None` if it mentions none, or several.
fn phase_named_by(name: &str) -> Option<Phase> {
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
    named.next().map(|(_, phase)| phase).filter(|_| named.next().is_none())
}

impl AnnotatedRanges {
    /// PyTorch records an annotation for the current device only. A device without any uses those of all devices.
    pub(super) fn from_annotations(device: Device<'_>) -> Self {
        let snapshot = device.snapshot();
        let has_device_ranges = snapshot.annotations.iter().any(|a| a.device == device.id());
        let mut annotations: Vec<_> =
            snapshot.annotations.iter().filter(|a| !has_device_ranges || a.device == device.id()).collect();
        annotations.sort_by_key(|a| a.time_us); // stable: keeps the recorded order within a microsecond
        let mut ranges = Self::default();
        let mut open = OpenRanges::default();
        let mut from = 0;
        for annotation in annotations {
            // Annotations and entries are sorted, so each search starts where the last one ended.
            // Entries in the microsecond in which a range ends belong to it.
            let until = annotation.time_us.saturating_add(u64::from(!annotation.is_start));
            from = device.first_entry_at(from, until);
            let index = to_u32(from);
            let name = snapshot.text(annotation.name);
            let is_step = name.starts_with("Optimizer.step");
            if annotation.is_start {
                if is_step {
                    ranges.step_starts.push(index);
                }
                let phase = phase_named_by(name).or(open.innermost().and_then(|(_, phase)| phase));
                open.begin(annotation.name, phase, is_step);
            } else {
                open.end(annotation.name, is_step);
                // Ignore a range that ended before the first entry.
                if is_step && open.steps == 0 && index > 0 {
                    ranges.step_ends.push(index);
                } else if name.starts_with("Optimizer.zero_grad") && index > 0 {
                    ranges.zero_grad_ends.push(index);
                }
            }
            match ranges.changes.last_mut() {
                Some((last, innermost)) if *last == index => *innermost = open.innermost(),
                _ => ranges.changes.push((index, open.innermost())),
            }
        }
        ranges
    }

    /// The innermost range that contains `entry`, and the phase named by the ranges that contain it.
    pub(super) fn innermost_at(&self, entry: usize) -> Option<OpenRange> {
        let after = self.changes.partition_point(|(start, _)| *start as usize <= entry);
        self.changes[after.checked_sub(1)?].1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_for_one_phase_or_none() {
        for (name, phase) in [
            ("Optimizer.step#AdamW.step", Some(Phase::Optimizer)),
            ("Optimizer.zero_grad#AdamW.zero_grad", None),
            ("## forward ##", Some(Phase::Forward)),
            ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", Some(Phase::Data)),
            ("forward_backward", None),
            ("attention", None),
        ] {
            assert_eq!(phase_named_by(name), phase, "{name}");
        }
    }

    fn innermost(open: &OpenRanges) -> Option<SymbolId> {
        open.innermost().map(|(name, _)| name)
    }

    #[test]
    fn ranges_end_in_any_order() {
        let [a, b, c] = [1, 2, 3].map(SymbolId);
        let mut open = OpenRanges::default();
        for name in [a, b, a, c] {
            open.begin(name, None, name == a);
        }
        open.end(a, true);
        assert_eq!((innermost(&open), open.steps), (Some(c), 1), "an enclosing range ended");
        open.end(c, false);
        assert_eq!(innermost(&open), Some(b), "the closed range is skipped");
        open.end(c, false);
        open.end(b, false);
        assert_eq!((innermost(&open), open.steps), (Some(a), 1));
        open.end(a, true);
        assert_eq!((innermost(&open), open.steps, open.ranges.len()), (None, 0, 0));
    }
}
