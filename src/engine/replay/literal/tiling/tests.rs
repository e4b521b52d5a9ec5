//! Free memory by kind, kept entry by entry, equals a count over every block.

use proptest::prelude::*;

use super::{FreeKinds, NONE, Tile, Tiling, Tracking};
use crate::allocator::conf::Settings;
use crate::allocator::{DeviceRange, granule_size, whole_granule_bytes};
use crate::base::ids::{PoolId, StackId};
use crate::base::input::Source;
use crate::base::units::MIB;
use crate::replay::literal::{LiteralReplay, recorded_settings};
use crate::snapshot::{BlockState, Snapshot};

/// Counts segment by segment, by the rule for a snapshot.
fn count_free_kinds(tiling: &Tiling) -> FreeKinds {
    let mut kinds = FreeKinds::default();
    let live = tiling.by_addr.values().map(|id| &tiling.tiles[*id as usize]);
    for first in live.filter(|tile| tile.prev == NONE) {
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
                    let granule = granule_size(stream_pool.is_small, &tiling.settings);
                    whole_granule_bytes(tile.addr - first.addr, tile.size, granule)
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
fn free_kinds_of_recordings_equal_a_full_count() {
    let mut entries = 0;
    let mut peaks = FreeKinds::default();
    for file in std::fs::read_dir("../../fixtures").unwrap() {
        let path = file.unwrap().path();
        if path.extension().is_none_or(|ending| ending != "gz") {
            continue;
        }
        let snapshot = Snapshot::read(&Source::open(&path).unwrap(), &|_| {}).unwrap();
        let settings = recorded_settings(&snapshot);
        for device in snapshot.devices() {
            LiteralReplay { device, settings: &settings, settings_changes: &[] }.run(Tracking::FreeKinds, |step| {
                entries += 1;
                let kinds = step.tiling.free_kinds().unwrap();
                if entries % 37 == 0 {
                    assert_eq!(kinds, count_free_kinds(step.tiling), "{} {:?}", path.display(), step.at);
                }
                peaks = FreeKinds {
                    releasable: peaks.releasable.max(kinds.releasable),
                    stranded: peaks.stranded.max(kinds.stranded),
                    private_free: peaks.private_free.max(kinds.private_free),
                    private_reserved: peaks.private_reserved.max(kinds.private_reserved),
                    largest: peaks.largest.max(kinds.largest),
                };
            });
        }
    }
    assert!(entries > 100_000, "{entries}");
    assert!(peaks.releasable > 0 && peaks.stranded > 0 && peaks.private_free > 0, "{peaks:?}");
}

/// One entry on segments of 20 MiB, or on granules of expandable memory.
#[derive(Debug, Clone)]
enum Action {
    Add(u64, u8),
    Remove(u64, u8),
    Alloc(u64, u64),
    Free(u64),
}

const GRANULES: u64 = 6;

/// Granule `n` of one of four pools. It does not start at a multiple of its size.
fn range(n: u64, stream_pool: u8) -> DeviceRange {
    let is_expandable = stream_pool < 3;
    DeviceRange {
        addr: (u64::from(stream_pool) * 1000 + 2 + 20 * n) * MIB,
        size: 20 * MIB,
        pool: PoolId(u32::from(stream_pool == 2)),
        stream: u64::from(stream_pool == 1),
        is_small: false,
        is_expandable,
    }
}

fn place() -> impl Strategy<Value = (u64, u8)> {
    (0..GRANULES, 0..4u8)
}

fn addr() -> impl Strategy<Value = u64> {
    (place(), 0..5u64).prop_map(|((n, stream_pool), part)| range(n, stream_pool).addr + part * 4 * MIB)
}

fn action() -> impl Strategy<Value = Action> {
    prop_oneof![
        2 => place().prop_map(|(n, stream_pool)| Action::Add(n, stream_pool)),
        2 => place().prop_map(|(n, stream_pool)| Action::Remove(n, stream_pool)),
        4 => (addr(), 1..40u64).prop_map(|(addr, n)| Action::Alloc(addr, n * MIB)),
        4 => addr().prop_map(Action::Free),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn free_kinds_of_random_entries_equal_a_full_count(ops in prop::collection::vec(action(), 1..200)) {
        let settings = Settings { expandable_segments: true, ..Settings::default() };
        let mut tiling = Tiling::new(settings, Tracking::FreeKinds);
        for stream_pool in 0..4 {
            for n in 0..GRANULES {
                let _ = tiling.add_range(range(n, stream_pool));
            }
        }
        for op in ops {
            // Entries that contradict the state are refused, or applied as far as possible.
            let _ = match op {
                Action::Add(n, stream_pool) => tiling.add_range(range(n, stream_pool)),
                Action::Remove(n, 3) if n % 2 == 0 => tiling.free_segment(range(n, 3).addr),
                Action::Remove(n, 3) => tiling.unmap(range(n, 3).addr + 8 * MIB, 4 * MIB), // nonsense
                Action::Remove(n, stream_pool) => tiling.unmap(range(n, stream_pool).addr, 20 * MIB),
                // Outside every segment it would add memory of its own, which has no granules.
                Action::Alloc(addr, _) if tiling.tile_containing(addr).is_none() => Ok(()),
                Action::Alloc(addr, size) => tiling.alloc(addr, size, StackId::default(), 0),
                Action::Free(addr) => tiling.free_completed(addr),
            };
            prop_assert_eq!(tiling.free_kinds().unwrap(), count_free_kinds(&tiling));
        }
    }
}
