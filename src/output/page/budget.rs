//! Limits the size of a page so that browsers open it quickly. Omits the smallest and shortest allocations of a large
//! recording and keeps their sum over time.

use super::allocations::{PageAllocation, PageLifetimes};
use super::columns::Column;
use super::header::Undrawn;

/// Maximum bytes of base64 for one device.
const MAX_DEVICE_BASE64: usize = 12 << 20;
/// Maximum bytes of base64 for all devices of a file.
const MAX_FILE_BASE64: usize = 64 << 20;
/// Minimum for each device, even if that exceeds the limit of the file.
const MIN_DEVICE_BASE64: usize = 128 << 10;
/// Number of buckets of the sum of omitted allocations.
const SERIES_LEN: usize = 1024;

/// The budget of one of `devices` devices, in bytes of deflated data.
pub fn budget(devices: usize) -> usize {
    (MAX_FILE_BASE64 / devices.max(1)).clamp(MIN_DEVICE_BASE64, MAX_DEVICE_BASE64) / 4 * 3
}

/// The omitted allocations.
pub(super) struct Omitted {
    pub(super) summary: Undrawn,
    /// Their bytes over time, the maximum of each bucket.
    pub(super) series: Vec<u8>,
}

impl PageLifetimes {
    /// Keeps the `keep` allocations with the largest product of bytes and lifetime.
    pub(super) fn omit_smallest(&mut self, keep: usize, entries: u32) -> Option<Omitted> {
        let weight = |one: &PageAllocation| {
            let end = one.reusable_at.unwrap_or(entries.saturating_add(1));
            u128::from(one.bytes) * u128::from(end.saturating_sub(one.start).max(1))
        };
        let mut weights: Vec<u128> = self.allocations.iter().map(weight).collect();
        let cut = weights.len().checked_sub(keep).filter(|cut| *cut > 0)?;
        let (_, threshold, _) = weights.select_nth_unstable(cut - 1);
        let threshold = *threshold;
        let (mut left, mut sums) = (0, vec![0_i128; entries as usize + 2]);
        self.allocations.retain(|one| {
            let is_left_out = weight(one) <= threshold;
            if is_left_out {
                left += 1;
                let end = one.reusable_at.unwrap_or(entries + 1);
                sums[one.start as usize] += i128::from(one.bytes);
                sums[end as usize] -= i128::from(one.bytes);
            }
            !is_left_out
        });
        let mut sum = 0_i128;
        let held: Vec<u64> = sums
            .iter()
            .take(entries as usize + 1)
            .map(|change| {
                sum += change;
                u64::try_from(sum).unwrap_or(u64::MAX)
            })
            .collect();
        let series: Vec<u64> = held
            .chunks(held.len().div_ceil(SERIES_LEN).max(1))
            .map(|chunk| chunk.iter().copied().fold(0, u64::max))
            .collect();
        let bytes_at_most = series.iter().copied().fold(0, u64::max);
        let summary = Undrawn { allocations: left, bytes_at_most };
        Some(Omitted { summary, series: series.into_iter().collect::<Column>().bytes })
    }
}
