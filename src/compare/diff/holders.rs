//! Changes of live memory at the compared position: by stack, and by variable where both snapshots name variables.

use std::cmp::Reverse;
use std::sync::Arc;

use itertools::Itertools as _;
use serde::Serialize;

use super::steps::ComparedMoment;
use crate::base::ids::StackId;
use crate::base::intern::SeededMap;
use crate::base::units::signed_difference;
use crate::base::warning::words;
use crate::snapshot::{RootKind, TensorKind};
use crate::stacks::frames::{FrameList, FrameReport, StackReader};
use crate::stacks::matching::{Candidate, FrameKey, FrameTable, MatchedBy, Pair};
use crate::study::memory::{BlockSum, MemoryReport, sorted_by_bytes};
use crate::study::variables::Container;
use crate::study::{DeviceStudy, Peak, TracePosition};

words! {
    /// The change of a stack or line.
    pub enum Status {
        /// Holds memory only after
        New = "new",
        /// Holds memory only before
        Gone = "gone",
        /// Holds more bytes, or as many bytes in more blocks
        Grown = "grown",
        /// Holds fewer bytes, or as many bytes in fewer blocks
        Shrunk = "shrunk",
    }
}

/// Live memory before and after.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct LiveChange {
    /// Live bytes before.
    pub before_bytes: u64,
    /// Live bytes after.
    pub after_bytes: u64,
    /// `after_bytes` minus `before_bytes`.
    pub delta_bytes: i64,
    /// Live blocks before.
    pub before_blocks: u64,
    /// Live blocks after.
    pub after_blocks: u64,
}

impl LiveChange {
    pub(super) fn add(&mut self, side: usize, bytes: u64, blocks: u64) {
        let (all_bytes, all_blocks) = match side {
            0 => (&mut self.before_bytes, &mut self.before_blocks),
            _ => (&mut self.after_bytes, &mut self.after_blocks),
        };
        *all_bytes = all_bytes.saturating_add(bytes);
        *all_blocks += blocks;
        self.delta_bytes = signed_difference(self.before_bytes, self.after_bytes);
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.add(0, other.before_bytes, other.before_blocks);
        self.add(1, other.after_bytes, other.after_blocks);
    }

    /// `None` if nothing changed.
    fn status(&self) -> Option<Status> {
        let (before, after) = ((self.before_bytes, self.before_blocks), (self.after_bytes, self.after_blocks));
        match (self.before_blocks, self.after_blocks) {
            _ if before == after => None,
            (0, _) => Some(Status::New),
            (_, 0) => Some(Status::Gone),
            _ if after > before => Some(Status::Grown),
            _ => Some(Status::Shrunk),
        }
    }
}

/// A stack whose live memory changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StackChange {
    /// The kind of change.
    pub status: Status,
    /// How the stacks of both snapshots were matched; absent for new and gone ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matched_by: Option<MatchedBy>,
    /// Live memory before and after.
    #[serde(flatten)]
    pub held: LiveChange,
    /// The stack after, innermost frame first; the stack before if it is gone.
    #[serde(flatten)]
    pub frames: FrameList,
    /// The stack before; absent if its lines and files are the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moved_from: Option<Arc<[FrameReport]>>,
}

/// The sum of all rows that are not listed, including unchanged ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct OtherRows {
    /// Number of rows.
    pub count: u64,
    /// Their live memory before and after.
    #[serde(flatten)]
    pub held: LiveChange,
}

impl OtherRows {
    pub(crate) fn add(&mut self, held: &LiveChange) {
        self.count += 1;
        self.held.merge(held);
    }
}

/// The holders of a device's memory in both snapshots.
pub(super) struct DeviceHolders<'a> {
    pub(super) readers: [&'a StackReader<'a>; 2],
    pub(super) words: &'a FrameTable,
    pub(super) sides: [&'a ComparedMemory; 2],
    pub(super) pairs: &'a [Pair],
}

/// Splits off the `top` rows with the largest changes, and sums up the rest.
pub(super) fn split_listed<T>(mut rows: Vec<(LiveChange, T)>, top: usize) -> (Vec<(Status, LiveChange, T)>, OtherRows) {
    // A stable sort, so that ties stay in the order of the files.
    rows.sort_by_key(|(held, _)| Reverse((held.delta_bytes.unsigned_abs(), held.before_bytes.max(held.after_bytes))));
    let (mut shown, mut others) = (Vec::new(), OtherRows::default());
    for (held, row) in rows {
        match held.status() {
            Some(status) if shown.len() < top => shown.push((status, held, row)),
            _ => others.add(&held),
        }
    }
    (shown, others)
}

impl<'a> DeviceHolders<'a> {
    pub(super) fn stacks(&self, pair: &Pair) -> [Option<&'a LiveStack>; 2] {
        [0, 1].map(|side| pair.rows[side].and_then(|row| self.sides[side].stacks.get(row)))
    }

    pub(super) fn held(&self, pair: &Pair) -> LiveChange {
        let mut held = LiveChange::default();
        for (side, stack) in self.stacks(pair).into_iter().enumerate() {
            if let Some(stack) = stack {
                held.add(side, stack.bytes, stack.blocks);
            }
        }
        held
    }

    /// The `top` stacks with the largest changes, and the sum of all others.
    pub(super) fn by_stack(&self, top: usize) -> (Vec<StackChange>, OtherRows) {
        let rows = self.pairs.iter().map(|pair| (self.held(pair), pair)).collect();
        let (shown, others) = split_listed(rows, top);
        let rows = shown.into_iter().filter_map(|(status, held, pair)| {
            let stacks = self.stacks(pair);
            let [before, after] = [0, 1].map(|side| stacks[side].map(|stack| self.readers[side].frame_list(stack.id)));
            let moved = pair.matched_by.is_some_and(|by| by != MatchedBy::Content);
            let moved_from = before.clone().filter(|_| moved).map(|before| before.frames);
            let matched_by = pair.matched_by;
            let frames = after.or(before)?;
            Some(StackChange { status, matched_by, held, frames, moved_from })
        });
        (rows.collect(), others)
    }
}

/// The live memory of one stack.
#[derive(Debug)]
pub(super) struct LiveStack {
    pub(super) id: StackId,
    pub(super) bytes: u64,
    pub(super) blocks: u64,
    pub(super) frame_keys: Vec<FrameKey>,
}

impl LiveStack {
    /// This stack as a candidate for matching.
    pub(super) fn candidate(&self) -> Candidate<'_> {
        Candidate { frames: &self.frame_keys, weight: self.bytes }
    }
}

/// The memory of a device at the compared position.
#[derive(Debug, Default)]
pub(super) struct ComparedMemory {
    pub(super) memory: MemoryReport,
    pub(super) moment: TracePosition,
    /// Live memory by stack, largest first.
    pub(super) stacks: Vec<LiveStack>,
}

/// The compared position among the entries before `until`, which have the peaks `peak`.
fn moment_of(device: DeviceStudy<'_, '_>, at: ComparedMoment, until: Option<u64>, peak: &Peak) -> TracePosition {
    match (at, until) {
        (ComparedMoment::Peak, None) if ends_at_its_peak(device) => TracePosition::Snapshot,
        (ComparedMoment::Peak, _) => TracePosition::after(peak.allocated_event),
        (ComparedMoment::Snapshot, None) => TracePosition::Snapshot,
        (ComparedMoment::Snapshot, Some(until)) => TracePosition::after(until.checked_sub(1)),
    }
}

impl ComparedMemory {
    /// The memory of `device` on `side` (0 before, 1 after). Only entries before `until` are compared, which have the
    /// peaks `peak`.
    pub(super) fn new(
        (side, device): (usize, DeviceStudy<'_, '_>),
        words: &FrameTable,
        at: ComparedMoment,
        until: Option<u64>,
        peak: &Peak,
    ) -> Self {
        let moment = moment_of(device, at, until, peak);
        let snapshot = device.snapshot();
        let memory = device.memory_at(moment);
        // Different stacks may have the same frames, from other calls or other regions of compiled code.
        let mut by_places: SeededMap<Vec<FrameKey>, (StackId, BlockSum)> = SeededMap::default();
        for (id, held) in sorted_by_bytes(memory.live_by_stack) {
            let places = words.stack_keys(side, snapshot, id);
            let known = by_places.entry(places).or_insert((id, BlockSum::default()));
            known.1 = known.1.plus(held);
        }
        let stacks = by_places.into_iter().map(|(frame_keys, (id, held))| {
            let BlockSum { bytes, blocks } = held;
            LiveStack { id, bytes, blocks, frame_keys }
        });
        let stacks = stacks.sorted_by_key(|stack| (std::cmp::Reverse(stack.bytes), stack.id)).collect();
        Self { memory: memory.figures, moment, stacks }
    }
}

/// Whether the snapshot itself shows the peak: without a trace, or if memory peaked with the last entry.
fn ends_at_its_peak(device: DeviceStudy<'_, '_>) -> bool {
    let peak = device.peak();
    device.history().is_none_or(|over_time| {
        peak.allocated_event == over_time.trace_entries.checked_sub(1)
            && peak.allocated_bytes == device.memory().allocated_bytes
    })
}

/// The variables whose memory changed between the two snapshots.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariablesDiff {
    /// The variables, largest change first, `--top` of them.
    pub rows: Vec<VariableChange>,
    /// The sum of all other variables.
    pub other: OtherRows,
}

/// A variable or module whose memory changed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct VariableChange {
    /// The kind of change.
    pub status: Status,
    /// Live memory at the snapshot before and after.
    #[serde(flatten)]
    pub held: LiveChange,
    /// The module for parameters, buffers and gradients, the optimizer for its state, else the variable;
    /// with `*` for each index. Null if no variable leads to the memory.
    pub name: Option<String>,
    /// Use of the memory, as in `kept_by` of `analyze`; null if no tensor of Python uses it.
    pub kind: Option<TensorKind>,
    /// Where the name starts, as in `kept_by` of `analyze`.
    pub root: Option<RootKind>,
    /// The container whose items these are, after, or else before; absent for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub container: Option<Container>,
}

type Key = (Option<String>, Option<TensorKind>, Option<RootKind>);

impl VariablesDiff {
    /// `None` unless the recorder named variables in both, or in the one that has the device.
    pub(super) fn new(devices: [Option<DeviceStudy<'_, '_>>; 2], top: usize) -> Option<Self> {
        let mut indexes: SeededMap<Key, usize> = SeededMap::default();
        let mut rows: Vec<(LiveChange, (Key, Option<Container>))> = Vec::new();
        for (side, device) in devices.into_iter().enumerate() {
            let Some(device) = device else { continue };
            let variables = device.variables()?;
            for index in 0..variables.count() {
                let kept = variables.row(index, device.stacks());
                let (owner, container) = kept.owner();
                let key = (owner, kept.kind, kept.root);
                let index = *indexes.entry(key).or_insert_with_key(|key| {
                    rows.push((LiveChange::default(), (key.clone(), None)));
                    rows.len() - 1
                });
                let (held, (_, known)) = &mut rows[index];
                held.add(side, kept.bytes, kept.blocks);
                *known = container.or(known.take());
            }
        }
        let (rows, other) = split_listed(rows, top);
        let changes = rows.into_iter().map(|(status, held, (key, container))| {
            let (name, kind, root) = key;
            VariableChange { status, held, name, kind, root, container }
        });
        Some(Self { rows: changes.collect(), other })
    }
}
