//! The tables of pools and of streams, for the page and the Markdown.

use super::words::pool;
use crate::memory::Memory;
use crate::units::{counted, size, stream};

/// A header and its rows.
pub(super) type Cells = (Vec<&'static str>, Vec<Vec<String>>);

/// Where the column of pending bytes stands.
const PENDING: usize = 3;

/// A row a pool.
pub(super) fn pools(memory: &Memory) -> Cells {
    let row = |p: &crate::memory::PoolReport| {
        vec![
            pool(p.pool_id),
            size(p.reserved_bytes),
            size(p.allocated_bytes),
            size(p.pending_bytes),
            size(p.inactive_bytes),
            counted(p.streams.len() as u64, "stream"),
        ]
    };
    let header = vec!["pool", "reserved", "allocated", "pending", "free", "used by"];
    let is_pending = memory.pools.iter().any(|p| p.pending_bytes > 0);
    telling((header, memory.pools.iter().map(row).collect()), is_pending)
}

/// A row a stream.
pub(super) fn streams(memory: &Memory) -> Cells {
    let row = |s: &crate::memory::StreamReport| {
        vec![
            stream(s.stream),
            size(s.reserved_bytes),
            size(s.allocated_bytes),
            size(s.pending_bytes),
            size(s.inactive_bytes),
            size(s.largest_free_block_bytes),
        ]
    };
    let header = vec!["stream", "reserved", "allocated", "pending", "free", "largest free block"];
    let is_pending = memory.streams.iter().any(|s| s.pending_bytes > 0);
    telling((header, memory.streams.iter().map(row).collect()), is_pending)
}

/// Leaves the pending bytes out where there are none.
fn telling((mut header, mut rows): Cells, is_pending: bool) -> Cells {
    if !is_pending {
        header.remove(PENDING);
        for row in &mut rows {
            row.remove(PENDING);
        }
    }
    (header, rows)
}
