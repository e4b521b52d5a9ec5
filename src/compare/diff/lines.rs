//! Who holds more or less than before, by line of the user's code.
//!
//! Lines that a matched stack links are one line, wherever it stands now; a line that no stack links is
//! the one of the same number in the same function.

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::holders::{HeldChange, Holders, Others, Status, listed};
use super::moment::HeldStack;
use crate::base::ids::FrameId;
use crate::base::intern::{SeededMap, SeededSet};
use crate::base::units::ratio;
use crate::stacks::frames::CodeLocation;
use crate::stacks::matching::FrameKey;
use crate::study::memory::largest_operation;

/// A line of the user's code that holds more or less than before, by whatever way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LineChange {
    /// What became of it.
    pub status: Status,
    /// How much.
    #[serde(flatten)]
    pub held: HeldChange,
    /// The line as it is after; as it was before when it is gone. `None` gathers stacks without one.
    #[serde(flatten)]
    pub location: CodeLocation,
    /// What most of the change was allocated for, as far as the stacks tell.
    pub operation: Option<String>,
    /// How much of what changed that is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operation_share_ratio: Option<f64>,
}

/// What stacks are named by, in the words of both snapshots: see [`crate::stacks::frames::LineId`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Line {
    code: Option<FrameKey>,
    caller: Option<FrameKey>,
    node: Option<FrameKey>,
    forward: Option<FrameKey>,
    is_backward: bool,
    has_stack: bool,
}

/// A line on one side.
type SideLine = (usize, Line);

/// Sets of lines that are one: every line leads to another of its set, the last one to itself.
#[derive(Default)]
struct Links {
    rows: SeededMap<SideLine, usize>,
    leads_to: Vec<usize>,
}

impl Links {
    /// The set of `line`, which is one of its own if it is new.
    fn set(&mut self, line: SideLine) -> usize {
        let leads_to = &mut self.leads_to;
        let mut row = *self.rows.entry(line).or_insert_with(|| {
            leads_to.push(leads_to.len());
            leads_to.len() - 1
        });
        while let Some(next) = leads_to.get(row).copied().filter(|next| *next != row) {
            // Halves the way for the next time.
            let after = leads_to.get(next).copied().unwrap_or(next);
            if let Some(lead) = leads_to.get_mut(row) {
                *lead = after;
            }
            row = next;
        }
        row
    }

    fn link(&mut self, a: SideLine, b: SideLine) {
        let (a, b) = (self.set(a), self.set(b));
        if let Some(lead) = self.leads_to.get_mut(a) {
            *lead = b;
        }
    }
}

/// What a set of lines holds, on either side the stack that holds most of it, and the stacks that changed
/// with what they changed by.
#[derive(Default)]
struct LineTotals<'a> {
    held: HeldChange,
    largest: [Option<&'a HeldStack>; 2],
    changed: Vec<(u64, usize, &'a HeldStack)>,
}

impl<'a> Holders<'a> {
    fn line(&self, side: usize, stack: &HeldStack) -> SideLine {
        let line = self.readers[side].line_id(stack.id);
        let place = |id: Option<FrameId>| id.map(|id| self.words.frame_key(side, id));
        let line = Line {
            code: place(line.frame),
            caller: place(line.caller),
            node: place(line.node),
            forward: place(line.forward),
            is_backward: line.is_backward,
            has_stack: line.has_stack,
        };
        (side, line)
    }

    /// The lines that changed, most first, up to `top`, and the sum of all others.
    pub(super) fn by_line(&self, top: usize) -> (Vec<LineChange>, Others) {
        let mut links = self.links();
        let mut sets: FxHashMap<usize, usize> = FxHashMap::default();
        let mut rows: Vec<LineTotals<'a>> = Vec::new();
        for pair in self.pairs {
            let stacks = self.stacks(pair);
            let Some((side, stack)) =
                [1, 0].into_iter().find_map(|side| Some((side, stacks[side]?)))
            else {
                continue;
            };
            let set = *sets.entry(links.set(self.line(side, stack))).or_insert_with(|| {
                rows.push(LineTotals::default());
                rows.len() - 1
            });
            let Some(row) = rows.get_mut(set) else { continue };
            let held = self.held(pair);
            row.held.merge(&held);
            for (largest, stack) in row.largest.iter_mut().zip(stacks) {
                let more = |s: &&HeldStack| largest.is_none_or(|known| known.bytes < s.bytes);
                *largest = stack.filter(more).or(*largest);
            }
            let by = held.delta_bytes.unsigned_abs();
            if by > 0 {
                row.changed.push((by, side, stack));
            }
        }
        let (shown, others) = listed(rows.into_iter().map(|row| (row.held, row)).collect(), top);
        let rows = shown.into_iter().map(|(status, held, row)| {
            let told = |side: usize| {
                let (stack, reader) = (row.largest[side]?, self.readers[side]);
                Some(reader.code_location(reader.line_id(stack.id)))
            };
            let location = match (told(0), told(1)) {
                (Some(before), Some(after)) => {
                    let moved_from =
                        before.frame.filter(|frame| Some(frame) != after.frame.as_ref());
                    CodeLocation { moved_from, ..after }
                }
                (before, after) => after.or(before).unwrap_or_default(),
            };
            let all = row.changed.iter().map(|(by, ..)| *by).fold(0, u64::saturating_add);
            let operations = row.changed.iter();
            let main = largest_operation(
                operations.map(|(by, side, stack)| (self.readers[*side].operation(stack.id), *by)),
            );
            LineChange {
                status,
                held,
                location,
                operation_share_ratio: main.as_ref().map(|(_, by)| ratio(*by, all)),
                operation: main.map(|(operation, _)| operation),
            }
        });
        (rows.collect(), others)
    }

    fn links(&self) -> Links {
        let mut links = Links::default();
        let mut alone: Vec<SideLine> = Vec::new();
        let mut linked: SeededSet<SideLine> = SeededSet::default();
        for pair in self.pairs {
            let stacks = self.stacks(pair);
            let both = [0, 1].map(|side| stacks[side].map(|stack| self.line(side, stack)));
            if let [Some(before), Some(after)] = both {
                links.link(before, after);
                linked.extend([before, after]);
            } else {
                alone.extend(both.into_iter().flatten());
            }
        }
        // By what the function is called in both snapshots.
        let class = |place: Option<FrameKey>| {
            place.map(|p| FrameKey { function: self.words.function_class(p.function), ..p })
        };
        let key = |(_, line): &SideLine| Line {
            code: class(line.code),
            caller: class(line.caller),
            node: class(line.node),
            forward: class(line.forward),
            ..*line
        };
        let mut free: SeededMap<Line, [Option<SideLine>; 2]> = SeededMap::default();
        for line in alone.iter().filter(|line| !linked.contains(line)) {
            if let Some(known) = free.entry(key(line)).or_default().get_mut(line.0) {
                *known = Some(*line);
            }
        }
        for sides in free.values() {
            if let [Some(before), Some(after)] = sides {
                links.link(*before, *after);
            }
        }
        links
    }
}
