//! Changes of live memory by line of user code.
//!
//! Matched stacks link their lines, even if a line has moved. Other lines are matched by function and line number.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::holders::{DeviceHolders, LiveChange, LiveStack, OtherRows, Status, split_listed};
use crate::base::intern::{SeededMap, SeededSet};
use crate::base::units::ratio;
use crate::stacks::frames::CodeLocation;
use crate::stacks::matching::FrameKey;
use crate::study::memory::largest_operation;

/// A line of user code whose live memory changed, over all stacks.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineChange {
    /// The kind of change.
    pub status: Status,
    /// Live memory before and after.
    #[serde(flatten)]
    pub held: LiveChange,
    /// The line after; the line before if it is gone. One row gathers all stacks without a line.
    #[serde(flatten)]
    pub location: CodeLocation,
    /// The operation with the largest part of the change; null if the stacks show none.
    pub operation: Option<String>,
    /// The operation's share of the changed bytes; absent without an operation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_share_ratio: Option<f64>,
}

/// A [`crate::stacks::frames::LineId`] with the keys of frames that both snapshots share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct LineKeys {
    /// Those of the frame, its caller, the autograd node and the forward pass.
    places: [Option<FrameKey>; 4],
    is_backward: bool,
    has_stack: bool,
}

/// A line of one snapshot: 0 is before, 1 is after.
type SidedLine = (usize, LineKeys);

/// Sets of linked lines, as a disjoint-set forest: each line has a parent, and a root is its own parent.
#[derive(Default)]
struct LineSets {
    rows: SeededMap<SidedLine, usize>,
    parents: Vec<usize>,
}

impl LineSets {
    /// The root of `line`, which starts a new set if it is new.
    fn set(&mut self, line: SidedLine) -> usize {
        let parents = &mut self.parents;
        let mut row = *self.rows.entry(line).or_insert_with(|| {
            parents.push(parents.len());
            parents.len() - 1
        });
        while parents[row] != row {
            parents[row] = parents[parents[row]]; // path halving
            row = parents[row];
        }
        row
    }

    fn link(&mut self, a: SidedLine, b: SidedLine) {
        let (a, b) = (self.set(a), self.set(b));
        self.parents[a] = b;
    }
}

/// A set of linked lines: live memory, each side's largest stack, and the changed stacks with their changes in bytes.
#[derive(Default)]
struct LineTotals<'a> {
    held: LiveChange,
    largest: [Option<&'a LiveStack>; 2],
    changed: Vec<(u64, usize, &'a LiveStack)>,
}

impl<'a> DeviceHolders<'a> {
    fn line(&self, side: usize, stack: &LiveStack) -> SidedLine {
        let line = self.readers[side].line_id(stack.id);
        let line = LineKeys {
            places: [line.frame, line.caller, line.node, line.forward]
                .map(|id| id.map(|id| self.words.frame_key(side, id))),
            is_backward: line.is_backward,
            has_stack: line.has_stack,
        };
        (side, line)
    }

    /// The `top` lines with the largest changes, and the sum of all others.
    pub(super) fn by_line(&self, top: usize) -> (Vec<LineChange>, OtherRows) {
        let mut links = self.links();
        let mut sets: FxHashMap<usize, usize> = FxHashMap::default();
        let mut rows: Vec<LineTotals<'a>> = Vec::new();
        for pair in self.pairs {
            let stacks = self.stacks(pair);
            let Some((side, stack)) = [1, 0].into_iter().find_map(|side| Some((side, stacks[side]?))) else {
                debug_assert!(false, "a pair has a stack on one side at least");
                continue;
            };
            let set = *sets.entry(links.set(self.line(side, stack))).or_insert_with(|| {
                rows.push(LineTotals::default());
                rows.len() - 1
            });
            let row = &mut rows[set];
            let held = self.held(pair);
            row.held.merge(&held);
            for (largest, stack) in row.largest.iter_mut().zip(stacks) {
                *largest = stack.filter(|s| largest.is_none_or(|known| known.bytes < s.bytes)).or(*largest);
            }
            let by = held.delta_bytes.unsigned_abs();
            row.changed.extend((by > 0).then_some((by, side, stack)));
        }
        let (shown, others) = split_listed(rows.into_iter().map(|row| (row.held, row)).collect(), top);
        let rows = shown.into_iter().map(|(status, held, row)| {
            let locations = [0, 1].map(|side| Some(self.readers[side].location_of(row.largest[side]?.id)));
            let location = match locations {
                [Some(before), Some(after)] => {
                    // Either a line of the user or of a helper may lead; only lines of the same kind compare.
                    let moved_from = before.frame.filter(|frame| {
                        after.frame.as_ref().is_some_and(|after| frame != after && frame.origin == after.origin)
                    });
                    CodeLocation { moved_from, ..after }
                }
                [before, after] => after.or(before).unwrap_or_default(), // a row has a stack on one side
            };
            let all = row.changed.iter().map(|(by, ..)| *by).fold(0, u64::saturating_add);
            let operations = row.changed.iter().map(|(by, side, stack)| (self.readers[*side].operation(stack.id), *by));
            let main = largest_operation(operations);
            let operation_share_ratio = main.as_ref().map(|(_, by)| ratio(*by, all));
            let operation = main.map(|(operation, _)| operation);
            LineChange { status, held, location, operation, operation_share_ratio }
        });
        (rows.collect(), others)
    }

    fn links(&self) -> LineSets {
        let mut links = LineSets::default();
        let mut unpaired: Vec<SidedLine> = Vec::new();
        let mut linked: SeededSet<SidedLine> = SeededSet::default();
        for pair in self.pairs {
            let stacks = self.stacks(pair);
            let both = [0, 1].map(|side| stacks[side].map(|stack| self.line(side, stack)));
            if let [Some(before), Some(after)] = both {
                links.link(before, after);
                linked.extend([before, after]);
            } else {
                unpaired.extend(both.into_iter().flatten());
            }
        }
        let mut free: SeededMap<LineKeys, [Option<SidedLine>; 2]> = SeededMap::default();
        for (side, line) in unpaired.into_iter().filter(|line| !linked.contains(line)) {
            // Functions are matched by their names in both snapshots.
            let places = line.places.map(|place| {
                let place = place?;
                Some(FrameKey { function: self.words.function_class(place.function), ..place })
            });
            free.entry(LineKeys { places, ..line }).or_default()[side] = Some((side, line));
        }
        for sides in free.values() {
            if let [Some(before), Some(after)] = sides {
                links.link(*before, *after);
            }
        }
        links
    }
}
