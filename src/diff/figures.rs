//! One device's figures on either side, and what they changed by, under the same names.

use serde::Serialize;

use crate::analysis::{Memory, Peak};

/// What changed by: `after - before`, at the ends of the range where it does not fit.
pub(super) fn change(before: u64, after: u64) -> i64 {
    let by = i64::try_from(before.abs_diff(after)).unwrap_or(i64::MAX);
    if after < before { -by } else { by }
}

/// How many, and how many bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Tally<N> {
    /// How many.
    pub count: N,
    /// Bytes in all.
    pub bytes: N,
}

/// Segments by kind; `small` and `large` share all of them out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct SegmentFigures<N> {
    /// All of them.
    pub count: N,
    /// Of small pools.
    pub small: Tally<N>,
    /// Of large pools.
    pub large: Tally<N>,
    /// Mapped runs of expandable segments, small or large.
    pub expandable: Tally<N>,
}

/// Blocks by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct BlockFigures<N> {
    /// Held by the program.
    pub active_allocated: Tally<N>,
    /// Freed, waiting for another stream.
    pub active_pending_free: Tally<N>,
    /// Free.
    pub inactive: Tally<N>,
}

/// The figures of a device (`u64`), or what they changed by (`i64`). All but the peaks and `ooms` are
/// those of the moment compared; the meanings are those of [`Memory`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Figures<N> {
    /// Held from the device.
    pub reserved_bytes: N,
    /// In blocks that the program holds.
    pub allocated_bytes: N,
    /// Allocated, or freed and waiting for another stream.
    pub active_bytes: N,
    /// Asked for, of the active blocks.
    pub requested_bytes: N,
    /// The most that was allocated, of the steps compared.
    pub peak_allocated_bytes: N,
    /// The most that was reserved, of the steps compared.
    pub peak_reserved_bytes: N,
    /// Failed requests in the whole trace.
    pub ooms: N,
    /// Segments by kind.
    pub segments: SegmentFigures<N>,
    /// Blocks by state.
    pub blocks: BlockFigures<N>,
    /// How useful the free memory is.
    pub fragmentation: FragmentationFigures<N>,
}

/// How useful the free memory is; ratios change by at most 1 either way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct FragmentationFigures<N> {
    /// 1 - allocated / reserved.
    pub gap_ratio: f64,
    /// Free bytes beside another block of their segment; not of expandable segments.
    pub inactive_split_bytes: N,
    /// Free bytes that `empty_cache()` would give back.
    pub releasable_bytes: N,
    /// Free bytes that it would not.
    pub stranded_bytes: N,
    /// The largest free block.
    pub largest_free_block_bytes: N,
    /// Bytes that active blocks are larger than what was asked for.
    pub rounding_bytes: N,
}

impl<N: Copy> Tally<N> {
    fn with<M>(self, other: Self, f: impl Fn(N, N) -> M) -> Tally<M> {
        Tally { count: f(self.count, other.count), bytes: f(self.bytes, other.bytes) }
    }
}

impl Figures<u64> {
    /// Those of `memory` at the moment compared, with the `peak` of what is compared.
    pub(super) fn of(memory: &Memory, peak: &Peak, ooms: u64) -> Self {
        let tally = |count, bytes| Tally { count, bytes };
        let (s, b, f) = (&memory.segments, &memory.blocks, &memory.fragmentation);
        Self {
            reserved_bytes: memory.reserved_bytes,
            allocated_bytes: memory.allocated_bytes,
            active_bytes: memory.active_bytes,
            requested_bytes: memory.requested_bytes,
            peak_allocated_bytes: peak.allocated_bytes,
            peak_reserved_bytes: peak.reserved_bytes,
            ooms,
            segments: SegmentFigures {
                count: s.count,
                small: tally(s.small.count, s.small.bytes),
                large: tally(s.large.count, s.large.bytes),
                expandable: tally(s.expandable.count, s.expandable.bytes),
            },
            blocks: BlockFigures {
                active_allocated: tally(b.active_allocated.count, b.active_allocated.bytes),
                active_pending_free: tally(
                    b.active_pending_free.count,
                    b.active_pending_free.bytes,
                ),
                inactive: tally(b.inactive.count, b.inactive.bytes),
            },
            fragmentation: FragmentationFigures {
                gap_ratio: f.gap_ratio,
                inactive_split_bytes: f.inactive_split_bytes,
                releasable_bytes: f.releasable_bytes,
                stranded_bytes: f.stranded_bytes,
                largest_free_block_bytes: f.largest_free_block_bytes,
                rounding_bytes: f.rounding_bytes,
            },
        }
    }

    /// What they changed by on the way to `after`.
    pub(super) fn change_to(&self, after: &Self) -> Figures<i64> {
        let (s, t) = (&self.segments, &after.segments);
        let (b, c) = (&self.blocks, &after.blocks);
        let (f, g) = (&self.fragmentation, &after.fragmentation);
        Figures {
            reserved_bytes: change(self.reserved_bytes, after.reserved_bytes),
            allocated_bytes: change(self.allocated_bytes, after.allocated_bytes),
            active_bytes: change(self.active_bytes, after.active_bytes),
            requested_bytes: change(self.requested_bytes, after.requested_bytes),
            peak_allocated_bytes: change(self.peak_allocated_bytes, after.peak_allocated_bytes),
            peak_reserved_bytes: change(self.peak_reserved_bytes, after.peak_reserved_bytes),
            ooms: change(self.ooms, after.ooms),
            segments: SegmentFigures {
                count: change(s.count, t.count),
                small: s.small.with(t.small, change),
                large: s.large.with(t.large, change),
                expandable: s.expandable.with(t.expandable, change),
            },
            blocks: BlockFigures {
                active_allocated: b.active_allocated.with(c.active_allocated, change),
                active_pending_free: b.active_pending_free.with(c.active_pending_free, change),
                inactive: b.inactive.with(c.inactive, change),
            },
            fragmentation: FragmentationFigures {
                gap_ratio: g.gap_ratio - f.gap_ratio,
                inactive_split_bytes: change(f.inactive_split_bytes, g.inactive_split_bytes),
                releasable_bytes: change(f.releasable_bytes, g.releasable_bytes),
                stranded_bytes: change(f.stranded_bytes, g.stranded_bytes),
                largest_free_block_bytes: change(
                    f.largest_free_block_bytes,
                    g.largest_free_block_bytes,
                ),
                rounding_bytes: change(f.rounding_bytes, g.rounding_bytes),
            },
        }
    }
}
