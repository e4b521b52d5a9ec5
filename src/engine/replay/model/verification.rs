//! The result of a verification, and the first difference between the model and a recording with its cause.

use crate::allocator::{AllocatorEntry, BlockView, CachingAllocator, DeviceRange};
use crate::base::units::{self, size};
use crate::snapshot::{Action, Block, BlockState, Device, Segment, TraceEntry};

/// The model compared with a recording, entry by entry.
#[derive(Debug, Clone, Default)]
pub struct Verification {
    /// The recording begins with an empty allocator.
    pub starts_empty: bool,
    /// Bytes reserved before the first entry.
    pub reserved_before: u64,
    /// Initial blocks that lie in no segment or overlap another block.
    pub misplaced_blocks: usize,
    /// Number of recorded entries.
    pub recorded: usize,
    /// Number of entries that the model wrote, up to the first divergence.
    pub predicted: usize,
    /// Number of equal entries, up to the first divergence.
    pub matched: usize,
    pub divergence: Option<Divergence>,
    /// Number of entries with an earlier time than the entry before.
    pub time_reversals: usize,
    /// Number of operations that the trace allows to interpret in several ways. Counters such as `num_alloc_retries`
    /// may be off by as much.
    pub ambiguous_ops: usize,
    /// The model's state after the last operation.
    pub allocator: CachingAllocator,
}

impl Verification {
    /// Whether every entry was reproduced.
    pub fn is_exact(&self) -> bool {
        self.divergence.is_none() && self.matched == self.recorded
    }
}

/// Receives every entry that the model writes, with the recorded time of its operation in microseconds.
pub type EntrySink<'a> = dyn FnMut(&AllocatorEntry, u64) + 'a;

#[derive(Debug, Clone)]
pub struct Divergence {
    pub entry_index: usize,
    /// The model's entry; `None` if it wrote none.
    pub predicted: Option<AllocatorEntry>,
    /// The recorded entry; `None` after the end of the trace.
    pub recorded: Option<TraceEntry>,
    pub fault: Fault,
    /// Whether the release names the pool of every entry.
    pub names_pools: bool,
    /// Garbage collection released memory in this operation of the model.
    pub has_collected: bool,
}

/// The cause of a divergence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The model made another decision.
    Decision,
    /// The trace frees an address where nothing is allocated.
    UnknownFree,
    /// The trace completes a free that is not pending.
    UnknownCompletion,
    /// The trace takes device memory that cannot be: empty, beyond the address space, or overlapping.
    OverlappingSegment,
    /// A request that PyTorch's allocator never sees.
    ImpossibleSize,
    /// PyTorch's own behaviour is undefined from here on.
    Undefined(&'static str),
}

impl Divergence {
    /// One sentence.
    pub fn describe(&self) -> String {
        let why = match self.fault {
            Fault::Decision => return self.describe_decision(),
            Fault::UnknownFree => {
                "the trace frees an address where nothing is allocated: entries are missing or contradict each other"
            }
            Fault::UnknownCompletion => {
                "the trace completes a free that was never requested: entries are missing or contradict each other"
            }
            Fault::OverlappingSegment => {
                "the trace takes device memory that has no size, exceeds the address space or \
                 overlaps memory already taken"
            }
            Fault::ImpossibleSize => "the trace has a request of a size that never reaches the allocator",
            Fault::Undefined(why) => why,
        };
        why.to_owned()
    }

    fn describe_decision(&self) -> String {
        let Some(recorded) = &self.recorded else {
            return "the recording ends, but the model continues".to_owned();
        };
        let Some(predicted) = &self.predicted else {
            return format!("PyTorch recorded {} where the model had nothing left to do", recorded.action.word());
        };
        let is_same_stream = predicted.stream == recorded.stream;
        let entries = [
            (predicted.action, predicted.addr, predicted.size, predicted.stream),
            (recorded.action, recorded.addr, recorded.size, recorded.stream),
        ];
        let [model, torch] = entries.map(|(action, addr, bytes, stream)| {
            let stream = if is_same_stream { String::new() } else { format!(" on stream {}", units::stream(stream)) };
            // The address of a failed request is the number of free bytes.
            let at = if action == Action::Oom { String::new() } else { format!(" at {addr:#x}") };
            format!("{} of {}{at}{stream}", action.word(), size(bytes))
        });
        let pool =
            if recorded.pool.is_some_and(|pool| pool != predicted.pool) { " in another memory pool" } else { "" };
        let doubt = if self.names_pools {
            ""
        } else {
            "; before PyTorch 2.12 entries do not name their pool, so memory of a private pool \
             that no longer exists at the end looks like the default pool's"
        };
        format!("the model chose {model}, PyTorch {torch}{pool}{doubt}")
    }
}

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
