//! Recognizes files that PyTorch's native CUDA allocator did not write.

use crate::allocator::conf::find_option;
use crate::base::units::counted;
use crate::base::warning::{Code, Warning};
use crate::snapshot::{Block, BlockState, Segment, Snapshot};

/// Packages with an allocator for another kind of device, which writes snapshots in the same format.
const FOREIGN_PACKAGES: [&str; 3] = ["torch_npu", "torch_mlu", "torch_musa"];

/// A warning for a file that another allocator wrote, since none of its figures can be trusted.
pub fn warn_if_foreign(snapshot: &Snapshot) -> Option<Warning> {
    let raw = snapshot.settings.as_ref();
    if raw.and_then(|raw| find_option(&raw.string, "backend")).is_some_and(|name| name != "native") {
        let message = "the backend is not PyTorch's native allocator, which these figures assume";
        return Some(Warning::new(Code::ForeignBackend, message));
    }
    if let Some(package) = find_foreign_package(snapshot) {
        let message = format!(
            "the stacks name {package}, which has an allocator of its own: oomscope does not know its rules, and these \
             figures assume PyTorch's CUDA allocator"
        );
        return Some(Warning::new(Code::ForeignBackend, message));
    }
    let contradictory = count_contradictory_segments(snapshot);
    (contradictory > 0).then(|| {
        let all = counted(snapshot.segments.len() as u64, "segment");
        let message = format!(
            "{contradictory} of {all} are inconsistent (their blocks leave gaps, overlap or are smaller than requested, or \
             two segments overlap): no allocator wrote this file"
        );
        Warning::new(Code::NotAllocated, message)
    })
}

/// The first of [`FOREIGN_PACKAGES`] in the stacks.
fn find_foreign_package(snapshot: &Snapshot) -> Option<&'static str> {
    let mut files = snapshot.stacks.all_frames().map(|frame| snapshot.text(frame.file));
    files.find_map(|file| {
        let mut named = FOREIGN_PACKAGES.into_iter().filter(|package| file.contains(package));
        named.find(|package| file.split(['/', '\\']).any(|part| part == *package))
    })
}

/// Segments whose blocks do not fit, or that overlap another segment of the device.
fn count_contradictory_segments(snapshot: &Snapshot) -> usize {
    let mut ranges: Vec<(u64, u64, u64, usize)> = Vec::with_capacity(snapshot.segments.len());
    let mut is_contradictory = vec![false; snapshot.segments.len()];
    for (index, segment) in snapshot.segments.iter().enumerate() {
        let end = segment.address.saturating_add(segment.total_size);
        ranges.push((segment.device, segment.address, end, index));
        is_contradictory[index] = !is_tiled(segment, snapshot.blocks_of(segment));
    }
    ranges.sort_unstable();
    for pair in ranges.windows(2) {
        if let [(device, _, end, _), (other, start, _, index)] = pair {
            is_contradictory[*index] |= device == other && start < end;
        }
    }
    is_contradictory.into_iter().filter(|is_contradictory| *is_contradictory).count()
}

/// Whether `blocks` fill `segment` without gaps, and each active one is at least as large as requested.
fn is_tiled(segment: &Segment, blocks: &[Block]) -> bool {
    let mut next = segment.address;
    blocks.iter().all(|block| {
        let follows = block.address == next;
        next = next.saturating_add(block.size);
        follows && (block.state == BlockState::Inactive || block.requested_size <= block.size)
    }) && next == segment.address.saturating_add(segment.total_size)
}
