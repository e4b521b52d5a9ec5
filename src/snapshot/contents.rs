//! Everything that one file says.

use std::ops::Range;

use super::recorded::Recorded;
use super::segments::{Block, Blocks, Segment, Segments};
use super::settings::RawSettings;
use super::stacks::Stacks;
use super::trace::{Annotation, TraceEntries};
use super::version::TorchRange;
use crate::base::ids::{PoolId, SymbolId};
use crate::base::intern::{Slices, Symbols};
use crate::base::units::escape_name;
use crate::base::warning::Warnings;

/// Everything one file says.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Every distinct string.
    pub symbols: Symbols,
    /// Every distinct frame and stack.
    pub stacks: Stacks,
    /// The trace entries of all devices, each device's in one run of rows: see [`Device`](super::Device).
    pub entries: TraceEntries,
    /// The rows of each device's trace entries, oldest first.
    pub traces: Vec<Range<usize>>,
    /// Memory that the allocator holds from the device, by device.
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
    /// The releases that write these keys and have the lines of PyTorch's own code that the stacks name.
    pub torch: TorchRange,
    /// The releases that write these keys.
    pub torch_by_keys: TorchRange,
    /// What the recorder of `oomscope run` knew besides, if it took the snapshot.
    pub recorded: Option<Recorded>,
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
    /// The blocks of `segment`, in address order.
    pub fn blocks_of(&self, segment: &Segment) -> &[Block] {
        self.blocks.get(segment.blocks.clone()).unwrap_or_default()
    }

    /// The release that wrote it: as recorded, or as far as the file tells.
    pub fn torch_version(&self) -> String {
        let recorded = self.recorded.as_ref().and_then(Recorded::release);
        recorded.map_or_else(|| self.torch.to_string(), escape_name)
    }

    /// `PYTORCH_CUDA_ALLOC_CONF` as the allocator read it last, or as the recorder found it in the environment.
    pub fn settings_string(&self) -> Option<&str> {
        let recorded =
            self.recorded.as_ref().map(|it| it.alloc_conf.as_deref().unwrap_or_default());
        self.settings.as_ref().map(|raw| raw.string.as_str()).or(recorded)
    }

    /// The text of `id`.
    pub fn text(&self, id: SymbolId) -> &str {
        self.symbols.get(id)
    }
}
