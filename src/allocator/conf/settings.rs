//! The knobs that decide how large a block and a segment become, and when memory is given back.

use crate::base::units::MIB;

/// Address space that one expandable segment reserves (`expandable_segments_reserve`, PyTorch 2.15).
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reserve {
    /// This part of the memory of the device; may be more than 1.
    Fraction(f64),
    /// This many bytes.
    Bytes(u64),
}

/// Allocator settings in effect. The defaults are PyTorch's.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::struct_excessive_bools, reason = "PyTorch's own switches, each independent")]
pub struct Settings {
    /// Blocks of this many bytes or more are never split; `u64::MAX` is PyTorch's "unlimited".
    pub max_split_size: u64,
    /// Bytes by which a block that may not be split can be larger than the request it serves
    /// (`max_non_split_rounding_mb`, PyTorch 2.6).
    pub max_non_split_rounding: u64,
    /// Part of the memory limit beyond which idle blocks are freed; 0 is never.
    pub garbage_collection_threshold: f64,
    /// Whether segments grow by mapping memory instead of being allocated whole.
    pub expandable_segments: bool,
    /// What an expandable segment reserves; `None` is 9/8 of the memory of the device.
    pub expandable_segments_reserve: Option<Reserve>,
    /// Divisions of each power of two that sizes are rounded up to, by size in MiB: index 0 for
    /// less than 2 MiB, 1 for [2, 4), ... 15 for 32 GiB and more. 0 is plain rounding to 512 bytes.
    pub roundup_power2_divisions: [u64; 16],
    /// Whether one division leaves a size unrounded, as up to PyTorch 2.3, or means plain rounding.
    pub one_division_is_exact: bool,
    /// Bytes of a segment for requests between 1 and 10 MiB, and the granule of large expandable
    /// segments (`large_segment_size_mb`, PyTorch 2.11).
    pub large_segment_size: u64,
    /// Part of the memory of the device that may be reserved; 1 is no limit
    /// (`per_process_memory_fraction`, PyTorch 2.10).
    pub per_process_memory_fraction: f64,
    /// Whether to fail before `cudaMalloc` when it would fail (PyTorch 2.12).
    pub throw_on_cudamalloc_oom: bool,
    /// Whether other threads may use the allocator during `cudaMalloc` (PyTorch 2.2).
    pub release_lock_on_cudamalloc: bool,
    /// Whether memory freed in a graph capture may be used again in it (PyTorch 2.9).
    pub graph_capture_record_stream_reuse: bool,
    /// Whether memory comes from `cudaMallocAsync`, to which no other setting applies.
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
