//! The settings that decide sizes of blocks and segments, and when memory is released.

use crate::base::units::MIB;

/// Address space that an expandable segment reserves (`expandable_segments_reserve`, PyTorch 2.15).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reserve {
    /// A fraction of the device's memory; may exceed 1.
    Fraction(f64),
    /// A fixed number of bytes, whatever the size of the device.
    Bytes(u64),
}

/// Allocator settings in effect. The defaults are PyTorch's.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "PyTorch's own switches, each independent")]
pub struct Settings {
    /// Blocks of this many bytes or more are never split; `u64::MAX` is "unlimited".
    pub max_split_size: u64,
    /// A block that is never split serves a request only if it is less than this many bytes larger
    /// (`max_non_split_rounding_mb`, PyTorch 2.6).
    pub max_non_split_rounding: u64,
    /// Fraction of the memory limit beyond which unused cached blocks are released; 0 is never.
    pub garbage_collection_threshold: f64,
    /// Whether new segments are address ranges into which memory is mapped as needed.
    pub expandable_segments: bool,
    /// `None` is 9/8 of the device's memory.
    pub expandable_segments_reserve: Option<Reserve>,
    /// Divisions of each power of two to which sizes are rounded up: index 0 for sizes below 2 MiB, 1 for
    /// [2, 4) MiB, ... 15 for 32 GiB and more. 0 divisions is plain rounding to 512 bytes.
    pub roundup_power2_divisions: [u64; 16],
    /// Whether one division leaves sizes unrounded (up to PyTorch 2.3). Otherwise it means plain rounding.
    pub one_division_is_exact: bool,
    /// Bytes of a segment for requests between 1 and 10 MiB, and the granule of large expandable
    /// segments (`large_segment_size_mb`, PyTorch 2.11).
    pub large_segment_size: u64,
    /// Fraction of the device's memory that may be reserved; 1 is no limit (PyTorch 2.10).
    pub per_process_memory_fraction: f64,
    /// Whether a request above `per_process_memory_fraction` fails before `cudaMalloc` (PyTorch 2.12).
    pub throw_on_cudamalloc_oom: bool,
    /// Whether other threads may use the allocator during `cudaMalloc` (PyTorch 2.2).
    pub release_lock_on_cudamalloc: bool,
    /// Whether memory freed in a graph capture may be reused in it (PyTorch 2.9).
    pub graph_capture_record_stream_reuse: bool,
    /// Whether the backend is `cudaMallocAsync`, which ignores all other settings.
    pub backend_is_async: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_split_size: u64::MAX,
            max_non_split_rounding: 20 * MIB,
            garbage_collection_threshold: 0.0,
            expandable_segments: false,
            expandable_segments_reserve: None,
            roundup_power2_divisions: [0; 16],
            one_division_is_exact: false,
            large_segment_size: 20 * MIB,
            per_process_memory_fraction: 1.0,
            throw_on_cudamalloc_oom: false,
            release_lock_on_cudamalloc: false,
            graph_capture_record_stream_reuse: false,
            backend_is_async: false,
        }
    }
}
