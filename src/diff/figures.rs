//! One device's figures on either side, and what they changed by, under the same names.

use serde::Serialize;

use crate::memory::Memory;
use crate::study::Peak;
use crate::units::change;

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

impl Tally<u64> {
    fn change_to(self, after: Self) -> Tally<i64> {
        Tally { count: change(self.count, after.count), bytes: change(self.bytes, after.bytes) }
    }
}

impl SegmentFigures<u64> {
    fn change_to(&self, after: &Self) -> SegmentFigures<i64> {
        SegmentFigures {
            count: change(self.count, after.count),
            small: self.small.change_to(after.small),
            large: self.large.change_to(after.large),
            expandable: self.expandable.change_to(after.expandable),
        }
    }
}

impl BlockFigures<u64> {
    fn change_to(&self, after: &Self) -> BlockFigures<i64> {
        BlockFigures {
            active_allocated: self.active_allocated.change_to(after.active_allocated),
            active_pending_free: self.active_pending_free.change_to(after.active_pending_free),
            inactive: self.inactive.change_to(after.inactive),
        }
    }
}

impl FragmentationFigures<u64> {
    fn change_to(&self, after: &Self) -> FragmentationFigures<i64> {
        FragmentationFigures {
            gap_ratio: after.gap_ratio - self.gap_ratio,
            inactive_split_bytes: change(self.inactive_split_bytes, after.inactive_split_bytes),
            releasable_bytes: change(self.releasable_bytes, after.releasable_bytes),
            stranded_bytes: change(self.stranded_bytes, after.stranded_bytes),
            largest_free_block_bytes: change(
                self.largest_free_block_bytes,
                after.largest_free_block_bytes,
            ),
            rounding_bytes: change(self.rounding_bytes, after.rounding_bytes),
        }
    }
}

impl Figures<u64> {
    /// Those of `memory` at the moment compared, with the `peak` of what is compared.
    pub(super) fn of(memory: &Memory, peak: &Peak, ooms: u64) -> Self {
        let tally = |count, bytes| Tally { count, bytes };
        let (segments, blocks, free) = (&memory.segments, &memory.blocks, &memory.fragmentation);
        Self {
            reserved_bytes: memory.reserved_bytes,
            allocated_bytes: memory.allocated_bytes,
            active_bytes: memory.active_bytes,
            requested_bytes: memory.requested_bytes,
            peak_allocated_bytes: peak.allocated_bytes,
            peak_reserved_bytes: peak.reserved_bytes,
            ooms,
            segments: SegmentFigures {
                count: segments.count,
                small: tally(segments.small.count, segments.small.bytes),
                large: tally(segments.large.count, segments.large.bytes),
                expandable: tally(segments.expandable.count, segments.expandable.bytes),
            },
            blocks: BlockFigures {
                active_allocated: tally(
                    blocks.active_allocated.count,
                    blocks.active_allocated.bytes,
                ),
                active_pending_free: tally(
                    blocks.active_pending_free.count,
                    blocks.active_pending_free.bytes,
                ),
                inactive: tally(blocks.inactive.count, blocks.inactive.bytes),
            },
            fragmentation: FragmentationFigures {
                gap_ratio: free.gap_ratio,
                inactive_split_bytes: free.inactive_split_bytes,
                releasable_bytes: free.releasable_bytes,
                stranded_bytes: free.stranded_bytes,
                largest_free_block_bytes: free.largest_free_block_bytes,
                rounding_bytes: free.rounding_bytes,
            },
        }
    }

    /// What they changed by on the way to `after`.
    pub(super) fn change_to(&self, after: &Self) -> Figures<i64> {
        Figures {
            reserved_bytes: change(self.reserved_bytes, after.reserved_bytes),
            allocated_bytes: change(self.allocated_bytes, after.allocated_bytes),
            active_bytes: change(self.active_bytes, after.active_bytes),
            requested_bytes: change(self.requested_bytes, after.requested_bytes),
            peak_allocated_bytes: change(self.peak_allocated_bytes, after.peak_allocated_bytes),
            peak_reserved_bytes: change(self.peak_reserved_bytes, after.peak_reserved_bytes),
            ooms: change(self.ooms, after.ooms),
            segments: self.segments.change_to(&after.segments),
            blocks: self.blocks.change_to(&after.blocks),
            fragmentation: self.fragmentation.change_to(&after.fragmentation),
        }
    }
}
