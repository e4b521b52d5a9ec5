//! The requests of a trace in order, with what is freed after each.

use super::call_sites::CallSites;
use crate::allocator::conf::Settings;
use crate::allocator::round_size;
use crate::base::ids::to_u32;
use crate::base::intern::SeededMap;
use crate::base::pages;
use crate::snapshot::{Action, Device, TraceEntry};

/// A request, counted from 0.
pub type RequestId = usize;

/// [`Requests::freed_after`] of a block that stays.
pub const NEVER: u32 = u32::MAX;

/// Sizes are multiples of this.
const BLOCK: u64 = 512;

/// The requests of a trace up to one of them. Earlier failed requests are left out. Sizes are rounded to 512 bytes.
#[derive(Debug, Default)]
pub struct Requests {
    sites: Vec<u32>,
    rows: Vec<Row>,
}

/// A request, without its call site.
#[derive(Debug)]
struct Row {
    /// In blocks of 512 bytes.
    size: u32,
    /// The trace entry.
    entry: u32,
    /// The last request before the block is freed, or [`NEVER`].
    freed_after: u32,
    /// Live bytes before the request beyond those before the first, in blocks of 512 bytes.
    live_before: i64,
}

impl Requests {
    /// The requests of `device` up to the last one at or before entry `end`, or all.
    pub(super) fn from_trace(device: Device<'_>, end: Option<usize>, sites: &mut CallSites) -> Self {
        let snapshot = device.snapshot();
        let settings = Settings::default();
        let mut requests = Self::default();
        let mut just_freed = None;
        let mut live_requests: SeededMap<u64, u32> = SeededMap::default();
        let mut live = 0i64;
        let last = end.map_or(device.len(), |end| (end + 1).min(device.len()));
        pages::reserve(&mut requests.sites, last);
        pages::reserve(&mut requests.rows, last);
        for index in 0..last {
            // Only requests need the other columns.
            let TraceEntry { action, addr, size: bytes, .. } = device.entry(index);
            let freed_before = just_freed.take();
            match action {
                Action::Oom if end == Some(index) => {}
                // Most frees complete at once.
                Action::FreeCompleted if freed_before == Some(addr) => continue,
                Action::FreeRequested => just_freed = Some(addr),
                Action::Alloc | Action::FreeCompleted => {}
                _ => continue,
            }
            if bytes == 0 {
                continue; // no request
            }
            if matches!(action, Action::Alloc | Action::Oom) {
                let TraceEntry { stack, stream, pool, .. } = device.entry(index);
                let size = rounded_blocks(bytes, &settings);
                requests.sites.push(sites.site(snapshot, stack, stream, pool.unwrap_or_default()));
                if action == Action::Alloc {
                    live_requests.insert(addr, to_u32(requests.rows.len()));
                }
                requests.rows.push(Row { size, entry: to_u32(index), freed_after: NEVER, live_before: live });
                live += i64::from(size);
            } else if let Some(request) = live_requests.remove(&addr) {
                let last = to_u32(requests.rows.len() - 1);
                let row = &mut requests.rows[request as usize];
                row.freed_after = last;
                live -= i64::from(row.size);
            } else if action == Action::FreeRequested {
                // A block that is older than the trace.
                live -= i64::from(rounded_blocks(bytes, &settings));
            }
        }
        requests
    }

    /// The requests up to entry `end`; `None` if those are all.
    pub(super) fn up_to(mut self, end: usize) -> Option<Self> {
        let len = self.rows.partition_point(|row| row.entry as usize <= end);
        if len == self.count() {
            return None;
        }
        self.sites.truncate(len);
        self.rows.truncate(len);
        for row in self.rows.iter_mut().filter(|row| row.freed_after as usize >= len) {
            row.freed_after = NEVER;
        }
        Some(self)
    }

    /// The number of requests.
    pub fn count(&self) -> usize {
        self.rows.len()
    }

    /// The call site of `request`.
    pub fn site(&self, request: RequestId) -> u32 {
        self.sites[request]
    }

    /// The call site of each request.
    pub fn sites(&self) -> &[u32] {
        &self.sites
    }

    /// The rounded bytes of `request`.
    pub fn bytes(&self, request: RequestId) -> u64 {
        u64::from(self.rows[request].size) * BLOCK
    }

    /// The trace entry of `request`.
    pub fn entry(&self, request: RequestId) -> usize {
        self.rows[request].entry as usize
    }

    /// Live bytes before `request`, beyond those before the first.
    pub fn live_before(&self, request: RequestId) -> i64 {
        self.rows[request].live_before.saturating_mul(BLOCK.cast_signed())
    }

    /// The last request before the block of `request` is freed, or [`NEVER`].
    pub fn freed_after(&self, request: RequestId) -> u32 {
        self.rows[request].freed_after
    }

    /// Whether the block of `request` is still live when `later` is made.
    pub fn is_live_at(&self, request: RequestId, later: RequestId) -> bool {
        self.freed_after(request) as usize >= later
    }

    /// A number for each distinct pair of call site and size, by request.
    pub(super) fn sites_with_sizes(&self) -> Vec<u32> {
        let mut numbers: SeededMap<(u32, u32), u32> = SeededMap::default();
        let by_request = self.sites.iter().zip(&self.rows).map(|(site, row)| {
            let next = to_u32(numbers.len());
            *numbers.entry((*site, row.size)).or_insert(next)
        });
        by_request.collect()
    }
}

/// The size of the block for a request, in blocks of 512 bytes.
fn rounded_blocks(bytes: u64, settings: &Settings) -> u32 {
    to_u32(usize::try_from(round_size(bytes, settings) / BLOCK).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Requests {
        /// Requests for 512 bytes at every tenth entry, whose blocks stay.
        pub(in crate::study::iterations) fn of_one_site(count: u32) -> Self {
            let rows = (0..count).map(|index| Row {
                size: 1,
                entry: index * 10,
                freed_after: NEVER,
                live_before: i64::from(index),
            });
            Self { sites: vec![0; count as usize], rows: rows.collect() }
        }
    }

    #[test]
    fn blocks_that_are_freed_later_are_live_at_an_earlier_end() {
        for (end, expected) in [(5, Some(vec![1, NEVER])), (4, Some(vec![NEVER])), (8, None)] {
            let rows = [(3, 1), (5, 2), (8, NEVER)];
            let rows = rows.map(|(entry, freed_after)| Row { size: 1, entry, freed_after, live_before: 0 });
            let requests = Requests { sites: vec![0; 3], rows: rows.into_iter().collect() };
            let rest = requests.up_to(end);
            assert_eq!(rest.map(|rest| rest.rows.iter().map(|row| row.freed_after).collect::<Vec<_>>()), expected);
        }
    }
}
