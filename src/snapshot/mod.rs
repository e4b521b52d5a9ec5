//! What a memory snapshot says: segments, blocks, trace entries, stacks and settings, in columns.
//!
//! [`Snapshot::read`] takes the bytes of `torch.cuda.memory._dump_snapshot()` (a pickle of any
//! protocol, from Python or from PyTorch's C++ pickler), a JSON dump of the same structure, or the
//! bare list of segments of `torch.cuda.memory_snapshot()`. Every release since 1.5 is read; what a
//! release does not record is absent here, never made up, and what is not known is named in a
//! [`crate::notice::Warning`].
//!
//! This room reports what was written, including nonsense. It knows nothing of the allocator's
//! policy, and derives nothing but the range of releases that write these keys.

mod column;
mod decode;
mod device;
mod error;
mod json;
mod keys;
mod segments;
mod settings;
mod stacks;
mod trace;
mod version;

use std::ops::Range;

pub use column::Column;
pub use device::Device;
pub use error::SnapshotError;
pub use segments::{Block, Blocks, Segment, Segments};
pub use settings::RawSettings;
pub use stacks::{Frame, Stacks};
pub use trace::{Annotation, TraceEntries, TraceEntry};
pub use version::TorchRange;

use crate::ids::{PoolId, SymbolId};
use crate::intern::{Slices, Symbols};
use crate::notice::Warnings;
use crate::pickle;
pub use crate::terms::{Action, BlockState};

/// Everything one file says.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Every distinct string.
    pub symbols: Symbols,
    /// Every distinct frame and stack.
    pub stacks: Stacks,
    /// The trace entries of all devices, each device's in one run of rows: see [`Device`].
    pub entries: TraceEntries,
    /// The rows of each device's trace entries, oldest first.
    pub traces: Vec<Range<usize>>,
    /// Memory that the allocator holds from the device.
    pub segments: Segments,
    /// The blocks of all segments.
    pub blocks: Blocks,
    /// Distinct pool ids; row 0 is the default pool.
    pub pools: Pools,
    /// `allocator_settings`, where the release writes them.
    pub settings: Option<RawSettings>,
    /// `external_annotations`: the beginnings and ends of named phases.
    pub annotations: Vec<Annotation>,
    /// Sizes in bytes of pinned host segments, where they were recorded.
    pub host_segments: Vec<u64>,
    /// The releases that write these keys.
    pub torch: TorchRange,
    /// What was odd about the file.
    pub warnings: Warnings,
}

/// Distinct pool ids of the allocator, (0, 0) first.
#[derive(Debug)]
pub struct Pools(Slices<u64>);

impl Default for Pools {
    fn default() -> Self {
        let mut pools = Self(Slices::default());
        pools.intern([0, 0]);
        pools
    }
}

impl Pools {
    /// The default pool, (0, 0).
    pub const DEFAULT: PoolId = PoolId(0);

    /// The row of pool `id`, which is added if it is new.
    #[inline]
    pub fn intern(&mut self, id: [u64; 2]) -> PoolId {
        if id == [0, 0] && !self.0.is_empty() {
            return Self::DEFAULT;
        }
        PoolId(self.0.intern(&id))
    }

    /// The two numbers of a pool id.
    pub fn get(&self, pool: PoolId) -> [u64; 2] {
        match self.0.get(pool.0) {
            [a, b] => [*a, *b],
            _ => [0, 0],
        }
    }
}

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

    /// The blocks of `segment`, in address order.
    pub fn blocks_of(&self, segment: &Segment) -> &[Block] {
        self.blocks.get(segment.blocks.clone()).unwrap_or_default()
    }

    /// The text of `id`.
    pub fn text(&self, id: SymbolId) -> &str {
        self.symbols.get(id)
    }
}
