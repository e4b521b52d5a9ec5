//! From the bytes a program asks for to the bytes of a block and of a segment.

use std::ops::Range;

use crate::allocator::conf::Settings;
use crate::base::units::MIB;

/// All sizes are rounded to at least this (`kMinBlockSize`).
const MIN_BLOCK: u64 = 512;
/// The largest rounded request that the small pool serves (`kSmallSize`).
const SMALL_SIZE: u64 = MIB;
/// Bytes of a small pool's segment and expandable granule (`kSmallBuffer`).
pub const SMALL_SEGMENT: u64 = 2 * MIB;
/// From here on a segment is as large as the request (`kMinLargeAlloc`).
const MIN_LARGE_ALLOC: u64 = 10 * MIB;
/// To multiples of this (`kRoundLarge`).
const ROUND_LARGE: u64 = 2 * MIB;

fn round_up(n: u64, multiple: u64) -> u64 {
    n.checked_next_multiple_of(multiple).unwrap_or(n)
}

/// The bytes a request of `n` takes at least (`round_size`).
pub fn round_size(n: u64, settings: &Settings) -> u64 {
    if n < MIN_BLOCK {
        return MIN_BLOCK;
    }
    let log = n.ilog2();
    let bucket = log.saturating_sub(20).min(15) as usize;
    let divisions = settings.roundup_power2_divisions.get(bucket).copied().unwrap_or(0);
    let least = if settings.one_division_is_exact { 1 } else { 2 };
    if divisions < least || n <= MIN_BLOCK.saturating_mul(divisions) {
        return round_up(n, MIN_BLOCK);
    }
    if n.is_power_of_two() || divisions == 1 {
        return n;
    }
    let step = (1u64 << log) >> divisions.ilog2();
    round_up(n, step.max(1))
}

/// Whether a rounded request is served by the small pool (`get_pool`).
pub fn is_small_request(rounded: u64) -> bool {
    rounded <= SMALL_SIZE
}

/// The bytes asked of the device when no cached block fits (`get_allocation_size`).
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
pub fn granule(is_small: bool, settings: &Settings) -> u64 {
    if is_small { SMALL_SEGMENT } else { settings.large_segment_size.max(1) }
}

/// The most that is taken from the device for a request: a segment; an expandable one grows by whole
/// granules.
pub fn most_taken(rounded: u64, settings: &Settings) -> u64 {
    let segment = segment_size(rounded, settings);
    if !settings.expandable_segments {
        return segment;
    }
    segment.max(round_up(rounded, granule(is_small_request(rounded), settings)))
}

/// Bytes of the whole granules in `size` bytes that begin `offset` bytes after the beginning of one.
pub fn whole_granules(offset: u64, size: u64, granule: u64) -> u64 {
    let whole = granules_in(&(offset..offset.saturating_add(size)), granule);
    whole.end - whole.start
}

/// The whole granules in `bytes`, which count from the beginning of one.
pub fn granules_in(bytes: &Range<u64>, granule: u64) -> Range<u64> {
    let from = bytes.start.div_ceil(granule).saturating_mul(granule);
    from..(bytes.end / granule * granule).max(from)
}

/// Whether the `rest` of a free block is worth keeping apart from a rounded request (`should_split`):
/// `to_the_block` in a small pool and where segments are expandable.
#[inline]
pub(super) fn leaves_a_block(
    rounded: u64,
    rest: u64,
    to_the_block: bool,
    settings: &Settings,
) -> bool {
    if to_the_block {
        rest >= MIN_BLOCK
    } else {
        rounded < settings.max_split_size && rest > SMALL_SIZE
    }
}

/// The bytes that a rounded request gets of a free block of `available` bytes: the request, when the
/// rest is worth keeping apart, else the whole block.
pub fn block_size(rounded: u64, available: u64, is_small_pool: bool, settings: &Settings) -> u64 {
    let Some(rest) = available.checked_sub(rounded) else { return available };
    let to_the_block = is_small_pool || settings.expandable_segments;
    if leaves_a_block(rounded, rest, to_the_block, settings) { rounded } else { available }
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
        // Appendix of PyTorch's notes: 1200 with 4 divisions lies between 1024 and 2048 -> 1280; but
        // below 512 * divisions plain rounding stays.
        let four = Settings { roundup_power2_divisions: [4; 16], ..Settings::default() };
        assert_eq!(round_size(1200, &four), 1536);
        assert_eq!(round_size(1200 * 1024, &four), 1280 * 1024);
        assert_eq!(round_size(1 << 21, &four), 1 << 21);
    }

    #[test]
    fn one_division_changed_its_meaning() {
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
    fn a_small_rest_stays_with_its_block() {
        let plain = Settings::default();
        assert_eq!(block_size(5 * MIB, 6 * MIB, false, &plain), 6 * MIB);
        assert_eq!(block_size(5 * MIB, 6 * MIB + 512, false, &plain), 5 * MIB);
        assert_eq!(block_size(512, 1024, true, &plain), 512);
        let limited = Settings { max_split_size: 5 * MIB, ..plain };
        assert_eq!(block_size(5 * MIB, 20 * MIB, false, &limited), 20 * MIB);
    }
}
