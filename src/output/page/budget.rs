//! Pages of a size that browsers open at once: where a recording has too many allocations, the smallest and shortest
//! ones are left out, and told as one sum over time.

use super::allocations::{Allocation, Lifetimes};
use super::columns::Column;
use super::header::Undrawn;

/// The most bytes of base64 that one device has.
const PAGE: usize = 12 << 20;
/// The most that all devices of a file have together.
const FILE: usize = 64 << 20;
/// What each has in any case.
const LEAST: usize = 128 << 10;
/// Moments at which what is left out is told.
const MOMENTS: usize = 1024;

/// How many bytes of deflated data one of so many `devices` may have.
pub fn budget(devices: usize) -> usize {
    (FILE / devices.max(1)).clamp(LEAST, PAGE) / 4 * 3
}

/// What is left out.
pub(super) struct LeftOut {
    pub(super) told: Undrawn,
    /// Its bytes over time: of each stretch of moments the most.
    pub(super) series: Vec<u8>,
}

impl Lifetimes {
    /// Keeps `keep` of the allocations, those of most bytes times entries.
    pub(super) fn leave_out(&mut self, keep: usize, entries: u32) -> Option<LeftOut> {
        let weight = |one: &Allocation| {
            let end = one.done.unwrap_or(entries.saturating_add(1));
            u128::from(one.bytes) * u128::from(end.saturating_sub(one.start).max(1))
        };
        let mut weights: Vec<u128> = self.allocations.iter().map(weight).collect();
        let cut = weights.len().checked_sub(keep).filter(|cut| *cut > 0)?;
        let (_, least, _) = weights.select_nth_unstable(cut - 1);
        let least = *least;
        let (mut left, mut sums) = (0, vec![0_i128; entries as usize + 2]);
        self.allocations.retain(|one| {
            let is_left_out = weight(one) <= least;
            if is_left_out {
                left += 1;
                let end = one.done.unwrap_or(entries + 1);
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
            .chunks(held.len().div_ceil(MOMENTS).max(1))
            .map(|chunk| chunk.iter().copied().max().unwrap_or(0))
            .collect();
        let bytes_at_most = series.iter().copied().max().unwrap_or(0);
        let told = Undrawn { allocations: left, bytes_at_most };
        Some(LeftOut { told, series: series.into_iter().collect::<Column>().bytes })
    }
}
