//! Which pool memory belongs to, in releases whose entries do not say (before 2.12).

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;

use super::calls::{is_growth, moves_memory};
use super::start::PoolIndex;
use crate::ids::PoolId;
use crate::snapshot::{Action, Event, Snapshot};

/// The pools of recorded memory as the trace goes on: a private pool is known from the segments that
/// are still there at the end; memory that is gone by then is taken to be of the default pool.
#[derive(Debug)]
pub(super) struct SegmentPools {
    /// Nothing to find out: entries say it, or there is but one pool.
    is_trivial: bool,
    /// The pool of the memory that each growing entry brought, if it was there at the end.
    survivors: FxHashMap<usize, PoolId>,
    /// Recorded memory now: address to (end, pool).
    live: BTreeMap<u64, (u64, PoolId)>,
}

impl SegmentPools {
    pub(super) fn new(snapshot: &Snapshot, device: usize) -> Self {
        let mut own = snapshot.segments.iter().filter(|s| s.device == device as u64);
        let is_trivial = own.all(|s| s.pool == PoolId::default());
        let mut pools = Self { is_trivial, survivors: FxHashMap::default(), live: BTreeMap::new() };
        if is_trivial {
            return pools;
        }
        let index = PoolIndex::of(snapshot, device as u64);
        let mut gone: BTreeMap<u64, u64> = BTreeMap::new();
        for row in snapshot.trace(device).rev() {
            if !snapshot.events.action(row).is_some_and(moves_memory) {
                continue;
            }
            let Some(event) = snapshot.events.get(row) else { continue };
            if is_growth(event.action) {
                // Expandable addresses stay with their pool as long as the reservation lives.
                let was_gone =
                    gone.remove(&event.addr).is_some() && event.action == Action::SegmentAlloc;
                if !was_gone {
                    pools.survivors.insert(row, index.run_of(&event).pool);
                }
            } else {
                gone.insert(event.addr, event.size);
            }
        }
        for segment in snapshot.segments.iter().filter(|s| s.device == device as u64) {
            let end = segment.address.saturating_add(segment.total_size);
            pools.live.insert(segment.address, (end, segment.pool));
        }
        pools
    }

    /// The pool of the memory that an entry names.
    #[inline]
    pub(super) fn of(&self, event: &Event) -> PoolId {
        match event.pool {
            Some(pool) => pool,
            None if self.is_trivial || event.action == Action::Oom => PoolId::default(),
            None => match self.live.range(..=event.addr).next_back() {
                Some((_, (end, pool))) if event.addr < *end => *pool,
                _ => PoolId::default(),
            },
        }
    }

    /// Takes note of an entry that moves memory.
    pub(super) fn apply(&mut self, row: usize, event: &Event) {
        if self.is_trivial || !is_growth(event.action) {
            return;
        }
        let pool = event.pool.or_else(|| self.survivors.get(&row).copied()).unwrap_or_default();
        self.live.insert(event.addr, (event.addr.saturating_add(event.size), pool));
    }
}
