//! The first difference between the model and a recording, and its cause.

use crate::allocator::{AllocatorEntry, ServedBy};
use crate::base::units::size;
use crate::snapshot::{Action, TraceEntry};

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
    /// The model made another decision; it served its last request in this way.
    Decision(ServedBy),
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
    /// One sentence: the difference and the rule in question.
    pub fn describe(&self) -> String {
        match self.fault {
            Fault::Decision(service) => self.describe_decision(service),
            Fault::UnknownFree => "the trace frees an address where nothing is allocated: entries are \
                missing or contradict each other"
                .to_owned(),
            Fault::UnknownCompletion => "the trace completes a free that was never requested: entries \
                are missing or contradict each other"
                .to_owned(),
            Fault::OverlappingSegment => {
                "the trace takes device memory that has no size, exceeds the address space or \
                 overlaps memory already taken"
                    .to_owned()
            }
            Fault::ImpossibleSize => "the trace has a request of a size that never reaches the allocator".to_owned(),
            Fault::Undefined(why) => why.to_owned(),
        }
    }

    fn describe_decision(&self, service: ServedBy) -> String {
        let Some(recorded) = &self.recorded else {
            return "the recording ends, but the model continues".to_owned();
        };
        let Some(predicted) = &self.predicted else {
            return format!("PyTorch recorded {} where the model had nothing left to do", recorded.action.name());
        };
        let describe_entry =
            |action: Action, addr: u64, bytes| format!("{} of {} at {addr:#x}", action.name(), size(bytes));
        let model = describe_entry(predicted.action, predicted.addr, predicted.size);
        let torch = describe_entry(recorded.action, recorded.addr, recorded.size);
        let rule = match (predicted.action, recorded.action) {
            (Action::Alloc, Action::Alloc) => {
                if predicted.addr == recorded.addr {
                    "the stream or the pool of the block"
                } else if service == ServedBy::Cached {
                    "the order in which free blocks are tried, or the size of an earlier split"
                } else {
                    "where new memory is used"
                }
            }
            (Action::Alloc, a) if a != Action::Alloc => {
                "whether a free block fits: its pool and stream, max_split_size and the rounding of sizes"
            }
            (a, Action::Alloc) if a != Action::Alloc => {
                "whether a free block fits: its pool and stream, max_split_size and the rounding of sizes"
            }
            (Action::SegmentFree | Action::SegmentUnmap, _) | (_, Action::SegmentFree | Action::SegmentUnmap) => {
                "which memory is released and when: garbage collection, process limits, pools still in \
                 use"
            }
            (Action::Oom, _) | (_, Action::Oom) => "whether the device had memory left",
            (Action::SegmentAlloc | Action::SegmentMap, _) => "the size of a segment and where it is mapped",
            _ => "the order of entries",
        };
        let doubt = if self.names_pools {
            ""
        } else {
            "; before PyTorch 2.12 entries do not name their pool, so memory of a private pool \
             that no longer exists at the end looks like the default pool's"
        };
        format!("the model chose {model}, PyTorch {torch}; rule in question: {rule}{doubt}")
    }
}
