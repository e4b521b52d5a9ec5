//! Size rules: from a request to the size of its block and of its segment.

use std::ops::Range;

use crate::allocator::conf::Settings;
use crate::base::units::MIB;

/// `kMinBlockSize`
const MIN_BLOCK_SIZE: u64 = 512;
/// `kSmallSize`: the largest rounded request that the small pool serves.
const SMALL_SIZE: u64 = MIB;
/// `kSmallBuffer`: bytes of a segment, and of an expandable granule, in the small pool.
pub const SMALL_SEGMENT: u64 = 2 * MIB;
/// `kMinLargeAlloc`: from this size on, a segment is as large as the request.
const MIN_LARGE_ALLOC: u64 = 10 * MIB;
/// `kRoundLarge`: such segments are rounded up to multiples of this.
const ROUND_LARGE: u64 = 2 * MIB;

/// Sizes too large to round stay as they are: no device has so much memory.
fn round_up(n: u64, multiple: u64) -> u64 {
    n.checked_next_multiple_of(multiple).unwrap_or(n)
}

/// `round_size`: the minimum size of the block that serves a request of `n` bytes.
pub fn round_size(n: u64, settings: &Settings) -> u64 {
    if n < MIN_BLOCK_SIZE {
        return MIN_BLOCK_SIZE;
    }
    let log = n.ilog2();
    let bucket = log.saturating_sub(20).min(15) as usize;
    let divisions = settings.roundup_power2_divisions[bucket];
    let min_divisions = if settings.one_division_is_exact { 1 } else { 2 };
    if divisions < min_divisions || n <= MIN_BLOCK_SIZE.saturating_mul(divisions) {
        return round_up(n, MIN_BLOCK_SIZE);
    }
    if n.is_power_of_two() || divisions == 1 {
        return n;
    }
    let step = (1u64 << log) >> divisions.ilog2();
    round_up(n, step.max(1))
}

/// `get_pool`: whether the small pool serves a rounded request.
pub fn is_small_request(rounded: u64) -> bool {
    rounded <= SMALL_SIZE
}

/// `get_allocation_size`: the bytes to allocate from the device when no free block fits.
pub fn segment_size(rounded: u64, settings: &Settings) -> u64 {
    if is_small_request(rounded) {
        SMALL_SEGMENT
    } else if rounded < MIN_LARGE_ALLOC {
        settings.large_segment_size
    } else {
        round_up(rounded, ROUND_LARGE)
    }
}

/// The unit in which an expandable segment grows and shrinks.
pub fn granule_size(is_small: bool, settings: &Settings) -> u64 {
    if is_small { SMALL_SEGMENT } else { settings.large_segment_size.max(1) }
}

/// The maximum that the device may have to provide for a request: a segment, or whole granules if segments are
/// expandable.
pub fn max_growth(rounded: u64, settings: &Settings) -> u64 {
    let segment = segment_size(rounded, settings);
    if !settings.expandable_segments {
        return segment;
    }
    segment.max(round_up(rounded, granule_size(is_small_request(rounded), settings)))
}

/// Bytes of the whole granules in `size` bytes that start `offset` bytes after the start of a granule.
pub fn whole_granule_bytes(offset: u64, size: u64, granule: u64) -> u64 {
    let granules = whole_granules(&(offset..offset.saturating_add(size)), granule);
    granules.end - granules.start
}

/// The whole granules in `bytes`; offset 0 is the start of a granule.
pub fn whole_granules(bytes: &Range<u64>, granule: u64) -> Range<u64> {
    let from = bytes.start.div_ceil(granule).saturating_mul(granule);
    from..(bytes.end / granule * granule).max(from)
}

/// `should_split`: whether a free block is split so that `remaining` bytes stay free. In small pools and in
/// expandable segments (`splits_small`) any remainder of a minimal block is kept.
#[inline]
pub(super) fn should_split(rounded: u64, rest: u64, splits_small: bool, settings: &Settings) -> bool {
    if splits_small { rest >= MIN_BLOCK_SIZE } else { rounded < settings.max_split_size && rest > SMALL_SIZE }
}

/// Bytes of the block that a rounded request gets from a free block of `available` bytes: `rounded` if the
/// block is split, else all of it.
pub fn block_size(rounded: u64, available: u64, is_small_pool: bool, settings: &Settings) -> u64 {
    // In a damaged recording a block may be smaller than its request. It cannot be split.
    let Some(rest) = available.checked_sub(rounded) else { return available };
    let to_the_block = is_small_pool || settings.expandable_segments;
    if should_split(rounded, rest, to_the_block, settings) { rounded } else { available }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_to_512() {
        let plain = Settings::default();
        assert_eq!(round_size(1, &plain), 512);
        assert_eq!(round_size(513, &plain), 1024);
        assert_eq!(round_size(4_000_000, &plain), 4_000_256);
        assert_eq!(round_size(u64::MAX, &plain), u64::MAX);
    }

    #[test]
    fn rounds_to_divisions_of_a_power_of_two() {
        // PyTorch's notes round 1200 with 4 divisions up to 1280. Below 512 * divisions the code
        // rounds to 512 all the same.
        let four = Settings { roundup_power2_divisions: [4; 16], ..Settings::default() };
        assert_eq!(round_size(1200, &four), 1536);
        assert_eq!(round_size(1200 * 1024, &four), 1280 * 1024);
        assert_eq!(round_size(1 << 21, &four), 1 << 21);
    }

    #[test]
    fn one_division_is_exact_in_old_releases() {
        let new = Settings { roundup_power2_divisions: [1; 16], ..Settings::default() };
        let old = Settings { one_division_is_exact: true, ..new.clone() };
        assert_eq!(round_size(1_000_001, &new), 1_000_448);
        assert_eq!(round_size(1_000_001, &old), 1_000_001);
    }

    #[test]
    fn segments_have_three_sizes() {
        let plain = Settings::default();
        assert_eq!(segment_size(MIB, &plain), 2 * MIB);
        assert_eq!(segment_size(MIB + 512, &plain), 20 * MIB);
        assert_eq!(segment_size(10 * MIB, &plain), 10 * MIB);
        assert_eq!(segment_size(10 * MIB + 512, &plain), 12 * MIB);
    }

    #[test]
    fn a_small_remainder_stays_with_its_block() {
        let plain = Settings::default();
        assert_eq!(block_size(5 * MIB, 6 * MIB, false, &plain), 6 * MIB);
        assert_eq!(block_size(5 * MIB, 6 * MIB + 512, false, &plain), 5 * MIB);
        assert_eq!(block_size(512, 1024, true, &plain), 512);
        let limited = Settings { max_split_size: 5 * MIB, ..plain };
        assert_eq!(block_size(5 * MIB, 20 * MIB, false, &limited), 20 * MIB);
    }
}
