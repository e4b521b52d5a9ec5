//! The allocations of one device as columns: what is live, and what each group of them holds, at any moment.
//!
//! A moment `m` of `0..=entries` is the state after `m` trace entries, as on the HTML page.

use std::cmp::Reverse;
use std::ops::Range;

use itertools::Itertools as _;
use rustc_hash::FxHashMap;

use super::palette::{OTHER, Slot, line_slot};
use crate::base::ids::to_u32;
use crate::base::intern::Distinct;
use crate::output::wording::keeper_name;
use crate::stacks::frames::CodeLocation;
use crate::study::DeviceStudy;
use crate::study::attribution::{Category, Confidence};
use crate::study::lifetimes::{AllocationLifetime, MemoryLifetimes, SegmentRange};

/// A number of trace entries.
pub(super) type Moment = u32;

/// The end of what is never freed.
const NEVER: Moment = Moment::MAX;
/// Moments between two sums of a grouping that are kept.
const STRIDE: usize = 256;
/// The word of the grouping by source line.
pub(super) const BY_LINE: &str = "line";
/// Lines or variables with a group of their own; the others share the last one.
const MAX_GROUPS: usize = 63;

/// A group of allocations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) slot: Slot,
    pub(super) is_guess: bool,
}

/// A partition of the allocations.
#[derive(Debug)]
pub(super) struct Grouping {
    /// `category`, `line` or `name`.
    pub(super) word: &'static str,
    pub(super) groups: Vec<Group>,
    /// The group of each allocation.
    pub(super) of: Vec<u8>,
    /// Bytes of each group at every [`STRIDE`]th moment.
    sums: Vec<u64>,
}

/// A column of the picture of memory over time.
#[derive(Debug, Clone)]
pub(super) struct Column {
    /// Bytes of each group where most is allocated.
    pub(super) groups: Vec<u64>,
    /// Peak of reserved bytes.
    pub(super) reserved: u64,
}

/// The allocations of one device.
#[derive(Debug)]
pub struct Recording {
    pub(super) allocations: Vec<AllocationLifetime>,
    pub(super) bytes: Vec<u64>,
    pub(super) segments: Vec<SegmentRange>,
    pub(super) lines: Vec<String>,
    /// The line of each allocation, an index in `lines`.
    pub(super) line_of: Vec<u32>,
    /// By category, by line and, if the recorder named variables, by name.
    pub(super) groupings: Vec<Grouping>,
    /// By moment.
    pub(super) allocated: Vec<u64>,
    /// By moment.
    pub(super) reserved: Vec<u64>,
    /// The first and the last moment at which each allocation is live, as columns: they are scanned for every frame.
    starts: Vec<Moment>,
    ends: Vec<Moment>,
    /// When the memory of each allocation could be reused.
    reusable: Vec<Moment>,
    /// Allocations (`row << 1`) and frees (`row << 1 | 1`) by moment; those of moment `m` start at `change_starts[m]`.
    changes: Vec<u32>,
    change_starts: Vec<u32>,
}

impl Recording {
    /// Reads the lifetimes of all allocations of `device`.
    pub fn from_device(device: DeviceStudy<'_, '_>) -> Self {
        let lives = MemoryLifetimes::from_device(device);
        let bytes: Vec<u64> = lives.allocations.iter().map(|one| lives.kind_of(one).bytes).collect();
        let MemoryLifetimes { allocations, segments, .. } = lives;
        let moments = device.device().len() + 1;
        let starts: Vec<Moment> = allocations.iter().map(|one| one.start).collect();
        let ends: Vec<Moment> = allocations.iter().map(|one| one.freed_at().unwrap_or(NEVER)).collect();
        let reusable = allocations.iter().map(|one| one.reusable_at().unwrap_or(NEVER)).collect();
        let (changes, change_starts) = sort_changes(&starts, &ends, moments);
        let allocated =
            totals(allocations.iter().zip(&bytes).map(|(one, bytes)| (one.start, one.freed_at(), *bytes)), moments);
        let reserved = totals(segments.iter().map(|one| (one.start, one.end, one.bytes)), moments);
        let (lines, line_of) = find_lines(device, &allocations);
        let mut recording = Self {
            allocations,
            bytes,
            segments,
            lines,
            line_of,
            groupings: Vec::new(),
            allocated,
            reserved,
            starts,
            ends,
            reusable,
            changes,
            change_starts,
        };
        let named = recording.by_name(device);
        recording.groupings = [recording.by_category(), recording.by_line()].into_iter().chain(named).collect();
        recording
    }

    /// The first of `moments` at which most is allocated.
    fn peak_in(&self, moments: Range<usize>) -> Moment {
        let allocated = &self.allocated[moments.clone()];
        // Two passes, as both are fast: a picture may have millions of moments.
        let most = allocated.iter().copied().fold(0, u64::max);
        to_u32(moments.start + allocated.iter().position(|bytes| *bytes == most).unwrap_or(0))
    }

    /// Indexes of the allocations that are live at `moment`.
    pub(super) fn live(&self, moment: Moment) -> impl Iterator<Item = usize> {
        Self::started(&self.starts, &self.ends, moment)
    }

    /// The same, and those whose memory waits for another stream.
    pub(super) fn in_use(&self, moment: Moment) -> impl Iterator<Item = usize> {
        Self::started(&self.starts, &self.reusable, moment)
    }

    fn started(starts: &[Moment], ends: &[Moment], moment: Moment) -> impl Iterator<Item = usize> {
        let started = starts.partition_point(|start| *start <= moment);
        (0..started).filter(move |row| ends[*row] > moment)
    }

    /// The columns of a picture of the moments `zoom`.
    pub(super) fn columns(&self, grouping: &Grouping, zoom: &Range<Moment>, width: usize) -> Vec<Column> {
        let columns = (0..width).map(|index| {
            let moments = column_moments(zoom, width, index);
            let groups = self.sums_at(grouping, self.peak_in(moments.clone()));
            Column { groups, reserved: self.reserved[moments].iter().copied().fold(0, u64::max) }
        });
        columns.collect()
    }

    /// Bytes of each group at `moment`.
    pub(super) fn sums_at(&self, grouping: &Grouping, moment: Moment) -> Vec<u64> {
        let (count, kept) = (grouping.groups.len(), moment as usize / STRIDE);
        let mut sums = grouping.sums[kept * count..(kept + 1) * count].to_vec();
        self.apply(&mut sums, &grouping.of, kept * STRIDE + 1..moment as usize + 1);
        sums
    }

    /// Applies the changes of `moments` to the bytes of each group.
    fn apply(&self, sums: &mut [u64], of: &[u8], moments: Range<usize>) {
        let changes = self.change_starts[moments.start] as usize..self.change_starts[moments.end] as usize;
        for change in &self.changes[changes] {
            let row = (change >> 1) as usize;
            let sum = &mut sums[of[row] as usize];
            let bytes = self.bytes[row];
            *sum = if change & 1 == 0 { sum.saturating_add(bytes) } else { sum.saturating_sub(bytes) };
        }
    }

    /// The partition of the allocations into `groups` by `of`.
    pub(super) fn group(&self, word: &'static str, groups: Vec<Group>, of: Vec<u8>) -> Grouping {
        let mut now = vec![0; groups.len()];
        let mut sums = Vec::new();
        let moments = self.allocated.len();
        let mut next = 0;
        for kept in (0..moments).step_by(STRIDE) {
            self.apply(&mut now, &of, next..kept + 1);
            sums.extend_from_slice(&now);
            next = kept + 1;
        }
        Grouping { word, groups, of, sums }
    }

    fn by_category(&self) -> Grouping {
        let of = self.allocations.iter().map(|one| {
            let is_guess = one.confidence == Confidence::Low && one.category != Category::Other;
            u8::try_from(2 * one.category as usize + usize::from(is_guess)).unwrap_or(u8::MAX)
        });
        let names = Category::ALL.iter().map(|one| one.word().replace('-', " ")).enumerate();
        let groups = names.flat_map(|(slot, name)| {
            let guess = Group { name: format!("{name}?"), slot, is_guess: true };
            [Group { name, slot, is_guess: false }, guess]
        });
        self.group("category", groups.collect(), of.collect())
    }

    /// The lines with most memory at the peak, then those with most over the whole trace.
    fn by_line(&self) -> Grouping {
        let mut weights = vec![(0_u64, 0_u128); self.lines.len()];
        for row in self.live(self.peak_in(0..self.allocated.len())) {
            weights[self.line_of[row] as usize].0 += self.bytes[row];
        }
        let last = to_u32(self.allocated.len() - 1);
        for (row, one) in self.allocations.iter().enumerate() {
            let entries = self.ends[row].min(last).saturating_sub(one.start);
            weights[self.line_of[row] as usize].1 += u128::from(self.bytes[row]) * u128::from(entries);
        }
        let order = (0..self.lines.len()).sorted_by_key(|line| Reverse(weights[*line])).collect_vec();
        let mut of_line = vec![0; self.lines.len()];
        for (group, line) in order.iter().enumerate() {
            of_line[*line] = small(group);
        }
        let names = order.iter().map(|line| self.lines[*line].clone());
        let of = self.line_of.iter().map(|line| of_line[*line as usize]).collect();
        self.group(BY_LINE, listed(names, self.lines.len(), "lines"), of)
    }

    /// By the variable that keeps the memory at the snapshot; `None` if the recorder named none.
    fn by_name(&self, device: DeviceStudy<'_, '_>) -> Option<Grouping> {
        let variables = device.variables()?;
        let names = (0..variables.count()).map(|index| keeper_name(&variables.row(index, device.stacks())));
        let mut groups = listed(names, variables.count(), "variables");
        let freed = small(groups.len());
        groups.push(Group { name: "freed before the snapshot".to_owned(), slot: OTHER, is_guess: true });
        let of = self.allocations.iter().map(|one| one.variable(device).map_or(freed, small));
        Some(self.group("name", groups, of.collect()))
    }
}

/// The group of what comes at `index`.
fn small(index: usize) -> u8 {
    u8::try_from(index.min(MAX_GROUPS)).unwrap_or(u8::MAX)
}

/// A group for each of the first names, and one for the others.
fn listed(names: impl Iterator<Item = String>, count: usize, noun: &str) -> Vec<Group> {
    let groups = names.take(MAX_GROUPS).enumerate();
    let others = (count > MAX_GROUPS).then(|| format!("{} other {noun}", count - MAX_GROUPS));
    let others = others.map(|name| Group { name, slot: OTHER, is_guess: false });
    groups.map(|(index, name)| Group { name, slot: line_slot(index), is_guess: false }).chain(others).collect()
}

/// The moments of column `index` of `width`.
pub(super) fn column_moments(zoom: &Range<Moment>, width: usize, index: usize) -> Range<usize> {
    let [start, end] = [index, index + 1].map(|index| zoom.start as usize + zoom.len() * index / width);
    start..end.max(start + 1)
}

/// The sum of what exists at each moment, from the start, the end and the bytes of each part.
fn totals(parts: impl Iterator<Item = (Moment, Option<Moment>, u64)>, moments: usize) -> Vec<u64> {
    let mut sums = vec![0_u64; moments];
    for (start, end, bytes) in parts {
        for (moment, change) in [(Some(start), bytes), (end, bytes.wrapping_neg())] {
            if let Some(sum) = moment.and_then(|moment| sums.get_mut(moment as usize)) {
                *sum = sum.wrapping_add(change);
            }
        }
    }
    for moment in 1..moments {
        sums[moment] = sums[moment].wrapping_add(sums[moment - 1]);
    }
    sums
}

/// The changes in the order of their moments, and the index of the first change of each moment.
fn sort_changes(starts: &[Moment], ends: &[Moment], moments: usize) -> (Vec<u32>, Vec<u32>) {
    // Allocations come first, also of one moment: one that is freed at once does not go below 0.
    let changes = [(0, starts), (1, ends)].into_iter().flat_map(|(is_free, of)| {
        of.iter().zip(0_u32..).map(move |(moment, row)| (*moment as usize, row << 1 | is_free))
    });
    let changes = changes.filter(|(moment, _)| *moment < moments).sorted_by_key(|(moment, _)| *moment).collect_vec();
    let mut firsts = vec![0_u32; moments + 1];
    for (moment, _) in &changes {
        firsts[moment + 1] += 1;
    }
    for index in 1..firsts.len() {
        firsts[index] += firsts[index - 1];
    }
    (changes.into_iter().map(|(_, change)| change).collect(), firsts)
}

/// The source lines, and the line of each allocation.
fn find_lines(device: DeviceStudy<'_, '_>, allocations: &[AllocationLifetime]) -> (Vec<String>, Vec<u32>) {
    let stacks = device.stacks();
    let (mut ids, mut of_stack) = (Distinct::default(), FxHashMap::default());
    let line_of = allocations.iter().map(|one| {
        let is_older = one.is_before_recording(device);
        *of_stack
            .entry((one.made_by, is_older))
            .or_insert_with(|| ids.add(stacks.line_id(one.made_by).for_block(is_older)))
    });
    let line_of = line_of.collect();
    let locations = ids.all.iter().map(|id| stacks.code_location(*id)).collect_vec();
    // Callers tell lines with one name apart.
    let named = locations.iter().map(CodeLocation::label).counts();
    let names = locations.iter().map(|location| match (location.label(), &location.called_from) {
        (line, Some(caller)) if named[&line] > 1 => format!("{line} ← {}", caller.brief_label()),
        (line, _) => line,
    });
    (names.collect(), line_of)
}
