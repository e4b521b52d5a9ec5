//! Compares pools and streams.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::base::units::signed_difference;
use crate::study::memory::{MemoryReport, PoolReport, StreamReport};

/// The memory of a pool or stream (`u64`), or its change (`i64`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct MemoryUse<N> {
    /// Reserved bytes.
    pub reserved_bytes: N,
    /// Allocated bytes.
    pub allocated_bytes: N,
    /// Bytes in free blocks.
    pub inactive_bytes: N,
}

impl MemoryUse<u64> {
    fn change_to(self, after: Self) -> MemoryUse<i64> {
        MemoryUse {
            reserved_bytes: signed_difference(self.reserved_bytes, after.reserved_bytes),
            allocated_bytes: signed_difference(self.allocated_bytes, after.allocated_bytes),
            inactive_bytes: signed_difference(self.inactive_bytes, after.inactive_bytes),
        }
    }
}

/// A pool before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct PoolChange {
    /// The pool's id; (0, 0) is the default pool, all others are private (CUDA graphs, `MemPool`).
    pub pool_id: [u64; 2],
    /// Its memory before; all 0 if it did not exist.
    pub before: MemoryUse<u64>,
    /// Its memory after; all 0 if it did not exist.
    pub after: MemoryUse<u64>,
    /// `after` minus `before`.
    pub delta: MemoryUse<i64>,
}

/// A stream before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct StreamChange {
    /// The raw handle before; null if it exists only after.
    pub before_stream: Option<u64>,
    /// The raw handle after; null if it exists only before.
    pub after_stream: Option<u64>,
    /// Its memory before; all 0 if it did not exist.
    pub before: MemoryUse<u64>,
    /// Its memory after; all 0 if it did not exist.
    pub after: MemoryUse<u64>,
    /// `after` minus `before`.
    pub delta: MemoryUse<i64>,
}

fn pool_use(pool: &PoolReport) -> MemoryUse<u64> {
    MemoryUse {
        reserved_bytes: pool.reserved_bytes,
        allocated_bytes: pool.allocated_bytes,
        inactive_bytes: pool.inactive_bytes,
    }
}

fn stream_use(stream: &StreamReport) -> MemoryUse<u64> {
    MemoryUse {
        reserved_bytes: stream.reserved_bytes,
        allocated_bytes: stream.allocated_bytes,
        inactive_bytes: stream.inactive_bytes,
    }
}

/// All pools of both snapshots, by id.
pub(super) fn pools(sides: [&MemoryReport; 2]) -> Vec<PoolChange> {
    let mut by_id: BTreeMap<[u64; 2], [MemoryUse<u64>; 2]> = BTreeMap::new();
    for (side, memory) in sides.into_iter().enumerate() {
        for pool in &memory.pools {
            if let Some(space) = by_id.entry(pool.pool_id).or_default().get_mut(side) {
                *space = pool_use(pool);
            }
        }
    }
    let change = |(pool_id, [before, after]): ([u64; 2], [MemoryUse<u64>; 2])| PoolChange {
        pool_id,
        before,
        after,
        delta: before.change_to(after),
    };
    by_id.into_iter().map(change).collect()
}

/// All streams of both snapshots. A handle is an address and may differ from run to run, so handles of one snapshot
/// only are matched in the order of their reserved bytes.
pub(super) fn streams(sides: [&MemoryReport; 2]) -> Vec<StreamChange> {
    let [before, after] = sides.map(|memory| memory.streams.as_slice());
    let by_handle =
        [before, after].map(|side| side.iter().map(|s| (s.stream, s)).collect::<BTreeMap<u64, &StreamReport>>());
    let only = |own: &[StreamReport], other: &BTreeMap<u64, &StreamReport>| -> Vec<StreamReport> {
        let missing = |s: &&StreamReport| !other.contains_key(&s.stream);
        let mut only: Vec<StreamReport> = own.iter().filter(missing).cloned().collect();
        only.sort_by_key(|s| std::cmp::Reverse((s.reserved_bytes, s.allocated_bytes)));
        only
    };
    let mut pairs: Vec<[Option<StreamReport>; 2]> = Vec::new();
    for stream in before {
        let same = by_handle[1].get(&stream.stream);
        pairs.extend(same.map(|other| [Some(stream.clone()), Some((*other).clone())]));
    }
    let (gone, new) = (only(before, &by_handle[1]), only(after, &by_handle[0]));
    for row in 0..gone.len().max(new.len()) {
        pairs.push([gone.get(row).cloned(), new.get(row).cloned()]);
    }
    let change = |[before, after]: [Option<StreamReport>; 2]| {
        // A stream that one side lacks has no memory there.
        let space = |stream: &Option<StreamReport>| stream.as_ref().map(stream_use).unwrap_or_default();
        StreamChange {
            before_stream: before.as_ref().map(|s| s.stream),
            after_stream: after.as_ref().map(|s| s.stream),
            before: space(&before),
            after: space(&after),
            delta: space(&before).change_to(space(&after)),
        }
    };
    pairs.into_iter().map(change).collect()
}
