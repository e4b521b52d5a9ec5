//! Reading PyTorch's memory snapshots.
//!
//! [`Snapshot::read`] takes the bytes of `torch.cuda.memory._dump_snapshot()` (a pickle of any protocol, from Python
//! or from PyTorch's C++ pickler), a JSON dump of the same structure, or the bare list of segments of
//! `torch.cuda.memory_snapshot()`, from any release since 1.5. It returns segments, blocks, trace entries, stacks and
//! settings as tables. Values that a release does not record are absent, never guessed; unknown keys become a
//! [`crate::base::warning::Warning`].
//!
//! The room reports what the file contains, even if it is implausible. It does not know the allocator's rules. It
//! infers two things only: the range of releases that write such a file, and the caller of an autograd thread.

mod column;
mod contents;
mod decode;
mod device;
mod dry_run;
mod error;
mod extended_stacks;
mod frame_lists;
mod json;
mod keys;
mod memory_budget;
#[doc(hidden)]
pub mod pickle;
mod recorder_info;
mod segments;
mod serving;
mod settings;
mod sleep;
mod source_files;
mod stacks;
mod tensor_names;
mod torch_range;
mod trace;

use crate::base::input::{looks_like_log, read_pieces};
pub use column::{Column, Numbers};
pub use contents::{Pools, Snapshot};
pub use device::Device;
pub use dry_run::{
    DryRun, EXIT_CODE, OTHER_BRANCHES, ProcessEnd, ProcessError, ReadUsage, ReadValue, RecordedFailure, TextLength,
    UnsizedWork, ValueRead, Workspace,
};
pub use error::SnapshotError;
pub use frame_lists::FrameIds;
pub use recorder_info::{ObservedFailure, RecorderDevice, RecorderInfo};
pub use segments::{Block, Blocks, Segment, Segments};
pub use serving::Serving;
pub use settings::RawSettings;
pub use sleep::{RecordedSleep, SleepCall, SleepChange, SleepSegment};
pub use source_files::SourceFiles;
pub use stacks::{ExtendedStack, Frame, Stacks};
pub use tensor_names::{
    Author, BackwardCall, LocalTensor, NameRoot, NamedContainer, NamedModule, NamedTensor, RootKind, TensorKind,
    TensorNames, WriteKind, tensor_bytes,
};
pub use torch_range::TorchRange;
pub use trace::{Annotation, TraceEntries, TraceEntry};

pub use crate::allocator::trace_action::{Action, BlockState};
pub use crate::base::input::Source;

/// Files that are given in place of a snapshot: the offset of the magic number, the number, and what to do instead.
const OTHER_KINDS: [(usize, &[u8], &str); 6] = [
    (
        0,
        b"PK\x03\x04",
        "a zip archive, as torch.save writes: give the file that torch.cuda.memory._dump_snapshot() wrote",
    ),
    (0, b"version https://git-lfs", "a pointer of Git LFS in place of the snapshot: `git lfs pull` fetches that"),
    (0, b"\x1f\x8b", "compressed twice: decompress it once with gunzip"),
    (0, b"\x28\xb5\x2f\xfd", "compressed twice: decompress it once with unzstd"),
    (0, b"\x89PNG", "an image: give the file that torch.cuda.memory._dump_snapshot() wrote"),
    (257, b"ustar", "a tar archive: unpack it first"),
];

impl Snapshot {
    /// Reads a compressed pickle while it is decompressed, so that it is never in memory as a whole. `progress` is called
    /// with numbers of further bytes of `stored`. `None` if `stored` is anything else or has an error: see
    /// [`Snapshot::read`].
    pub fn read_compressed(stored: &[u8], progress: &(dyn Fn(u64) + Sync)) -> Option<Self> {
        read_pieces(stored, progress, |pieces| {
            let mut pieces = pieces.peekable();
            let is_pickle = matches!(pieces.peek(), Some(Ok(first)) if pickle::looks_like_pickle(first));
            is_pickle.then(|| decode::read_pieces(&mut pieces))?
        })?
    }

    /// Reads a snapshot. `progress` is called with the offset from time to time.
    ///
    /// # Errors
    /// If the bytes are not a snapshot, or a damaged one. The message names the position.
    pub fn read(bytes: &[u8], progress: &dyn Fn(u64)) -> Result<Self, SnapshotError> {
        let mut other_kinds = OTHER_KINDS.iter();
        let other = other_kinds.find(|(at, magic, _)| bytes.get(*at..).is_some_and(|it| it.starts_with(magic)));
        match (bytes.iter().find(|b| !b.is_ascii_whitespace()), other) {
            (None, _) => Err(SnapshotError::Empty),
            _ if pickle::looks_like_pickle(bytes) => decode::read(bytes, progress),
            (Some(b'{' | b'['), _) if !looks_like_log(bytes) => json::read(bytes),
            (_, Some((.., kind))) => Err(SnapshotError::OtherKind(kind)),
            _ => decode::read(bytes, progress),
        }
    }
}
