//! Values that users choose for settings in practice, tried where a file does not record them.

use super::verification::Divergence;
use crate::base::units::MIB;

/// Percentages of the device, for `set_per_process_memory_fraction`.
pub(super) const MEMORY_FRACTION_PERCENTS: [u64; 24] =
    [100, 99, 98, 95, 92, 90, 88, 85, 80, 75, 70, 66, 65, 60, 55, 50, 45, 40, 33, 30, 25, 20, 15, 10];
/// For `roundup_power2_divisions`.
pub(super) const ROUNDUP_DIVISIONS: [u64; 8] = [0, 1, 2, 4, 8, 16, 32, 64];
/// For `max_split_size_mb`. vLLM sets 20, the minimum, while it loads weights.
const SPLIT_LIMITS_MIB: [u64; 27] = [
    20, 21, 24, 25, 28, 30, 32, 40, 48, 50, 60, 64, 80, 96, 100, 128, 160, 192, 200, 256, 300, 400, 512, 768, 1024,
    2048, 4096,
];
/// For `large_segment_size_mb` and `max_non_split_rounding_mb`.
pub(super) const LARGE_SEGMENT_SIZES_MIB: [u64; 8] = [20, 32, 40, 48, 64, 100, 128, 256];

/// Maximum split sizes in bytes, with those that the sizes at `divergence` suggest.
pub(super) fn split_limits(divergence: &Divergence) -> impl Iterator<Item = u64> + use<> {
    let sizes = [divergence.predicted.map(|entry| entry.size), divergence.recorded.map(|entry| entry.size)];
    let near = sizes.into_iter().flatten().flat_map(|size| [size / MIB, size / MIB + 1]);
    let near = near.filter(|mib| (21..u64::MAX / MIB).contains(mib));
    SPLIT_LIMITS_MIB.into_iter().chain(near).map(|mib| mib * MIB)
}
