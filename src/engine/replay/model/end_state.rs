//! Compares the model's final state with the snapshot.

use crate::allocator::{BlockView, CachingAllocator, DeviceRange};
use crate::snapshot::{Block, BlockState, Device, Segment};

/// The number of segments that differ, or that only one of the two has. A segment is equal if its address, size,
/// stream, pool, kind and blocks are. Requested bytes count for active blocks only, since those of a free block are
/// outdated.
pub fn count_end_differences(device: Device<'_>, allocator: &CachingAllocator) -> usize {
    let (segments, blocks) = allocator.view();
    let mut theirs: Vec<&Segment> = device.segments().collect();
    theirs.sort_by_key(|segment| segment.address);
    let mut same = 0;
    let mut ours = segments.iter().peekable();
    for segment in &theirs {
        while ours.next_if(|our| our.range.addr < segment.address).is_some() {}
        if let Some(our) = ours.next_if(|our| our.range.addr == segment.address) {
            let our_blocks = &blocks[our.blocks.clone()];
            let their_blocks = device.snapshot().blocks_of(segment);
            same += usize::from(
                our.range == DeviceRange::from(*segment)
                    && our_blocks.len() == their_blocks.len()
                    && our_blocks.iter().zip(their_blocks).all(|(a, b)| is_same_block(a, b)),
            );
        }
    }
    theirs.len().max(segments.len()) - same
}

fn is_same_block(ours: &BlockView, theirs: &Block) -> bool {
    ours.addr == theirs.address
        && ours.size == theirs.size
        && ours.state == theirs.state
        && (ours.state == BlockState::Inactive || ours.requested == theirs.requested_size)
}
