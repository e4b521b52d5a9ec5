//! Free memory by kind, kept entry by entry, is what a look at every block finds.

use proptest::prelude::*;

use super::{FreeKinds, Keep, NONE, Run, Tile, Tiling};
use crate::allocator::conf::Settings;
use crate::allocator::{granule, whole_granules};
use crate::base::ids::{PoolId, StackId};
use crate::base::input::Source;
use crate::base::units::MIB;
use crate::replay::facts::{Literal, settings_of};
use crate::snapshot::{BlockState, Snapshot};

/// By the rule at a snapshot, a segment (a chain of tiles) at a time.
fn scan(tiling: &Tiling) -> FreeKinds {
    let mut kinds = FreeKinds::default();
    let live = || tiling.by_addr.values().map(|id| &tiling.tiles[*id as usize]);
    for first in live().filter(|tile| tile.prev == NONE) {
        let stream_pool = tiling.stream_pools[first.stream_pool as usize];
        let mut chain: Vec<&Tile> = vec![first];
        while let Some(next) = tiling.tile(chain[chain.len() - 1].next) {
            chain.push(next);
        }
        for tile in &chain {
            let is_private = stream_pool.pool != PoolId::default();
            if is_private {
                kinds.private_reserved += tile.size;
            }
            if tile.state != BlockState::Inactive {
                continue;
            }
            kinds.largest = kinds.largest.max(tile.size);
            let releasable = match (is_private, tile.is_expandable) {
                (true, _) => 0,
                (_, true) => {
                    let granule = granule(stream_pool.is_small, &tiling.settings);
                    whole_granules(tile.addr - first.addr, tile.size, granule)
                }
                _ if chain.len() == 1 => tile.size,
                _ => 0,
            };
            kinds.releasable += releasable;
            kinds.stranded += tile.size - releasable;
            if is_private {
                kinds.private_free += tile.size;
            }
        }
    }
    kinds
}

#[test]
fn recordings() {
    let mut entries = 0;
    let mut most = FreeKinds::default();
    for file in std::fs::read_dir("fixtures").unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "gz") {
            continue;
        }
        let snapshot = Snapshot::read(&Source::open(&path).unwrap(), &|_| {}).unwrap();
        let settings = settings_of(&snapshot);
        for device in snapshot.devices() {
            Literal { device, settings: &settings, later: &[] }.run(Keep::Kinds, |step| {
                entries += 1;
                let kinds = step.tiling.free_kinds().unwrap();
                if entries % 37 == 0 {
                    assert_eq!(kinds, scan(step.tiling), "{} {:?}", path.display(), step.entry);
                }
                most = FreeKinds {
                    releasable: most.releasable.max(kinds.releasable),
                    stranded: most.stranded.max(kinds.stranded),
                    private_free: most.private_free.max(kinds.private_free),
                    private_reserved: most.private_reserved.max(kinds.private_reserved),
                    largest: most.largest.max(kinds.largest),
                };
            });
        }
    }
    assert!(entries > 100_000, "{entries}");
    assert!(most.releasable > 0 && most.stranded > 0 && most.private_free > 0, "{most:?}");
}

/// One entry on segments of 20 MiB, or on granules of expandable memory.
#[derive(Debug, Clone)]
enum Op {
    Grow(u64, u8),
    Shrink(u64, u8),
    Alloc(u64, u64),
    Free(u64),
}

const GRANULES: u64 = 6;

/// Where granule `n` of one of four pools begins: not on a multiple of its size.
fn run(n: u64, stream_pool: u8) -> Run {
    let is_expandable = stream_pool < 3;
    Run {
        addr: (u64::from(stream_pool) * 1000 + 2 + 20 * n) * MIB,
        size: 20 * MIB,
        pool: PoolId(u32::from(stream_pool == 2)),
        stream: u64::from(stream_pool == 1),
        is_small: false,
        is_expandable,
    }
}

fn op() -> impl Strategy<Value = Op> {
    let place = || (0..GRANULES, 0..4u8);
    let addr = || {
        (place(), 0..5u64)
            .prop_map(|((n, stream_pool), part)| run(n, stream_pool).addr + part * 4 * MIB)
    };
    prop_oneof![
        2 => place().prop_map(|(n, stream_pool)| Op::Grow(n, stream_pool)),
        2 => place().prop_map(|(n, stream_pool)| Op::Shrink(n, stream_pool)),
        4 => (addr(), 1..40u64).prop_map(|(addr, n)| Op::Alloc(addr, n * MIB)),
        4 => addr().prop_map(Op::Free),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_entries(ops in prop::collection::vec(op(), 1..200)) {
        let settings = Settings { expandable_segments: true, ..Settings::default() };
        let mut tiling = Tiling::new(settings, Keep::Kinds);
        for stream_pool in 0..4 {
            for n in 0..GRANULES {
                let _ = tiling.grow(run(n, stream_pool));
            }
        }
        for op in ops {
            // Entries that do not fit are refused, or applied as far as they can be.
            let _ = match op {
                Op::Grow(n, stream_pool) => tiling.grow(run(n, stream_pool)),
                Op::Shrink(n, 3) if n % 2 == 0 => tiling.free_segment(run(n, 3).addr),
                Op::Shrink(n, 3) => tiling.unmap(run(n, 3).addr + 8 * MIB, 4 * MIB), // nonsense
                Op::Shrink(n, stream_pool) => tiling.unmap(run(n, stream_pool).addr, 20 * MIB),
                // What lies in no segment would bring memory of its own, which has no granules.
                Op::Alloc(addr, _) if tiling.around(addr).is_none() => Ok(()),
                Op::Alloc(addr, size) => tiling.alloc(addr, size, StackId::default(), 0),
                Op::Free(addr) => tiling.free_completed(addr),
            };
            prop_assert_eq!(tiling.free_kinds().unwrap(), scan(&tiling));
        }
    }
}
