//! The first difference between the model and a recording, and its cause.

use crate::allocator::AllocatorEntry;
use crate::base::units::{self, size};
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
        match self.fault {
            Fault::Decision => self.describe_decision(),
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

    fn describe_decision(&self) -> String {
        let Some(recorded) = &self.recorded else {
            return "the recording ends, but the model continues".to_owned();
        };
        let Some(predicted) = &self.predicted else {
            return format!("PyTorch recorded {} where the model had nothing left to do", recorded.action.word());
        };
        let is_same_stream = predicted.stream == recorded.stream;
        let describe_entry = |action: Action, addr: u64, bytes: u64, stream: u64| {
            let stream = if is_same_stream { String::new() } else { format!(" on stream {}", units::stream(stream)) };
            // The address of a failed request is the number of free bytes.
            let at = if action == Action::Oom { String::new() } else { format!(" at {addr:#x}") };
            format!("{} of {}{at}{stream}", action.word(), size(bytes))
        };
        let model = describe_entry(predicted.action, predicted.addr, predicted.size, predicted.stream);
        let torch = describe_entry(recorded.action, recorded.addr, recorded.size, recorded.stream);
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
