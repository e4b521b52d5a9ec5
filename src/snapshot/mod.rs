//! What a memory snapshot says: segments, blocks, trace entries, stacks and settings, in columns.
//!
//! [`Snapshot::read`] takes the bytes of `torch.cuda.memory._dump_snapshot()` (a pickle of any
//! protocol, from Python or from PyTorch's C++ pickler), a JSON dump of the same structure, or the
//! bare list of segments of `torch.cuda.memory_snapshot()`. Every release since 1.5 is read; what a
//! release does not record is absent here, never made up, and what is not known is named in a
//! [`crate::base::warning::Warning`].
//!
//! This room reports what was written, including nonsense. It knows nothing of the allocator's
//! policy, and derives nothing but the range of releases that write these keys and, from entries around
//! it, who called the thread that made an allocation.

mod column;
mod contents;
mod decode;
mod device;
mod dry_run;
mod error;
mod json;
mod keys;
mod makers;
pub mod pickle;
#[cfg(debug_assertions)]
mod reads;
mod recorded;
mod segments;
mod settings;
mod stacks;
mod trace;
mod version;

pub use column::Column;
pub use contents::{Pools, Snapshot};
pub use device::Device;
pub use dry_run::{DryRun, Unsized, ValueRead, Workspace};
pub use error::SnapshotError;
#[cfg(debug_assertions)]
pub use reads::reads;
pub use recorded::{Recorded, RecordedDevice};
pub use segments::{Block, Blocks, Segment, Segments};
pub use settings::RawSettings;
pub use stacks::{Frame, Maker, Stacks};
pub use trace::{Annotation, TraceEntries, TraceEntry};
pub use version::TorchRange;

pub use crate::allocator::trace_action::{Action, BlockState};

impl Snapshot {
    /// Reads a snapshot; `progress` is told the offset now and then.
    ///
    /// # Errors
    /// When the bytes are no snapshot or a damaged one: one sentence that names the place.
    pub fn read(bytes: &[u8], progress: &dyn Fn(u64)) -> Result<Self, SnapshotError> {
        let first = bytes.iter().copied().find(|b| !b.is_ascii_whitespace());
        match first {
            None => Err(SnapshotError::Empty),
            Some(b'{' | b'[') if !pickle::looks_like_pickle(bytes) => json::read(bytes),
            Some(_) if bytes.starts_with(b"PK\x03\x04") => Err(SnapshotError::Zip),
            Some(_) => decode::read(bytes, progress),
        }
    }
}
