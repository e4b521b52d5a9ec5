//! Files that PyTorch's native CUDA allocator did not write.

use crate::allocator::conf::find_option;
use crate::base::units::{MIB, counted};
use crate::base::warning::{Code, Warning};
use crate::snapshot::{Block, BlockState, Segment, Snapshot};

/// Packages that bring an allocator of their own for another kind of device, and write the same snapshots.
const FOREIGN_PACKAGES: [&str; 3] = ["torch_npu", "torch_mlu", "torch_musa"];

/// What is to be said, before any figure, of a file that another allocator wrote, or none.
pub(crate) fn warn_if_foreign(snapshot: &Snapshot) -> Option<Warning> {
    let backend = |message: &str| Some(Warning::new(Code::ForeignBackend, message));
    let raw = snapshot.settings.as_ref();
    if raw.and_then(|raw| find_option(&raw.string, "backend")).is_some_and(|name| name != "native") {
        return backend(
            "the backend is not PyTorch's native allocator, which these figures assume",
        );
    }
    if let Some(package) = find_foreign_package(snapshot) {
        return backend(&format!(
            "the stacks name {package}, which has another allocator than PyTorch's for CUDA: its rules are not \
             known here, and what follows takes those of the latter"
        ));
    }
    if looks_like_npu(snapshot) {
        return backend(
            "blocks are 32 bytes larger than those of PyTorch's CUDA allocator, as in torch_npu, whose rules are \
             not known here",
        );
    }
    let contradicting = count_contradictory_segments(snapshot);
    (contradicting > 0).then(|| {
        Warning::new(
            Code::NotAllocated,
            format!(
                "{} of {} contradict themselves (their blocks leave gaps, overlap or hold less than was asked for, \
                 or two lie in one place): no allocator wrote this, as if the file had been made up or scrambled",
                contradicting,
                counted(snapshot.segments.len() as u64, "segment")
            ),
        )
    })
}

/// The one of [`PACKAGES`] that the stacks name.
fn find_foreign_package(snapshot: &Snapshot) -> Option<&'static str> {
    let is_in = |file: &str, package: &str| file.split(['/', '\\']).any(|part| part == package);
    let mut frames = snapshot.stacks.all_frames();
    frames.find_map(|frame| {
        let file = snapshot.text(frame.file);
        FOREIGN_PACKAGES.into_iter().find(|package| file.contains(package) && is_in(file, package))
    })
}

/// `torch_npu` takes 32 bytes more than were asked for before it rounds.
fn looks_like_npu(snapshot: &Snapshot) -> bool {
    let rounded = |bytes: u64| bytes.checked_next_multiple_of(512);
    let mut telling = snapshot.blocks.iter().filter(|block| {
        block.state == BlockState::ActiveAllocated
            && block.size < MIB
            && rounded(block.requested_size) != rounded(block.requested_size.saturating_add(32))
    });
    let is_larger =
        |block: &Block| Some(block.size) == rounded(block.requested_size.saturating_add(32));
    telling.next().is_some_and(is_larger) && telling.all(is_larger)
}

/// How many segments cannot be as the file has them.
fn count_contradictory_segments(snapshot: &Snapshot) -> usize {
    let mut places: Vec<(u64, u64, u64, usize)> = Vec::with_capacity(snapshot.segments.len());
    let mut is_odd = vec![false; snapshot.segments.len()];
    for (index, segment) in snapshot.segments.iter().enumerate() {
        let end = segment.address.saturating_add(segment.total_size);
        places.push((segment.device, segment.address, end, index));
        is_odd[index] = !is_tiled(segment, snapshot.blocks_of(segment));
    }
    places.sort_unstable();
    for pair in places.windows(2) {
        if let [(device, _, end, _), (other, start, _, index)] = pair {
            is_odd[*index] |= device == other && start < end;
        }
    }
    is_odd.into_iter().filter(|odd| *odd).count()
}

/// Whether `blocks` fill `segment` without a gap, each as large as what was asked for at least.
fn is_tiled(segment: &Segment, blocks: &[Block]) -> bool {
    let mut next = segment.address;
    blocks.iter().all(|block| {
        let follows = block.address == next;
        next = next.saturating_add(block.size);
        follows && (block.state == BlockState::Inactive || block.requested_size <= block.size)
    }) && next == segment.address.saturating_add(segment.total_size)
}
