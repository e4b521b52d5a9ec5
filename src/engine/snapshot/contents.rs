//! The contents of a snapshot file.

use std::ops::Range;

use super::recorder_info::RecorderInfo;
use super::segments::{Block, Blocks, Segment, Segments};
use super::settings::RawSettings;
use super::source_files::SourceFiles;
use super::stacks::Stacks;
use super::tensor_names::TensorNames;
use super::torch_range::TorchRange;
use super::trace::{Annotation, TraceEntries};
use crate::base::ids::{FrameId, PoolId, SymbolId};
use crate::base::intern::{Slices, Symbols};
use crate::base::units::escape_name;
use crate::base::warning::Warnings;

/// The contents of a snapshot file.
#[derive(Debug, Default)]
pub struct Snapshot {
    /// Every distinct string.
    pub symbols: Symbols,
    /// Every distinct frame and stack.
    pub stacks: Stacks,
    /// The trace entries of all devices. The entries of one device are consecutive: see [`Device`](super::Device).
    pub entries: TraceEntries,
    /// For each device, the rows of its trace entries, oldest first.
    pub traces: Vec<Range<usize>>,
    /// All segments, sorted by device.
    pub segments: Segments,
    /// The blocks of all segments.
    pub blocks: Blocks,
    /// Distinct pool ids; row 0 is the default pool.
    pub pools: Pools,
    /// `allocator_settings`, if the release writes them.
    pub settings: Option<RawSettings>,
    /// `external_annotations`: starts and ends of named phases.
    pub annotations: Vec<Annotation>,
    /// Sizes in bytes of pinned host segments, if recorded.
    pub host_segments: Vec<u64>,
    /// The releases that may have written the file, by its keys and by the lines of PyTorch's own code in its stacks.
    pub torch: TorchRange,
    /// The releases that may have written the file, by its keys alone.
    pub torch_by_keys: TorchRange,
    /// Information from the recorder of `oomscope run`, if it took the snapshot.
    pub recorder_info: Option<RecorderInfo>,
    /// The variables that keep memory alive, if the recorder looked for them.
    pub tensor_names: Option<TensorNames>,
    /// Text of the program's files: what the recorder stored, and what a command has read.
    pub source: SourceFiles,
    /// Problems that did not prevent reading.
    pub warnings: Warnings,
}

/// Distinct pool ids, (0, 0) first.
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

    /// The row of pool `id`; adds it if it is new.
    #[inline]
    pub fn intern(&mut self, id: [u64; 2]) -> PoolId {
        if id == [0, 0] && !self.0.is_empty() {
            return Self::DEFAULT;
        }
        PoolId(self.0.intern(&id))
    }

    /// The two numbers of a pool's id.
    pub fn get(&self, pool: PoolId) -> [u64; 2] {
        self.0.get(pool.0).try_into().unwrap_or_default()
    }

    /// The same as text.
    pub fn label(&self, pool: PoolId) -> String {
        let [first, second] = self.get(pool);
        format!("{first}:{second}")
    }
}

impl Snapshot {
    /// The blocks of `segment`, in address order.
    pub fn blocks_of(&self, segment: &Segment) -> &[Block] {
        segment.blocks_in(&self.blocks)
    }

    /// The release that wrote the file: as the recorder noted it, or else the inferred range.
    pub fn torch_version(&self) -> String {
        self.recorder_info.as_ref().and_then(RecorderInfo::release).map_or_else(|| self.torch.to_string(), escape_name)
    }

    /// `PYTORCH_CUDA_ALLOC_CONF` as the allocator parsed it last, or as the recorder found it in the environment.
    pub fn settings_string(&self) -> Option<&str> {
        // A recorder that found no variable knows that there are no options; without a recorder nobody knows.
        let recorded = self.recorder_info.as_ref().map(|it| it.alloc_conf.as_deref().unwrap_or_default());
        self.settings.as_ref().map(|raw| raw.string.as_str()).or(recorded)
    }

    /// The file and the function of frame `id`, which must belong to this snapshot.
    pub fn frame_text(&self, id: FrameId) -> (&str, &str) {
        let frame = self.stacks.frame(id);
        (self.text(frame.file), self.text(frame.name))
    }

    /// The string `id`, which must belong to this snapshot.
    pub fn text(&self, id: SymbolId) -> &str {
        self.symbols.get(id)
    }
}
