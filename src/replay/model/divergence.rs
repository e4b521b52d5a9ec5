//! Where the model diverges from a recording, and why.

use crate::allocator::{AllocatorEntry, ServedBy};
use crate::base::units::size;
use crate::snapshot::{Action, TraceEntry};

/// The first difference between the model and a recording.
#[derive(Debug, Clone)]
pub struct Divergence {
    /// Index of the entry in the device's trace.
    pub entry_index: usize,
    /// What the model wrote, if anything.
    pub predicted: Option<AllocatorEntry>,
    /// What was recorded; nothing after the end.
    pub recorded: Option<TraceEntry>,
    /// What it comes from.
    pub fault: Fault,
    /// Whether the release names the pool of every entry.
    pub names_pools: bool,
    /// Whether garbage collection gave memory back in this call.
    pub has_collected: bool,
}

/// What a divergence comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The model decided otherwise, having served the request in this way.
    Decision(ServedBy),
    /// A free of an address where nothing is allocated.
    UnknownFree,
    /// A completed free of an address where no free is pending.
    UnknownCompletion,
    /// A segment where another one is.
    OverlappingSegment,
    /// A request that PyTorch's allocator never sees.
    ImpossibleSize,
    /// From here on PyTorch's own behaviour is not defined.
    Undefined(&'static str),
}

impl Divergence {
    /// One sentence: what differs and which rule is in question.
    pub fn describe(&self) -> String {
        match self.fault {
            Fault::Decision(service) => self.describe_decision(service),
            Fault::UnknownFree => {
                "the trace frees an address where nothing is allocated: entries are \
                missing or contradict each other"
                    .to_owned()
            }
            Fault::UnknownCompletion => {
                "the trace completes a free that was never requested: entries \
                are missing or contradict each other"
                    .to_owned()
            }
            Fault::OverlappingSegment => {
                "the trace takes device memory that has no size, exceeds the address space or \
                 overlaps memory already taken"
                    .to_owned()
            }
            Fault::ImpossibleSize => {
                "the trace has a request of a size that never reaches the allocator".to_owned()
            }
            Fault::Undefined(why) => why.to_owned(),
        }
    }

    fn describe_decision(&self, service: ServedBy) -> String {
        let Some(recorded) = &self.recorded else {
            return "the recording ends, but the model continues".to_owned();
        };
        let Some(predicted) = &self.predicted else {
            return format!(
                "PyTorch recorded {} where the model had nothing left to do",
                recorded.action.name()
            );
        };
        let what = |action: Action, addr: u64, bytes| {
            format!("{} of {} at {addr:#x}", action.name(), size(bytes))
        };
        let model = what(predicted.action, predicted.addr, predicted.size);
        let torch = what(recorded.action, recorded.addr, recorded.size);
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
            (Action::SegmentFree | Action::SegmentUnmap, _)
            | (_, Action::SegmentFree | Action::SegmentUnmap) => {
                "what is given back and when: garbage collection, process limits, pools still in \
                 use"
            }
            (Action::Oom, _) | (_, Action::Oom) => "whether the device had memory left",
            (Action::SegmentAlloc | Action::SegmentMap, _) => {
                "the size of a segment and where it is mapped"
            }
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
